"""Starts the server of the bundle, with exactly the packages that requirements.lock names.

Claude Desktop runs this with `uv run --no-project`. The first start makes a virtual environment in
the bundle's folder and installs the locked packages into it: uv checks the hash of each file, takes
no other one, and builds nothing. The program itself runs from the bundle.
"""

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
LOCK = HERE / "requirements.lock"
SOURCES = ("server", "tools", "skills_store")
PATIENCE = 600.0
"""Seconds to wait for another start that installs; after that its process has died."""


def main() -> int:
    """Run the server, or the command that the arguments name; return its exit code."""
    python = environment(HERE, os.environ.get("UV", "uv"))
    command = [str(python), "-P", "-m", "evolvable_server", *(sys.argv[1:] or ["serve"])]
    if os.name == "posix":
        os.execv(command[0], command)
    return subprocess.call(command)


def environment(folder: Path, uv: str) -> Path:
    """Return the Python of the environment with the locked packages; make it when it is missing.

    A changed lock file, or another Python, gets an environment of its own.
    """
    mark = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    place = folder / f".venv-{mark}"
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = place / "installed"
    if not done.exists():
        with _alone(folder / f".venv-{mark}.lock"):
            if not done.exists():
                _install(place, python, uv)
                done.touch()
    return python


def _install(place: Path, python: Path, uv: str) -> None:
    # Stdout belongs to the protocol.
    quiet = {"check": True, "stdin": subprocess.DEVNULL, "stdout": sys.stderr}
    subprocess.run(
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)], **quiet
    )
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run(
        [*install, "--require-hashes", "--no-build", "--requirement", str(LOCK)], **quiet
    )
    packages = subprocess.run(
        [str(python), "-P", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    paths = "".join(f"{HERE / source}\n" for source in SOURCES)
    (Path(packages) / "evolvable.pth").write_text(paths, encoding="utf-8")


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock file for the body: one start installs, the others wait for it."""
    began = time.monotonic()
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > PATIENCE:
                    lock.unlink()
            if time.monotonic() - began > 2 * PATIENCE:
                raise
            time.sleep(0.2)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
