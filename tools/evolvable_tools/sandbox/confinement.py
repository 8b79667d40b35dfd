"""What one command may see, change and use inside a sandbox, whatever mechanism provides it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

PROPERTIES: Mapping[str, str] = {
    "reads": "it cannot read files outside",
    "writes": "it cannot write files outside",
    "network": "it has no network",
    "processes": "it sees no process outside",
    "tracing": "a process inside cannot trace or change the one that started it",
    "size": "what it writes is limited in size",
}
"""What a sandbox has to give, by the name under which the probe reports it."""

MODEL_PORT = 8790
"""The loopback port inside a sandbox at which the model answers, where a command may ask one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of one command. size: bytes of each writable folder; file: bytes of one file.

    memory: bytes of private data of one process. cpu: seconds of one process. The kernel does not apply `processes` to
    root.
    """

    size: int = 512 * 2**20
    file: int = 512 * 2**20
    memory: int = 8 * 2**30
    processes: int = 1024
    files: int = 4096
    cpu: int = 3600

    def as_dict(self) -> dict[str, int]:
        """Return the limits by name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Confinement:
    """One command as it is run inside a sandbox.

    workspace: the folder it runs in. It gets a copy of limited size; what it leaves there comes back where `returns`.
    writable: further folders of which it gets copies; nothing of them comes back. readable: files and folders that it
    sees at their own paths, read-only. hidden: folders that it must not see although one of the others holds them.
    environment: all of it. model_socket: the socket of a relay outside, answered at MODEL_PORT inside.
    """

    command: tuple[str, ...]
    workspace: Path
    environment: Mapping[str, str]
    seconds: float
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
    model_socket: Path | None = None
    returns: bool = True


class Sandbox(Protocol):
    """A mechanism that runs a command apart from the rest of the machine. It can be pickled."""

    @property
    def name(self) -> str:
        """Return what people call it."""
        ...

    @property
    def python(self) -> str:
        """Return the Python of commands inside."""
        ...

    def argv(self, what: Confinement, back: Path) -> list[str]:
        """Return the argument list that runs `what`; the workspace is written to the file `back` at the end."""
        ...


def instructions(what: Confinement, seeds: Mapping[str, str], back: str) -> list[str]:
    """Return the arguments of `inside.py`: seeds maps each writable folder to where its first contents are."""
    limits = ",".join(f"{name}={value}" for name, value in what.limits.as_dict().items())
    model = MODEL_PORT if what.model_socket is not None else 0
    words = [str(what.workspace), back if what.returns else "", str(what.seconds), str(model), limits, str(len(seeds))]
    return [*words, *(word for pair in seeds.items() for word in pair)]
