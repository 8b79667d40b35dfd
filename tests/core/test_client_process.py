"""One client has one connection, however many shells it starts, on every system that shows its
processes.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from evolvable_server.client_process import (
    Process,
    client_connection,
    name_connection,
    parse_ps,
    read_ps_processes,
)

NAME = (
    "import sys; from evolvable_server.client_process import client_connection; "
    "print(client_connection(sys.argv[1]))"
)


def named_below(program: Path, system: str, shells: int) -> str:
    """Returns the connection that a process names which a client starts through so many shells, one
    in the other.

    program: the client, an interpreter of its own name.
    """
    inner = [sys.executable, "-c", NAME, system]
    for _ in range(shells):
        inner = ["sh", "-c", '"$@"; exit $?', "sh", *inner]
    twice = "import subprocess, sys\nfor _ in range(2): subprocess.check_call(sys.argv[1:])"
    ran = subprocess.run(
        [program, "-I", "-c", twice, *inner], capture_output=True, text=True, check=True
    )
    first, second = ran.stdout.splitlines()
    assert first == second
    return first


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no connection is named there")
@pytest.mark.parametrize(
    "system", ["darwin", "freebsd15", *(["linux"] if sys.platform == "linux" else [])]
)
def test_every_shell_of_a_client_has_the_clients_connection_and_another_client_has_another(
    tmp_path: Path, system: str
) -> None:
    program = tmp_path / "claude"
    program.symlink_to(Path(sys.executable).resolve())

    first, second = (named_below(program, system, shells) for shells in (0, 3))

    assert first.startswith("client-") and second.startswith("client-")
    assert first != second


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="there is no `ps`")
def test_no_variable_of_a_caller_changes_what_ps_tells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = client_connection("darwin")
    (tmp_path / "ps").write_text("#!/bin/sh\necho '1 0 Sat Nov 28 03:42:38 2026 forged'\n")
    (tmp_path / "ps").chmod(0o755)
    for name, value in {
        "PATH": str(tmp_path),
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "20",
    }.items():
        monkeypatch.setenv(name, value)

    assert client_connection("darwin") == plain is not None


def test_where_processes_are_not_shown_a_connection_has_no_name() -> None:
    assert client_connection("win32") is None


PS = """\
    1     0 Sat Nov 28 03:42:38 2026 /sbin/launchd
  501     1 Sat Nov 28 08:00:00 2026 /Applications/Claude Code.app/Contents/MacOS/claude
  502   501 Sat Nov 28 09:00:00 2026 -zsh
  503   502 Sat Nov  8 09:00:01 2026 /opt/x/Python.app/Contents/MacOS/Python
  504   501 Sat Nov 28 09:00:02 2026 /bin/bash
no line of ps
"""


def test_the_client_is_found_above_login_shells_and_frameworks() -> None:
    processes = parse_ps(PS)

    assert (
        processes[503] == Process("Python", 502, "Sat-Nov-8-09:00:01-2026") and len(processes) == 5
    )
    names = {name_connection(pid, processes.get, "boot") for pid in (501, 502, 503, 504)}
    assert names == {"client-boot-501-Sat-Nov-28-08:00:00-2026"}


def test_a_process_that_is_not_shown_leaves_no_name_and_no_vote() -> None:
    shell = Process("sh", 77, "then")

    assert name_connection(5, {}.get, "boot") is None
    assert name_connection(5, {5: shell}.get, "boot") is None


def test_shells_without_end_have_no_name() -> None:
    shells = {pid: Process("sh", pid - 1, "then") for pid in range(2, 200)}

    assert name_connection(199, shells.get, "boot") is None


def test_all_that_is_outside_of_a_container_is_one_connection() -> None:
    assert name_connection(0, {}.get, "boot") == "client-boot-0-gone"


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="there is no `ps`")
def test_ps_shows_this_process() -> None:
    assert read_ps_processes()[os.getpid()].parent == os.getppid()
