"""Memories are pruned by use: what no session needed is proposed for removal, and comes back from
the archive.
"""

from datetime import date
from pathlib import Path

import pytest
from labelled_sessions import Labelled, Say
from samples import put_texts

from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review import memory_upkeep
from evolvable_tools.review.review_config import ReviewSettings
from evolvable_tools.review.service import review_session
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.memory_facts import add_fact

AGENT, PERSON = Caller(Actor.AGENT), Caller(Actor.HUMAN, principal=Principal.PERSON)
USED, UNUSED = "Prefers pnpm to npm.", "Collects stamps of Portugal."
MEMORY = f"# The user\n- 2026-11-01: {USED}\n- 2026-11-01: {UNUSED}\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory_upkeep, "SESSIONS", 3)
    with Store.open(tmp_path / "home", create=True) as store:
        put_texts(store, {"memory:USER": MEMORY})
    with Library.open(tmp_path / "home") as library:
        yield library


def reviewed(
    library: Library, folder: Path, number: int, words: str = "Install it with pnpm, please."
) -> None:
    events = (Say(words), Say("Done.", agent=True), Say(f"Thanks, that was number {number}."))
    path = Labelled(f"memory-{number}", events, frozenset()).write(folder)
    review_session(library, AGENT, ReviewSettings(Redactor()), transcript_path=path)


def waiting(library: Library) -> list[str]:
    return [one.reason for one in proposal_inbox.list_waiting(library)]


def test_a_line_that_no_session_needed_is_proposed_for_removal_once(
    library: Library, tmp_path: Path
) -> None:
    for number in range(2):
        reviewed(library, tmp_path, number)
    reviewed(library, tmp_path, 1)  # the same session counts once
    assert waiting(library) == []

    for number in range(2, 5):
        reviewed(library, tmp_path, number)
    (reason,) = waiting(library)
    assert "last 3" in reason and "1 line" in reason and reason.endswith(UNUSED)

    (proposal,) = proposal_inbox.list_waiting(library)
    proposal_inbox.approve_together(library, PERSON, [proposal.proposal_id], "")
    files = library.store.files(library.store.head(Ref.parse("memory:USER")))
    assert UNUSED.encode() not in files["USER.md"].data and USED.encode() in files["USER.md"].data
    assert UNUSED.encode() in files["archive.txt"].data
    assert add_fact(files, "USER", UNUSED, date(2026, 11, 20)).outcome == "returned"


def test_a_removal_that_was_turned_down_is_not_proposed_again(
    library: Library, tmp_path: Path
) -> None:
    for number in range(4):
        reviewed(library, tmp_path, number)
    (proposal,) = proposal_inbox.list_waiting(library)
    proposal_inbox.reject(library, proposal.proposal_id, "I need it")
    reviewed(library, tmp_path, 9)
    assert waiting(library) == []


def test_lines_that_say_the_contrary_are_shown(library: Library) -> None:
    with library.store.transaction(Actor.HUMAN, "more") as tx:
        head = library.store.head(Ref.parse("memory:USER"))
        files = add_fact(
            library.store.files(head), "USER", "Never prefers pnpm to npm.", date(2026, 11, 2)
        ).files
        tx.put(head.ref, files, expected_version=head.version)
    (line,) = memory_upkeep.memory_conflicts(library, AGENT)
    assert USED in line and "Never prefers pnpm to npm." in line
