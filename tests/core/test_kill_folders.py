"""kill -9 while a folder is followed and written into: a short cut of benchmarks/kill.py."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

KILL = Path(__file__).parents[2] / "benchmarks" / "kill.py"


def test_kills_during_updates_watching_and_checkout_lose_nothing_and_mix_nothing() -> None:
    """What may not happen is listed in the script; it ends with 1 when any of it does."""
    done = subprocess.run(
        [sys.executable, str(KILL), "--seconds", "18"],
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
