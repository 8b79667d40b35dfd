"""A task set that came from sessions passes its check: judges that are calibrated, and categories
of several tasks.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from session_cases import labelled_cases
from transcripts import WRITERS, Says, User, session_id

from evolvable_evolve.evolution.tasks import session_import
from evolvable_evolve.evolution.tasks.diagnostics import TaskSetCheck, check_taskset
from evolvable_evolve.evolution.tasks.session_import import SessionDraft
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import proposal_inbox

PERSON = Caller(Actor.HUMAN, None)
CASES = {case.name: case for case in labelled_cases()}
WORDS = (
    "Save all of your changes before you leave",
    "Delete everything below the folder that was chosen",
    "Send the yearly report to whoever asked for it",
    "Print only the pages with a picture on them",
)
FORMAL = "Wrong, we always use the formal address in dialogs."


@pytest.fixture
def library(tmp_path):
    with Library.open(tmp_path / "library", create=True) as opened:
        yield opened


def corrected(
    home: Path,
    name: str,
    words: str,
    *,
    said: str = FORMAL,
    project: str = "texts",
    answers: Sequence[str] = (),
) -> Path:
    """The transcript of a session in which a person corrected a translation and accepted the next
    one.
    """
    bad, good = answers or (f"Du: {words}", f"Sie: {words}")
    asks = User(f"Translate {words!r} into German for a dialog of our program.")
    events = [asks, Says(bad), User(said), Says(good), User("Perfect, thanks.")]
    writer = WRITERS[("claude-code", "codex")[len(name) % 2]]
    return writer(home, events, session=name, project=f"/home/dev/{project}")


def drafted(library: Library, *paths: Path) -> SessionDraft:
    return session_import.draft_from_sessions(library, paths)


def checked(draft: SessionDraft) -> TaskSetCheck:
    return asyncio.run(check_taskset(draft.taskset))


def categories(draft: SessionDraft) -> Counter[str]:
    return Counter(task.category for task in draft.taskset.tasks)


def test_judges_of_three_sessions_are_calibrated_by_the_answers_of_all(library, tmp_path):
    draft = drafted(library, *(corrected(tmp_path, f"s{n}", WORDS[n]) for n in range(3)))

    found = checked(draft)
    assert found.passes and found.sizes == {"train": 1, "val": 1, "test": 1}
    assert not draft.left_out and not draft.outcome.shortage


def test_sessions_that_asked_the_same_give_one_task_with_the_answers_of_all(library, tmp_path):
    """The same wrong answer counts once; answers to other prompts are wrong here and fill what is
    missing.
    """
    said = [("Du: Save", f"Sie: Save ({n})") for n in range(3)]
    same = [corrected(tmp_path, f"s{n}", WORDS[0], answers=pair) for n, pair in enumerate(said)]
    draft = drafted(library, *same, corrected(tmp_path, "other", WORDS[1]))
    first, second = draft.taskset.tasks

    assert first.scorer.args["good"] == ["Sie: Save (0)", "Sie: Save (1)", "Sie: Save (2)"]
    assert first.scorer.args["bad"] == ["Du: Save", f"Sie: {WORDS[1]}"]
    assert len(second.scorer.args["good"]) == 1 and checked(draft).passes


def test_the_same_prompt_with_another_correction_is_no_second_task(library, tmp_path):
    paths = [corrected(tmp_path, f"s{n}", WORDS[n]) for n in range(3)]
    draft = drafted(
        library,
        *paths,
        corrected(tmp_path, "s4", WORDS[0], said="No, that's wrong: use the word Abbruch."),
    )

    assert len(draft.found) == 3 and checked(draft).passes
    [(why, count)] = draft.left_out.items()
    assert "corrected otherwise" in why and count == 1


def test_a_set_that_grows_counts_the_answers_it_has_and_takes_no_task_twice(library, tmp_path):
    paths = [corrected(tmp_path, f"s{n}", WORDS[n]) for n in range(3)]
    made = session_import.propose_session_tasks(library, PERSON, drafted(library, *paths))
    proposal_inbox.approve_together(library, PERSON, [made.proposal], "good tasks")
    again = corrected(tmp_path, "again", WORDS[0])
    draft = drafted(library, *paths, again, corrected(tmp_path, "new", WORDS[3]))

    assert [one.session for one in draft.found] == [session_id("new")]
    assert len(draft.taskset.tasks) == 4
    assert [count for why, count in draft.left_out.items() if "has it already" in why] == [4]
    assert checked(draft).passes


def test_a_project_is_a_category_where_several_sessions_have_it_and_else_the_tasks_are_other(
    library, tmp_path
):
    shop = [corrected(tmp_path, f"shop{n}", WORDS[n], project="shop") for n in range(2)]
    single = [corrected(tmp_path, f"one{n}", WORDS[n + 2], project=f"p{n}") for n in range(2)]
    draft = drafted(library, *shop, *single)

    assert categories(draft) == {"shop": 2, "other": 2}
    assert "rare-category" not in {one.rule for one in checked(draft).remarks}


def test_a_task_that_would_be_a_category_of_its_own_joins_the_largest(library, tmp_path):
    shop = [corrected(tmp_path, f"shop{n}", WORDS[n], project="shop") for n in range(3)]
    draft = drafted(library, *shop, corrected(tmp_path, "one", WORDS[3], project="alone"))

    assert categories(draft) == {"shop": 4} and checked(draft).passes


def test_tasks_of_one_session_are_no_category_so_that_something_is_left_to_choose_by(
    library, tmp_path
):
    """Two sessions with two tasks each: as two categories both would be dealt to train."""
    paths = []
    for name, words in (("left", WORDS[:2]), ("right", WORDS[2:4])):
        events = []
        for one in words:
            asks = User(f"Translate {one!r} into German for a dialog of our program.")
            events += [
                asks,
                Says(f"Du: {one}"),
                User(FORMAL),
                Says(f"Sie: {one}"),
                User("Perfect, thanks."),
            ]
        paths.append(WRITERS["codex"](tmp_path, events, session=name, project=f"/home/dev/{name}"))
    draft = drafted(library, *paths)

    assert categories(draft) == {"other": 4}
    assert checked(draft).passes and checked(draft).sizes["val"] == 2


def test_one_task_alone_is_proposed_with_what_the_set_still_lacks(tmp_path):
    evolvable = CommandLine(tmp_path)
    path = CASES["repair-0"].write(tmp_path / "made")
    evolvable("init", "--yes")

    said = evolvable("taskset", "from-sessions", path, "--no-try")
    assert "no task in val" in said.err and "1 task from 1 session." in said.out
    found = evolvable("taskset", "from-sessions", path, "--no-try", "--json").json
    assert "no task in val" in found["shortage"]


def test_a_task_that_is_new_joins_the_tasks_without_a_project_that_the_set_has(library, tmp_path):
    environment = {"ENVIRONMENT.md": File(b"---\nname: session-tasks\ndescription: Tasks.\n---\n")}
    own = (
        b'{"id": "a", "prompt": "one?", "expected": "1"}\n'
        b'{"id": "b", "prompt": "two?", "expected": "2"}\n'
    )
    with library.store.transaction(Actor.HUMAN, "mine") as tx:
        tx.put(
            Ref.parse("environment:session-tasks").within(USER_SCOPE),
            environment | {"tasks.jsonl": File(own)},
        )
    draft = drafted(library, CASES["repair-0"].write(tmp_path))

    assert categories(draft) == {"other": 3}


AUTHOR = """
import json, pathlib, re, sys
given = json.load(sys.stdin)
folders = [pathlib.Path(one["folder"]) for one in given["program"]["resources"]]
formal = any("formal" in (folder / "SKILL.md").read_text() for folder in folders)
words = re.search("Translate '(.+)' into", given["prompt"])[1]
print(json.dumps({"output": f"{'Sie' if formal else 'Du'}: {words}"}))
"""
JUDGE = """
import json, re, sys
good = re.search(r'"answer":\\s*"Sie', sys.stdin.read()) is not None
said = {"score": float(good), "passed": good, "errors": [], "feedback": ""}
print(json.dumps({**said, "reason": "by the address"}))
"""


@pytest.mark.process
def test_sessions_become_a_task_set_that_passes_its_check_and_can_be_measured(tmp_path):
    evolvable, made = CommandLine(tmp_path), tmp_path / "made"
    objects = ("menu", "button", "border", "window", "letter", "folder")
    paths = [
        corrected(made, f"{verb}-{one}", f"{verb} the {one}", project=f"p{n % 7}")
        for verb in ("Open", "Lock", "Move", "Copy")
        for n, one in enumerate(objects)
    ]
    paths += [CASES[f"repair-{n}"].write(made) for n in range(2)] + [
        CASES["weakened-test-0"].write(made)
    ]
    skill = evolvable.save(
        tmp_path / "skills", "dialogs", skill_text("dialogs", body="Use the formal address.")
    )
    evolvable("init", "--yes")
    evolvable("import", skill, "--yes")

    found = evolvable(
        "taskset",
        "from-sessions",
        *paths,
        "--limit",
        "100",
        "--name",
        "texts",
        "--json",
        stdin="y\n",
    ).json
    evolvable("inbox", "approve", found["proposal"], stdin="y\n")
    about = tmp_path / "ENVIRONMENT.md"
    about.write_text(
        "---\nname: texts\ndescription: Dialogs.\nalike: only-words\n---\n", encoding="utf-8"
    )
    evolvable(
        "update", "environment:texts", "-m", "other texts each", "--file", f"ENVIRONMENT.md={about}"
    )
    check = evolvable("taskset", "check", "environment:texts", "--json", stdin="y\n").json
    assert check["passes"] and sum(check["sizes"].values()) == 26 and found["shortage"] == ""
    [(why, count)] = found["left_out"].items()
    assert "before and after the work" in why and count == 1
    assert not {one["rule"] for one in check["remarks"]} & {
        "rare-category",
        "no-tasks",
        "judge-uncalibrated",
    }

    for role, text in (("executor", AUTHOR), ("judge", JUDGE)):
        (tmp_path / f"{role}.py").write_text(text, encoding="utf-8")
        evolvable(role, "add", "mine", "--", sys.executable, "-S", tmp_path / f"{role}.py")
    given = ("--executor", "mine", "--judge", "mine", "--stand-in", "--free", "--test-repeats", "1")
    measured = evolvable(
        "evolve", "measure", "environment:texts", "-p", "skill:dialogs", *given, "--wait", "--json"
    ).json
    [row] = measured["rows"]
    assert measured["finished"] and row["gain"] > 0.5, (
        "scripted: the skill is what makes the difference"
    )
