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
"""Seconds for which the result of a probe is used, also by other processes."""

# A loaded machine may take seconds to start a container.
_PATIENCE = 30.0
"""Seconds that a probe may take."""

# The probe writes twice as much, which is quick and shows whether the size is limited.
_SMALL = 2**20
"""Bytes of the workspace of a probe."""

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
    """The result of a probe of one mechanism.

    why: what is wrong with it, '' where it gives every property.
    """

    mechanism: str
    why: str = ""

    @property
    def works(self) -> bool:
        """Whether the mechanism may be used."""
        return not self.why


@dataclass(frozen=True)
class ProbeReport:
    """The sandbox that trials use, None for none, and the result of each mechanism."""

    sandbox: Sandbox | None
    probes: tuple[Probe, ...] = ()

    @property
    def name(self) -> str:
        """The name of the mechanism, or `none`."""
        return self.sandbox.name if self.sandbox is not None else "none"

    @property
    def why(self) -> str:
        """The reasons why no better mechanism is used, in one line."""
        failed = [result for result in self.probes if result.why]
        return "; ".join(f"{result.mechanism}: {result.why}" for result in failed)


@dataclass(frozen=True)
class SandboxChoice:
    """The settings by which a sandbox is chosen.

    container: the command of a person's container. cache: the file for the result of a probe. path:
    the PATH on which programs are looked for, by default ours.
    """

    container: tuple[str, ...] = ()
    cache: Path | None = None
    path: str | None = None


_REPORTS: dict[tuple[Any, ...], tuple[float, ProbeReport]] = {}
"""By container and PATH the time of a report, and the report."""

# Guards `_REPORTS`, and is held during a probe: a second thread waits for the result in place of
# probing too.
_REPORTS_LOCK = threading.Lock()


def sandbox_of(choice: SandboxChoice | None = None, *, fresh: bool = False) -> ProbeReport:
    """Return the sandbox that works on this machine, and why not another.

    fresh: probe again. A container that a person named is tried first.
    """
    choice = choice or SandboxChoice()
    key = (choice.container, choice.path if choice.path is not None else os.environ.get("PATH"))
    with _REPORTS_LOCK:
        remembered = _REPORTS.get(key)
        if remembered is not None and not fresh and time.monotonic() - remembered[0] < LIFETIME:
            return remembered[1]
        report = _probe_candidates(choice, fresh)
        _REPORTS[key] = time.monotonic(), report
        return report


def _probe_candidates(choice: SandboxChoice, fresh: bool) -> ProbeReport:
    probes: list[Probe] = []
    for sandbox in _list_candidates(choice, probes):
        result = _load_cached(choice, sandbox) if not fresh else None
        if result is None:
            result = probe(sandbox)
            _store_result(choice, sandbox, result)
        probes.append(result)
        if result.works:
            return ProbeReport(sandbox, tuple(probes))
    return ProbeReport(None, tuple(probes))


def _list_candidates(choice: SandboxChoice, probes: list[Probe]) -> Sequence[Sandbox]:
    """Return the mechanisms to try, the best first.

    Appends to `probes` the reason for each mechanism that cannot be tried.
    """
    candidates: list[Sandbox] = []
    if choice.container:
        if MOUNTS in choice.container:
            candidates.append(Container(choice.container))
        else:
            why = f"the command that the configuration names has no {MOUNTS}"
            probes.append(Probe("container", why))
    if sys.platform != "linux":
        probes.append(Probe("bubblewrap", f"it needs Linux, and this is {sys.platform}"))
        return candidates
    binary = shutil.which("bwrap", path=choice.path)
    if binary is None:
        probes.append(Probe("bubblewrap", "the program bwrap is not installed"))
    else:
        candidates.append(Bubblewrap(os.path.abspath(binary)))
    if offered := mechanisms.version():
        lacks = ", ".join(mechanisms.shortcomings(offered))
        why = f"version {offered} of this kernel does not restrict {lacks}"
        probes.append(Probe("Landlock", why))
    return candidates


def probe(sandbox: Sandbox) -> Probe:
    """Run a command in a sandbox that tries to get out, and return the result."""
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="evolvable-probe-", ignore_cleanup_errors=True)
        )
        folder = Path(temporary).resolve()
        work, back, outside = folder / "work", folder / "back", folder / "outside"
        secret = folder / f"secret-{secrets.token_hex(8)}"
        work.mkdir()
        back.touch()
        secret.write_text("secret")
        # A port of this process, to which a command without a network cannot connect.
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        mark = secrets.token_hex(16)
        words = [str(secret), str(outside), port, str(os.getpid()), _read_start_time()]
        command = (sandbox.python, "-I", "-S", "-c", _SCRIPT, *words, str(_SMALL), mark)
        limits = ResourceLimits(size=_SMALL)
        what = Confinement(command, work, environment_inside(os.environ), _PATIENCE, limits=limits)
        # The mark stands for a key in our environment: a mechanism that passes it on shows it
        # inside.
        name = f"EVOLVABLE_PROBE_{secrets.token_hex(8).upper()}"
        try:
            ended = subprocess.run(
                sandbox.argv(what, back),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
                env=sandbox.outside({**os.environ, name: mark}),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Probe(sandbox.name, f"it could not be run: {error}")
        wrote = outside.exists()
    return _read_result(sandbox.name, ended, wrote)


def _read_start_time() -> str:
    """Return when this process began, as /proc has it.

    Another process inside may have the same number, but not the same start.
    """
    with contextlib.suppress(OSError):
        status = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        # Field 22 of proc_pid_stat(5), counted behind the name, which may hold spaces.
        return status.rsplit(")", 1)[1].split()[19]
    return ""


def _read_result(name: str, ended: "subprocess.CompletedProcess[bytes]", wrote: bool) -> Probe:
    """Return the result of a probe. wrote: whether the command wrote outside of its sandbox."""
    try:
        properties: Mapping[str, Any] = {**json.loads(ended.stdout), "writes": not wrote}
        missing = [text for key, text in PROPERTIES.items() if properties.get(key) is not True]
    except (ValueError, TypeError):
        words = " ".join(ended.stderr.decode("utf-8", "replace").split())[-300:]
        why = f"it ended with exit code {ended.returncode}: {words or 'it said nothing'}"
        return Probe(name, why)
    return Probe(name, f"not given: {'; '.join(missing)}" if missing else "")


def _make_key(sandbox: Sandbox) -> str:
    """Return the key of a cached result.

    A new bwrap, kernel or user may behave differently, so none of them uses an old result.
    """
    changed = os.stat(sandbox.binary).st_mtime_ns if isinstance(sandbox, Bubblewrap) else 0
    return json.dumps([repr(sandbox), changed, os.getuid(), os.uname().release, sys.executable])


def _load_cached(choice: SandboxChoice, sandbox: Sandbox) -> Probe | None:
    if choice.cache is None:
        return None
    try:
        cached = json.loads(choice.cache.read_bytes())
        age = time.time() - float(cached["at"])
        # A negative age: the clock was set back.
        if cached["key"] != _make_key(sandbox) or not 0 <= age < LIFETIME:
            return None
        return Probe(str(cached["probe"]["mechanism"]), str(cached["probe"]["why"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _store_result(choice: SandboxChoice, sandbox: Sandbox, result: Probe) -> None:
    # A failure is not stored: the person may be about to repair the mechanism.
    if choice.cache is None or not result.works:
        return
    record = {"key": _make_key(sandbox), "at": time.time(), "probe": asdict(result)}
    # Written whole and renamed: another process may read the file at any time.
    draft = choice.cache.with_name(f".{choice.cache.name}.{os.getpid()}.{secrets.token_hex(3)}")
    with contextlib.suppress(OSError):
        choice.cache.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(record), encoding="utf-8")
        os.replace(draft, choice.cache)
