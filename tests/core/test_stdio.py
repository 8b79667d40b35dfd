"""The stdio transport over real processes: it answers every request, stays small, and ends when its
client is gone.
"""

import base64
import json
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

import anyio
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client, StdioServerParameters
from mcp_place import Place
from mcp_types import ElicitResult

from evolvable_server.transport import stdio

pytestmark = pytest.mark.process

SERVER = '''
import signal, subprocess, sys, time
import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel
from evolvable_server.transport.stdio import run_stdio

server = MCPServer("tiny", log_level="CRITICAL")
running, most = 0, 0

def say(text):
    print(text, file=sys.stderr, flush=True)

@server.tool()
def echo(x: str) -> str:
    return x

@server.tool()
def block(seconds: float) -> str:
    say("started")
    time.sleep(seconds)
    return "done"

@server.tool()
async def wait(seconds: float) -> str:
    say("started")
    await anyio.sleep(seconds)
    return "done"

@server.tool()
async def hog(seconds: float) -> str:
    """Blocks the event loop, as a careless tool does."""
    say("started")
    time.sleep(seconds)
    return "done"

@server.tool()
async def hold() -> int:
    global running, most
    running += 1
    most = max(most, running)
    await anyio.sleep(0.2)
    running -= 1
    return most

@server.tool()
def chatter() -> str:
    print("a stray line")
    child = "import sys; print('a stray child', sys.stdin.read())"
    subprocess.run([sys.executable, "-c", child], check=True)
    return "quiet"

@server.tool()
def broken() -> str:
    return "\\ud800"

@server.tool()
def large(size: int) -> str:
    return "x" * size

class Answer(BaseModel):
    name: str

@server.tool()
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Who?", Answer)).data.name

def fail():
    raise RuntimeError("a cleanup that fails")

def hang():
    time.sleep(30)

if hasattr(signal, "SIGUSR1"):
    signal.signal(signal.SIGUSR1, lambda *_: say("a signal of its own"))

how = sys.argv[1] if len(sys.argv) > 1 else ""
if how == "hang":
    run_stdio(server, cleanup=[lambda: say("cleaned"), hang])
else:
    run_stdio(server, cleanup=[fail, lambda: say("cleaned")], ready=lambda: say("ready"))
'''

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "initialize",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
ATTACKS = json.loads(
    (Path(__file__).parent.parent / "data" / "attacks.json").read_text(encoding="utf-8")
)["cases"]
FRAMES = [case for case in ATTACKS if case["category"] == "frame"]
HELD = {"frame-31", "frame-32"}  # an open line and a flood: tests of their own
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and parents are POSIX")


class Peer:
    """A client that writes bytes to a server process and reads its replies beside."""

    def __init__(self, script, *arguments, reading=True, initialize=True, environment=None):
        self.process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self._pings, self._followers = count(), []
        self.replies, self.errors = queue.Queue(), queue.Queue()
        self._follow(self.process.stderr, self.errors)
        if reading:
            self.read()
        if initialize:
            self.send(INITIALIZE, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        if initialize and reading:
            self.answer("initialize", within=10)

    def read(self):
        self._follow(self.process.stdout, self.replies)

    def _follow(self, stream, lines):
        thread = threading.Thread(target=lambda: [lines.put(line) for line in stream])
        thread.start()
        self._followers.append(thread)

    def send(self, *frames):
        self.write(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))

    def write(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def call(self, request_id, tool, **arguments):
        params = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    def next(self, within=1.0):
        return json.loads(self.replies.get(timeout=within))

    def answer(self, request_id, within=1.0):
        """Returns the reply with this id and drops the replies before it."""
        return self.until(request_id, within)[-1]

    def until(self, request_id, within=1.0):
        """Returns the replies up to the one with this id."""
        deadline, found = time.monotonic() + within, []
        while not found or found[-1]["id"] != request_id:
            found.append(self.next(max(0.0, deadline - time.monotonic())))
        return found

    def ping(self, within=1.0):
        """Returns the replies that came before the answer to a ping."""
        name = f"ping-{next(self._pings)}"
        self.send({"jsonrpc": "2.0", "id": name, "method": "ping"})
        *before, pong = self.until(name, within)
        assert pong["result"] == {}
        return before

    def said(self, text, within=5.0):
        """Waits until the server says a line on stderr."""
        deadline = time.monotonic() + within
        while text not in self.errors.get(timeout=max(0.0, deadline - time.monotonic())).decode():
            pass

    def ends(self, within=1.0):
        """Returns the exit code; fails when the process is still there after `within` seconds."""
        try:
            return self.process.wait(within)
        finally:
            self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        for thread in self._followers:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):  # what was not flushed has nowhere to go
                stream.close()


def eventually(condition, within):
    """Polls until the condition holds; fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("stdio") / "server.py"
    path.write_text(SERVER, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shared(script):
    peer = Peer(script)
    yield peer
    peer.process.stdin.close()
    assert peer.ends() == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The real server, over a library."""
    place = Place(tmp_path_factory.mktemp("library"))
    peer = Peer("-m", "evolvable_server", "serve", environment=place.environment)
    peer.ping(within=30)  # the handshake was answered before the rest was imported
    yield peer
    peer.process.stdin.close()
    assert peer.ends() == 0


@pytest.fixture
def start(script):
    peers = []

    def started(*arguments, **options):
        peers.append(Peer(script, *arguments, **options))
        return peers[-1]

    yield started
    for peer in peers:
        peer.close()


# Frames


def frame_bytes(case):
    if "b64" in case:
        return base64.b64decode(case["b64"])
    if "gen" in case:
        text, times = case["gen"]["repeat"]
        return (
            case["gen"].get("prefix", "") + text * times + case["gen"].get("suffix", "")
        ).encode()
    return case["input"].encode()


def expected_codes(why):
    """What the case's own words ask for: error codes, None for an answer of any kind; empty when no
    answer may come.
    """
    if codes := re.findall(r"-32\d{3}", why):
        return {int(code) for code in codes}
    return set() if why == "ignored" else {None}


@pytest.mark.process
@pytest.mark.parametrize("server", ["shared", "library"])
@pytest.mark.parametrize(
    "case", [case for case in FRAMES if case["id"] not in HELD], ids=lambda case: case["id"]
)
def test_a_hostile_frame_is_answered_and_the_server_lives(request, server, case):
    """attacks.json, frame cases; `shared` has a tool of the name that some of them call."""
    peer, codes = request.getfixturevalue(server), expected_codes(case["why"])
    peer.write(frame_bytes(case) + b"\n")
    replies = peer.ping()
    if codes and not replies:  # a handler may be slower than a ping
        replies = [peer.next()]
    replies += peer.ping()
    assert len(replies) == bool(codes)
    if codes - {None}:
        assert replies[0]["error"]["code"] in codes


def test_an_open_line_is_waited_for_and_answered_when_it_ends(shared):
    """attacks.json frame-31."""
    shared.write(b'{"jsonrpc"')
    assert shared.process.poll() is None
    shared.write(b"\n")
    [reply] = shared.ping()
    assert (reply["id"], reply["error"]["code"]) == (None, -32700)


def test_of_two_equal_members_the_last_counts(shared):
    """attacks.json frame-18."""
    shared.write(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"nope","method":"tools/list"}\n')
    assert "tools" in shared.answer(2)["result"]


def test_an_id_comes_back_as_it_was_sent(shared):
    for request_id in (0, -1, 10**399, "", "7", "ä\u0000\U0001f600"):
        shared.send({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
        assert shared.next() == {"jsonrpc": "2.0", "id": request_id, "result": {}}


def test_a_frame_may_be_four_mebibytes_and_not_a_byte_more(shared):
    frame = b'{"jsonrpc":"2.0","id":"big","method":"ping","params":{"_meta":{"x":"%s"}}}'
    room = 4 * 1024 * 1024 - len(frame) + 2
    shared.write(frame % (b"x" * room) + b"\n")
    assert shared.answer("big", within=5)["result"] == {}
    shared.write(frame % (b"x" * (room + 1)) + b"\n")
    assert shared.answer("big", within=5)["error"]["code"] == -32600


def test_a_huge_line_is_not_kept_in_memory(shared):
    process = psutil.Process(shared.process.pid)
    before = process.memory_info().rss
    piece = b"x" * 2**20
    for _ in range(64):
        shared.write(piece)
    assert process.memory_info().rss - before < 20_000_000
    shared.write(b"\n")
    [reply] = shared.ping(within=5)
    assert reply["error"]["code"] == -32600


def test_a_result_that_json_cannot_say_is_an_error_and_not_the_end(shared):
    """The SDK's own transport dies of it."""
    shared.call("broken", "broken")
    assert shared.answer("broken")["error"]["code"] == -32603
    assert shared.ping() == []


def test_what_a_tool_or_its_child_prints_stays_off_the_wire(shared):
    shared.call("chatter", "chatter")
    assert shared.next(within=5)["result"]["structuredContent"] == {"result": "quiet"}
    shared.said("a stray child")


def test_a_cancelled_request_gets_no_answer_and_gives_its_place_back(shared):
    """MCP, cancellation. More of them than may be in flight."""
    for number in range(70):
        shared.call(number, "wait", seconds=30)
        params = {"requestId": number}
        shared.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    assert shared.ping() == []


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just("\ud800"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON_VALUES,
        "id": st.integers() | st.text(max_size=9) | JSON_VALUES,
        "method": st.sampled_from(
            ["ping", "tools/list", "tools/call", "resources/read", "server/discover"]
        )
        | JSON_VALUES,
        "params": st.fixed_dictionaries({"name": st.just("echo"), "arguments": JSON_VALUES})
        | JSON_VALUES,
        "result": JSON_VALUES,
        "error": JSON_VALUES,
    },
)
LINES = st.binary(max_size=60) | st.builds(
    lambda frame: json.dumps(frame).encode(), JSON_VALUES | REQUESTS
)


def usable_id(line):
    """Returns the id under which the server owes an answer to this line, or None."""
    try:
        frame = json.loads(line, parse_constant=lambda name: float("not JSON"))
        frame["id"].encode() if isinstance(frame["id"], str) else range(frame["id"])
    except (ValueError, TypeError, KeyError):
        return None
    return frame["id"] if "method" in frame and not isinstance(frame["id"], bool) else None


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(line=LINES.filter(lambda line: b"\n" not in line))
def test_random_frames_are_answered_within_a_second(shared, line):
    """Every frame with a usable id."""
    shared.write(line + b"\n")
    if (request_id := usable_id(line)) is not None:
        assert shared.answer(request_id)
    shared.ping()


# Bounds


@pytest.mark.process
def test_at_most_sixty_four_requests_are_in_flight(start):
    peer = start()
    for number in range(150):
        peer.call(number, "hold")
    answers = [peer.next(within=5) for _ in range(150)]
    assert max(answer["result"]["structuredContent"]["result"] for answer in answers) == 64


@pytest.mark.process
def test_slow_tools_do_not_keep_the_transport_from_reading_and_writing(start):
    """The SDK shares forty threads between its tools and its own reads and writes."""
    peer = start()
    for number in range(50):
        peer.call(number, "block", seconds=30)
    assert peer.ping() == []
    peer.process.stdin.close()
    assert peer.ends() == 0


@pytest.mark.process
def test_subscriptions_take_no_places_and_have_a_limit_of_their_own(start):
    """A subscription is a request that stays open; sixty-four of them must not close the door."""
    peer = start(initialize=False)
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    listen = {"_meta": meta, "notifications": {"toolsListChanged": True}}
    for number in range(65):
        peer.send(
            {"jsonrpc": "2.0", "id": number, "method": "subscriptions/listen", "params": listen}
        )
    for number in range(65, 165):
        peer.send(
            {"jsonrpc": "2.0", "id": number, "method": "tools/list", "params": {"_meta": meta}}
        )
    # The first waits for the process to start, as in every other test.
    replies = [reply for _ in range(165) if "id" in (reply := peer.next(within=10))]
    assert [reply["id"] for reply in replies if "error" in reply] == [64]
    assert sorted(reply["id"] for reply in replies if "result" in reply) == list(range(65, 165))
    peer.send(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 0}},
        {"jsonrpc": "2.0", "id": "list", "method": "tools/list", "params": {"_meta": meta}},
    )
    peer.answer("list")
    peer.send({"jsonrpc": "2.0", "id": "again", "method": "subscriptions/listen", "params": listen})
    assert peer.next()["method"] == "notifications/subscriptions/acknowledged"


@pytest.mark.process
@pytest.mark.parametrize(
    ("requests", "size"), [pytest.param(10_000, 10, marks=pytest.mark.nightly), (1_500, 10_000)]
)
def test_a_client_that_does_not_read_cannot_make_the_server_grow(start, requests, size):
    """attacks.json frame-32: 113 MB more with the SDK's own transport."""
    peer = start(reading=False)
    peer.said("ready", within=10)
    process = psutil.Process(peer.process.pid)
    before = process.memory_info().rss
    call = (
        '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"large",'
        '"arguments":{"size":%d}}}\n'
    )
    frames = [(call % (number, size)).encode() for number in range(requests)]
    written = []
    flood = threading.Thread(target=lambda: [written.append(peer.write(frame)) for frame in frames])
    flood.start()
    eventually_stalls(written)
    assert len(written) < requests
    assert process.memory_info().rss - before < 50_000_000
    peer.read()
    flood.join()
    peer.until(requests - 1, within=30)


def eventually_stalls(written):
    """Waits until a writer has come to a stop."""
    last, since = -1, time.monotonic()
    while time.monotonic() - since < 0.3:
        if len(written) != last:
            last, since = len(written), time.monotonic()
        time.sleep(0.01)


# The end


@pytest.mark.process
@pytest.mark.alone
def test_it_ends_at_once_when_stdin_ends_and_nothing_runs(start):
    peer = start()
    peer.process.stdin.close()
    assert peer.ends(within=0.5) == 0
    peer.said("cleaned")


@pytest.mark.process
def test_it_starts_and_ends_with_an_empty_stdin(script):
    done = subprocess.run(
        [sys.executable, script], stdin=subprocess.DEVNULL, capture_output=True, timeout=10
    )
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.process
def test_it_ends_with_a_stdin_that_was_never_open(script):
    command = f'exec "{sys.executable}" "{script}" <&-'
    assert subprocess.run(["sh", "-c", command], capture_output=True, timeout=10).returncode == 0


@pytest.mark.process
def test_requests_from_a_file_are_answered_before_the_end(script):
    """The last line needs no newline."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    lines = [json.dumps(frame) for frame in (INITIALIZE, *([ping] * 500))]
    command = [sys.executable, script]
    done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True, timeout=10)
    assert len(done.stdout.splitlines()) == 501
    assert done.returncode == 0


@pytest.mark.process
@pytest.mark.alone
def test_a_reply_that_is_nearly_there_is_still_written(start):
    peer = start()
    peer.call("soon", "block", seconds=0.15)
    peer.said("started")
    peer.process.stdin.close()
    assert peer.answer("soon")["result"]["structuredContent"] == {"result": "done"}
    assert peer.ends() == 0


@pytest.mark.process
@pytest.mark.alone
@pytest.mark.parametrize("tool", ["block", "wait", pytest.param("hog", marks=posix)])
def test_it_ends_within_a_second_of_stdin_whatever_runs(start, tool):
    """11.7 s with the SDK's own transport."""
    peer = start()
    peer.call("slow", tool, seconds=30)
    peer.said("started")
    peer.process.stdin.close()
    assert peer.ends() == 0
    peer.said("cleaned")


@pytest.mark.alone
@posix
def test_it_ends_when_the_client_closes_stdin_and_reads_no_replies(start):
    """Back-pressure keeps the transport from the end of stdin; it has to see it all the same."""
    peer = start(reading=False)
    peer.said("ready", within=10)
    for number in range(200):
        peer.call(number, "large", size=100_000)
    peer.process.stdin.close()
    assert peer.ends() == 0


@pytest.mark.alone
@posix
@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("SIGTERM", "block"),
        ("SIGINT", "block"),
        ("SIGHUP", "block"),
        ("SIGINT", None),
        ("SIGTERM", "hog"),
    ],
)
def test_a_signal_ends_it_within_a_second_and_cleans_up(start, name, tool):
    """SIGINT alone does not end the SDK's server, SIGTERM ends it without cleaning up."""
    number = getattr(signal, name)
    peer = start()
    if tool:
        peer.call("slow", tool, seconds=30)
        peer.said("started")
    peer.process.send_signal(number)
    assert peer.ends(within=1 if tool else 0.5) == 128 + number
    peer.said("cleaned")


@posix
def test_a_signal_that_somebody_else_handles_is_left_to_them(shared):
    shared.process.send_signal(signal.SIGUSR1)
    shared.said("a signal of its own")
    assert shared.ping() == []


def test_a_signal_on_windows_reaches_the_lifecycle(monkeypatch):
    handled, handlers = queue.Queue(), {}
    lifecycle = stdio.Lifecycle()
    monkeypatch.setattr(lifecycle, "handle_signal", handled.put)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    stdio.guard(lifecycle, source=0)
    handlers[signal.SIGTERM](signal.SIGTERM, None)
    assert handled.get(timeout=5) == signal.SIGTERM


@pytest.mark.alone
@posix
def test_a_second_signal_waits_for_no_reply(start):
    """Claude Code sends SIGINT, and SIGTERM a tenth of a second later."""
    peer = start()
    peer.call("slow", "block", seconds=30)
    peer.said("started")
    peer.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        peer.process.wait(0.1)
    peer.process.send_signal(signal.SIGTERM)
    assert peer.ends(within=0.4) == 128 + signal.SIGINT
    peer.said("cleaned")


@pytest.mark.alone
@posix
def test_a_cleanup_that_hangs_does_not_keep_the_process(start):
    peer = start("hang")
    peer.process.terminate()
    assert peer.ends() == 128 + signal.SIGTERM
    peer.said("cleaned")


PARENT = """
import subprocess, sys, time
server = subprocess.Popen(
    [sys.executable, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
)
leak = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(60)"],
    pass_fds=[server.stdin.fileno()],
    stdout=subprocess.DEVNULL,
)
server.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
server.stdin.flush()
print(server.pid, leak.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.process
@posix
def test_it_ends_when_the_parent_dies_although_its_pipe_was_leaked(script):
    """The SDK's server lives on."""
    command = [sys.executable, "-c", PARENT, script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        server, leak = map(psutil.Process, map(int, parent.stdout.readline().split()))
        try:
            assert "ready" in parent.stderr.readline()
            parent.kill()
            eventually(
                lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE, within=5
            )
            assert leak.is_running()
        finally:
            leak.kill()


def test_ready_is_called_after_the_first_reply(start):
    peer = start(initialize=False)
    peer.send({"jsonrpc": "2.0", "id": 1, "method": "nope"})
    assert "error" in peer.answer(1, within=10)
    assert peer.errors.empty()
    peer.send(INITIALIZE)
    peer.said("ready")


@pytest.mark.parametrize(
    ("seconds", "least", "most"), [(1.5, 0.8, 5), (30, 1, 10)], ids=["the answer", "at most"]
)
def test_ready_waits_for_the_answer_to_a_call_that_comes_at_once_but_not_for_long(
    start, seconds, least, most
):
    peer = start()
    peer.call(1, "wait", seconds=seconds)
    peer.said("started")
    began = time.monotonic()
    peer.said("ready", within=most)
    assert time.monotonic() - began > least


# The SDK's own client


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_the_sdk_client_works_in_both_eras(script, mode, version):
    async def session():
        parameters = StdioServerParameters(command=sys.executable, args=[str(script)])

        async def answer(context, params):
            return ElicitResult(action="accept", content={"name": "Ada"})

        async with Client(parameters, mode=mode, elicitation_callback=answer) as client:
            assert client.protocol_version == version
            assert "echo" in [tool.name for tool in (await client.list_tools()).tools]
            assert (await client.call_tool("echo", {"x": "ä"})).structured_content == {
                "result": "ä"
            }
            if mode == "legacy":
                assert (await client.call_tool("ask", {})).structured_content == {"result": "Ada"}

    anyio.run(session)
