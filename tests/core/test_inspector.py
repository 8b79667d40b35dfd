"""Every call of the Inspector that the documentation shows works as it says."""

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_place import skill_text

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "inspector.md"
SHOWN_ADDRESS = "127.0.0.1:8642"
INSPECTOR = os.environ.get("EVOLVABLE_INSPECTOR") or shutil.which("mcp-inspector")
CALL = re.compile(
    r"^# (?P<shown>.+)\nnpx @modelcontextprotocol/inspector@\S+ (?P<words>--cli .+)$", re.MULTILINE
)
CALLS = [
    (match["words"], match["shown"]) for match in CALL.finditer(PAGE.read_text(encoding="utf-8"))
]

pytestmark = [
    pytest.mark.process,
    pytest.mark.nightly,
    pytest.mark.skipif(
        INSPECTOR is None,
        reason="needs Node and the Inspector: set EVOLVABLE_INSPECTOR to mcp-inspector "
        "(.ci/nightly)",
    ),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder whose library holds the skill pdf."""
    path = tmp_path_factory.mktemp("home")
    text = skill_text("pdf", "Merge, split and fill PDF forms.")
    with (
        Store.open(path / ".evolvable", create=True) as store,
        store.transaction(Actor.HUMAN, "test") as tx,
    ):
        tx.put(Ref.parse("pdf"), {"SKILL.md": File(text.encode())})
    return path


@contextlib.contextmanager
def asked_server(words: str, environment: dict[str, str], home: Path) -> Iterator[str]:
    """Yields the words with the address of a server that runs meanwhile, when they name one."""
    if SHOWN_ADDRESS not in words:
        yield words
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    server = subprocess.Popen(["evolvable", "serve", "--http", address], env=environment, cwd=home)
    try:
        until_listening(address)
        yield words.replace(SHOWN_ADDRESS, address)
    finally:
        server.terminate()
        server.wait(10)


def until_listening(address: str) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_page_has_calls_over_both_transports():
    assert len(CALLS) == PAGE.read_text(encoding="utf-8").count("npx ")
    assert {"http" in words for words, _ in CALLS} == {True, False}


@pytest.mark.parametrize(("words", "shown"), CALLS, ids=lambda value: value[-40:])
def test_a_call_of_the_page_shows_what_the_page_says(home: Path, words: str, shown: str):
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    with asked_server(words, environment, home) as now:
        command = [str(INSPECTOR), *shlex.split(now)]
        done = subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, timeout=60
        )

    assert done.returncode == (5 if '"isError": true' in done.stdout else 0), done.stderr
    assert shown in done.stdout
