"""Commands that run a program with less power than the tests have, and what a test needs to use
them.
"""

import os
import subprocess
import sys

import pytest

_IS_ROOT = sys.platform == "linux" and os.geteuid() == 0
NO_POWERS = (
    ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
    if _IS_ROOT
    else []
)
"""Before a command: root reads and writes whatever a file's mode says; without these powers it does
not.
"""


def works(command: list[str]) -> bool:
    """Return whether a command can be put before another one on this machine."""
    try:
        return subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


powerless = pytest.mark.skipif(not works(NO_POWERS), reason="root reads and writes everything")
