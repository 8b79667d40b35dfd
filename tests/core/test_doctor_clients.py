"""The doctor finds what breaks between a client and its server; the server remembers who called."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from command_line import CommandLine, skill_text
from mcp import types
from mcp_place import Place
from processes import poll

from evolvable_server.clients import registry
from evolvable_server.clients.registry import HeardCall, read_client_log

pytestmark = pytest.mark.process


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A machine with a library."""
    line = CommandLine(tmp_path)
    monkeypatch.chdir(line.project)
    for name in (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "XDG_CONFIG_HOME",
        "APPDATA",
        "LOCALAPPDATA",
        "EVOLVABLE_EMBEDDER",
    ):
        monkeypatch.delenv(name, raising=False)
    line("init", "--yes")
    return line


def codex(run: CommandLine, command: list[str], more: str = "") -> Path:
    path = run.user / ".codex/config.toml"
    path.parent.mkdir(exist_ok=True)
    program, *args = (json.dumps(word) for word in command)
    home = json.dumps(str(run.home))
    text = f"[mcp_servers.evolvable]\ncommand = {program}\nargs = [{', '.join(args)}]\n{more}"
    path.write_text(f"{text}env = {{EVOLVABLE_HOME = {home}}}\n", encoding="utf-8")
    return path


def problems(run: CommandLine, **env: str) -> str:
    health = run("doctor", "--json", code=None, **env).json
    return "\n".join(f"{one['what']} {one['next']}" for one in health["problems"])


def fake(run: CommandLine, text: str) -> list[str]:
    """Returns a command that our entry may name, which runs this instead of the server."""
    script = run.root / "evolvable_server.py"
    script.write_text(text, encoding="utf-8")
    return [sys.executable, str(script), "evolvable_server"]


SLOW = """\
import json, sys, time
time.sleep(1.2)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": []}}
        print(json.dumps(answer), flush=True)
"""


def test_a_connected_client_is_started_and_timed_and_said_never_to_have_called(
    run: CommandLine,
) -> None:
    run("connect", "codex")

    said = run("doctor", "--verbose")

    assert (
        "Codex (user): evolvable in" in said.out
        and "starts in" in said.out
        and "never called" in said.out
    )
    assert "All is well." in said.out
    assert read_client_log(run.home) == []  # the doctor is no client


def test_a_server_too_slow_for_codex_is_a_problem_unless_codex_is_told_to_wait(
    run: CommandLine,
) -> None:
    codex(run, fake(run, SLOW))
    found = problems(run)
    assert "not ready in 1 " in found and "connect codex" in found

    codex(run, fake(run, SLOW), "required = true\nstartup_timeout_sec = 20\n")
    assert problems(run) == ""


def test_a_server_that_ends_at_once_is_a_problem_with_what_it_said(run: CommandLine) -> None:
    codex(run, fake(run, "raise SystemExit('no such thing.')"))

    assert "ended at once: no such thing." in problems(run)


@pytest.mark.parametrize(
    ("command", "said"),
    [("evolvable", "is no absolute path"), ("/gone/bin/evolvable", "is not there")],
)
def test_a_wrong_path_is_a_problem_that_connect_mends(
    run: CommandLine, command: str, said: str
) -> None:
    codex(run, [command, "serve"])

    found = problems(run)
    assert said in found and "`evolvable connect codex` fixes it" in found
    run("connect", "codex")
    assert problems(run) == ""


def test_a_broken_file_and_one_with_a_comma_too_many_are_problems(run: CommandLine) -> None:
    path = Path(run("connect", "claude-desktop", "--json").json["path"])
    path.write_text(
        path.read_text(encoding="utf-8").replace('"serve"', '"serve",'), encoding="utf-8"
    )
    assert "a comma before a closing bracket" in problems(run)

    path.write_text('{\n  "mcpServers": {\n', encoding="utf-8")
    found = problems(run)
    assert f"Claude Desktop: {path} is broken" in found and "line 3, column 1" in found


def test_a_skill_in_two_folders_of_one_client_is_a_problem_when_the_texts_differ(
    run: CommandLine,
) -> None:
    run.save(run.user / ".codex/skills", "pdf", skill_text("pdf"))
    run.save(run.user / ".agents/skills", "pdf", skill_text("pdf"))
    assert problems(run) == ""

    run.save(run.project / ".agents/skills", "pdf", skill_text("pdf", body="other"))
    assert "Codex reads two skills named pdf" in problems(run)


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes in folders")
def test_a_pipe_in_place_of_a_skill_does_not_stop_the_doctor(run: CommandLine) -> None:
    skill = run.save(run.project / ".agents/skills", "pdf", skill_text("pdf"))
    (skill / "SKILL.md").unlink()
    os.mkfifo(skill / "SKILL.md")

    assert problems(run) == ""


def test_a_project_s_skill_over_the_user_s_is_noted(run: CommandLine) -> None:
    for ref in ("pdf", "skill:acme/pdf"):
        run("update", ref, "--create", "--file", "SKILL.md=-", stdin=skill_text("pdf"))

    said = run("doctor").out
    assert "skill:acme/pdf hides skill:pdf " in said and "project acme" in said


@pytest.mark.parametrize("setting", ["onnx:/no/such/model", "bert"])
def test_a_missing_model_is_a_problem(run: CommandLine, setting: str) -> None:
    assert "EVOLVABLE_EMBEDDER" in problems(run, EVOLVABLE_EMBEDDER=setting)


@pytest.mark.anyio
async def test_who_called_is_remembered_in_both_eras_and_a_call_is_told_from_a_session(
    place: Place, era: str
) -> None:
    info = types.Implementation(name="Codex MCP/client", version="0.169")
    async with place.client(era, client_info=info) as client:
        await client.list_tools()
        await anyio.to_thread.run_sync(poll, lambda: read_client_log(place.home), "the session")
        assert [one.event for one in read_client_log(place.home)] == ["session"]
        await client.call_tool("list_resources", {})
        await anyio.to_thread.run_sync(
            poll, lambda: len(read_client_log(place.home)) == 2, "the call"
        )

    names = {(one.client, one.version, one.event) for one in read_client_log(place.home)}
    assert names == {("Codex MCP/client", "0.169", event) for event in ("session", "call")}


def test_many_processes_may_write_who_called_and_half_a_file_is_left_out(tmp_path: Path) -> None:
    import concurrent.futures

    def write(number: int) -> None:
        registry._write(
            tmp_path / "callers",
            HeardCall(f"client {number % 3}", "1", "x", "session", f"2026-{number:04}"),
        )

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(300)))
    (tmp_path / "callers/client-broken.call.json").write_text("{", encoding="utf-8")

    found: list[Any] = read_client_log(tmp_path)
    assert sorted(one.client for one in found) == ["client 0", "client 1", "client 2"]
    assert len(list((tmp_path / "callers").iterdir())) == 4
