"""Which folders of this machine a command needs to run at all: interpreters and installed programs, nothing else."""

import functools
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from evolvable_tools.sandbox.confinement import Confinement

INSIDE = Path(__file__).with_name("inside.py")

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")

_MANAGERS = (
    *(".nvm", ".volta", ".bun/bin", ".deno/bin", ".rustup/toolchains", ".cargo/bin", ".pyenv", ".asdf", ".rbenv"),
    *(".sdkman/candidates", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/mise", ".local/share/pnpm"),
    *(".local/share/fnm", ".local/share/claude", ".local/share/pipx"),
)
"""Where version managers and installers put programs below a home; never what belongs to a person."""

_KEPT = (
    *("PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "PYENV_ROOT", "PYENV_VERSION", "NVM_DIR", "GOROOT", "RUSTUP_HOME"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Of our environment what a command may need to find and start programs."""


def environment_inside(environment: Mapping[str, str], home: str = "/tmp/home") -> dict[str, str]:
    """Return the environment of a command inside: what finds and starts programs, and a fresh home."""
    kept = {name: value for name, value in environment.items() if name in _KEPT or name.startswith("LC_")}
    kept.setdefault("PATH", os.defpath)
    return kept | {"HOME": home, "TMPDIR": "/tmp", "USER": "trial", "LOGNAME": "trial"}


def shown_folders(what: Confinement) -> list[Path]:
    """Return what is bound read-only besides the system: runtimes, the program, and what the command is given.

    A folder below another that is shown is left out.
    """
    path = what.environment.get("PATH")
    wanted = [*_own_runtimes(), *programs(what.command[0], path), *(p for p in what.readable if p.exists())]
    barred = [*homes(), *what.hidden, what.workspace, *what.writable]
    found: list[Path] = []
    for one in sorted(dict.fromkeys(wanted), key=lambda path: len(path.parts)):
        given = one in what.readable
        above = any(home.is_relative_to(one) for home in barred)
        system = any(one.is_relative_to(place) for place in SYSTEM_FOLDERS)
        if not system and (given or not above) and not any(one.is_relative_to(other) for other in found):
            found.append(one)
    return found


@functools.cache
def homes() -> tuple[Path, ...]:
    """Return the home of the account, and the one that the environment names."""
    found = [Path.home()]
    try:
        import pwd

        found.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    except (ImportError, KeyError):
        pass
    return tuple(dict.fromkeys(found))


@functools.cache
def _own_runtimes() -> tuple[Path, ...]:
    """Return the prefixes of the running Python, and what version managers installed."""
    found = [
        Path(sys.prefix),
        Path(sys.base_prefix),
        Path(sys.executable).parent,
        Path(sys.executable).resolve().parent,
    ]
    found += [home / name for home in homes() for name in _MANAGERS]
    return tuple(path for path in dict.fromkeys(found) if path.exists() and len(path.parts) > 2)


@functools.cache
def programs(word: str, path: str | None) -> tuple[Path, ...]:
    """Return the files and folders without which this program cannot run."""
    found = shutil.which(word, path=path)
    return tuple(dict.fromkeys(_needs(Path(found)))) if found else ()


def _needs(program: Path, depth: int = 0) -> Iterator[Path]:
    for place in dict.fromkeys((Path(os.path.abspath(program)), program.resolve())):
        yield place
        if "node_modules" in place.parts:
            yield Path(*place.parts[: place.parts.index("node_modules") + 1])
        if place.parent.name == "shims":  # pyenv, asdf and mise, wherever they are installed
            yield place.parent.parent
        if (place.parent.parent / "pyvenv.cfg").is_file():
            yield place.parent.parent
            yield from _base_of(place.parent.parent)
        elif place.parent.name == "bin" and (place.parent.parent / "lib").is_dir() and len(place.parts) > 4:
            yield place.parent.parent
    if depth == 0:
        for word in _shebang(program)[:2]:
            found = shutil.which(word)
            if found:
                yield from _needs(Path(found), depth + 1)


def _base_of(venv: Path) -> Iterator[Path]:
    """Yield the installation that a virtual environment was made from."""
    try:
        lines = (venv / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, value = line.partition("=")
        if name.strip() == "home" and len(Path(value.strip()).parts) > 2:
            yield Path(value.strip()).parent


def _shebang(program: Path) -> list[str]:
    try:
        with program.open("rb") as file:
            first = file.readline(500)
    except OSError:
        return []
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    return words[1:2] if words and words[0].endswith("/env") else words[:1]
