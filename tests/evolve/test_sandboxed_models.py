"""Models in a sandbox: the clients reach theirs through a relay that holds the key, and nothing
else.
"""

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import pytest
from confined import apart, needs_sandbox
from evolving import a_program, a_task
from fake_clients import fake_claude, fake_codex
from model_api import Asked, ModelApi, Reply, says

from evolvable_evolve.evolution.executors.agent_cli import ClientSettings
from evolvable_evolve.evolution.executors.coding_agents import ClaudeExecutor, CodexExecutor
from evolvable_evolve.evolution.executors.installation import run_canary
from evolvable_evolve.sandbox.exchange import ModelAccess, relay

pytestmark = [pytest.mark.process, needs_sandbox]

KEY = "sk-ant-of-the-test"

ASKING = """#!{python} -S
import json, os, sys, urllib.request
if sys.argv[1:] == ["--version"]:
    print("9.9.3"); sys.exit()
def ask(url, **headers):
    headers["content-type"] = "application/json"
    request = urllib.request.Request(url, b'{{"model": "m"}}', headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return "unreachable"
base = {base}
home = os.environ.get("CODEX_HOME")
seen = {{"model": ask(base + {path!r}, authorization="Bearer stolen", **{{"x-api-key": "stolen"}}),
        "files": ask(base + "/v1/files"), "up": ask(base + "/v1/../v1/files"),
        "other": ask({other!r} + {path!r}), "secret": os.path.exists({secret!r}),
        "environment": dict(os.environ), "argv": sys.argv,
        "config": open(home + "/config.toml").read() if home else ""}}
"""
CLAUDE = (
    'print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": '
    "json.dumps(seen)}))\n"
)
CODEX = """
item = {"type": "agent_message", "text": json.dumps(seen)}
print(json.dumps({"type": "item.completed", "item": item}))
print(json.dumps({"type": "turn.completed", "usage": {}}))
"""


class Anything(ModelApi):
    """Answers every request and keeps it."""

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        return says("ok")


def client(tmp_path: Path, api: ModelApi, base: str, path: str, events: str) -> str:
    secret = tmp_path / "library.db"
    secret.write_text("secret")
    program = tmp_path / "bin" / "client"
    program.parent.mkdir()
    text = ASKING.format(
        python=sys.executable, base=base, path=path, other=api.url, secret=str(secret)
    )
    program.write_text(text + events, encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def told(executor, tmp_path):
    work = tmp_path / "trial" / "work"
    work.mkdir(parents=True)
    rollout = asyncio.run(
        executor.run(a_task(prompt="do it", timeout_s=60.0), a_program(), 0, work)
    )
    assert rollout.outcome is None, rollout.detail
    return json.loads(rollout.output)


def check(seen, api, path):
    assert (seen["model"], seen["files"], seen["up"], seen["other"], seen["secret"]) == (
        200,
        403,
        403,
        "unreachable",
        False,
    )
    assert KEY not in json.dumps(seen) and "EVOLVABLE_HOME" not in seen["environment"]
    [asked] = api.asked
    assert asked.path == path and "stolen" not in json.dumps(
        {**asked.headers, "x-api-key": asked.headers.get("x-api-key")}
    )
    return asked


def test_claude_code_asks_its_model_through_the_relay_which_holds_the_key(tmp_path):
    with Anything() as api:
        binary = client(tmp_path, api, 'os.environ["ANTHROPIC_BASE_URL"]', "/v1/messages", CLAUDE)
        environment = {
            "PATH": os.environ["PATH"],
            "ANTHROPIC_API_KEY": KEY,
            "EVOLVABLE_HOME": str(tmp_path),
        }
        environment |= {
            "ANTHROPIC_AUTH_TOKEN": KEY,
            "ANTHROPIC_BASE_URL": api.url,
            "AWS_SECRET_ACCESS_KEY": KEY,
        }
        executor = ClaudeExecutor(
            ClientSettings(binary, "9", "m", environment, sandbox=apart(), hidden=(tmp_path / "x",))
        )

        asked = check(told(executor, tmp_path), api, "/v1/messages")

    assert (asked.headers["x-api-key"], asked.headers["authorization"]) == (KEY, f"Bearer {KEY}")


def test_codex_asks_its_model_through_the_relay_which_holds_the_key(tmp_path):
    with Anything() as api:
        config = (
            f'model_provider = "p"\n[model_providers.p]\nbase_url = "{api.url}/v1"\n'
            'env_key = "P_KEY"\n'
        )
        binary = client(tmp_path, api, '"http://127.0.0.1:8790"', "/v1/responses", CODEX)
        environment = {"PATH": os.environ["PATH"], "P_KEY": KEY}
        executor = CodexExecutor(
            ClientSettings(binary, "9", "m", environment, config=config, sandbox=apart())
        )

        seen = told(executor, tmp_path)
        asked = check(seen, api, "/v1/responses")

    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert 'base_url = "http://127.0.0.1:8790/v1"' in seen["config"]
    assert "danger-full-access" in seen["argv"]


def test_a_sign_in_of_the_client_s_own_is_one_file_that_is_read_only(tmp_path):
    own = tmp_path / "user" / ".claude"
    own.mkdir(parents=True)
    (own / ".credentials.json").write_text('{"token": 1}')
    (own / "history.jsonl").write_text("private")
    events = CLAUDE.replace("json.dumps(seen)", "json.dumps(own)")
    look = f"""
place = os.environ["CLAUDE_CONFIG_DIR"] + "/.credentials.json"
own = [open(place).read(), os.listdir({str(own)!r})]
try:
    open(place, "a"); own.append("written")
except OSError:
    own.append("refused")
"""
    program = tmp_path / "client"
    program.write_text(f"#!{sys.executable} -S\nimport json, os\n{look}{events}", encoding="utf-8")
    program.chmod(0o755)
    settings = ClientSettings(str(program), "9", "m", {"PATH": os.environ["PATH"]}, sandbox=apart())

    executor = ClaudeExecutor(
        ClientSettings(**{**vars(settings), "credentials": own / ".credentials.json"})
    )

    assert told(executor, tmp_path) == ['{"token": 1}', [".credentials.json"], "refused"]


@pytest.mark.parametrize("which", ["claude", "codex"])
def test_a_program_reaches_a_client_in_the_sandbox(tmp_path, which):
    binary = fake_claude(tmp_path) if which == "claude" else fake_codex(tmp_path)
    settings = ClientSettings(str(binary), "9", "m", {"PATH": os.environ["PATH"]}, sandbox=apart())
    executor = (ClaudeExecutor if which == "claude" else CodexExecutor)(settings)

    found = asyncio.run(run_canary(executor, tmp_path / "c"))

    assert found.passed, found.why


def test_the_relay_passes_on_chunked_bodies_and_refuses_what_it_does_not_know():
    async def asked(api, request):
        async with relay(
            ModelAccess(api.url, frozenset(("/v1/messages",)), {"x-api-key": KEY})
        ) as place:
            reader, writer = await asyncio.open_unix_connection(place)
            writer.write(request)
            answer = await reader.read()
            writer.close()
        assert not place.exists()
        return answer.partition(b"\r\n")[0]

    upgrade = b"GET /v1/messages HTTP/1.1\r\nconnection: Upgrade\r\nupgrade: %s\r\n\r\n"
    head = b"POST /v1/messages HTTP/1.1\r\nhost: elsewhere\r\n"
    with Anything() as api:
        chunked = head + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        assert b"200" in asyncio.run(asked(api, chunked))
        assert api.asked[0].headers["host"] == api.url.removeprefix("http://")
        for request in (
            b"GET http://127.0.0.1/v1/messages HTTP/1.1\r\n\r\n",
            b"CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n",
            b"DELETE /v1/messages HTTP/1.1\r\n\r\n",
            head + b"content-length: 999999999999\r\n\r\n",
            head + b"content-length: -1\r\n\r\n",
            head + b"content-length: x\r\n\r\n",
        ):
            assert b"200" not in asyncio.run(asked(api, request))
        assert b"426" in asyncio.run(asked(api, upgrade % b"WebSocket")), (
            "Codex asks by HTTP at once on this alone"
        )
        assert len(api.asked) == 1
