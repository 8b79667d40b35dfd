"""Automatic reviews: which sessions they take, who is asked, what they may cost, and what becomes
of a failure.
"""

import json
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from labelled_sessions import Labelled, labelled
from library_trouble import busy
from processes import poll
from samples import teach

from evolvable_server.auto_queue import due_sessions, start_if_due
from evolvable_server.auto_review import review_due
from evolvable_server.config import MARKS, Config, model_command_environment, read_config
from evolvable_store.review_queue import enqueue, take_session, waiting_sessions
from evolvable_store.storage import connection
from evolvable_store.store import Store
from evolvable_tools.library import Library
from evolvable_tools.verbs import proposal_inbox

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="the stand-ins are scripts"),
]

BY_NAME = {one.name: one for one in labelled()}
SESSION, QUIET = BY_NAME["alembic"], next(one for one in labelled() if not one.learn)

CLIENT = """\
#!{python}
import json, os, pathlib, re, subprocess, sys
here = pathlib.Path(__file__).parent
given = sys.stdin.read()
with open(here / "log", "a") as log:
    print(json.dumps({{"argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd()}}), file=log)
if (here / "meanwhile").exists():
    subprocess.run(json.loads((here / "meanwhile").read_text()), check=True)
if (here / "down").exists():
    sys.exit("no route to host")
span = re.search(r'"id":\\s*"(s[0-9]+)"[^{{}}]*We always generate migrations', given)
answer = {{"candidates": [], "why_none": "nothing"}}
if span:
    quote = "We always generate migrations with alembic revision"
    edit = {{"op": "text", "old": "By hand.", "new": "With alembic revision."}}
    evidence = [{{"span": span[1], "quote": quote}}]
    answer = {{"candidates": [{{"kind": "skill-edit", "target": "skill:db-migrations",
        "claim": "Generated.", "edits": [edit], "evidence": evidence}}]}}
if (here / "nonsense").exists():
    answer = {{"candidates": [{{"kind": "nothing"}}]}}
print(json.dumps({{"type": "result", "is_error": False, "result": json.dumps(answer),
    "total_cost_usd": 0.25, "usage": {{"input_tokens": 20, "output_tokens": 7}}}}))
"""


class Window:
    """A person's machine on which `claude` answers a review, and automatic reviews of the project
    are on.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.evolvable, self.bin = CommandLine(root), root / "bin"
        self.bin.mkdir()
        self.install("claude")
        for name in (*MARKS, "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
            monkeypatch.delenv(name, raising=False)
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        for name, value in {**self.evolvable.environment, "PATH": path}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(self.evolvable.project)
        self.home = self.evolvable.home
        with Store.open(self.home, create=True) as store:
            teach(store, "db-migrations", "Write database migrations.", body="By hand.")
        self.auto("on")

    def install(self, name: str) -> None:
        """Put a program on the path that answers a review."""
        program = self.bin / name
        program.write_text(CLIENT.format(python=sys.executable), encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    @property
    def config(self) -> Config:
        return read_config()

    @property
    def asked(self) -> list[dict[str, Any]]:
        log = self.bin / "log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def auto(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = self.evolvable("review", "auto", *words, "--json").json
        return found

    def ends(self, session: Labelled = SESSION, event: str = "SessionEnd", **more: str) -> None:
        """A session of the project ends, as its client's hook says."""
        path = session.write(self.evolvable.project)
        named = {
            "transcript_path": str(path),
            "cwd": str(self.evolvable.project),
            "client": session.client,
            **more,
        }
        assert enqueue(str(self.home), {"session_id": session.session_id, "event": event, **named})

    def runs(self) -> list[str]:
        return [one.state for one in review_due(self.config)]

    def waiting(self) -> list[str]:
        with Library.open(self.home) as library:
            return [one.ref for one in proposal_inbox.list_waiting(library)]


@pytest.fixture
def window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Window:
    return Window(tmp_path, monkeypatch)


def test_a_session_that_ended_is_reviewed_once_by_its_client_and_the_lesson_waits(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    window.ends()
    monkeypatch.setenv("CLAUDECODE", "1")

    assert window.runs() == ["done"] and window.runs() == []
    (asked,) = window.asked
    assert window.waiting() == ["skill:db-migrations"] and waiting_sessions(window.home) == []
    assert (
        asked["argv"][1] == "-p"
        and asked["env"]["EVOLVABLE_REVIEWING"] == "1"
        and asked["cwd"] == str(window.home)
    )
    left = window.auto()["left"]
    assert (left["of_tokens"] - left["tokens"], left["of_money"] - left["money"]) == (27, 0.25)


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ("copilot", {"--available-tools=none", "--no-custom-instructions"}),
        ("opencode", {"--pure", "evolvable-review"}),
        ("qwen", {"--safe-mode", "--exclude-tools"}),
        ("droid", {"exec", "--only-tools"}),
    ],
)
def test_each_client_reviews_its_own_sessions_without_tools_and_is_told_that_it_does(
    window: Window, client: str, words: set[str]
) -> None:
    window.install(client)
    window.ends(client=client)

    assert window.runs() == ["done"] and window.waiting() == ["skill:db-migrations"]
    (asked,) = window.asked
    assert Path(asked["argv"][0]).name == client and words <= set(asked["argv"])
    assert asked["env"]["EVOLVABLE_REVIEWING"] == "1" and asked["cwd"] == str(window.home)
    named = json.loads(asked["env"].get("OPENCODE_CONFIG_CONTENT", "{}"))
    assert (client == "opencode") == bool(named) and (
        not named or named["agent"]["evolvable-review"]["tools"] == {"*": False}
    )


def test_a_command_that_a_person_called_as_a_client_stays_theirs(window: Window) -> None:
    window.install("own")
    window.evolvable("reviewer", "add", "qwen", "--", str(window.bin / "own"), "--mine")
    window.evolvable("model", "role", "reviewer", "qwen", "--yes")
    window.ends()

    assert window.runs() == ["done"] and window.asked[0]["argv"][1:] == ["--mine"]


def test_a_client_gets_the_address_of_its_models_from_the_person_alone(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPILOT_PROVIDER_BASE_URL", "http://of.a.project")
    config = read_config()
    assert "COPILOT_PROVIDER_BASE_URL" not in model_command_environment(config)
    own = replace(
        config, person=replace(config.person, models={"copilot_provider": "http://127.0.0.1:9/v1"})
    )
    assert model_command_environment(own)["COPILOT_PROVIDER_BASE_URL"] == "http://127.0.0.1:9/v1"


def test_only_sessions_that_ended_in_a_project_where_it_is_on_are_taken(
    window: Window, tmp_path: Path
) -> None:
    window.ends(event="Stop")
    assert window.runs() == []
    window.ends(cwd=str(tmp_path))
    assert window.runs() == []
    window.ends()
    window.auto("off")
    assert window.runs() == [] == window.asked
    assert len(waiting_sessions(window.home)) == 1


def test_a_session_without_a_signal_costs_nothing(window: Window) -> None:
    window.ends(QUIET)

    assert window.runs() == ["done"] and window.asked == []
    assert waiting_sessions(window.home) == []


def test_a_failed_review_is_tried_once_more_and_then_left_to_the_person_who_is_told(
    window: Window,
) -> None:
    (window.bin / "down").touch()
    window.ends()

    assert window.runs() == ["waits"]
    assert window.runs() == [], "what ends in the same minute would meet the same trouble"
    (entry,) = waiting_sessions(window.home)
    os.utime(entry.place, (1, 1))
    assert window.runs() == ["waits"]
    (entry,) = waiting_sessions(window.home)
    os.utime(entry.place, (1, 1))
    assert window.runs() == [] and len(window.asked) == 2

    (failed,) = window.auto()["failed"]
    assert failed.startswith(f"{SESSION.session_id}: ") and "no route to host" in failed
    (window.bin / "down").unlink()
    window.ends()  # the session went on
    assert window.runs() == ["done"] and window.waiting() == ["skill:db-migrations"]


def test_answers_that_cannot_be_used_count_as_failures(window: Window) -> None:
    (window.bin / "nonsense").touch()
    window.ends()

    assert window.runs() == ["waits"]
    (entry,) = waiting_sessions(window.home)
    assert entry.tries == 1 and "could not be used" in entry.why


def test_a_session_waits_for_a_new_day_when_the_budget_is_spent_and_counts_as_no_failure(
    window: Window,
) -> None:
    window.auto("on", "--budget", "tokens=1000,money=2")
    window.ends()

    assert window.runs() == ["waits"] and window.asked == []
    assert [one.tries for one in waiting_sessions(window.home)] == [0]
    window.auto("on", "--budget", "tokens=300000,money=0.01")
    assert window.runs() == ["waits"] and window.asked == []
    window.auto("on", "--budget", "tokens=300000,money=2")
    assert window.runs() == ["done"]


def test_what_ends_while_a_review_runs_is_taken_by_that_worker_and_no_second_one_asks(
    window: Window,
) -> None:
    """A second window ends and starts its own worker, which finds the lock and goes."""
    other = BY_NAME["short-commits"]
    path = other.write(window.evolvable.project)
    event = {"session_id": other.session_id, "event": "SessionEnd", "transcript_path": str(path)}
    event |= {"cwd": str(window.evolvable.project), "client": "claude-code"}
    script = textwrap.dedent(
        """
        import json, os, pathlib, sys
        once = pathlib.Path(sys.argv[1])
        if once.exists():
            once.unlink()
            from evolvable_store.review_queue import enqueue
            assert enqueue(sys.argv[2], json.loads(sys.argv[3]))
            os.environ.pop("EVOLVABLE_REVIEWING")
            from evolvable_server.auto_review import main
            main()
        """
    )
    once = window.bin / "once"
    once.touch()
    meanwhile = [sys.executable, "-P", "-c", script, str(once), str(window.home), json.dumps(event)]
    (window.bin / "meanwhile").write_text(json.dumps(meanwhile))
    window.ends()

    assert window.runs() == ["done", "done"] and len(window.asked) == 2
    assert waiting_sessions(window.home) == []


def test_what_a_killed_worker_had_taken_is_reviewed_by_the_next(window: Window) -> None:
    window.ends()
    assert take_session(window.home) is not None
    assert waiting_sessions(window.home) == []

    assert len(due_sessions(window.config)) == 1 and window.runs() == ["done"]
    assert window.waiting() == ["skill:db-migrations"]


def test_a_session_that_ends_while_the_library_is_busy_waits(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "GIVE_UP_SECONDS", 0.05)
    window.ends()
    with Store.open(window.home) as store, busy(store.backend):
        assert window.runs() == ["waits"]
    assert [one.tries for one in waiting_sessions(window.home)] == [0]
    assert window.runs() == ["done"] and window.waiting() == ["skill:db-migrations"]


def test_a_lesson_of_a_named_skill_is_made_at_once_with_its_provenance_and_taken_back_by_one_call(
    window: Window,
) -> None:
    window.auto("on", "--skill", "db-migrations")
    window.ends()

    assert window.runs() == ["done"] and window.waiting() == []
    assert "With alembic revision." in window.evolvable("show", "db-migrations").out
    (newest, *_) = window.evolvable("history", "db-migrations", "--json").json["versions"]
    assert any(
        "learn review auto --skill skill:db-migrations" in line for line in newest["evidence"]
    )
    window.evolvable("undo", str(newest["operation"]), "--yes", code=None)
    assert "By hand." in window.evolvable("show", "db-migrations").out


def test_an_agent_cannot_switch_automatic_reviews_on(window: Window) -> None:
    window.evolvable.person = False
    assert "for a person at a terminal" in window.evolvable("review", "auto", "on", code=None).err


def has_no_worker(home: Path) -> Callable[[], bool]:
    """Return whether no process of automatic reviews of this library runs."""

    def check() -> bool:
        for one in Path("/proc").glob("[0-9]*"):
            try:
                ours = b"evolvable_server.auto_review" in (one / "cmdline").read_bytes()
                if ours and f"EVOLVABLE_HOME={home}\0".encode() in (one / "environ").read_bytes():
                    return False
            except OSError:
                continue
        return True

    return check


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_hook_of_a_sessions_end_starts_the_worker_and_no_process_stays(window: Window) -> None:
    path = SESSION.write(window.evolvable.project)
    payload = {
        "session_id": SESSION.session_id,
        "transcript_path": str(path),
        "cwd": str(window.evolvable.project),
    }
    hook = "from evolvable_server.hooks.command import main; main()"
    command = [sys.executable, "-P", "-c", hook, "SessionEnd", "claude-code"]
    done = subprocess.run(
        command, input=json.dumps(payload).encode(), capture_output=True, timeout=60, check=True
    )

    assert (done.stdout, done.stderr) == (b"", b"")
    poll(lambda: waiting_sessions(window.home) == [] and window.waiting(), "the lesson to wait")
    poll(has_no_worker(window.home), "the worker to end")
    assert len(window.asked) == 1


def left_alone(window: Window) -> None:
    """A session ended without a word of its client, more than half an hour ago."""
    window.ends(event="Stop")
    (entry,) = waiting_sessions(window.home)
    said = json.loads(Path(entry.place).read_text(encoding="utf-8"))
    Path(entry.place).write_text(
        json.dumps({**said, "time": "2026-01-01T00:00:00Z"}), encoding="utf-8"
    )


def prompt_hook(window: Window, folder: Path, **environment: str) -> None:
    """A client that starts no server reports what a person said in a folder."""
    payload = {"session_id": "next", "prompt": "Hello.", "cwd": str(folder)}
    hook = "from evolvable_server.hooks.command import main; main()"
    command = [sys.executable, "-P", "-c", hook, "UserPromptSubmit", "qwen"]
    whole = {**os.environ, **environment}
    done = subprocess.run(
        command, input=json.dumps(payload).encode(), capture_output=True, timeout=60, env=whole
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_first_prompt_of_a_session_takes_what_a_client_left_that_told_no_end(
    window: Window,
) -> None:
    left_alone(window)
    prompt_hook(window, window.evolvable.project.parent)
    prompt_hook(window, window.evolvable.project, EVOLVABLE_REVIEWING="1")
    assert has_no_worker(window.home)()
    assert len(waiting_sessions(window.home)) == 1

    prompt_hook(window, window.evolvable.project)
    poll(lambda: waiting_sessions(window.home) == [] and window.waiting(), "the lesson to wait")
    poll(has_no_worker(window.home), "the worker to end")
    assert len(window.asked) == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_start_of_a_server_takes_what_a_client_left_that_told_no_end(window: Window) -> None:
    window.ends(event="Stop")
    assert start_if_due(window.config) is None
    left_alone(window)

    worker = start_if_due(window.config)
    assert worker is not None and worker.wait(60) == 0
    assert waiting_sessions(window.home) == [] and window.waiting() == ["skill:db-migrations"]


def test_a_process_of_ours_that_ends_a_session_queues_nothing(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evolvable_server.hooks.command import run

    monkeypatch.setenv("EVOLVABLE_REVIEWING", "1")
    assert run(["SessionEnd", "claude-code"]) == ""
    assert waiting_sessions(window.home) == []
