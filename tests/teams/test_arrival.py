"""What came from another library counts from its arrival here, whatever time its commit or its
archive says.
"""

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from remote_place import Machine, make_hub
from talks import Talk

from evolvable_store.bundle.export import export_json
from evolvable_store.bundle.import_ import import_json
from evolvable_store.resource import Ref
from evolvable_store.storage import connection
from evolvable_tools.outcomes.ingest import record_uses

pytestmark = pytest.mark.process

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
DAY = timedelta(days=1)
PDF = Ref.parse("pdf")


def set_clock(machine: Machine, moment: datetime) -> None:
    machine.store.clock = lambda: moment


@pytest.fixture
def ada(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "ada", make_hub(tmp_path / "hub"))


@pytest.fixture
def ben(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "ben", tmp_path / "hub")


def pulled(ada: Machine, ben: Machine) -> None:
    ada.push()
    ben.pull()


def imported(ada: Machine, ben: Machine) -> None:
    archive = io.BytesIO()
    export_json(ada.store, archive)
    archive.seek(0)
    import_json(ben.store, archive)


def version_at(machine: Machine, moment: datetime) -> int | None:
    """The version of a session that began then, as the session's use is recorded."""
    skills = machine.home.parent / f"{machine.home.name}-user/.claude/skills"
    if not skills.exists():
        machine.library.working_copies.check_out(skills)
    found = record_uses(
        machine.library, Talk(f"at {moment}", start=moment).loaded("pdf").session, home=None
    ).observations
    return found[0].version if found else None


@pytest.mark.parametrize("bring", [pulled, imported])
@pytest.mark.parametrize("dated", [-7 * DAY, -2 * DAY, timedelta(0), 7 * DAY, 400 * DAY])
def test_a_session_of_yesterday_keeps_its_version_whatever_time_an_arriving_one_has(
    ada: Machine, ben: Machine, bring: Callable[[Machine, Machine], None], dated: timedelta
) -> None:
    set_clock(ada, NOW - 8 * DAY)
    set_clock(ben, NOW - 5 * DAY)
    ada.put("pdf", "one\n")
    bring(ada, ben)
    set_clock(ada, NOW + dated)
    set_clock(ben, NOW)
    ada.put("pdf", "two\n")
    bring(ada, ben)

    assert ben.text("pdf") == "two\n" and ben.store.head(PDF).version == 2
    assert version_at(ben, NOW - DAY) == 1
    assert version_at(ben, NOW + DAY) == 2
    assert version_at(ben, NOW - 6 * DAY) is None, "it was not here"
    newest, *_ = ben.store.history(ben.store.head(PDF))
    assert newest.operation.at[:10] == (NOW + dated).date().isoformat(), (
        "a person reads the time of the change"
    )


def test_the_order_of_the_library_decides_where_the_clock_went_ahead_and_came_back(
    ben: Machine,
) -> None:
    set_clock(ben, NOW)
    ben.put("pdf", "one\n")
    set_clock(ben, NOW + 30 * DAY)
    ben.put("pdf", "two\n")
    set_clock(ben, NOW + timedelta(hours=1))
    ben.put("csv", "another\n")
    assert version_at(ben, NOW + timedelta(minutes=30)) == 1
    assert version_at(ben, NOW + timedelta(hours=2)) == 2


def test_what_a_program_before_the_time_of_arrival_took_in_has_the_time_that_it_says(
    ada: Machine, ben: Machine
) -> None:
    set_clock(ada, NOW - 3 * DAY)
    set_clock(ben, NOW)
    ada.put("pdf", "one\n")
    imported(ada, ben)
    assert version_at(ben, NOW - 2 * DAY) is None
    with ben.store.backend.writing() as db:  # type: ignore[attr-defined]
        assert isinstance(db, connection.dbapi.Connection)
        db.execute("UPDATE operation SET arrived_at = NULL")
    assert version_at(ben, NOW - 2 * DAY + timedelta(seconds=1)) == 1
