"""The mechanisms of a sandbox: bubblewrap and containers, the view that a command gets, and its
limits.

Landlock, which this kernel may have, is no sandbox for a trial by itself.
"""

import contextlib
import ctypes
import functools
import os
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

if sys.platform != "win32":
    import pwd

_TABLE = tomllib.loads(Path(__file__).with_name("mechanisms.toml").read_text(encoding="utf-8"))

PROPERTIES: Mapping[str, str] = _TABLE["properties"]
"""What a sandbox has to give, by the name under which the probe reports it."""

# Any free port would do: the network inside is its own, and holds nothing else.
MODEL_PORT = 8790
"""The loopback port inside a sandbox at which the model answers, where a command may ask one."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Resource limits of one command. size: bytes of each writable folder; file: bytes of one file.

    memory: bytes of private data of one process. cpu: seconds of one process. The kernel does not
    apply `processes` to root.
    """

    # Chosen so that a compiler, a test suite or a language runtime fits, and a loop that allocates
    # does not take the machine.
    size: int = 512 * 2**20
    file: int = 512 * 2**20
    memory: int = 8 * 2**30
    processes: int = 1024
    files: int = 4096
    cpu: int = 3600


@dataclass(frozen=True, slots=True)
class Confinement:
    """One command as it is run inside a sandbox.

    workspace: the folder it runs in. It gets a copy of limited size; with `returns` what it leaves
    there comes back. environment: all of it. readable: files and folders that it sees at their own
    paths, read-only. writable: further folders of which it gets copies. hidden: folders that it
    must not see although one of the others holds them. model_socket: the socket of a relay outside,
    answered at MODEL_PORT inside. linked: folders that it sees read-only at these places of its
    workspace, and at their own paths. Nothing of `writable` and `linked` comes back.
    """

    command: tuple[str, ...]
    workspace: Path
    environment: Mapping[str, str]
    seconds: float
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    model_socket: Path | None = None
    returns: bool = True
    linked: tuple[tuple[str, Path], ...] = ()

    @property
    def given_paths(self) -> tuple[Path, ...]:
        """The files and folders that the caller gives, which are shown at their own paths."""
        return (*self.readable, *(path for _, path in self.linked))


class Sandbox(Protocol):
    """A mechanism that runs a command apart from the rest of the machine. It can be pickled."""

    @property
    def name(self) -> str:
        """The name of the mechanism, for people."""
        ...

    @property
    def python(self) -> str:
        """The Python interpreter of commands inside."""
        ...

    def argv(self, what: Confinement, back: Path) -> list[str]:
        """Return the argument list that runs `what`.

        The workspace is written to the file `back` at the end.
        """
        ...

    def outside(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment with which the program of the mechanism itself starts, given ours.

        A command inside may read all of it.
        """
        ...


ROOT = "/run/evolvable"
INSIDE = Path(__file__).with_name("inside.py")


def _place_seeds(what: Confinement) -> dict[Path, str]:
    """Return the place inside at which the first contents of each writable folder are."""
    return {
        folder: f"{ROOT}/seed{number}"
        for number, folder in enumerate((what.workspace, *what.writable))
    }


def _list_bindings(what: Confinement, back: Path) -> Iterator[tuple[Path, str, bool]]:
    """Yield the files of the first process inside: the path here, the path there, and whether it is
    read-only.
    """
    yield INSIDE, f"{ROOT}/inside.py", True
    if what.returns:
        yield back, f"{ROOT}/back", False
    if what.model_socket is not None:
        yield what.model_socket, f"{ROOT}/model.sock", True


def _make_command(python: str, what: Confinement) -> list[str]:
    """Return the command line of `inside.py`, with the command that it starts."""
    seeds = _place_seeds(what)
    # In the order in which `instructions` of inside.py reads them.
    arguments = [
        str(what.workspace),
        f"{ROOT}/back" if what.returns else "",
        str(what.seconds),
        str(MODEL_PORT if what.model_socket is not None else 0),
        ",".join(f"{name}={value}" for name, value in asdict(what.limits).items()),
        str(len(seeds)),
        *(str(word) for pair in seeds.items() for word in pair),
    ]
    return [python, "-I", "-S", "-B", f"{ROOT}/inside.py", *arguments, *what.command]


SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")

_MANAGERS = tuple(_TABLE["managers"].split())
"""Folders below a home in which version managers and installers put programs.

None of them holds anything of the person.
"""

_KEPT = frozenset(_TABLE["kept"].split())
"""Variables of our environment by which a command finds and starts programs."""

_ENGINE = frozenset(_TABLE["engine"].split())
"""Variables of our environment by which the program of a container finds its engine; none
is a key.
"""


def environment_inside(environment: Mapping[str, str], home: str = "/tmp/home") -> dict[str, str]:
    """Return the environment of a command inside: the variables that find and start programs, and a
    fresh home.
    """
    variables = {
        name: value
        for name, value in environment.items()
        if name in _KEPT or name.startswith("LC_")
    }
    variables.setdefault("PATH", os.defpath)
    return variables | {"HOME": home, "TMPDIR": "/tmp", "USER": "trial", "LOGNAME": "trial"}


def shown_folders(what: Confinement) -> list[Path]:
    """Return the paths that are bound read-only beside the system: runtimes, the program, and the
    command's own.

    A folder below another that is shown is left out.
    """
    path = what.environment.get("PATH")
    candidates = [
        *_own_runtimes(),
        *programs(what.command[0], path),
        *(p for p in what.given_paths if p.exists()),
    ]
    barred = [*homes(), *what.hidden, what.workspace, *what.writable]
    system, folders = tuple(map(Path, SYSTEM_FOLDERS)), list[Path]()
    # The shortest first, so that a folder comes before what lies below it.
    for candidate in sorted(dict.fromkeys(candidates), key=lambda path: len(path.parts)):
        if _lies_in(candidate, (*system, *folders)):
            continue
        # A runtime's folder that holds the home or a hidden folder would show all of that.
        holds_barred = any(folder.is_relative_to(candidate) for folder in barred)
        if candidate in what.given_paths or not holds_barred:
            folders.append(candidate)
    return folders


@functools.cache
def homes() -> tuple[Path, ...]:
    """Return the home that the environment names, and that of the account."""
    folders = [Path.home()]
    if sys.platform != "win32":
        # HOME may name another folder than the account's, and neither is to be shown. The user of a
        # container may have no entry.
        with contextlib.suppress(KeyError):
            folders.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return tuple(dict.fromkeys(folders))


@functools.cache
def _own_runtimes() -> tuple[Path, ...]:
    """Return the prefixes of the running Python, and the folders of version managers."""
    own = Path(sys.executable)
    folders = [Path(sys.prefix), Path(sys.base_prefix), own.parent, own.resolve().parent]
    folders += [home / name for home in homes() for name in _MANAGERS]
    # Never / or /usr, which would show the whole machine.
    return tuple(path for path in dict.fromkeys(folders) if path.exists() and len(path.parts) > 2)


@functools.cache
def programs(word: str, path: str | None) -> tuple[Path, ...]:
    """Return the files and folders without which this program cannot run.

    word: its name or path. path: the PATH on which it is looked for.
    """
    program = shutil.which(word, path=path)
    return tuple(dict.fromkeys(_list_needed_paths(Path(program)))) if program else ()


def _list_needed_paths(program: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the program, the installation that it belongs to, and those of its interpreter."""
    for place in dict.fromkeys((Path(os.path.abspath(program)), program.resolve())):
        folder, prefix = place.parent, place.parent.parent
        yield place
        # A program of npm loads the packages that lie beside its own.
        if "node_modules" in place.parts:
            yield Path(*place.parts[: place.parts.index("node_modules") + 1])
        # Of pyenv, asdf and mise, wherever they are installed.
        if folder.name == "shims":
            yield prefix
        if (prefix / "pyvenv.cfg").is_file():
            yield prefix
            yield from _find_base(prefix)
        # More than four parts, so that the prefix is never /usr or /usr/local.
        elif folder.name == "bin" and (prefix / "lib").is_dir() and len(place.parts) > 4:
            yield prefix
    # One level: a script needs its interpreter, and an interpreter is no script.
    if depth == 0:
        for word in _read_shebang(program):
            interpreter = shutil.which(word)
            if interpreter:
                yield from _list_needed_paths(Path(interpreter), depth + 1)


def _find_base(venv: Path) -> Iterator[Path]:
    """Yield the installation that a virtual environment was made from."""
    try:
        lines = (venv / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, value = line.partition("=")
        # Never / or /usr: what is shown would hold the whole machine.
        if name.strip() == "home" and len(Path(value.strip()).parts) > 2:
            yield Path(value.strip()).parent


def _read_shebang(program: Path) -> list[str]:
    """Return the interpreter that the first line of a script names, none for another file."""
    try:
        with program.open("rb") as file:
            first = file.readline(500)
    except OSError:
        return []
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    return words[1:2] if words and words[0].endswith("/env") else words[:1]


NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net")
"""Options of bubblewrap for the namespaces that a command gets of its own."""

# It is memory, and each trial that runs at a time has as much.
TEMPORARY = 128 * 2**20
"""Bytes of /tmp and of /dev/shm."""

# Few, because each costs time at every trial.
_ETC = tuple(_TABLE["etc"].split())
"""Files and folders of /etc that are shown."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The mechanism bubblewrap. binary: the path of its program `bwrap`."""

    binary: str
    name: ClassVar = "bubblewrap"
    python: ClassVar = sys.executable

    def argv(self, what: Confinement, back: Path) -> list[str]:
        """Return the argument list that runs `what`.

        The workspace is written to the file `back` at the end.
        """
        words = [self.binary, *NAMESPACES, "--unshare-cgroup-try"]
        words += ["--hostname", "trial", "--new-session"]
        # A command that outlives a killed driver would go on without a limit and without a reader.
        words += ["--die-with-parent", "--cap-drop", "ALL"]
        for name, value in what.environment.items():
            words += ["--setenv", name, value]
        words += _list_system_options()
        readable = shown_folders(what)
        for path in readable:
            words += ["--ro-bind", str(path), str(path)]
        words += ["--size", str(TEMPORARY), "--tmpfs", "/tmp", "--dir", "/tmp/home"]
        shown_paths = (*readable, *map(Path, SYSTEM_FOLDERS))
        masked = [path for path in what.hidden if _lies_in(path, shown_paths)]
        for path in masked:
            words += ["--size", str(TEMPORARY), "--tmpfs", str(path)]
        closed = _find_closed(what, readable, masked)
        for path in closed:
            words += ["--size", "65536", "--tmpfs", str(path)]
        seeds = _place_seeds(what)
        for folder, seed in seeds.items():
            words += ["--ro-bind", str(folder), seed]
            words += ["--size", str(what.limits.size), "--tmpfs", str(folder)]
        # Below a folder that is empty inside there may be files that are shown all the same.
        covers = (Path("/tmp"), *masked, *closed, *seeds)
        for path in readable:
            if _lies_in(path, covers):
                words += ["--ro-bind", str(path), str(path)]
        for name, path in what.linked:
            words += ["--ro-bind", str(path), str(what.workspace / name)]
        for path, place, read_only in _list_bindings(what, back):
            words += ["--ro-bind" if read_only else "--bind", str(path), place]
        # Last: bubblewrap makes mount points in these folders, which it could not do once they are
        # read-only.
        for place in ("/proc", "/dev", *map(str, masked), *map(str, closed), "/"):
            words += ["--remount-ro", place]
        return [*words, "--chdir", "/", "--", *_make_command(self.python, what)]

    def outside(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return an empty environment.

        bwrap itself is the first process inside, and /proc there shows what it started with.
        """
        return {}


def _lies_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _find_closed(what: Confinement, readable: list[Path], masked: list[Path]) -> list[Path]:
    """Return the folders below /tmp that hold what is shown, the shortest first.

    A command may write to /tmp. These folders hold nothing else and are read-only, so that a
    command cannot put a file beside a script that would load it.
    """
    parents = {what.workspace.parent, *(path.parent for path in readable if not path.is_dir())}
    temporary = [path for path in parents if path.is_relative_to("/tmp") and path != Path("/tmp")]
    folders = [path for path in readable if path.is_dir()]
    mounted = [*masked, *folders, what.workspace, *what.writable]
    closed = [path for path in temporary if not _lies_in(path, mounted)]
    return sorted(closed, key=lambda path: len(path.parts))


def _list_system_options() -> list[str]:
    """Return the options that show a command the programs and libraries of the machine, and the
    least configuration.
    """
    words: list[str] = []
    for path in SYSTEM_FOLDERS:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for name in _ETC:
        if os.path.exists(f"/etc/{name}"):
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    return [*words, "--size", str(TEMPORARY), "--tmpfs", "/dev/shm"]


MOUNTS = "{mounts}"
"""The word of a container's command that is replaced by the options for mounts."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container as mechanism.

    command: starts a container with a `python3` in it, such as `docker run --rm -i --network=none
    ... IMAGE`. The person gives the options that isolate it, the network above all. The probe finds
    out whether they do. Runtimes are those of the image: none of this machine is shown in it.
    """

    command: tuple[str, ...]
    python: ClassVar = "python3"
    """The Python of the image."""

    @property
    def name(self) -> str:
        """The name of the mechanism, with the program that starts it."""
        return f"container ({Path(self.command[0]).name})"

    def argv(self, what: Confinement, back: Path) -> list[str]:
        """Return the argument list that runs `what`.

        The workspace is written to the file `back` at the end.
        """
        mounts = [f"--volume={path}:{path}:ro" for path in what.given_paths if path.exists()]
        for folder, seed in _place_seeds(what).items():
            mounts.append(f"--volume={folder}:{seed}:ro")
            mounts.append(f"--mount=type=tmpfs,destination={folder},tmpfs-size={what.limits.size}")
        mounts += [f"--volume={path}:{what.workspace / name}:ro" for name, path in what.linked]
        for path, place, read_only in _list_bindings(what, back):
            mounts.append(f"--volume={path}:{place}" + (":ro" if read_only else ""))
        mounts += [
            f"--env={name}={value}" for name, value in what.environment.items() if name != "PATH"
        ]
        words = [part for word in self.command for part in (mounts if word == MOUNTS else [word])]
        return [*words, *_make_command(self.python, what)]

    def outside(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables by which the program of a container finds its engine."""
        return {name: value for name, value in environment.items() if name in _ENGINE}


_CREATE_RULESET, _VERSION = 444, 1
"""The number of Landlock's system call, and the flag that asks for its version."""

_TCP, _SCOPES = 4, 6
"""The versions of Landlock since which it confines TCP connections and signals."""

_NEVER = ("the network for datagrams", "the processes outside", "the size of what is written")
"""What no version of Landlock restricts."""


def version() -> int:
    """Return the version of Landlock that the kernel offers, 0 for none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def shortcomings(offered: int) -> list[str]:
    """Return what this version of Landlock cannot restrict.

    A mechanism with any shortcoming counts as none.
    """
    first = ["TCP connections"] if offered < _TCP else []
    return [*first, *_NEVER, *(["signals to processes outside"] if offered < _SCOPES else [])]
