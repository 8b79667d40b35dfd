"""Evidence in the library file: brought in by a migration, kept by backup and gc, carried by an
archive, checked.
"""

import io
import json
from pathlib import Path

import pytest
from older_store import as_older
from postgres_place import ON_SQLITE
from samples import skill

from evolvable_store.bundle.export import backup, export_json
from evolvable_store.bundle.import_ import import_json
from evolvable_store.errors import InvalidArchive, NoSuchUse
from evolvable_store.fsck import check_library
from evolvable_store.gc import collect
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage import migrations
from evolvable_store.storage.evidence import (
    Grade,
    Outcome,
    ReportedOutcome,
    SuccessCounts,
    Usage,
    Use,
    add_client_session,
)
from evolvable_store.storage.impression_log import ImpressionLog
from evolvable_store.storage.observations import (
    Impression,
    IngestedSession,
    OutcomeSignal,
    UsageObservation,
)
from evolvable_store.store import Store

AT = "2026-11-20T12:00:00.000000Z"
REPORTED = Grade.REPORTED
SIGNAL = OutcomeSignal("tests", Outcome.SUCCEEDED, 7, 1)


@pytest.fixture
def told(store: Store, put) -> Store:
    """A library with one of everything, about two skills."""
    for name in ("pdf", "csv"):
        put(name, name)
    log, (csv, pdf) = store.backend.evidence, [head.id for head in store.heads()]
    log.add_use(Use("use-1", AT, pdf, 1, "search-1", "s1"))
    told = ReportedOutcome(
        AT,
        pdf,
        1,
        Outcome.SUCCEEDED,
        "use-1",
        Usage.USED,
        "forms",
        "seen",
        "s1",
        "agent",
        REPORTED,
        "s1",
    )
    log.add_outcome(told)
    log.add_outcome(ReportedOutcome(AT, csv, 1, Outcome.FAILED))
    rows = ImpressionLog(store.backend)
    rows.note([Impression("search-1", pdf, 1, AT, "s1"), Impression("search-1", csv, 1, AT)])
    rows.note([Impression("search-1", pdf, 1, AT)])
    rows.close()
    with store.backend.writing() as db:
        add_client_session(db, "s2", "client-2", AT)
        add_client_session(db, "s3", "client-3", AT)
    sighting = UsageObservation(
        pdf, 1, AT, True, True, ("skill",), Outcome.SUCCEEDED, "large", (SIGNAL,)
    )
    store.backend.observations.take(
        IngestedSession("s2", "codex", "d", 9, AT, "large", Outcome.SUCCEEDED, (SIGNAL,)),
        [sighting],
    )
    store.backend.observations.take(
        IngestedSession("s3", "codex", "e", 9, AT, None, Outcome.FAILED), []
    )
    return store


def state(store: Store) -> object:
    """Everything that is known, by names instead of ids."""
    names = {head.id: head.name for head in store.heads()}
    log = store.backend.observations
    return (
        [
            (names[one.resource], one.version, one.key, one.outcome, one.used, one.model)
            for one in store.backend.evidence.list_attempts()
        ],
        {
            names[resource]: seen
            for resource, seen in store.backend.evidence.count_impressions("").items()
        },
        {
            names[resource]: proof
            for resource, proof in store.backend.evidence.count_successes(names).items()
        },
        *(
            store.backend.evidence.baseline_successes(),
            log.ingested_session("s2"),
            log.ingested_session("s3"),
            log.sightings("s2")[0].signals,
        ),
    )


def archive(store: Store, *refs: str) -> bytes:
    file = io.BytesIO()
    export_json(store, file, [Ref.parse(ref) for ref in refs] or None)
    return file.getvalue()


def test_what_was_noted_is_there_once(told: Store) -> None:
    pdf = told.head(Ref.parse("pdf")).id

    assert told.backend.evidence.count_successes([pdf]) == {pdf: SuccessCounts(2, 2)}
    assert told.backend.evidence.count_impressions("")[pdf].times == 1
    assert told.backend.evidence.baseline_successes() == SuccessCounts(1, 0)


@ON_SQLITE
def test_backup_and_gc_keep_it_and_fsck_finds_it_sound(told: Store, tmp_path: Path) -> None:
    before = state(told)
    collect(told)
    backup(told, tmp_path / "copy")

    assert check_library(told).faults == ()
    with Store.open(tmp_path / "copy") as copy:
        assert state(copy) == state(told) == before


def test_an_archive_carries_it_as_history_that_counts_nothing_and_taking_it_in_again_adds_nothing(
    told: Store, tmp_path: Path
) -> None:
    data = archive(told)
    with Store.open(tmp_path / "other", create=True) as other:
        with other.transaction(Actor.HUMAN, "so that ids differ") as tx:
            tx.put(Ref.parse("first"), skill("first"))
        import_json(other, io.BytesIO(data))
        for _ in range(2):
            (pdf, csv) = (other.head(Ref.parse(name)).id for name in ("pdf", "csv"))
            assert (
                other.backend.evidence.list_attempts(),
                other.backend.evidence.count_impressions(""),
            ) == ([], {})
            assert (
                other.backend.evidence.count_successes([pdf, csv]),
                other.backend.evidence.baseline_successes(),
            ) == (
                {},
                SuccessCounts(),
            )
            assert (
                json.loads(archive(other, "pdf", "csv"))["evidence"]
                == json.loads(data)["evidence"][:-2]
            )
            import_json(other, io.BytesIO(data))
        assert check_library(other).faults == ()


def test_evidence_that_came_later_comes_with_the_next_archive(told: Store, tmp_path: Path) -> None:
    with Store.open(tmp_path / "other", create=True) as other:
        import_json(other, io.BytesIO(archive(told)))
        pdf = told.head(Ref.parse("pdf")).id
        told.backend.evidence.add_outcome(
            ReportedOutcome("2026-11-21T00:00:00.000000Z", pdf, 1, Outcome.FAILED, "use-1")
        )
        import_json(other, io.BytesIO(archive(told)))
        assert json.loads(archive(other))["evidence"] == json.loads(archive(told))["evidence"]


def test_the_history_of_an_archive_does_not_stand_in_the_way_of_what_the_server_sees(
    told: Store, tmp_path: Path
) -> None:
    """An archive may say anything of sessions to come: that they were taken in whole, and which
    uses they had.
    """
    whole = json.loads(archive(told))
    for record in whole["evidence"]:
        record |= {"spans": 10**9} if record["type"] == "taken" else {}
    with Store.open(tmp_path / "other", create=True) as other:
        import_json(other, io.BytesIO(json.dumps(whole).encode()))
        pdf = other.head(Ref.parse("pdf")).id
        evidence, log = other.backend.evidence, other.backend.observations
        assert log.ingested_session("s2") is None and not evidence.used_in("s1", [pdf])
        with pytest.raises(NoSuchUse):
            evidence.use("use-1")
        assert evidence.add_first_use(Use("use-2", AT, pdf, 1, None, "s2", "agent", "client-2"))
        one = UsageObservation(
            pdf, 1, AT, True, True, ("skill",), Outcome.SUCCEEDED, "large", (SIGNAL,)
        )
        assert log.take(
            IngestedSession("s2", "codex", "d", 9, AT, "large", Outcome.SUCCEEDED, (SIGNAL,)), [one]
        )
        assert other.backend.evidence.count_successes([pdf]) == {pdf: SuccessCounts(1, 1, 1, 1)}


def test_an_archive_of_one_skill_says_nothing_of_the_others(told: Store, tmp_path: Path) -> None:
    records = json.loads(archive(told, "pdf"))["evidence"]
    assert {record.get("ref") for record in records} == {"skill:pdf"}
    assert sorted(record["type"] for record in records) == ["outcome", "shown", "sighting", "use"]


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": "great"},
        {"version": "1"},
        {"version": -1},
        {"at": "soon"},
        {"signals": "[{}]"},
        {"signals": "{"},
    ],
)
def test_an_archive_with_evidence_that_cannot_be_read_is_refused(
    told: Store, tmp_path: Path, change: dict[str, object]
) -> None:
    whole = json.loads(archive(told))
    record = next(one for one in whole["evidence"] if one["type"] == "sighting")
    record.update(change)
    with Store.open(tmp_path / "other", create=True) as other:
        with pytest.raises(InvalidArchive, match="evidence"):
            import_json(other, io.BytesIO(json.dumps(whole).encode()))
        assert other.heads() == []


def test_an_archive_of_before_or_of_a_newer_program_is_taken_in(
    told: Store, tmp_path: Path
) -> None:
    whole = json.loads(archive(told))
    for number, evidence in enumerate(
        (None, [{"type": "dream", "ref": "skill:pdf"}], [{"type": "use", **UNKNOWN}])
    ):
        del whole["evidence"]
        whole |= {} if evidence is None else {"evidence": evidence}
        with Store.open(tmp_path / str(number), create=True) as other:
            assert len(import_json(other, io.BytesIO(json.dumps(whole).encode())).added) == 2
            assert other.backend.evidence.list_attempts() == []
        whole["evidence"] = []


UNKNOWN = {
    "ref": "skill:else",
    "version": 9,
    "at": AT,
    "id": "use-9",
    "search": None,
    "session": None,
}


def test_fsck_names_evidence_that_does_not_fit(told: Store) -> None:
    with told.backend.writing() as db:
        db.execute("UPDATE use SET version = 7")
        db.execute("UPDATE outcome SET outcome = 'great' WHERE usage IS NULL")
        db.execute("UPDATE sighting SET signals = '{'")

    found = sorted(str(fault) for fault in check_library(told).faults)
    assert len(found) == 3
    assert "there is no outcome 'great'" in found[0]
    assert "its signals cannot be read" in found[1]
    assert "version 7 of resource" in found[2]


def test_a_session_that_has_grown_replaces_what_was_known_and_a_shorter_one_does_not(
    told: Store,
) -> None:
    log, csv = told.backend.observations, told.head(Ref.parse("csv")).id
    other = UsageObservation(csv, 1, AT, True, False, ("read",))

    assert not log.take(IngestedSession("s2", "codex", "d", 9, AT, None), [other])
    assert not log.take(IngestedSession("s2", "codex", "shorter", 8, AT, None), [other])
    assert log.take(IngestedSession("s2", "codex", "longer", 10, AT, None), [other])
    assert log.sightings("s2") == [other]


def test_a_later_word_counts_in_whatever_order_it_was_stored(store: Store, put) -> None:
    put("pdf", "x")
    log, pdf = store.backend.evidence, store.head(Ref.parse("pdf")).id
    log.add_use(Use("use-1", AT, pdf, 1))
    for at, outcome in (("13:00", Outcome.SUCCEEDED), ("12:30", Outcome.FAILED)):
        log.add_outcome(
            ReportedOutcome(
                f"2026-11-20T{at}:00.000000Z", pdf, 1, outcome, "use-1", grade=REPORTED, voter="s1"
            )
        )

    assert store.backend.evidence.count_successes([pdf]) == {pdf: SuccessCounts(1, 1)}
    assert log.tally(pdf).succeeded == 1


def note(store: Store, *rows: Impression) -> None:
    log = ImpressionLog(store.backend)
    log.note(list(rows))
    log.close()


@pytest.mark.parametrize("reads_sessions", [True, False])
def test_impressions_of_nobodys_search_count_no_longer_in_an_older_library_that_has_read_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_sessions: bool
) -> None:
    """The searches of reviews have no session, and nothing is opened by them.

    A transcript may name one later.
    """
    session = IngestedSession("s2", "codex", "d", 9, AT, None)
    with (
        as_older(migrations.NAMES.index("m024_shown"), monkeypatch),
        Store.open(tmp_path, create=True) as store,
    ):
        with store.transaction(Actor.HUMAN, "made") as tx:
            tx.put(Ref.parse("pdf"), skill("pdf"))
        pdf = store.head(Ref.parse("pdf")).id
        store.backend.evidence.add_use(Use("use-1", AT, pdf, 1, "search-opened"))
        note(store, Impression("search-of-a-session", pdf, 1, AT, "s1"))
        note(
            store,
            *(
                Impression(f"search-{name}", pdf, 1, AT)
                for name in ("opened", "nobodys", "named-later")
            ),
        )
        if reads_sessions:
            store.backend.observations.take(session, [])

    with Store.open(tmp_path) as store:
        counted = [store.backend.evidence.count_impressions("")[pdf].times]
        later = IngestedSession("s3", "codex", "e", 9, AT, None)
        store.backend.observations.take(later, [], searches=["search-named-later"])
        counted.append(store.backend.evidence.count_impressions("")[pdf].times)
        assert check_library(store).faults == ()

    assert counted == ([2, 3] if reads_sessions else [4, 4])
