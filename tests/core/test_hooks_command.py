"""The command that clients run where they cannot call the server: quick, silent, and never a
failure.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from mcp_place import Place

pytestmark = pytest.mark.process

HOOK = "from evolvable_server.hooks.command import main; main()"
STOP = {"session_id": "s1", "transcript_path": "/t/a.jsonl", "cwd": "/p", "hook_event_name": "Stop"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


def run(
    place: Place, *arguments: str, given: object = STOP, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    """Runs one hook as a client does. `given`: its payload, bytes as they are."""
    payload = given if isinstance(given, bytes) else json.dumps(given).encode()
    command = [sys.executable, "-P", "-c", HOOK, *arguments]
    return subprocess.run(
        command, input=payload, capture_output=True, env={**place.environment, **env}, timeout=60
    )


def processor_of_children() -> float:
    """The processor time, in seconds, of the processes that this one waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def entry(place: Place, name: str = "s1") -> dict[str, str]:
    return json.loads((place.home / f"reviews/queue/{name}.json").read_text(encoding="utf-8"))


def test_stop_queues_the_session_and_a_later_event_updates_its_one_entry(place):
    first = run(place, "Stop", "claude-code")
    before = entry(place)
    second = run(
        place,
        "SessionEnd",
        given={"session_id": "s1", "hook_event_name": "SessionEnd", "reason": "other"},
    )

    assert [(r.returncode, r.stdout, r.stderr) for r in (first, second)] == [(0, b"", b"")] * 2
    assert (
        before.items()
        >= {"event": "Stop", "client": "claude-code", "cwd": "/p", "session_id": "s1"}.items()
    )
    assert entry(place) == {**before, "event": "SessionEnd", "time": entry(place)["time"]}
    assert [path.name for path in (place.home / "reviews/queue").iterdir()] == ["s1.json"]


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b"\xff\xfe{",
        b"[" * 100_000,
        b'{"session_id": 7}',
        b'{"session_id": null}',
        b'{"hook_event_name": "Stop", "session_id": "\\ud800"}',
        b'{"hook_event_name": "Stop", "session_id": "../../x", "cwd": {"a": 1}}',
        b'{"hook_event_name": "Unheard", "session_id": "s9", "tool_name": ["x"]}',
    ],
    ids=str,
)
@pytest.mark.parametrize("arguments", [["Stop"], []], ids=["named", "told"])
def test_whatever_it_is_given_it_succeeds_and_says_nothing(place, given, arguments):
    result = run(place, *arguments, given=given)

    assert (result.returncode, result.stdout) == (0, b"")
    queue = place.home / "reviews/queue"
    assert all(
        path.parent == queue and len(path.name) <= 110
        for path in place.home.rglob("*.json")
        if path.parent == queue
    )
    assert not (place.home.parent / "x.json").exists()


def test_it_succeeds_where_it_cannot_write_and_where_there_is_no_library(place, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/reviews").write_text("in the way", encoding="utf-8")
    blocked = run(place, "Stop", EVOLVABLE_HOME=str(tmp_path / "home"))
    absent = run(place, "Stop", EVOLVABLE_HOME=str(tmp_path / "none"))
    prompt = run(place, "UserPromptSubmit", EVOLVABLE_HOME=str(tmp_path / "none"))

    assert [(r.returncode, r.stdout) for r in (blocked, absent, prompt)] == [(0, b"")] * 3
    assert blocked.stderr.startswith(b"evolvable-hook: ")
    assert not (tmp_path / "none").exists()


def test_queueing_imports_nothing_but_the_standard_library_and_little_of_that(place):
    """What is imported is what a person waits for."""
    code = (
        "import sys; before = set(sys.modules); from evolvable_server.hooks.command import run; "
        "run(['Stop']);print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    command = [sys.executable, "-P", "-c", code]
    result = subprocess.run(
        command, input=b"{}", capture_output=True, env=place.environment, timeout=60
    )
    loaded = result.stderr.decode().split()

    ours = {
        "evolvable_server",
        "evolvable_store",
        "evolvable_store.faces",
        "evolvable_store.review_queue",
    }
    ours |= {
        "evolvable_server.hooks",
        "evolvable_server.hooks.command",
        "evolvable_server.environment",
    }
    assert {
        name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names
    } == ours
    assert not {
        "dataclasses",
        "typing",
        "pathlib",
        "asyncio",
        "sqlite3",
        "logging",
        "tempfile",
    } & set(loaded)


def test_queueing_takes_less_than_50_ms_more_than_python_itself(place):
    """In processor time: what else runs here is no part of it."""

    def quickest(*command: str) -> float:
        times = []
        for _ in range(8):
            begun = processor_of_children()
            subprocess.run(
                [sys.executable, "-P", *command],
                input=json.dumps(STOP).encode(),
                env=place.environment,
            )
            times.append(processor_of_children() - begun)
        return min(times)

    assert quickest("-c", HOOK, "Stop") - quickest("-c", "pass") < 0.05


def test_without_a_server_the_command_offers_a_skill_itself_and_only_once(place):
    prompt = {
        "session_id": "s5",
        "hook_event_name": "UserPromptSubmit",
        "prompt": "Fill in this PDF form",
        "cwd": "/",
    }
    first, again = run(place, given=prompt), run(place, given=prompt)
    output = json.loads(first.stdout)["hookSpecificOutput"]

    assert (
        output["hookEventName"] == "UserPromptSubmit" and "skill:pdf" in output["additionalContext"]
    )
    assert (again.returncode, again.stdout) == (0, b"")


@pytest.mark.parametrize("off", ["off", "OFF", " no ", "0", "false"])
def test_all_of_it_is_off_by_one_setting(place, off):
    result = run(place, "Stop", given={**STOP, "session_id": "never"}, EVOLVABLE_HOOKS=off)

    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert not (place.home / "reviews/queue/never.json").exists()


def test_a_folder_of_the_user_does_not_get_in_its_way(place, tmp_path):
    """A hook is run in the project; what lies there is not imported."""
    for name in ("json.py", "evolvable_store.py"):
        (tmp_path / name).write_text(
            "raise SystemExit('imported from the project')", encoding="utf-8"
        )
    script = Path(sys.executable).with_name("evolvable-hook")
    command = (
        [str(script), "Stop"] if script.exists() else [sys.executable, "-P", "-c", HOOK, "Stop"]
    )
    given = json.dumps({**STOP, "session_id": "s7"}).encode()
    environment = {**place.environment, "PWD": os.fspath(tmp_path)}
    result = subprocess.run(
        command, input=given, capture_output=True, env=environment, cwd=tmp_path, timeout=60
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert entry(place, "s7")["session_id"] == "s7"
