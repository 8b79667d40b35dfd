"""What an installation weighs: the base install in a fresh virtual environment, without torch."""

import subprocess
import sys
import tempfile
import venv
from collections import Counter
from pathlib import Path

from support import Row, arguments, at_most, conclude, none_of, progress

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "tensorflow", "jax", "transformers", "onnxruntime", "numpy")


def disk_usage(folder: Path) -> int:
    """Return the bytes of all files below a folder, links not followed."""
    return sum(
        path.lstat().st_size for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()
    )


def largest(packages: Path, count: int) -> list[tuple[str, int]]:
    """Return the largest top-level entries of site-packages with their bytes."""
    sizes = {p.name: disk_usage(p) if p.is_dir() else p.stat().st_size for p in packages.iterdir()}
    return Counter(sizes).most_common(count)


def install(place: Path) -> Path:
    """Install the project as a user would, compiled files included, and return its
    site-packages.
    """
    venv.create(place, with_pip=True)
    python = next(
        path for path in (place / "bin/python", place / "Scripts/python.exe") if path.exists()
    )
    subprocess.run(
        [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", str(ROOT)],
        check=True,
    )
    told = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(told.stdout.strip())


def mb(value: float) -> str:
    return f"{value / 1e6:.0f} MB"


def main() -> None:
    arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "venv"
        progress("installing into a fresh virtual environment")
        empty = Path(folder) / "empty"
        venv.create(empty, with_pip=True)
        packages = install(place)
        total, base = disk_usage(place), disk_usage(empty)
        heavy = [name for name in HEAVY if (packages / name).exists()]
        rows = [
            Row("an empty virtual environment with pip", mb(base)),
            *(Row(f"  of it {name}", mb(size)) for name, size in largest(packages, 5)),
            at_most("virtual environment with Evolvable installed", total, 150e6, mb),
            none_of(f"heavy packages{' (' + ', '.join(heavy) + ')' if heavy else ''}", len(heavy)),
        ]
    conclude(
        f"Size of an installation, Python {sys.version_info.major}.{sys.version_info.minor}", rows
    )


if __name__ == "__main__":
    main()
