"""Forked, resumed, replayed and copied transcripts count once: the first session with a message or
call owns it.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest
from command_line import CommandLine
from earned import seen
from forked import copy, fork, replay
from labelled_sessions import labelled
from round_sessions import REDACTOR
from session_cases import labelled_cases
from transcripts import (
    WRITERS,
    Event,
    LoadSkill,
    Run,
    Says,
    Subagent,
    User,
    session_id,
    write_claude_code,
    write_codex,
)

from evolvable_evolve.evolution.tasks import session_import
from evolvable_store.storage.evidence import Outcome
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import RecordedSession, record_uses
from evolvable_tools.review.session_signals import signals
from evolvable_tools.sessions.parser import read_session
from evolvable_tools.sessions.session_list import list_sessions

Write = Callable[..., Path]
writers = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)

RELEASE: list[Event] = [
    User("Release the shop."),
    Run("make prices", "ok"),
    Run("npm version minor", "v1.4.0"),
    Run("git tag v1.4.0"),
    Run("pytest -q", "1 failed", code=1),
    Run("pytest -q", "3 passed"),
    Run("git commit -m release", "[main 1234567] release"),
    Says("Released."),
    User("It works."),
]
WEATHER: list[Event] = [User("What is the weather in Bonn?"), Says("I do not know.")]


def taken_in(library: Library, path: Path) -> RecordedSession:
    return record_uses(library, read_session(path, redactor=REDACTOR))


def codes(recorded: RecordedSession) -> list[str]:
    return [one.code for one in signals(recorded.read)]


def ends(recorded: RecordedSession) -> tuple[Outcome | None, list[str]]:
    return recorded.outcome, sorted(
        {one for one in codes(recorded) if one in ("commit", "fail_then_pass")}
    )


@writers
def test_lines_that_a_client_writes_again_are_read_once(write: Write, tmp_path: Path) -> None:
    plain = read_session(write(tmp_path, RELEASE))
    again = read_session(replay(write(tmp_path, RELEASE)))

    assert again.turns == plain.turns == 2 and again.tokens == plain.tokens
    assert [span.text for span in again.spans] == [span.text for span in plain.spans]


@writers
def test_a_call_that_is_written_again_under_another_line_is_read_once(
    write: Write, tmp_path: Path
) -> None:
    path = write(tmp_path, RELEASE)
    calls = len([span for span in read_session(path).spans if span.input is not None])
    lines = path.read_text().splitlines()
    again = [line for line in lines if '"toolu_' in line or '"call_' in line]
    renamed = [json.dumps({**json.loads(line), "uuid": session_id(line)}) for line in again]
    path.write_text("\n".join([*lines, *renamed]) + "\n")

    assert len([span for span in read_session(path).spans if span.input is not None]) == calls


@writers
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_procedure_with_two_forks_happened_once_in_whatever_order_they_are_read(
    library: Library, write: Write, tmp_path: Path, order: Sequence[int]
) -> None:
    origin = write(tmp_path, RELEASE, session="origin")
    forks = [fork(write, tmp_path, origin, WEATHER, session=f"fork{n}") for n in range(2)]
    seen(library, *(session_id(name) for name in ("origin", "fork0", "fork1")))
    recorded = [taken_in(library, [origin, *forks][place]) for place in order]

    first, *later = recorded
    assert ends(first) == (Outcome.SUCCEEDED, ["commit", "fail_then_pass"])
    assert [ends(one) for one in later] == [(None, [])] * 2
    assert sum("procedure" in codes(one) for one in recorded) == 1
    assert [end.outcome for end in library.store.backend.observations.verified_ends()].count(
        Outcome.SUCCEEDED
    ) == 1


@writers
def test_tokens_of_a_session_and_its_fork_are_paid_once(
    library: Library, write: Write, tmp_path: Path
) -> None:
    origin = write(tmp_path, RELEASE, session="origin")
    forked = fork(write, tmp_path, origin, WEATHER, session="fork")
    whole = read_session(forked).tokens
    paid = taken_in(library, origin).read.tokens, taken_in(library, forked).read.tokens

    assert whole is not None and None not in paid
    if write is write_claude_code:
        assert paid[0] + paid[1] == whole  # type: ignore[operator]
    assert paid[1] < whole / 2  # type: ignore[operator]


@writers
def test_what_a_fork_does_itself_counts_with_what_it_copied_as_its_past(
    library: Library, write: Write, tmp_path: Path
) -> None:
    failing: list[Event] = [
        User("Release the shop."),
        Run("pytest -q", "1 failed", code=1),
        Says("It fails."),
    ]
    more: list[Event] = [
        User("No, always run make prices first."),
        Run("pytest -q", "3 passed"),
        Says("Done."),
    ]
    origin = write(tmp_path, failing, session="origin")
    taken_in(library, origin)
    forked = taken_in(library, fork(write, tmp_path, origin, more, session="fork"))

    assert {"correction", "fail_then_pass"} <= set(
        codes(forked)
    ) and forked.outcome is Outcome.SUCCEEDED
    assert forked.read.turns == 2 and not forked.read.is_copy


def test_a_skill_that_a_session_used_is_loaded_and_used_once(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    skill = evolvable.user / ".claude/skills/shop/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(
        "---\nname: shop\ndescription: Releases the shop.\n---\n\n```sh\nshopctl release\n```\n"
    )
    evolvable("init", skill.parent.parent)
    events: list[Event] = [
        User("Release the shop."),
        LoadSkill("shop", "…"),
        Run("shopctl release now", "ok"),
    ]
    origin = write_claude_code(evolvable.user, events, session="origin", start=datetime.now(UTC))
    forked = fork(write_claude_code, evolvable.user, origin, WEATHER, session="fork")
    for path in (origin, forked, copy(origin, session="copy"), origin):
        evolvable("review", path)

    (its,) = evolvable("stats", "skill:shop", "--json").json["resources"]
    assert (its["loaded"], its["used"]) == (1, 1)
    goes_on = [User("Again."), Run("shopctl release again", "ok")]
    evolvable("review", fork(write_claude_code, evolvable.user, origin, goes_on, session="second"))
    (its,) = evolvable("stats", "skill:shop", "--json").json["resources"]
    assert (its["loaded"], its["used"]) == (1, 2)


@writers
def test_a_copy_under_another_name_is_said_to_be_one_and_three_make_no_procedure(
    tmp_path: Path, write: Write
) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    told = [*RELEASE, User("Always run the price check before a release.")]
    origin = write(evolvable.user, told, session="origin")
    first = evolvable("review", origin, "--json").json
    assert first["review_id"] is not None
    for number in range(3):
        again = evolvable("review", copy(origin, session=f"copy{number}"), "--json").json
        assert again["review_id"] is None and again["why"].startswith("Other sessions")
        assert "read before" in again["why"]
        more = fork(write, evolvable.user, origin, WEATHER, session=f"fork{number}")
        assert "repeated_procedure" not in evolvable("review", more, "--json").out
    assert evolvable("review", origin, "--json").json["review_id"] == first["review_id"]


@writers
def test_a_list_of_sessions_counts_a_message_where_it_was_first(
    tmp_path: Path, write: Write
) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    origin = write(evolvable.user, RELEASE, session="origin")
    fork(write, evolvable.user, origin, WEATHER, session="fork")

    def turns() -> dict[str, int]:
        return {
            one["session"]: one["turns"] for one in evolvable("sessions", "--json").json["sessions"]
        }

    assert turns() == {session_id("origin"): 2, session_id("fork"): 1}
    evolvable("review", copy(origin, session="copy"))
    assert turns() == {session_id("origin"): 0, session_id("copy"): 2, session_id("fork"): 1}


def test_a_session_that_grows_and_lies_in_two_folders_stays_one(
    library: Library, tmp_path: Path
) -> None:
    seen(library, session_id("session"))
    short = write_claude_code(tmp_path / "a", RELEASE[:-1])
    whole = write_claude_code(tmp_path / "b", RELEASE)
    recorded = [taken_in(library, path) for path in (short, whole, short, whole)]

    assert [one.is_stored for one in recorded] == [True, True, False, False]
    assert not any(span.copied for one in recorded for span in one.read.spans)
    assert [end.outcome for end in library.store.backend.observations.verified_ends()] == [
        Outcome.SUCCEEDED
    ]


def test_a_file_whose_copied_lines_keep_the_old_name_is_a_session_of_its_own(
    tmp_path: Path,
) -> None:
    origin = write_claude_code(tmp_path, RELEASE, session="origin")
    resumed = write_claude_code(tmp_path, WEATHER, session="resumed")
    resumed.write_bytes(origin.read_bytes() + resumed.read_bytes())

    assert read_session(resumed).session_id == session_id("resumed")
    assert {one.session for one in list_sessions([tmp_path], lambda session: None).sessions} == {
        session_id("origin"),
        session_id("resumed"),
    }


def test_a_subagents_work_is_owned_as_the_rest_is(library: Library, tmp_path: Path) -> None:
    part = Subagent(
        "Look for it.",
        [Run("git tag v2", "ok"), Run("make one", "ok"), Run("make two", "ok")],
        "Found.",
    )
    origin = write_claude_code(
        tmp_path, [User("Find it."), part, User("Thanks.")], session="origin"
    )
    first = taken_in(library, origin).read
    other = copy(origin, session="copy")
    agents = other.with_suffix("") / "subagents"
    agents.mkdir(parents=True)
    for file in (origin.with_suffix("") / "subagents").iterdir():
        (agents / file.name).write_bytes(file.read_bytes())

    assert len([span for span in first.spans if span.agent]) > 3
    assert taken_in(library, other).read.is_copy
    sessions = {one.session for one in library.store.backend.observations.executions()}
    assert sessions == {session_id("origin")}


@pytest.mark.parametrize("name", ["repair-0", "repair-1"])
def test_a_task_is_found_in_one_of_a_session_and_its_forks(
    library: Library, tmp_path: Path, name: str
) -> None:
    case = next(one for one in labelled_cases() if one.name == name)
    origin, write = case.write(tmp_path), WRITERS[case.client]
    forked = fork(write, tmp_path, origin, WEATHER, session="fork")
    for paths in ([origin, forked], [forked, origin]):
        draft = session_import.draft_from_sessions(library, paths)
        assert [one.session for one in draft.found] == [session_id(name)]
    taken_in(library, forked)
    draft = session_import.draft_from_sessions(library, [origin])
    [(why, count)] = draft.left_out.items()
    assert draft.found == [] and "copy of another session" in why and count == 1


def test_older_rollouts_that_number_nothing_are_known_by_what_came_before(
    library: Library, tmp_path: Path
) -> None:
    def without_ids(path: Path) -> Path:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if line["type"] == "response_item":
                line["payload"].pop("id", None)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    said: list[Event] = [
        User("Always use tabs."),
        Says("I do."),
        User("Always use tabs."),
        Says("Yes."),
    ]
    origin = without_ids(write_codex(tmp_path, said, session="origin"))
    forked = without_ids(fork(write_codex, tmp_path, origin, WEATHER, session="fork"))
    stranger = without_ids(write_codex(tmp_path, said, session="stranger"))
    own = [
        [span.text for span in taken_in(library, path).read.spans if span.typed and not span.copied]
        for path in (origin, forked, stranger)
    ]
    assert own == [
        ["Always use tabs."] * 2,
        ["What is the weather in Bonn?"],
        ["Always use tabs."] * 2,
    ]


def test_lines_that_only_name_themselves_like_others_are_no_copies(
    library: Library, tmp_path: Path
) -> None:
    """A file cannot take a session's lines away by their names, nor can short numbers that many
    files have.
    """
    origin = write_claude_code(tmp_path, RELEASE, session="origin")
    forged = copy(origin, session="forged")
    forged.write_text(
        forged.read_text()
        .replace("Release the shop.", "Delete the shop.")
        .replace("make prices", "rm")
    )
    taken_in(library, forged)
    own = [
        span.text for span in taken_in(library, origin).read.spans if span.typed and not span.copied
    ]
    assert own == ["Release the shop."]

    function = {"name": "shell", "arguments": '{"command": "ls"}'}
    short = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "call_0", "function": function}]},
    ]
    for number in range(2):
        session = read_session([*short, {"role": "user", "content": f"{number}"}])
        assert not any(span.copied for span in record_uses(library, session).read.spans)


def test_what_is_stored_of_a_session_is_small_and_says_nothing(
    library: Library, tmp_path: Path
) -> None:
    cases = labelled()[:20]
    sessions = [taken_in(library, case.write(tmp_path)).read for case in cases]
    told = sum(
        len([span for span in one.spans if span.typed or span.input is not None])
        for one in sessions
    )
    with closing(sqlite3.connect(library.store.home / "library.db")) as db:
        rows = db.execute("SELECT key, session FROM transcript_row").fetchall()

    assert 0 < len(rows) <= told
    assert all(0 <= key < 2**48 and -(2**31) <= owner < 2**31 for key, owner in rows)


def test_of_a_session_and_forks_that_are_read_at_once_one_owns_each_message(
    library: Library, tmp_path: Path
) -> None:
    origin = write_claude_code(tmp_path, RELEASE, session="origin")
    forks = [
        fork(write_claude_code, tmp_path, origin, WEATHER, session=f"fork{number}")
        for number in range(5)
    ]

    def own(path: Path) -> list[int | None]:
        with Library.open(library.store.home) as other:
            return [
                span.key
                for span in taken_in(other, path).read.spans
                if span.key and not span.copied
            ]

    with ThreadPoolExecutor(6) as threads:
        keys = [key for each in threads.map(own, [origin, *forks]) for key in each]
    assert len(keys) == len(set(keys)) and len(keys) == len(RELEASE) - 1 + 5
