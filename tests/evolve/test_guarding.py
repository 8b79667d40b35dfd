"""What a run measures with is watched while it is open."""

import pytest
from driving_place import LETTERS, PERSON, driving, letters

from evolvable_evolve.evolution.tasks.locate import RECHECK_SECONDS, IntegrityGuard
from evolvable_tools.verbs import edit


@pytest.fixture
def place(tmp_path):
    with driving(tmp_path) as made:
        made.save(letters())
        yield made


def guarded(place, now):
    beside = place.root / "beside"
    beside.mkdir()
    (beside / "run.py").write_bytes(b"1")
    return IntegrityGuard(
        place.library, PERSON, LETTERS.at(1), {"run.py": b"1"}, beside, lambda: now[0]
    ), beside / "run.py"


def test_a_file_that_is_changed_is_seen_at_once_and_one_that_is_as_it_was_is_none(place):
    guard, path = guarded(place, [0.0])

    assert guard() == ""
    path.write_bytes(b"2")
    assert "run.py was changed" in guard()
    path.write_bytes(b"1")
    assert guard() == ""
    path.unlink()
    assert "run.py was changed" in guard()


def test_later_versions_of_the_task_set_and_its_removal_change_nothing_for_the_run(place):
    now = [0.0]
    guard, _ = guarded(place, now)

    place.save(letters("numeric_strict"))
    now[0] += RECHECK_SECONDS
    assert guard() == ""
    edit.remove_resource(place.library, PERSON, LETTERS, "away")
    now[0] += RECHECK_SECONDS
    assert guard() == ""


def test_a_stored_task_set_that_does_not_read_as_it_did_is_found(place, monkeypatch):
    now = [0.0]
    guard, _ = guarded(place, now)
    [other] = [letters("exact", category="other one")]
    place.save(other)

    real = place.library.store.files
    monkeypatch.setattr(place.library.store, "files", lambda head, version: real(head, 2))

    assert guard() == "", "looked at just now"
    now[0] += RECHECK_SECONDS
    assert "were changed in the library" in guard()
