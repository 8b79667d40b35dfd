"""Probe mechanisms: find out by a run, and not by the presence of a program, whether one isolates a
command.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evolvable_evolve.sandbox import mechanisms
from evolvable_evolve.sandbox.mechanisms import (
    MOUNTS,
    PROPERTIES,
    Bubblewrap,
    Confinement,
    Container,
    ResourceLimits,
    Sandbox,
    environment_inside,
)

# A mechanism that is switched off is noticed within this time; a shorter one probes more often.
LIFETIME = 600.0
"""Seconds for which what a probe found is believed, also by other processes."""

# A loaded machine may take seconds to start a container.
_PATIENCE = 30.0
# The probe writes twice as much, which is quick and shows whether the size is limited.
_SMALL = 2**20

_SCRIPT = """
import ctypes, json, os, socket, sys
secret, outside, port, pid, began, size, mark = sys.argv[1:]
found = {}
def kept(name, act):
    try:
        act()
        found[name] = False
    except OSError:
        found[name] = True
kept("reads", lambda: open(secret).read())
try:
    open(outside, "w").write("x")
except OSError:
    pass
def ask():
    socket.create_connection(("127.0.0.1", int(port)), 2).close()
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("192.0.2.1", 9))
kept("network", ask)
if found["network"]:
    kept("network", send)
found["processes"] = True
try:
    os.kill(int(pid), 0)
    with open(f"/proc/{pid}/stat") as file:
        found["processes"] = file.read().rsplit(")", 1)[1].split()[19] != began
except OSError:
    pass
found["environment"] = True
for one in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{one}/environ", "rb") as file:
            found["environment"] &= mark.encode() not in file.read()
    except OSError:
        pass
def fill():
    with open("full", "wb") as file:
        file.write(b"x" * (2 * int(size)))
kept("size", fill)
if os.path.exists("full"):
    os.unlink("full")
parent = os.getpid()
child = os.fork()
if child == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    seen = libc.ptrace(16, parent, 0, 0) == 0
    try:
        os.close(os.open(f"/proc/{parent}/mem", os.O_RDWR))
        seen = True
    except OSError:
        pass
    os._exit(int(seen))
found["tracing"] = os.waitpid(child, 0)[1] == 0
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Probe:
    """What a run of one mechanism showed.

    why: what is wrong with it, '' when it gives every property.
    """

    mechanism: str
    why: str = ""

    @property
    def works(self) -> bool:
        """Whether it may be used."""
        return not self.why


@dataclass(frozen=True)
class ProbeReport:
    """The sandbox that trials use, None for none, and what each mechanism showed."""

    sandbox: Sandbox | None
    probes: tuple[Probe, ...] = ()

    @property
    def name(self) -> str:
        """Return the mechanism's name, or `none`."""
        return self.sandbox.name if self.sandbox is not None else "none"

    @property
    def why(self) -> str:
        """Return why no better mechanism is used, in one line."""
        return "; ".join(
            f"{attempt.mechanism}: {attempt.why}" for attempt in self.probes if attempt.why
        )


@dataclass(frozen=True)
class SandboxChoice:
    """What a sandbox is chosen by. container: the command of a person's container. cache: a file
    for what was found.

    path: the PATH on which programs are looked for, by default ours.
    """

    container: tuple[str, ...] = ()
    cache: Path | None = None
    path: str | None = None


# By container and PATH: when it was found, and what.
_KNOWN: dict[tuple[Any, ...], tuple[float, ProbeReport]] = {}
# Guards `_KNOWN`, and is held during a probe: a second thread waits for the result in place of
# probing too.
_TURN = threading.Lock()


def sandbox_of(choice: SandboxChoice | None = None, *, fresh: bool = False) -> ProbeReport:
    """Return the sandbox that works on this machine, and why not another. fresh: probe again.

    A container that a person named comes first: naming it is a wish.
    """
    choice = choice or SandboxChoice()
    key = (choice.container, choice.path if choice.path is not None else os.environ.get("PATH"))
    with _TURN:
        remembered = _KNOWN.get(key)
        if remembered is not None and not fresh and time.monotonic() - remembered[0] < LIFETIME:
            return remembered[1]
        found = _probe_candidates(choice, fresh)
        _KNOWN[key] = time.monotonic(), found
        return found


def _probe_candidates(choice: SandboxChoice, fresh: bool) -> ProbeReport:
    probes: list[Probe] = []
    for sandbox in _candidates(choice, probes):
        result = _load_cached(choice, sandbox) if not fresh else None
        if result is None:
            result = probe(sandbox)
            _remember(choice, sandbox, result)
        probes.append(result)
        if result.works:
            return ProbeReport(sandbox, tuple(probes))
    return ProbeReport(None, tuple(probes))


def _candidates(choice: SandboxChoice, probes: list[Probe]) -> Sequence[Sandbox]:
    """Return the mechanisms to try, the best first.

    What is missing altogether is noted as a probe.
    """
    found: list[Sandbox] = []
    if choice.container:
        if MOUNTS in choice.container:
            found.append(Container(choice.container))
        else:
            probes.append(
                Probe("container", f"the command that the configuration names has no {MOUNTS}")
            )
    if sys.platform != "linux":
        probes.append(Probe("bubblewrap", f"it needs Linux, and this is {sys.platform}"))
        return found
    binary = shutil.which("bwrap", path=choice.path)
    if binary is None:
        probes.append(Probe("bubblewrap", "the program bwrap is not installed"))
    else:
        found.append(Bubblewrap(os.path.abspath(binary)))
    if offered := mechanisms.version():
        lacks = ", ".join(mechanisms.shortcomings(offered))
        probes.append(
            Probe("Landlock", f"version {offered} of this kernel does not restrict {lacks}")
        )
    return found


def probe(sandbox: Sandbox) -> Probe:
    """Run a command in a sandbox that tries to get out, and return what it reports."""
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="evolvable-probe-", ignore_cleanup_errors=True)
        )
        place = Path(temporary).resolve()
        work, back, secret = (
            place / "work",
            place / "back",
            place / f"secret-{secrets.token_hex(8)}",
        )
        work.mkdir()
        back.touch()
        secret.write_text("secret")
        # A port of this process, to which a command without a network cannot connect.
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        name, mark = f"EVOLVABLE_PROBE_{secrets.token_hex(8).upper()}", secrets.token_hex(16)
        words = [
            str(secret),
            str(place / "outside"),
            port,
            str(os.getpid()),
            _process_start(),
            str(_SMALL),
            mark,
        ]
        command = (sandbox.python, "-I", "-S", "-c", _SCRIPT, *words)
        what = Confinement(
            command,
            work,
            environment_inside(os.environ),
            _PATIENCE,
            limits=ResourceLimits(size=_SMALL),
        )
        try:
            argv, nothing = sandbox.argv(what, back), subprocess.DEVNULL
            # A key as ours may hold one; a mechanism that hands it on shows it inside.
            own = sandbox.outside({**os.environ, name: mark})
            ran = subprocess.run(
                argv, stdin=nothing, capture_output=True, timeout=_PATIENCE, check=False, env=own
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Probe(sandbox.name, f"it could not be run: {error}")
        wrote = (place / "outside").exists()
    return _read_result(sandbox.name, ran, wrote)


def _process_start() -> str:
    """Return when this process began, as /proc says it: processes elsewhere may have the same
    number.
    """
    with contextlib.suppress(OSError):
        return (
            Path("/proc/self/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rsplit(")", 1)[1]
            .split()[19]
        )
    return ""


def _read_result(name: str, ran: "subprocess.CompletedProcess[bytes]", wrote: bool) -> Probe:
    try:
        properties: Mapping[str, Any] = {**json.loads(ran.stdout), "writes": not wrote}
        missing = [text for key, text in PROPERTIES.items() if properties.get(key) is not True]
    except (ValueError, TypeError):
        words = " ".join(ran.stderr.decode("utf-8", "replace").split())[-300:]
        return Probe(
            name, f"it ended with exit code {ran.returncode}: {words or 'it said nothing'}"
        )
    return Probe(name, f"not given: {'; '.join(missing)}" if missing else "")


def _key(sandbox: Sandbox) -> str:
    program = Path(sandbox.binary) if isinstance(sandbox, Bubblewrap) else None
    # A new bwrap, kernel or user may behave differently, so none of them uses an old result.
    changed = program.stat().st_mtime_ns if program is not None else 0
    return json.dumps(
        [
            repr(sandbox),
            changed,
            os.getuid(),
            os.uname().release,
            sys.executable,
        ]
    )


def _load_cached(choice: SandboxChoice, sandbox: Sandbox) -> Probe | None:
    if choice.cache is None:
        return None
    try:
        cached = json.loads(choice.cache.read_bytes())
        if (
            cached["key"] != _key(sandbox)
            or not 0 <= (time.time() - float(cached["at"])) < LIFETIME
        ):
            return None
        return Probe(
            str(cached["probe"]["mechanism"]),
            str(cached["probe"]["why"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(choice: SandboxChoice, sandbox: Sandbox, result: Probe) -> None:
    # The user may be about to fix a mechanism that does not work.
    if choice.cache is None or not result.works:
        return
    record = {"key": _key(sandbox), "at": time.time(), "probe": asdict(result)}
    # Written whole and renamed: another process may read the file at any time.
    draft = choice.cache.with_name(f".{choice.cache.name}.{os.getpid()}.{secrets.token_hex(3)}")
    with contextlib.suppress(OSError):
        choice.cache.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(record), encoding="utf-8")
        os.replace(draft, choice.cache)
