"""Several servers over one PostgreSQL, behind HAProxy: any of them answers, one is killed, all are
exchanged.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import mcp_types as types
import pytest
from http_place import Answer, HttpServer, made_token, modern
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_place import Place, skill_text
from postgres_place import address_home, as_role, server_url
from processes import poll
from soundness import assert_sound

from evolvable_server.grants import Permission
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

pytestmark = [pytest.mark.nightly, pytest.mark.process, pytest.mark.anyio, pytest.mark.alone]

CONFIGURATION = Path(__file__).parents[1] / "support/balancer.cfg"
"""What docs/postgres.md shows."""

SERVERS = 3
HANDSHAKE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "old", "version": "1"},
}


class Machine(Place):
    """One machine: a home of its own over the shared library."""

    def __init__(self, root: Path) -> None:
        self.root, self.home, self.skills = root, root / "home", root / "skills"


class Fleet:
    """HAProxy, and servers behind it on two machines."""

    def __init__(self, root: Path) -> None:
        self.machines = [Machine(root / name) for name in ("one", "two")]
        for machine in self.machines:
            machine.root.mkdir()
        address_home(self.machines[0].home)
        with Library.open(self.machines[0].home, create=True) as library:
            files = {"SKILL.md": skill_text("pdf", "Merge, split and fill PDF forms.")}
            edit.update_resource(
                library, Caller(Actor.HUMAN), Ref.parse("pdf"), "made", files=files, create=True
            )
        as_role(self.machines[0].home, self.machines[1].home, "evolvable")
        permissions = Permission.WRITE, Permission.REPORT, Permission.APPROVE
        self.secret = made_token(self.machines[0], "team", *permissions)
        self.root, self.ports = root, [free_port() for _ in range(SERVERS)]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.port = free_port()
        self.proxy: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.machines[0].home

    def start(self, number: int) -> None:
        """Start one of the servers, and wait until it serves."""
        machine = self.machines[number % 2]
        command = [
            sys.executable,
            "-P",
            "-m",
            "evolvable_server",
            "serve",
            "--http",
            f"127.0.0.1:{self.ports[number]}",
        ]
        command += ["--allowed-host", f"127.0.0.1:{self.port}"]
        said = self.root / f"server{number}.log"
        with open(said, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                env=machine.environment,
                cwd=machine.root,
                stderr=log,
                start_new_session=True,
            )
        self.processes[number] = process
        poll(
            lambda: "Serving http" in said.read_text("utf-8") or process.poll() is not None,
            "a server to serve",
        )
        assert process.poll() is None, said.read_text("utf-8")

    def begin(self) -> None:
        """Start all, with what the servers of one team share copied from the first machine to the
        second.
        """
        self.start(0)
        for name in ("tokens.json", "state.key"):
            shutil.copy(self.machines[0].home / name, self.machines[1].home / name)
        for number in range(1, SERVERS):
            self.start(number)
        lines = [f"    server s{number} 127.0.0.1:{port}" for number, port in enumerate(self.ports)]
        text = (
            CONFIGURATION.read_text("utf-8")
            .replace("PORT", str(self.port))
            .replace("STATS", str(self.stats))
        )
        path = self.root / "haproxy.cfg"
        path.write_text("\n".join([text.rstrip(), *lines, ""]), "utf-8")
        haproxy = shutil.which("haproxy")
        assert haproxy is not None
        self.proxy = subprocess.Popen([haproxy, "-db", "-q", "-f", str(path)])
        self.until_up(SERVERS)

    @property
    def stats(self) -> Path:
        return self.root / "stats.sock"

    def tell(self, command: str) -> str:
        """Give HAProxy a command; return its answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.stats))
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def rows(self) -> list[dict[str, str]]:
        lines = self.tell("show stat").lstrip("# ").splitlines()
        names = lines[0].split(",")
        rows = [dict(zip(names, line.split(","), strict=False)) for line in lines[1:] if line]
        return [
            row for row in rows if row["svname"].startswith("s") and row["pxname"] == "evolvable"
        ]

    def until_up(self, count: int) -> None:
        def up() -> bool:
            with contextlib.suppress(OSError):
                return sum(row["status"].startswith("UP") for row in self.rows()) == count
            return False

        poll(up, f"{count} servers to be up")

    def until_down(self, number: int) -> None:
        poll(lambda: not self.rows()[number]["status"].startswith("UP"), "the server to be down")

    @property
    def client(self) -> HttpServer:
        return HttpServer(cast(Any, None), self.port, self.secret)

    def end(self) -> None:
        for process in (*self.processes.values(), *([self.proxy] if self.proxy else [])):
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if shutil.which("haproxy") is None:
        pytest.skip("HAProxy is not installed")
    server_url()
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        fleet.begin()
        yield fleet
    finally:
        fleet.end()


def change(number: str) -> dict[str, object]:
    files = {"SKILL.md": skill_text(f"by-{number}", body=f"Text {number}.")}
    return {"ref": f"by-{number}", "reason": f"change {number}", "create": True, "files": files}


def reasons(fleet: Fleet) -> list[str]:
    with Store.open(fleet.home) as store:
        return [one.reason for one in store.operations(10**6)]


def said(answer: Answer) -> str:
    """Return the text of a call that succeeded."""
    result = answer.json["result"]
    assert not result["isError"], result
    return json.dumps(result)


def test_what_one_server_gave_out_any_other_takes_back(fleet: Fleet) -> None:
    """Handles of searches and uses lie in the library; each of these requests comes to the next
    server.
    """
    before = [int(row["stot"]) for row in fleet.rows()]
    for _ in range(2):
        found = said(fleet.client.tool("find_skill", {"task": "merge two PDF forms"}))
        (search,) = set(re.findall(r"search-[0-9a-f]+", found))
        loaded = said(fleet.client.tool("load_skill", {"ref": "pdf", "search_id": search}))
        (use,) = set(re.findall(r"use-[0-9a-f]+", loaded))
        said(fleet.client.tool("report_outcome", {"use_id": use, "outcome": "succeeded"}))
    after = [int(row["stot"]) for row in fleet.rows()]
    assert all(later > earlier for earlier, later in zip(before, after, strict=True)), (
        "all of them answered"
    )


def asking(state: str | None = None, responses: Any = None) -> tuple[Any, Any]:
    frame, headers = modern(
        "tools/call", {"name": "undo", "arguments": {"operation": 1, "reason": "back"}}
    )
    frame["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {
        "elicitation": {"form": {}}
    }
    if state is not None:
        frame["params"] |= {"requestState": state, "inputResponses": responses}
    return frame, headers


def test_an_answer_to_the_question_of_one_server_is_taken_by_another_and_a_forged_state_by_none(
    fleet: Fleet,
) -> None:
    asked = fleet.client.post(*asking()).json["result"]
    ((key, request),) = asked["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    answered = {key: {"action": "decline"}}
    forged = asked["requestState"][:-8] + (
        "A" * 8 if not asked["requestState"].endswith("A" * 8) else "B" * 8
    )
    for _ in range(SERVERS):
        refused = fleet.client.post(*asking(asked["requestState"], answered)).json
        assert "declined" in refused["result"]["content"][0]["text"], refused
        assert "error" in fleet.client.post(*asking(forged, answered)).json


async def test_a_session_of_an_older_protocol_stays_with_its_server_and_begins_anew_after_its_kill(
    fleet: Fleet,
) -> None:
    headers = {"Authorization": f"Bearer {fleet.secret}"}

    async def calls(count: int) -> None:
        async with httpx2.AsyncClient(headers=headers, timeout=60) as web:
            transport = streamable_http_client(
                f"http://127.0.0.1:{fleet.port}/mcp", http_client=web
            )
            async with Client(transport, mode="legacy") as client:
                for _ in range(count):
                    found = await client.call_tool("list_resources", {})
                    assert not found.is_error

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(calls, 8)

    begun = fleet.client.post(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
    )
    session = {
        "Mcp-Session-Id": begun.headers["mcp-session-id"],
        "MCP-Protocol-Version": "2025-11-25",
    }
    frame = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "list_resources", "arguments": {}},
    }
    begun_too = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert fleet.client.post(begun_too, session).status == 202
    before = [int(row["stot"]) for row in fleet.rows()]
    assert [fleet.client.post(frame, session).status for _ in range(4)] == [200] * 4
    after = [int(row["stot"]) for row in fleet.rows()]
    (number,) = [
        place for place, row in enumerate(zip(before, after, strict=True)) if row[1] - row[0] >= 4
    ]
    fleet.processes[number].kill()
    fleet.processes[number].wait()
    assert fleet.client.post(frame, session).status == 404, (
        "as the protocol says it: begin a new session"
    )
    anew = fleet.client.post(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HANDSHAKE}
    )
    session["Mcp-Session-Id"] = anew.headers["mcp-session-id"]
    assert fleet.client.post(begun_too, session).status == 202
    assert fleet.client.post(frame, session).status == 200
    fleet.start(number)
    fleet.until_up(SERVERS)


@pytest.mark.parametrize("kills", [6])
def test_a_server_that_is_killed_in_the_middle_of_calls_costs_no_change_and_makes_none_twice(
    fleet: Fleet, kills: int
) -> None:
    """A call that got no answer is made again; a change that the first call made answers with a
    conflict.
    """
    rng, done, cut = random.Random(7), threading.Event(), []

    def writer(name: int) -> list[str]:
        made: list[str] = []
        while not done.is_set():
            number = f"{name}-{len(made)}"
            for attempt in range(60):
                again = attempt > 0
                try:
                    answer = fleet.client.tool("update_resource", change(number))
                except OSError:
                    answer = Answer(0, {}, b"")
                if answer.status == 200:
                    break
                cut.append(f"{number} {answer.status}")
                time.sleep(0.05)  # as a client that was refused
            result = answer.json["result"]
            taken = result["isError"] and "exists already" in result["content"][0]["text"]
            assert not result["isError"] or (again and taken), result
            made.append(f"change {number}")
        return made

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(writer, name) for name in range(4)]
        for kill in range(kills):
            seen = len(reasons(fleet))
            poll(lambda seen=seen: len(reasons(fleet)) > seen + 8, "the writers to write")
            time.sleep(rng.uniform(0, 0.05))  # at any moment of a call
            victim = fleet.processes[kill % SERVERS]
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            fleet.start(kill % SERVERS)
            fleet.until_up(SERVERS)
        done.set()
        made = [reason for one in writers for reason in one.result()]

    found = reasons(fleet)
    assert all(found.count(reason) == 1 for reason in made)
    assert len(made) > 8 * kills
    with Store.open(fleet.home) as store:
        assert_sound(store)
    print({"changes": len(made), "cut calls": len(cut), "kills": kills})


def test_all_servers_are_exchanged_one_after_the_other_and_no_call_fails(fleet: Fleet) -> None:
    """Each is drained at the balancer first, as docs/postgres.md says."""
    done, answers = threading.Event(), []

    def caller(name: int) -> None:
        number = 0
        while not done.is_set():
            number += 1
            answers.append(fleet.client.tool("update_resource", change(f"r{name}-{number}")))
            answers.append(fleet.client.tool("find_skill", {"task": "merge two PDF forms"}))

    with ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(caller, name) for name in range(3)]
        for number in range(SERVERS):
            seen = len(answers)
            poll(lambda seen=seen: len(answers) > seen + 10, "the callers to call")
            fleet.tell(f"set server evolvable/s{number} state drain")
            fleet.processes[number].terminate()
            assert fleet.processes[number].wait(30) == 0
            fleet.start(number)
            fleet.tell(f"set server evolvable/s{number} state ready")
            fleet.until_up(SERVERS)
        done.set()
        for one in callers:
            one.result()
    failed = [one for one in answers if one.status != 200 or one.json["result"]["isError"]]
    assert len(answers) > 30 and failed == []


async def test_a_client_that_is_asked_by_one_server_answers_through_the_balancer(
    fleet: Fleet,
) -> None:
    """The SDK's own client, whose answer comes to another server."""
    asked = []

    async def person(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"approve": "yes"})

    async with httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {fleet.secret}"}, timeout=60
    ) as web:
        transport = streamable_http_client(f"http://127.0.0.1:{fleet.port}/mcp", http_client=web)
        with anyio.fail_after(60):
            async with Client(transport, mode="auto", elicitation_callback=person) as client:
                for number in range(SERVERS):
                    await client.call_tool("update_resource", change(f"asked-{number}"))
                    gone = await client.call_tool(
                        "remove_resource", {"ref": f"by-asked-{number}", "reason": "away"}
                    )
                    assert not gone.is_error, gone
    with Store.open(fleet.home) as store:
        assert not any(head.name.startswith("by-asked") for head in store.heads())
