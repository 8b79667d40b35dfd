"""Off means off: whatever word says it, nothing is written, in the library or beside it, and no
hook says anything.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine
from labelled_sessions import labelled
from samples import teach

from evolvable_store.review_queue import enqueue
from evolvable_store.store import Store

HOOK = "from evolvable_server.hooks.command import main; main()"
SESSION = next(one for one in labelled() if one.name == "alembic")
REVIEW_OFF = ({"EVOLVABLE_REVIEW": "off"}, {"EVOLVABLE_REVIEW": " OFF "}, {"EVOLVABLE_REVIEW": "0"})
THINKING = {"EVOLVABLE_REVIEWING": "1"}
HOOKS_OFF = ({"EVOLVABLE_HOOKS": "off"}, {"EVOLVABLE_HOOKS": "no"})


@pytest.fixture(scope="module")
def evolvable(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A machine with a library, a folder of Claude Code with one skill, a session and a queue with
    that session.
    """
    made = CommandLine(tmp_path_factory.mktemp("machine"))
    skills = made.user / ".claude/skills"
    made.save(
        skills,
        "pdf",
        "---\nname: pdf\ndescription: Merge, split and fill PDF forms.\n---\n\nCount the pages.\n",
    )
    made("init", skills)
    with Store.open(made.home) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    path = SESSION.write(made.project)
    assert enqueue(str(made.home), {"session_id": SESSION.session_id, "transcript_path": str(path)})
    answer = {"review_id": "review-0", "candidates": []}
    (made.project / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    made("list")  # whatever a first command makes is there
    return made


def everything(evolvable: CommandLine) -> dict[str, tuple[str, int]]:
    """Returns every file of the machine by its path, with its content and when it was written."""
    files = [path for path in evolvable.root.rglob("*") if path.is_file() or path.is_symlink()]
    names = {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in files
    }
    return names | {str(path): ("folder", 0) for path in evolvable.root.rglob("*") if path.is_dir()}


def hook(evolvable: CommandLine, event: str, **env: str) -> tuple[int, bytes]:
    given = {
        "session_id": "another",
        "transcript_path": str(evolvable.project / f"{SESSION.session_id}.jsonl"),
        "cwd": str(evolvable.project),
        "hook_event_name": event,
        "prompt": "Fill in this PDF form, please.",
        "tool_name": "Skill",
        "tool_input": {"skill": "pdf"},
    }
    command = [sys.executable, "-P", "-c", HOOK, event, "claude-code"]
    ran = subprocess.run(
        command,
        input=json.dumps(given).encode(),
        capture_output=True,
        env={**evolvable.environment, **env},
        timeout=60,
    )
    return ran.returncode, ran.stdout


@pytest.mark.process
def test_without_any_of_the_settings_the_same_hooks_do_write_and_speak(tmp_path: Path) -> None:
    """Or else the tests beside it would show nothing."""
    made = CommandLine(tmp_path)
    skills = made.user / ".claude/skills"
    made.save(
        skills,
        "pdf",
        "---\nname: pdf\ndescription: Merge, split and fill PDF forms.\n---\n\nCount the pages.\n",
    )
    made("init", skills)
    before = everything(made)
    assert b"skill:pdf" in hook(made, "UserPromptSubmit")[1]
    assert hook(made, "Stop") == (0, b"")
    new = {Path(path).parent.name for path in everything(made).keys() - before.keys()}
    assert {"another", "queue"} <= new


@pytest.mark.process
@pytest.mark.parametrize("off", [*HOOKS_OFF, THINKING], ids=str)
@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd"])
def test_hooks_that_are_off_write_nothing_and_say_nothing(
    evolvable: CommandLine, off: dict[str, str], event: str
) -> None:
    before = everything(evolvable)
    assert hook(evolvable, event, **off) == (0, b"")
    assert everything(evolvable) == before


@pytest.mark.process
@pytest.mark.parametrize("off", REVIEW_OFF, ids=str)
def test_reviews_that_are_off_queue_nothing(evolvable: CommandLine, off: dict[str, str]) -> None:
    before = everything(evolvable)
    assert [hook(evolvable, event, **off) for event in ("Stop", "SessionEnd")] == [(0, b"")] * 2
    assert everything(evolvable) == before


@pytest.mark.parametrize("off", [*REVIEW_OFF, THINKING], ids=str)
@pytest.mark.parametrize("words", ["path", "session", "queue", "answer", "next", "status"])
def test_reviews_that_are_off_read_nothing_and_write_nothing(
    evolvable: CommandLine, off: dict[str, str], words: str
) -> None:
    given = {
        "path": (evolvable.project / f"{SESSION.session_id}.jsonl",),
        "session": (SESSION.session_id,),
        "queue": ("--queue",),
        "answer": ("--answer", evolvable.project / "answer.json"),
        "next": (),
        "status": ("--status",),
    }[words]
    before = everything(evolvable)
    said = evolvable("review", *given, **off).out
    assert "off" in said
    assert everything(evolvable) == before


@pytest.mark.process
@pytest.mark.parametrize("words", [("review", "--queue"), ("hook", "Stop")])
def test_off_holds_in_processes_of_their_own(
    evolvable: CommandLine, words: tuple[str, str]
) -> None:
    before = everything(evolvable)
    env = {**evolvable.environment, "EVOLVABLE_REVIEW": "none"}
    if words[0] == "hook":
        assert hook(evolvable, words[1], EVOLVABLE_REVIEW="none") == (0, b"")
    else:
        assert evolvable.process(*words, env=env).code == 0
    assert everything(evolvable) == before


def test_no_call_in_a_budget_asks_nobody_and_the_review_waits(evolvable: CommandLine) -> None:
    evolvable.configure('[roles]\nreviewer = "anthropic"\n')
    env = {"ANTHROPIC_API_KEY": "sk-ant-test", "EVOLVABLE_REVIEW_BUDGET": "calls=0"}
    ran = evolvable("review", evolvable.project / f"{SESSION.session_id}.jsonl", code=None, **env)
    evolvable.configure("")
    assert ran.code != 0
    assert "0 of 0 calls" in ran.err


def test_a_kind_of_which_proposals_are_off_gets_none(evolvable: CommandLine) -> None:
    begun = evolvable("review", evolvable.project / f"{SESSION.session_id}.jsonl", "--json").json
    quote = "We always generate migrations with alembic revision"
    span = next(one["id"] for one in begun["packet"]["data"]["evidence"] if quote in one["text"])
    fact = {
        "kind": "preference",
        "claim": "Generates migrations.",
        "text": "Always generate migrations with alembic.",
    }
    edits = [{"op": "text", "old": "By hand.", "new": "With alembic."}]
    edit = {
        "kind": "skill-edit",
        "claim": "Migrations are generated.",
        "target": "skill:db-migrations",
        "edits": edits,
    }
    candidates = [{**one, "evidence": [{"span": span, "quote": quote}]} for one in (fact, edit)]
    answer = evolvable.project / "two.json"
    answer.write_text(
        json.dumps({"review_id": begun["review_id"], "candidates": candidates}), encoding="utf-8"
    )
    policy = {"EVOLVABLE_REVIEW_POLICY": "skill=off,memory=off"}
    done = evolvable("review", "--answer", answer, "--json", **policy).json
    assert ([one["code"] for one in done["refused"]], done["proposals"]) == (
        ["policy", "policy"],
        [],
    )
    assert evolvable("inbox").out == "Nothing waits for a decision.\n"
