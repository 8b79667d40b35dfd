"""Libraries, runs, exports and configurations of older versions open as they were; tests/data/older
holds them.
"""

import importlib.util
import json
import re
import sqlite3
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest
from older_machine import COMMITS, FOLDER, OlderMachine, key_paths

from evolvable_evolve.sandbox.probe import sandbox_of

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        sys.platform == "win32", reason="the archives hold a machine with POSIX paths"
    ),
]


def _make() -> ModuleType:
    spec = importlib.util.spec_from_file_location("older_make", FOLDER / "make.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = _make()
QUESTIONS = MAKE.QUESTIONS
KEYS = json.loads((FOLDER / "keys.json").read_text(encoding="utf-8"))


@pytest.fixture(params=COMMITS)
def commit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine(tmp_path: Path, commit: str, monkeypatch: pytest.MonkeyPatch) -> OlderMachine:
    older = OlderMachine(tmp_path, commit)
    monkeypatch.chdir(older.project)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return older


FREE = ("search_id", "how_to_answer", "instructions", "line", "next", "why")
"""Keys whose values are new each time, or are wording that may improve."""


WHOSE = frozenset(("trust", "principal", "via", "notice"))
"""Keys in whose place `author` and `by` stand now, where an answer says whose a resource is."""


VERDICTS = frozenset(("none_fits", "choose_between"))
"""Keys of a search in whose place `verdict` stands now."""


SEALED_TASKS = re.compile(r"^(?:(?:Fixed|Broken) in test|In test): .*\n", re.MULTILINE)


NEW_WORDS = re.compile(
    r"^order-fields helps \(.*\n|(?<= sealed tasks) \(effective n \d+\)", re.MULTILINE
)
"""What a report says beside what it said: the answer by the name of the resource, and the effective
n.
"""


def differences(then: object, now: object, at: str = "") -> list[str]:
    """Return where a value that was said then differs now; keys that are new are no difference."""
    if isinstance(then, dict) and isinstance(now, dict):
        return [
            line
            for key, value in then.items()
            if key not in FREE
            and not (key in WHOSE and "author" in now)
            and not (key in VERDICTS and "verdict" in now)
            for line in (
                differences(value, now[key], f"{at}.{key}")
                if key in now
                else [f"{at}.{key} is missing"]
            )
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [line for n, (one, other) in pairs for line in differences(one, other, f"{at}[{n}]")]
    if at == "report.text":  # it named the tasks of the sealed test then, and counts them now
        then, now = (SEALED_TASKS.sub("", str(text)) for text in (then, now))
        now = NEW_WORDS.sub("", now)
    if at == "review status.left.day":  # what is left is of the day of the question
        then = datetime.now(UTC).date().isoformat()
    return [] if then == now else [f"{at}: {then!r} -> {now!r}"]


def test_every_question_gets_the_same_answer(machine):
    """The words of what was said may have changed since; names, numbers, texts and decisions have
    not.
    """
    for name, words in QUESTIONS.items():
        assert not differences(machine.said[name], machine.ask(words), name)


def test_every_answer_has_the_keys_that_it_had_before_the_modules_were_renamed(machine, commit):
    for name, words in QUESTIONS.items():
        now = set(key_paths(machine.ask(words)))
        before = KEYS[commit][name] if commit in KEYS else key_paths(machine.said[name])
        asked = {path for path in before if not _is_replaced(path, now)}
        assert asked <= now, name


def _is_replaced(path: str, now: set[str]) -> bool:
    """Return whether `author` or `verdict` stands where this key stood."""
    place, _, key = path.rpartition(".")
    return (key in WHOSE and f"{place}.author" in now) or (
        key in VERDICTS and f"{place}.verdict" in now
    )


def test_an_older_library_is_sound_and_goes_on(machine):
    """A proposal is approved, an operation is undone, an edited file arrives, skills
    are published.
    """
    (waiting, _) = (one["proposal_id"] for one in machine("inbox", "--json").json["proposals"])
    machine("inbox", "approve", waiting)
    assert "Group by date, then by area" in machine("get", "notes").out
    newest = machine("log", "--json").json["operations"][0]["operation"]
    machine("undo", newest)
    assert "Group by date" not in machine("get", "notes").out
    machine.save(
        machine.user / ".claude/skills",
        "notes",
        "---\nname: notes\ndescription: Notes.\n---\n\nShort.\n",
    )
    machine("sync")
    assert machine("get", "notes").out.endswith("Short.\n")
    machine("publish")
    assert machine("channel", "--json").json["waiting"] == []
    assert machine("fsck", "--json").json["faults"] == []


def test_exports_are_imported_with_their_history(machine, tmp_path):
    again = ("--home", tmp_path / "again")
    machine(*again, "import", tmp_path / "all.json", "--yes", code=None)
    for kind in ("skill", "prompt", "memory"):
        words = ("list", "--kind", kind, "--json")
        then, now = (
            {
                (one["ref"], one["version"], one["description"])
                for one in machine(*home, *words).json["resources"]
            }
            for home in ((), again)
        )
        assert now == then and now
    versions = [
        [(one["version"], one["at"], one["actor"], one["reason"]) for one in ran.json["versions"]]
        for ran in (machine(*home, "history", "pdf", "--json") for home in ((), again))
    ]
    assert versions[1] == versions[0]

    from_zip = ("--home", tmp_path / "zipped")
    machine(*from_zip, "import", tmp_path / "skills.zip", "--yes", code=None)
    names = {one["ref"] for one in machine(*from_zip, "list", "--json").json["resources"]}
    assert names == {"skill:pdf", "skill:notes", "skill:order-fields"}
    assert machine(*from_zip, "get", "pdf").out == machine("get", "pdf").out


def test_a_backup_is_a_library(machine, tmp_path):
    backup = ("--home", tmp_path / "backup")
    assert machine(*backup, "list", "--json").json == machine("list", "--json").json
    assert machine(*backup, "log", "--json").json == machine("log", "--json").json
    assert machine(*backup, "fsck", "--json").json["faults"] == []


def test_entries_in_clients_are_found_brought_up_to_date_and_taken_out(machine):
    claude, codex = machine.user / ".claude.json", machine.user / ".codex/config.toml"
    assert "/opt/evolvable/bin/evolvable" in claude.read_text(encoding="utf-8")
    for client in ("claude-code", "codex"):
        machine("connect", client)
    servers = json.loads(claude.read_text(encoding="utf-8"))["mcpServers"]
    assert list(servers) == ["github", "evolvable"]
    assert servers["evolvable"]["env"]["EVOLVABLE_HOME"] == str(machine.home)
    assert "/opt/evolvable" not in claude.read_text(encoding="utf-8") + codex.read_text(
        encoding="utf-8"
    )
    assert list(tomllib.loads(codex.read_text(encoding="utf-8"))["mcp_servers"]) == ["evolvable"]
    machine("connect", "claude-code", "--scope", "project")

    problems = machine("doctor", "--json", code=None).json["problems"]
    left = [one["what"] for one in problems if "an older version" not in one["next"]]
    assert not left, "only what older versions left beside the watched folders is named"

    for client in ("claude-code", "codex"):
        machine("disconnect", client)
    machine("disconnect", "claude-code", "--scope", "project", code=None)
    assert json.loads(claude.read_text(encoding="utf-8")) == {
        "numStartups": 3,
        "mcpServers": {"github": {"command": "npx"}},
    }
    assert codex.read_text(encoding="utf-8") == 'model = "gpt-5.5"  # the big one\n'


def test_memories_in_clients_are_kept_up_to_date_and_taken_out(machine):
    copy = machine.user / ".claude/rules/evolvable-memory.md"
    assert "Prefers short answers." in copy.read_text(encoding="utf-8")
    machine("update", "memory:USER", "--edit", "USER.md", "short", "brief")
    assert "Prefers brief answers." in copy.read_text(encoding="utf-8")
    machine("memory", "off", "claude-code", "codex")
    assert not copy.exists() and "brief" not in "".join(
        path.read_text(encoding="utf-8") for path in machine.user.glob(".codex/AGENTS.md")
    )


def test_an_adoption_is_undone(machine):
    assert "PO-" in machine("get", "order-fields").out
    machine("evolve", "adopt", "--undo", machine.runs["FINISHED"])
    assert "PO-" not in machine("get", "order-fields").out


def test_a_run_that_waited_goes_on_to_its_verdict(machine, commit):
    """Commands have had to be named by a person since the trust issue; a run of before is told so
    and stays.
    """
    waiting = machine.runs["WAITING"]
    if commit != "fac0cda" and sandbox_of().sandbox is None:
        pytest.skip("the run was begun in a sandbox, and this machine has none")
    while packets := machine("evolve", "pending", waiting, "--json").json["packets"]:
        answer = json.dumps(MAKE.answer_to(packets[0]["data"]))
        went = machine("evolve", "submit", "-", "--run", waiting, "--wait", stdin=answer, code=None)
        if commit == "fac0cda":
            assert went.code == 1 and "commands are named by a person" in went.err
            break
        assert went.code == 0, went.err
    status = machine("evolve", "status", waiting, "--json").json
    assert (status["state"] == "finished") is (commit != "fac0cda")


def test_the_persons_configuration_is_read(machine, commit):
    if commit == "fac0cda":
        pytest.skip("this version had none")
    named = {kind: machine(kind, "list", "--json").json for kind in ("executor", "proposer")}
    assert "orders" in json.dumps(named["executor"]) and "thinker" in json.dumps(named["proposer"])


def test_the_archives_name_no_account(commit, tmp_path):
    """What was stored came from a made-up machine."""
    machine = OlderMachine(tmp_path, commit)
    db = sqlite3.connect(machine.home / "library.db")
    assert not [line for line in db.iterdump() if "/root/" in line or "/home/" in line]
    db.close()
