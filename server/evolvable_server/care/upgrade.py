"""Replace the program by another version: from a wheel, a clone, or the index, where this release
names one.
"""

import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from evolvable_server.clients import check_lasting, server_start
from evolvable_store import __version__
from evolvable_store.errors import InvalidArgument, Refused

DISTRIBUTION = "evolvable"

IDENTITY = Path(__file__).parents[1] / "identity.toml"
"""The file with the name of the package on the index, which a wheel has and a clone has not."""

# Enough for the optional packages over a slow line, and an end for an installer that hangs.
SECONDS = 900
"""How many seconds the installer may take."""

# The name of a wheel without a build tag (PEP 427): name, version, Python, ABI and platform.
_WHEEL = re.compile(r"evolvable-(?P<version>[^-]+)-[^-]+-[^-]+-[^-]+\.whl", re.IGNORECASE)
# A release or a pre-release (PEP 440); the installer gets no other text.
_NUMBER = re.compile(r"\d+(?:\.\d+){1,3}(?:(?:a|b|rc)\d+)?")


class UpgradeRefused(Refused):
    """Raised where this command cannot replace this installation, or not by the named source."""


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """A planned replacement of the program.

    version: that of the source. command: that of the installer. former: the source of the present
    installation, None for an index.
    """

    version: str
    command: tuple[str, ...]
    former: str | None


def plan_upgrade(source: str, home: Path) -> UpgradePlan:
    """Return how the program is replaced by a wheel, a clone or a version; change nothing.

    Raise InvalidArgument for a source that is neither, UpgradeRefused where this installation
    cannot be replaced.
    """
    version, requirement = _read_source(source)
    about = _read_origin()
    if about.get("dir_info", {}).get("editable"):
        folder = _to_local_path(about["url"])
        raise UpgradeRefused(
            f"This program runs from the clone {folder}: what is there is what runs.",
            "Bring the clone up to date (git pull), and restart the windows of your clients.",
        )
    # An environment in a cache, as uvx makes one, is cleared away some day, and the new version
    # with it.
    check_lasting(server_start(home))
    command = (*_find_installer(), requirement)
    if sys.platform == "win32":
        raise UpgradeRefused(
            "Windows does not replace a program that runs.",
            f"End the clients, then run: {subprocess.list2cmdline(command)}",
        )
    return UpgradePlan(version, command, _to_local_path(about["url"]) if "url" in about else None)


def replace_program(plan: UpgradePlan) -> None:
    """Run the installer.

    Raise UpgradeRefused with its last lines when it fails: it leaves the program as it was.
    """
    done = _run(plan.command)
    if done.returncode:
        # An installer explains its failure in the last lines.
        last = (done.stderr or done.stdout).strip()[-600:]
        raise UpgradeRefused(
            f"{' '.join(plan.command)} failed: {last}",
            f"Evolvable {__version__} is still installed.",
        )


def ask_new_program(home: str) -> tuple[str, str | None]:
    """Return the version that is installed now, and why it does not open the library.

    The second is None when it opens the library.
    """
    # -P: no module of the folder that this was started in is imported.
    program = [sys.executable, "-P", "-m", "evolvable_server"]
    # `evolvable, version X`; no word where the program failed.
    version = _run([*program, "--version"]).stdout.split()[-1:]
    done = _run([*program, "--home", home, "status"])
    return "".join(version), None if done.returncode == 0 else (done.stderr or done.stdout).strip()


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        # Not the project's folder: uv takes the index from a uv.toml or pyproject.toml there.
        cwd=sys.prefix,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=SECONDS,
    )


def _read_source(source: str) -> tuple[str, str]:
    """Return the version of a source, and the requirement for the installer.

    Raise InvalidArgument.
    """
    path = Path(source).expanduser()
    if wheel := _WHEEL.fullmatch(path.name):
        if not path.is_file():
            raise InvalidArgument(
                f"There is no file {path}.", "Name the wheel that you downloaded or built."
            )
        # The installer would leave the program as it is.
        if wheel["version"] == __version__:
            raise UpgradeRefused(
                f"Evolvable {__version__} is installed already.", "Nothing was changed."
            )
        return wheel["version"], str(path.resolve())
    if path.is_dir():
        return _read_clone_version(path), str(path.resolve())
    if _NUMBER.fullmatch(source):
        if (name := index_name()) is None:
            raise UpgradeRefused(
                f"This version names no package index, so nothing installs {source} by its number.",
                "Name a wheel, or a clone: git pull, then `evolvable care upgrade FOLDER`.",
            )
        return source, f"{name}=={source}"
    raise InvalidArgument(
        f"{source} is no wheel of Evolvable and no clone.",
        "Name a file evolvable-*.whl, or a folder.",
    )


def _read_clone_version(folder: Path) -> str:
    try:
        configuration = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        name = configuration["project"]["name"]
        text = (folder / "skills_store/evolvable_store/__init__.py").read_text(encoding="utf-8")
    except (OSError, ValueError, KeyError, TypeError):
        name, text = "", ""
    # Read as text: an import would run the code of the other version.
    version = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if name != DISTRIBUTION or version is None:
        raise InvalidArgument(
            f"{folder} is no clone of Evolvable.", "Name the folder with its pyproject.toml."
        )
    return version[1]


def index_name(file: Path = IDENTITY) -> str | None:
    """Return the name of the package on the index; None while it is not published."""
    try:
        identity = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = identity.get("index_name")
    return name if identity.get("published") is True and isinstance(name, str) and name else None


def _find_installer() -> tuple[str, ...]:
    """Return the command of this environment's installer: its pip, else uv, whose environments have
    none.
    """
    if importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-P", "-m", "pip", "install", "--quiet", "--upgrade")
    if uv := shutil.which("uv"):
        return (uv, "pip", "install", "--quiet", "--upgrade", "--python", sys.executable)
    raise UpgradeRefused(
        f"The environment of {sys.executable} has no pip, and there is no uv on the PATH.",
        "Install the new version as you installed this one.",
    )


def _read_origin() -> dict[str, Any]:
    """Return the installer's record of this installation's source (PEP 610); {} for an index."""
    try:
        text = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return {}
    record = json.loads(text) if text else {}
    return record if isinstance(record, dict) else {}


def _to_local_path(url: str) -> str:
    """Return the path of a file:// address; another address as it is."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else url
