"""What is old becomes coarser, on command and by itself, and nothing that anybody reads changes
with it.
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from command_line import CommandLine
from samples import Clock, skill

from evolvable_evolve.evolution.ledger.run_directory import (
    Ledger,
    NoSuchRun,
    RunDirectory,
    create_run,
)
from evolvable_evolve.evolution.run_removal import HEAD_FILE, finish_removals, remove_run
from evolvable_server.upkeep import fold_library, keep_up
from evolvable_store.errors import InvalidArgument, LibraryBusy, Refused
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage import connection
from evolvable_store.storage.evidence import Use
from evolvable_store.storage.observations import Impression
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes.usage_report import stats
from evolvable_tools.review.admission import fingerprint, similar_proposals
from evolvable_tools.verbs import edit, proposal_inbox, search
from evolvable_tools.verbs.library_status import library_status

PDF = Ref.parse("skill:pdf").within("user")
PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")
TEXT = "---\nname: pdf\ndescription: Reads tables from PDF files.\n---\n\nUse the ruler.\n"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def library(tmp_path: Path, clock: Clock) -> Iterator[Library]:
    """A library with one skill that searches showed, a year and a half ago and since then every
    month.
    """
    with contextlib.closing(
        Library(Store.open(tmp_path / "home", create=True, clock=clock))
    ) as library:
        clock.move(days=-550)
        edit.update_resource(library, PERSON, PDF, "first", files={"SKILL.md": TEXT}, create=True)
        pdf = library.store.head(PDF).id
        for month in range(18):
            at = library.store.now()
            library.store.backend.evidence.add_use(
                Use(f"use-{month}", at, pdf, 1, f"search-{month}", f"s{month}")
            )
            rows = [
                Impression(f"search-{month}-{number}", pdf, 1, at, f"s{month}")
                for number in range(5)
            ]
            library.store.backend.observations.add_impressions(rows, [])
            clock.move(days=30)
        yield library


SAYS = "Never use the ruler on scanned pages."


def refuse_lesson(library: Library) -> int:
    """Proposes a lesson as a review does, and has a person reject it."""
    files = {"SKILL.md": File(TEXT.encode()), "notes.md": File(SAYS.encode())}
    grounds = json.dumps({"says": SAYS, "evidence": [], "what": "x", "near": []})
    draft = Draft(PDF, 1, files, "it failed", grounds=grounds, fingerprint=fingerprint(PDF, SAYS))
    made = library.store.backend.proposals.add(library.store.now(), Actor.REVIEW, "s1", draft)
    proposal_inbox.reject(library, made, "no", PERSON)
    return made


BEGUN = {
    "label": "simulated",
    "fingerprint": "x",
    "settings": {},
    "tasks": [],
    "base": "b",
    "size": 1,
}


def run_of(
    library: Library,
    days: float,
    *records: tuple[str, dict[str, object]],
    merged: Sequence[Sequence[str]] = (),
) -> RunDirectory:
    """Makes a run whose last record is so many days old."""
    when = library.store.clock() - timedelta(days=days)
    folder = create_run(library.store.home, when)
    with Ledger.open(folder.ledger, clock=lambda: when) as ledger:
        ledger.append("run", {**BEGUN, "run": folder.id, "merged": merged})
        ledger.append_all(records)
    folder.store_artifact("an artefact")
    return folder


DECIDED: tuple[str, dict[str, object]] = (
    "verdict",
    {"verdict": "REJECT", "why": "no better", "look": 1, "candidate": "b"},
)


def test_stats_search_and_inbox_answer_the_same_before_and_after_folding(library: Library) -> None:
    def answers() -> list[object]:
        found = search.find_skill(library, PERSON, "read tables from a PDF")
        return [
            *(stats(library, PERSON, days=days) for days in (1, 30, 90, 3_650)),
            [(one.ref, one.description) for one in found.matches],
            library.store.backend.evidence.count_successes([library.store.head(PDF).id]),
            library.store.backend.evidence.most_successful(5),
            [one.id for one in library.store.backend.proposals.waiting()],
        ]

    before = answers()
    folded = fold_library(library, 90)
    assert folded.impressions > 60
    assert answers() == before
    assert fold_library(library, 90).impressions == 0


def test_a_dry_run_says_the_same_and_changes_nothing(library: Library) -> None:
    folder = run_of(library, 400, DECIDED)
    would = fold_library(library, 90, dry_run=True)
    assert folder.ledger.exists()
    assert fold_library(library, 90) == would
    assert would.runs == [folder.id] and not folder.ledger.exists()


def test_a_lesson_whose_files_are_gone_is_still_known_as_refused(
    library: Library, clock: Clock
) -> None:
    number = refuse_lesson(library)
    known = similar_proposals(library, PDF, SAYS)
    clock.move(days=100)
    assert fold_library(library, 90).proposals == 1
    shown = proposal_inbox.show_proposal(library, number)
    assert shown.diff is not None
    assert "were removed on" in shown.diff
    assert "notes.md sha256 " in shown.diff
    assert not proposal_inbox.changes_text(library, number)
    with pytest.raises(InvalidArgument, match="were removed on"):
        proposal_inbox.reopen(library, PERSON, number)
    assert [one.state for one in known] == ["rejected"]
    assert similar_proposals(library, PDF, SAYS) == known


def test_a_run_whose_finalist_is_live_is_not_removed(library: Library) -> None:
    folder = run_of(library, 400, DECIDED, ("adopted", {"operation": 7, "changes": []}))
    words = "operation 7 made its finalist live"
    with pytest.raises(Refused, match=words):
        remove_run(library, folder.id)
    assert fold_library(library, 90).kept == {folder.id: [words]}
    assert folder.ledger.exists()


def test_a_run_that_is_driven_is_not_removed(library: Library) -> None:
    folder = run_of(library, 400)
    with folder.driver_lock().acquire(), pytest.raises(Refused, match="it is running"):
        remove_run(library, folder.id)
    assert fold_library(library, 90).kept == {folder.id: ["it is interrupted"]}
    assert remove_run(library, folder.id).run == folder.id, "a person may remove what nobody drives"


def test_a_run_that_another_one_merged_is_not_removed(library: Library) -> None:
    first = run_of(library, 400, DECIDED)
    second = run_of(library, 1, merged=[[first.id, "digest"]])
    with pytest.raises(Refused, match=f"run {second.id} merged it"):
        remove_run(library, first.id)


def test_the_head_of_the_ledger_stays_and_a_killed_removal_is_finished(library: Library) -> None:
    folder = run_of(library, 400, DECIDED)
    assert remove_run(library, folder.id).freed > 0
    assert (folder.path / HEAD_FILE).read_text(encoding="utf-8").count('"head"') == 1
    assert not (folder.path / "artifacts").exists()
    with pytest.raises(NoSuchRun):
        remove_run(library, folder.id)
    folder.store_artifact("what a kill left")
    finish_removals(library.store.home)
    assert {path.name for path in folder.path.iterdir()} <= {
        HEAD_FILE,
        "report.html",
        "report.json",
    }


def upkeep_of(library: Library) -> str:
    return library_status(library).upkeep


def test_what_is_older_than_a_year_is_announced_for_a_week_and_folded_then(
    library: Library, clock: Clock
) -> None:
    folded = []
    assert upkeep_of(library) == ""
    for left in range(7, 0, -1):
        folded.append(keep_up(library))
        when = f"in {left} days of use" if left > 1 else "on the next day of use"
        assert when in upkeep_of(library)
        clock.move(days=1)
    last = keep_up(library)
    assert folded == [None] * 7 and last is not None
    assert last.older_than_days == 365 and 25 < last.impressions < 40
    assert upkeep_of(library) == "" and keep_up(library) is None


@pytest.mark.parametrize("days", [30, -30, 400])
def test_a_clock_that_jumps_folds_nothing(library: Library, clock: Clock, days: int) -> None:
    rows = library.store.backend.maintenance.table_sizes()["shown"]
    for _ in range(2):
        keep_up(library)
        clock.move(days=days)
        assert keep_up(library) is None
        clock.move(days=-days)
    assert library.store.backend.maintenance.table_sizes()["shown"] == rows


def test_a_busy_library_is_folded_later(
    library: Library, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(7):
        keep_up(library)
        clock.move(days=1)
    monkeypatch.setattr(connection, "GIVE_UP_SECONDS", 0.01)
    other = Store.open(tmp_path / "home")
    with other.backend.writing(), pytest.raises(LibraryBusy):  # type: ignore[attr-defined]
        keep_up(library)
    other.close()
    assert upkeep_of(library) != ""
    again = keep_up(library)
    assert again is not None and again.impressions > 25


@pytest.mark.process
def test_gc_with_an_age_is_a_persons(tmp_path: Path) -> None:
    run = CommandLine(tmp_path)
    with Store.open(run.home, create=True) as store, store.transaction(Actor.HUMAN, "made") as tx:
        tx.put(PDF, skill("one"))
    assert "  0 impressions were made" in run("gc", "--older", "90d").out
    assert run("gc", "--older", "90d", "--json").json["older_than_days"] == 90
    assert "is no age" in run("gc", "--older", "5m", code=2).err
    run.person = False
    assert "is for a person at a terminal" in run("gc", "--older", "90d", code=1).err
    assert run("gc", "--older", "90d", "--dry-run").out
