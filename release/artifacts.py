"""Build what a release uploads, look into it, and install it in fresh environments, without a
compiler.
"""

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from report import Failed, NotHere, find_tool, run

ROOT = Path(__file__).resolve().parent.parent
SMOKE = Path(__file__).with_name("smoke.py")


@dataclass(frozen=True)
class Artifacts:
    """The files of a release. wheel: of this platform, None where nothing could be compiled."""

    sdist: Path
    pure: Path
    wheel: Path | None

    @property
    def files(self) -> list[Path]:
        return [self.sdist, self.pure, *([self.wheel] if self.wheel else [])]


def build(folder: Path, *, without_wheel: bool = False) -> Artifacts:
    """Build the source distribution, and of it both wheels, into an empty folder.

    without_wheel: the wheel of this platform comes from elsewhere.
    """
    run([sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT])
    (sdist,) = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet"]
    run(
        [*pip, "--wheel-dir", folder, sdist],
        env=os.environ | {"EVOLVABLE_PURE_WHEEL": "1", "CC": "no-compiler"},
    )
    (pure,) = folder.glob("*-py3-none-any.whl")
    if without_wheel or shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0]) is None:
        return Artifacts(sdist, pure, None)
    with tempfile.TemporaryDirectory() as scratch:
        run([*pip, "--wheel-dir", scratch, sdist])
        (wheel,) = Path(scratch).glob("*.whl")
        return Artifacts(sdist, pure, _repair(wheel, folder))


def _repair(wheel: Path, folder: Path) -> Path:
    """Return the wheel with the tag of the oldest Linux that it runs on; on other systems it has
    its tag already.
    """
    if "-cp311-abi3-" not in wheel.name:
        raise Failed(f"{wheel.name} is no wheel for every Python from 3.11 on")
    if sys.platform != "linux":
        return Path(shutil.copy2(wheel, folder))
    run([find_tool("auditwheel"), "repair", "--wheel-dir", folder, wheel])
    (repaired,) = folder.glob("*-cp311-abi3-*.whl")
    return repaired


def examine(made: Artifacts) -> str:
    """Run what indexes and their users run over the files."""
    run([find_tool("validate-pyproject"), ROOT / "pyproject.toml"])
    run([find_tool("twine"), "check", "--strict", *made.files])
    # W004: a script of a seed skill may have any name, it is a resource. W009: one wheel has all
    # packages on purpose.
    run(
        [
            find_tool("check-wheel-contents"),
            "--ignore",
            "W004,W009",
            *(file for file in made.files if file.suffix == ".whl"),
        ]
    )
    if made.wheel:
        run([find_tool("abi3audit"), "--strict", made.wheel])
    if any("linux_x86_64" in file.name and "manylinux" not in file.name for file in made.files):
        raise Failed("a wheel has the tag linux_x86_64, which indexes refuse")
    hashes = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in made.files
    ]
    return "twine, check-wheel-contents, validate-pyproject, abi3audit\n" + "\n".join(hashes)


def pythons() -> list[str]:
    """Return the Pythons from 3.11 to 3.14 of this machine, one of each."""
    found = {}
    for minor in range(11, 15):
        name = f"python3.{minor}"
        places = [
            str(place) for place in Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}")
        ]
        for place in [*places, *filter(None, [shutil.which(name)])]:
            try:
                run(
                    [
                        place,
                        "-c",
                        f"import sys, venv, ensurepip; assert sys.version_info[:2] == (3, {minor})",
                    ]
                )
            except Failed:
                continue
            found.setdefault(minor, place)
    return list(found.values())


def _bare_environment() -> dict[str, str]:
    """Return an environment in which no compiler is found."""
    return os.environ | {
        "CC": "no-compiler",
        "PATH": "",
        "PIP_ONLY_BINARY": ":all:",
        "PIP_NO_COMPILE": "1",
    }


def install_with_pip(wheel: Path, python: str) -> str:
    """Install the file with pip in a new environment of that Python, and try it."""
    kind = "--pure" if "none-any" in wheel.name else "--compiled"
    with tempfile.TemporaryDirectory() as folder:
        run([python, "-m", "venv", folder])
        inside = Path(folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        run([inside, "-m", "pip", "install", "--quiet", wheel], env=_bare_environment())
        return run([inside, SMOKE, kind], env=_bare_environment()).strip()


def install_with_pipx(wheel: Path) -> str:
    """Install the file with pipx into a home of its own, and try it."""
    pipx = find_tool("pipx")
    with tempfile.TemporaryDirectory() as folder:
        places = {
            "PIPX_HOME": f"{folder}/home",
            "PIPX_BIN_DIR": f"{folder}/bin",
            "PIPX_MAN_DIR": f"{folder}/man",
        }
        run([pipx, "install", "--python", sys.executable, wheel], env=os.environ | places)
        (inside,) = Path(folder).glob("home/venvs/*/bin/python")
        return run([inside, SMOKE], env=_bare_environment()).strip()


def install_with_uvx(wheel: Path) -> str:
    """Run the program out of the file with uvx, and try `uv tool install` of it."""
    uv = find_tool("uv")
    with tempfile.TemporaryDirectory() as folder:
        places = {
            "UV_TOOL_DIR": f"{folder}/tools",
            "UV_TOOL_BIN_DIR": f"{folder}/bin",
            "UV_PYTHON": sys.executable,
        }
        environment = os.environ | places
        version = run(
            [uv, "tool", "run", "--quiet", "--from", wheel, "evolvable", "--version"],
            env=environment,
        )
        run([uv, "tool", "install", "--quiet", wheel], env=environment)
        (inside,) = Path(folder).glob("tools/*/bin/python")
        return (
            f"uvx --from: {version.strip()}; "
            + run([inside, SMOKE], env=_bare_environment()).strip()
        )


def try_best(folder: Path, kind: str) -> str:
    """Install the compiled or the pure wheel of a folder, as this Python's pip chooses it, and try
    it.
    """
    pattern = "*-py3-none-any.whl" if kind == "pure" else "*-abi3-*.whl"
    with tempfile.TemporaryDirectory() as only:
        for wheel in folder.glob(pattern):
            shutil.copy2(wheel, only)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--find-links",
            only,
        ]
        run([*pip, "--dest", f"{only}/one", "evolvable"])
        (wheel,) = Path(f"{only}/one").glob("*.whl")
        return install_with_pip(wheel, sys.executable)


def check_cibuildwheel() -> str:
    """Have cibuildwheel read its configuration, and name what it would build."""
    tool = find_tool("cibuildwheel")
    builds = []
    for platform in ("linux", "macos", "windows"):
        builds += run(
            [tool, "--platform", platform, "--archs", "auto64", "--print-build-identifiers", ROOT]
        ).split()
    return f"would build {' '.join(builds)}"


def not_tried(found: list[str]) -> str:
    """Return which Pythons this machine does not have. Raises NotHere when there is one."""
    there = {Path(python).name for python in found}
    missing = [f"3.{minor}" for minor in range(11, 15) if f"python3.{minor}" not in there]
    if missing:
        raise NotHere(f"this machine has no Python {', '.join(missing)}")
    return "3.11 to 3.14 are here"
