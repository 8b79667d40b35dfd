"""Real processes that use one library: starts `store_children.py` in a role, lines several up,
reads what they say.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("store_children.py")
PATIENCE = 60.0
"""Seconds after which a child that says nothing is a failure."""


def poll(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Return as soon as `condition()` holds; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.001)


class Child:
    """One process in a role of `store_children.py`."""

    def __init__(self, flags: tuple[str, ...], role: str, arguments: tuple[object, ...]) -> None:
        command = [sys.executable, str(SCRIPT), *flags, role, *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def lines(self) -> list[str]:
        """Return what the child wrote, when it ended well."""
        out, problem = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0, problem
        return out.splitlines()

    def said(self) -> Any:
        """Return the JSON in the child's only line, when it ended well."""
        (line,) = self.lines()
        return json.loads(line)

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> list[str]:
        """Kill the child with SIGKILL; return the whole lines it had written."""
        self._process.kill()
        out, problem = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode < 0, problem
        return out[: out.rfind("\n") + 1].splitlines()

    def end(self) -> list[str]:
        """Kill the child unless it ended by itself; return the whole lines it had written."""
        self._process.kill()
        out, _ = self._process.communicate(timeout=PATIENCE)
        return out[: out.rfind("\n") + 1].splitlines()

    def killed_itself(self) -> bool:
        """Return whether the child ended by a signal."""
        self._process.communicate(timeout=PATIENCE)
        return self._process.returncode < 0


class Gate:
    """Lines children up: each says it is ready, and goes on when the gate opens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o755)

    def wait_for(self, *children: Child) -> None:
        """Return when as many children as these wait at the gate; fail when one ends before."""

        def ready() -> bool:
            assert all(child.running() for child in children), [child.lines() for child in children]
            return len(list(self.folder.glob("ready-*"))) >= len(children)

        poll(ready, "the children to be ready")

    def open(self) -> None:
        (self.folder / "go").touch()


class Children:
    """Starts children, and ends those that a failed test leaves behind."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def start(self, role: str, *arguments: object, flags: tuple[str, ...] = ()) -> Child:
        child = Child(flags, role, arguments)
        self._all.append(child)
        return child

    def close(self) -> None:
        for child in self._all:
            if child.running():
                child.kill()


@contextlib.contextmanager
def started() -> Iterator[Children]:
    """Yield a starter of children; none is left at the end."""
    children = Children()
    try:
        yield children
    finally:
        children.close()
