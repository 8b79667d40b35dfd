"""kill -9 of the owner of a watched folder in each phase of its work: a short cut of
benchmarks/takeover.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

TAKEOVER = Path(__file__).parents[2] / "benchmarks" / "takeover.py"


def test_what_is_saved_while_owners_are_killed_is_one_version() -> None:
    """What may not happen is listed in the script.

    The limit on time is for a machine without other work.
    """
    done = subprocess.run(
        [sys.executable, str(TAKEOVER), "--kills", "12"],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    print(done.stdout)
    wrong = [
        line for line in done.stdout.splitlines() if line.endswith("MISSED") and "p95" not in line
    ]
    assert "kills of the owner" in done.stdout and not wrong, done.stdout + done.stderr
