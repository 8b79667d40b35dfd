"""Linux: bubblewrap, which runs a command in namespaces of its own."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from evolvable_tools.sandbox.confinement import Confinement, instructions
from evolvable_tools.sandbox.runtimes import INSIDE, SYSTEM_FOLDERS, shown_folders

NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net")
ROOT = "/run/evolvable"
TEMPORARY = 128 * 2**20
"""Bytes of /tmp and of /dev/shm."""

_ETC = (  # each costs time at every trial
    *("passwd", "group", "nsswitch.conf", "hosts", "localtime", "ssl", "pki", "ca-certificates", "ld.so.cache"),
    "alternatives",
)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """binary: the program `bwrap`."""

    binary: str

    @property
    def name(self) -> str:
        """Return what people call it."""
        return "bubblewrap"

    @property
    def python(self) -> str:
        """Return the Python of commands inside."""
        return sys.executable

    def argv(self, what: Confinement, back: Path) -> list[str]:
        """Return the argument list that runs `what`; the workspace is written to the file `back` at the end."""
        words = [self.binary, *NAMESPACES, "--unshare-cgroup-try", "--hostname", "trial", "--new-session"]
        words += ["--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
        for name, value in what.environment.items():
            words += ["--setenv", name, value]
        words += _system()
        readable = shown_folders(what)
        for path in readable:
            words += ["--ro-bind", str(path), str(path)]
        words += ["--size", str(TEMPORARY), "--tmpfs", "/tmp", "--dir", "/tmp/home"]
        shown = (*readable, *map(Path, SYSTEM_FOLDERS))
        masked = [path for path in what.hidden if any(path.is_relative_to(one) for one in shown)]
        for path in masked:
            words += ["--size", str(TEMPORARY), "--tmpfs", str(path)]
        closed = _closed(what, readable, masked)
        for path in closed:
            words += ["--size", "65536", "--tmpfs", str(path)]
        seeds = {}
        for number, folder in enumerate((what.workspace, *what.writable)):
            seeds[str(folder)] = f"{ROOT}/seed{number}"
            words += ["--ro-bind", str(folder), f"{ROOT}/seed{number}"]
            words += ["--size", str(what.limits.size), "--tmpfs", str(folder)]
        # Below a folder that is empty inside there may be files that are shown all the same.
        covers = ("/tmp", *map(str, masked), *map(str, closed), *seeds)
        for path in readable:
            if any(path.is_relative_to(one) for one in covers):
                words += ["--ro-bind", str(path), str(path)]
        words += ["--ro-bind", str(INSIDE), f"{ROOT}/inside.py"]
        if what.returns:
            words += ["--bind", str(back), f"{ROOT}/back"]
        if what.model_socket is not None:
            words += ["--ro-bind", str(what.model_socket), f"{ROOT}/model.sock"]
        for place in ("/proc", "/dev", *map(str, masked), *map(str, closed), "/"):
            words += ["--remount-ro", place]
        words += ["--chdir", "/"]
        told = instructions(what, seeds, f"{ROOT}/back")
        return [*words, "--", sys.executable, "-I", "-S", "-B", f"{ROOT}/inside.py", *told, *what.command]


def _closed(what: Confinement, readable: list[Path], masked: list[Path]) -> list[Path]:
    """Return the folders that hold what is shown, where they would lie in /tmp, which a command may write to.

    They hold nothing else and are read-only: what runs a script must not find files of that script's beside it.
    """
    found = {what.workspace.parent, *(path.parent for path in readable if not path.is_dir())}
    temporary = [path for path in found if path.is_relative_to("/tmp") and path != Path("/tmp")]
    inside = [*masked, *(path for path in readable if path.is_dir()), what.workspace, *what.writable]
    return sorted(
        (path for path in temporary if not any(path.is_relative_to(one) for one in inside)),
        key=lambda path: len(path.parts),
    )


def _system() -> list[str]:
    """Return what every command sees of the machine: its programs and libraries, and little of its configuration."""
    words: list[str] = []
    for path in SYSTEM_FOLDERS:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for name in _ETC:
        if os.path.exists(f"/etc/{name}"):
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return [*words, "--proc", "/proc", "--dev", "/dev", "--size", str(TEMPORARY), "--tmpfs", "/dev/shm"]
