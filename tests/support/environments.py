"""Virtual environments of their own, from which the program of this one runs."""

import subprocess
import sys
from pathlib import Path

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"
"""What a file must begin with to tag a folder as a cache."""


def tag_as_cache(folder: Path) -> None:
    """Mark a folder as a cache, as uv and pipx mark theirs."""
    (folder / "CACHEDIR.TAG").write_text(TAG, encoding="utf-8")


def environment_with_program(place: Path, tagged: Path | None = None) -> Path:
    """Make a virtual environment with the packages of this one; return its Python.

    tagged: a cache that it lies in.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    if tagged is not None:
        tag_as_cache(tagged)
    python = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    (packages,) = [*place.glob("lib/python*/site-packages"), *place.glob("Lib/site-packages")]
    paths = [path for path in sys.path if Path(path).is_absolute()]
    (packages / "program.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    return python
