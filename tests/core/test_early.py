"""The first answers, given while the server is still being made: the same as the SDK's, each once,
nothing lost.
"""

import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import pytest

from evolvable_server.mcp.fast_start import (
    DISCOVERY,
    HANDSHAKE,
    VERSIONS,
    FastStart,
    FastStartState,
    read_discovery,
)
from evolvable_server.mcp.sdk_import import (
    defer_modules,
    deferred_models,
    deferred_types,
    hidden_modules,
)

INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
DISCOVER = {
    "jsonrpc": "2.0",
    "id": "probe",
    "method": "server/discover",
    "params": {"_meta": ENVELOPE},
}
LIST = {"jsonrpc": "2.0", "id": "two", "method": "tools/list", "params": {}}


def initialize(version: str = "2025-06-18", **params: object) -> dict[str, object]:
    given = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
        **params,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": given}


def line(frame: dict[str, object]) -> bytes:
    return json.dumps(frame).encode() + b"\n"


@dataclass
class Client:
    """Talks to an Early over two pipes."""

    early: FastStart
    sink: int
    replies: Iterator[str]

    def say(self, data: bytes) -> None:
        os.write(self.sink, data)

    def answer(self) -> dict[str, object]:
        return dict(json.loads(next(self.replies)))


@pytest.fixture
def client() -> Iterator[Client]:
    theirs, ours = os.pipe(), os.pipe()
    with open(ours[0], encoding="utf-8") as replies:
        yield Client(FastStart.begin(theirs[0], ours[1]), theirs[1], replies)
        for end in (*theirs, ours[1]):
            os.close(end)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_handshake_and_the_list_of_tools_are_answered_and_handed_on(
    client: Client, version: str
) -> None:
    said = [line(initialize(version)), line(INITIALIZED), line(LIST)]

    client.say(said[0][:40])  # in whatever pieces
    client.say(said[0][40:] + said[1] + said[2])
    first, second = client.answer(), client.answer()
    begun = client.early.end()

    assert (first["id"], first["result"]["protocolVersion"]) == (1, version)
    assert second["id"] == "two"
    assert "find_skill" in [tool["name"] for tool in second["result"]["tools"]]
    assert begun.read == b"".join(said)
    assert begun.answered == (1, "two")


def test_the_question_for_the_protocol_is_answered_and_the_handshake_may_follow(
    client: Client,
) -> None:
    client.say(line(DISCOVER))
    discovery = client.answer()
    client.say(line(initialize()))
    handshake = client.answer()
    begun = client.early.end()

    assert discovery == {"jsonrpc": "2.0", "id": "probe", "result": read_discovery()}
    assert handshake["id"] == 1
    assert begun.answered == ("probe", 1)


def enveloped(**meta: object) -> bytes:
    return line(DISCOVER | {"params": {"_meta": {**ENVELOPE, **meta}}})


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(
            line({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}}),
            id="no envelope",
        ),
        pytest.param(
            enveloped(**{"io.modelcontextprotocol/protocolVersion": "2027-01-01"}),
            id="a later version",
        ),
        pytest.param(enveloped(progressToken=1), id="something else in the envelope"),
        pytest.param(
            enveloped(**{"io.modelcontextprotocol/clientInfo": {"name": "test"}}), id="half a name"
        ),
        pytest.param(
            line(LIST | {"params": {"_meta": ENVELOPE}}), id="a list of the stateless protocol"
        ),
        pytest.param(line(initialize("2026-07-28")), id="an unknown version"),
        pytest.param(line(initialize(clientInfo="test")), id="wrong parameters"),
        pytest.param(line(LIST), id="a list before the handshake"),
        pytest.param(line(initialize() | {"id": 1.5}), id="a wrong id"),
        pytest.param(line(initialize() | {"jsonrpc": "1.0"}), id="another protocol"),
        pytest.param(
            b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "initialize"}\n', id="no Unicode"
        ),
        pytest.param(b"\xff\n", id="no UTF-8"),
        pytest.param(b"[" * 30_000 + b"\n", id="very deep"),
        pytest.param(b"\n", id="an empty line"),
    ],
)
def test_what_is_not_plain_is_left_to_the_sdk(client: Client, first: bytes) -> None:
    client.say(first)
    for thread in threading.enumerate():
        if thread.name == "early answers":
            thread.join(30)  # it gives up by itself
    begun = client.early.end()
    os.set_blocking(client.replies.fileno(), False)

    assert begun == FastStartState(first, ())
    with pytest.raises(BlockingIOError):
        os.read(client.replies.fileno(), 1)


def test_a_client_that_is_gone_at_once_does_no_harm(client: Client) -> None:
    client.say(line(initialize()))
    client.answer()

    assert client.early.end().answered == (1,)


def served(
    home: Path, *options: str, flags: tuple[str, ...] = (), told: Any = None
) -> dict[object, dict[str, object]]:
    """Returns the answers of a server to a short session, by their ids; each id has to come once.

    flags: of the interpreter. told: the file of its stderr.
    """
    call = {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "list_resources", "arguments": {}},
    }
    again = LIST | {"id": 4}
    said = b"".join(map(line, (initialize(), INITIALIZED, LIST, call, again)))
    command = [sys.executable, *flags, "-m", "evolvable_server", "serve", *options]
    env = os.environ | {"EVOLVABLE_HOME": str(home)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=told, env=env
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(said)
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(4)]
        server.stdin.close()
        assert server.stdout.read() == b""
    assert server.returncode == 0
    assert sorted(map(str, (answer["id"] for answer in answers))) == ["1", "3", "4", "two"]
    return {answer["id"]: answer["result"] for answer in answers}


@pytest.mark.process
def test_the_first_answers_are_those_of_the_sdk(tmp_path: Path) -> None:
    """To accept a change, run the suite with EVOLVABLE_UPDATE_GOLDEN=1 and commit the file."""
    # A list of its own is never answered early.
    late = served(tmp_path / "late", "--toolsets", "evolve")
    said = {key: value for key, value in late[1].items() if key != "protocolVersion"}
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        HANDSHAKE.write_text(
            json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    early = served(tmp_path / "early")

    assert said == json.loads(HANDSHAKE.read_text(encoding="utf-8"))
    assert early[1] == late[1]
    assert early["two"] == early[4]
    assert len(late[4]["tools"]) > len(early[4]["tools"])


def asked(
    home: Path, *said: dict[str, object], options: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Returns a server's answers to these requests, each sent after the answer to the
    one before.
    """
    command = [sys.executable, "-m", "evolvable_server", "serve", *options]
    env, answers = os.environ | {"EVOLVABLE_HOME": str(home)}, list[dict[str, Any]]()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        for frame in said:
            server.stdin.write(line(frame))
            server.stdin.flush()
            answers += [json.loads(server.stdout.readline())] if "id" in frame else []
        server.stdin.close()
        assert server.stdout.read() == b""
    return answers


@pytest.mark.process
def test_the_early_answer_to_the_question_for_the_protocol_is_that_of_the_sdk(
    tmp_path: Path,
) -> None:
    """To accept a change, run the suite with EVOLVABLE_UPDATE_GOLDEN=1 and commit the file."""
    (late,) = asked(tmp_path / "late", DISCOVER, options=("--toolsets", "evolve"))
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        own = {
            key: value
            for key, value in late["result"].items()
            if key not in ("instructions", "_meta")
        }
        DISCOVERY.write_text(json.dumps(own, indent=1) + "\n", encoding="utf-8")

    early, listed = asked(tmp_path / "early", DISCOVER, LIST | {"params": {"_meta": ENVELOPE}})

    assert early == late
    assert late["result"] == read_discovery()
    assert "find_skill" in [tool["name"] for tool in listed["result"]["tools"]]


@pytest.mark.process
def test_a_client_that_had_the_answer_too_late_begins_the_older_handshake(tmp_path: Path) -> None:
    call = {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "list_resources", "arguments": {}},
    }
    discovery, handshake, listed, called = asked(
        tmp_path, DISCOVER, initialize(), INITIALIZED, LIST, call
    )

    assert discovery["result"]["supportedVersions"] == ["2026-07-28"]
    assert handshake["result"]["protocolVersion"] == "2025-06-18"
    assert listed["result"]["tools"]
    assert not called["result"].get("isError")


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes the stream")
@pytest.mark.parametrize(
    "options", ["", " --toolsets evolve"], ids=["as clients start it", "with options"]
)
def test_a_server_without_any_stdin_ends_quietly(tmp_path: Path, options: str) -> None:
    command = f'exec "{sys.executable}" -m evolvable_server serve{options} <&-'
    env = os.environ | {"EVOLVABLE_HOME": str(tmp_path / "home")}
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.process
def test_a_server_on_stdio_goes_without_modules_of_http_and_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where one is installed, it is asked in another process.
    monkeypatch.setenv("EVOLVABLE_EMBEDDER", "off")
    served(tmp_path / "home")  # a library that is made takes more modules than one that is there
    with (tmp_path / "told").open("wb") as told:
        served(tmp_path / "home", flags=("-X", "importtime"), told=told)

    loaded = {
        said.rpartition("|")[2].strip()
        for said in (tmp_path / "told").read_text(encoding="utf-8").splitlines()
    }
    ours = {"evolvable_server.cli.command_line", "evolvable_server.clients.memory_files"}
    assert not loaded & ours
    assert not loaded & {"mcp.client", "mcp.client.session", "httpx2._client"}
    assert {"mcp.server.streamable_http", "evolvable_server.serving"} <= loaded
    assert not loaded & {
        "uvicorn.config",
        "rich.text",
        "click",
        "python_multipart.decoders",
        "multiprocessing",
    }


def test_hidden_modules_are_missing_for_the_body_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "to_hide.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    with hidden_modules("to_hide", "json"), pytest.raises(ImportError):
        importlib.import_module("to_hide")

    assert importlib.import_module("to_hide")
    assert sys.modules["json"] is json
    with hidden_modules("to_hide"):
        assert importlib.import_module("to_hide") is sys.modules.pop("to_hide")


def test_a_deferred_package_runs_when_it_is_asked_for_what_it_defines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_package").mkdir()
    (tmp_path / "late_package" / "__init__.py").write_text(
        "from .part import value\nown = value + 1\n", encoding="utf-8"
    )
    (tmp_path / "late_package" / "part.py").write_text("value = 1\n", encoding="utf-8")
    (tmp_path / "late_package" / "other_part.py").write_text("third = 3\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    defer_modules(
        "late_package", "late_package.other_part", "json", "a_package_that_is_not_installed"
    )

    assert sys.modules["json"] is json and "a_package_that_is_not_installed" not in sys.modules
    part = importlib.import_module("late_package.part")
    package = importlib.import_module("late_package")
    assert "own" not in vars(package)
    assert "third" not in vars(package.other_part)
    assert (part.value, package.own, package.part, package.other_part.third) == (1, 2, part, 3)
    with pytest.raises(AttributeError, match="module 'late_package' has no attribute 'other'"):
        _ = package.other


def test_a_deferred_module_that_fails_is_run_again_and_keeps_its_own_way_to_find_attributes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import first_fails\nassert first_fails.runs.pop()\ndef __getattr__(name):\n"
        "    return name * 2\n"
    )
    (tmp_path / "failing_module.py").write_text(code, encoding="utf-8")
    (tmp_path / "first_fails.py").write_text("runs = [True, False]\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    defer_modules("failing_module")
    module = importlib.import_module("failing_module")

    with pytest.raises(AssertionError):
        _ = module.ab

    assert (module.ab, module.cd) == ("abab", "cdcd")


def test_a_deferred_package_runs_once_when_threads_ask_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_package.py").write_text(
        "import time\ntime.sleep(0.1)\nvalue = object()\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    defer_modules("slow_package")
    package, seen = importlib.import_module("slow_package"), list[object]()

    threads = [threading.Thread(target=lambda: seen.append(package.value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 8 and set(seen) == {package.value}


def test_deferred_types_are_imported_at_their_first_use_and_answer_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_types.py").write_text(MODELS, encoding="utf-8")
    users = (
        "import late_types as types\nTABLE = {'one': types.Point, 'two': types.Point | "
        "types.Other}\n"
    )
    (tmp_path / "users_of_types.py").write_text(users, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    with deferred_types("late_types"):
        table = importlib.import_module("users_of_types").TABLE
        adapters = [
            pydantic.TypeAdapter(table["two"], config=pydantic.ConfigDict(defer_build=True))
            for _ in range(2)
        ]
    assert "late_types" not in sys.modules

    point = table["one"].model_validate({"x": "1"})
    types = importlib.import_module("late_types")
    assert point == types.Point(x=1) == table["one"](x=1)
    assert adapters[0].validate_python({"y": 2}) == types.Other(y=2)
    assert adapters[1].dump_python(types.Point(x=1), exclude_none=True) == {"x": 1}


@pytest.mark.process
def test_the_sdk_that_was_imported_lightly_has_everything_and_builds_late(tmp_path: Path) -> None:
    code = """
import json, sys
from evolvable_server.mcp.sdk_import import LATE_TYPES, light_sdk
with light_sdk():
    import evolvable_server.serving
import mcp_types.methods as methods
unused = [name in sys.modules for name in LATE_TYPES]
methods.validate_client_request("tools/list", "2025-06-18", None)
unused += [name in sys.modules for name in LATE_TYPES]
read = {"contents": [], "ttlMs": 1, "cacheScope": "public", "resultType": "complete"}
said = methods.serialize_server_result("resources/read", "2026-07-28", read)
late = [sys.modules[name].Tool.__pydantic_complete__ for name in LATE_TYPES]
import httpx2, mcp
known = issubclass(httpx2.HTTPStatusError, Exception)
found = known, mcp.Client.__module__, mcp.types.Tool.__name__
print(json.dumps([unused, said == read, late, found]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert json.loads(done.stdout) == [
        [False, False, True, False],
        True,
        [False, False],
        [True, "mcp.client.client", "Tool"],
    ]


MODELS = """
from pydantic import BaseModel, TypeAdapter

class Point(BaseModel):
    x: int
    other: "Point | None" = None

class Other(BaseModel):
    y: int

points = TypeAdapter[list[Point]](list[Point])
either = TypeAdapter(Point | int)
plain = TypeAdapter(Point)
"""


def test_deferred_models_are_built_at_their_first_use_and_answer_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("models_at_once", "models_deferred"):
        (tmp_path / f"{name}.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    before = pydantic.TypeAdapter

    at_once = importlib.import_module("models_at_once")
    with deferred_models():
        late = importlib.import_module("models_deferred")

    assert pydantic.TypeAdapter is before
    assert "defer_build" not in pydantic.BaseModel.model_config
    assert at_once.Point.__pydantic_complete__ and at_once.points.pydantic_complete
    built = [
        late.Point.__pydantic_complete__,
        *(one.pydantic_complete for one in (late.points, late.either, late.plain)),
    ]
    assert built == [False] * 4
    nested = {"x": "1", "other": {"x": 2}}
    assert late.points.validate_python([nested])[0].other.x == 2
    assert late.plain.validate_json(b'{"x": 3}').model_dump() == {"x": 3, "other": None}
    assert late.either.json_schema() == at_once.either.json_schema()
    with pytest.raises(pydantic.ValidationError) as wrong:
        late.Point.model_validate({"x": "no number"})
    with pytest.raises(pydantic.ValidationError) as same:
        at_once.Point.model_validate({"x": "no number"})
    assert str(wrong.value) == str(same.value)


@pytest.mark.process
def test_a_server_on_stdio_defers_the_models_of_the_sdk(tmp_path: Path) -> None:
    code = """
import json, sys, types
from evolvable_server.cli.serve_start import serve_on_stdio
from evolvable_server.config import read_config

def stop(*_, cleanup, **options):
    for end in cleanup:
        end()
    import mcp_types
    model = mcp_types.CreateMessageRequest.__pydantic_complete__
    adapter = mcp_types.server_request_adapter.pydantic_complete
    sys.stderr.write(json.dumps([model, adapter]))
    raise SystemExit

sys.modules["evolvable_server.transport.stdio"] = types.SimpleNamespace(run_stdio=stop)
serve_on_stdio(read_config())
"""
    env = os.environ | {"EVOLVABLE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        capture_output=True,
        env=env,
        timeout=60,
    )
    assert json.loads(done.stderr.splitlines()[-1]) == [False, False]


@pytest.mark.process
@pytest.mark.parametrize("looks", [False, True], ids=["as a server does", "as pydantic does"])
def test_a_server_on_stdio_loads_no_plugin_of_pydantic(tmp_path: Path, looks: bool) -> None:
    about = tmp_path / "plugged-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: plugged\nVersion: 1\n", encoding="utf-8"
    )
    (about / "entry_points.txt").write_text(
        "[pydantic]\nplugged = plugged:plugin\n", encoding="utf-8"
    )
    (tmp_path / "plugged.py").write_text("print('loaded')\nplugin = None\n", encoding="utf-8")
    call = "from evolvable_server.mcp.sdk_import import use_no_plugins as use; use(); "
    code = (
        "import pydantic; "
        f"{'' if looks else call}print(pydantic.TypeAdapter(int).validate_python('3'))"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, env=env, timeout=60
    )

    assert (b"loaded" in done.stdout) is looks, done.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    "options", [(), ("--toolsets", "evolve")], ids=["as clients start it", "with options"]
)
@pytest.mark.parametrize(
    "variable", ["EVOLVABLE_EMBEDDER", "EVOLVABLE_REVIEW_POLICY", "EVOLVABLE_APPROVE"]
)
def test_a_wrong_setting_is_told_before_any_answer(
    tmp_path: Path, variable: str, options: tuple[str, ...]
) -> None:
    env = os.environ | {"EVOLVABLE_HOME": str(tmp_path / "home"), variable: "bogus"}
    command = [sys.executable, "-m", "evolvable_server", "serve", *options]
    done = subprocess.run(
        command, input=line(initialize()), capture_output=True, env=env, timeout=60
    )

    assert (done.returncode, done.stdout) == (1, b"")
    assert variable.encode() in done.stderr
