"""Linux: Landlock, which this kernel may have and which alone is no sandbox for a trial."""

import ctypes
import sys

_CREATE_RULESET = 444
_VERSION = 1
_TCP, _SCOPES = 4, 6

_NEVER = ("the network for datagrams", "the processes outside", "the size of what is written")


def version() -> int:
    """Return the version of Landlock that the kernel offers, 0 for none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def shortcomings(offered: int) -> list[str]:
    """Return what this version of Landlock cannot keep a command from; a mechanism with any of them counts as none."""
    lacks = list(_NEVER)
    if offered < _TCP:
        lacks.insert(0, "TCP connections")
    if offered < _SCOPES:
        lacks.append("signals to processes outside")
    return lacks
