"""Upgrade an installation to a later version and back, as a person does: `evolvable care upgrade`,
from wheels.
"""

import os
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from artifacts import Artifacts
from report import Failed, find_tool, run

LATER = "99.0.0"

SKILL = "---\nname: pdf\ndescription: Merge and split PDF files.\n---\n\nUse the script.\n"


def try_upgrade(made: Artifacts) -> str:
    """Install the pure wheel, go to a later version and back.

    Raises Failed where the library is not what it was.
    """
    script = find_tool("script")  # gives the command a terminal: only a person upgrades
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        later = _later_wheel(made.sdist, place)
        run([sys.executable, "-m", "venv", place / "program"])
        program = place / "program/bin"
        run([program / "python", "-m", "pip", "install", "--quiet", made.pure])
        home = {"HOME": scratch, "EVOLVABLE_HOME": str(place / "library")}
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("EVOLVABLE_")
        } | home
        skill = place / "skills/pdf/SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(SKILL, encoding="utf-8")
        run([program / "evolvable", "init", skill.parent.parent], env=environment)
        for wheel, version in ((later, LATER), (made.pure, _version_of(made.pure))):
            command = shlex.join([str(program / "evolvable"), "upgrade", str(wheel), "--yes"])
            output = run([script, "-qec", command, "/dev/null"], env=environment)
            there = run([program / "evolvable", "--version"], env=environment)
            if version not in there or "To go back" not in output:
                raise Failed(f"after the upgrade to {version} it says {there}\n{output}")
            if "pdf" not in run([program / "evolvable", "list"], env=environment):
                raise Failed(f"{version} does not list the skill")
        copies = sorted(place.glob("library.before-upgrade-*"))
        if len(copies) != 2:
            raise Failed(f"there are {len(copies)} copies of the library, not two")
    return f"{_version_of(made.pure)} to {LATER} and back, a copy of the library each time"


def _version_of(wheel: Path) -> str:
    return wheel.name.split("-")[1]


# Python 3.11.0 to 3.11.3 have no filters; the archive is our own.
_SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def _later_wheel(sdist: Path, place: Path) -> Path:
    """Build a wheel of the same source with a later version."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "source", **_SAFELY)
    (source,) = (place / "source").iterdir()
    about = source / "skills_store/evolvable_store/__init__.py"
    text = re.sub(
        r'^__version__ = "[^"]+"$',
        f'__version__ = "{LATER}"',
        about.read_text("utf-8"),
        flags=re.MULTILINE,
    )
    about.write_text(text, encoding="utf-8")
    (source / "PKG-INFO").unlink()  # a build takes the version from there where it finds it
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        place / "wheels",
    ]
    run([*pip, source], env=os.environ | {"EVOLVABLE_PURE_WHEEL": "1"})
    shutil.rmtree(place / "source")
    (wheel,) = (place / "wheels").glob("*.whl")
    return wheel
