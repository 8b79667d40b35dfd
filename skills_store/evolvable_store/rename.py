"""The two renames that the standard library lacks: exchange two names at once, and never replace anything."""

import errno
import os
import platform
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

REFUSED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What a system or a file system answers that cannot do it."""

_NOREPLACE, _EXCHANGE = 1, 2
_SWAP, _EXCL = 2, 4
_AT_FDCWD = -100
_NAME = "renamex_np" if sys.platform == "darwin" else "renameat2"
_SYSCALL = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "ppc64le": 357, "s390x": 347}


def exchange(one: Path, other: Path) -> None:
    """Lets two existing names change places in one step.

    Raises OSError: FileNotFoundError when either is missing, an errno of REFUSED where it cannot be done.
    """
    _call(one, other, _SWAP if sys.platform == "darwin" else _EXCHANGE)


def rename_new(source: Path, target: Path) -> None:
    """Renames `source` to `target`, which must not exist. Raises FileExistsError when it does, or another OSError.

    Where the system has no such call, a target made in the instant between look and rename may be replaced.
    """
    try:
        _call(source, target, _EXCL if sys.platform == "darwin" else _NOREPLACE)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        os.rename(source, target)


def _call(source: Path, target: Path, flags: int) -> None:
    sys.audit("os.rename", source, target, -1, -1)
    call = _system_call()
    code = call(os.fsencode(source), os.fsencode(target), flags) if call else errno.ENOSYS
    if code:
        raise OSError(code, os.strerror(code), str(source), None, str(target))


@cache
def _system_call() -> Callable[[bytes, bytes, int], int] | None:
    """Returns a function that gives 0 or an errno; None where there is no such call."""
    if sys.platform not in ("linux", "darwin"):
        return None
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)

    def on_darwin(source: bytes, target: bytes, flags: int) -> int:
        return ctypes.get_errno() if library.renamex_np(source, target, ctypes.c_uint(flags)) else 0

    def on_linux(source: bytes, target: bytes, flags: int) -> int:
        here, options = ctypes.c_int(_AT_FDCWD), ctypes.c_uint(flags)
        return ctypes.get_errno() if library.renameat2(here, source, here, target, options) else 0

    def by_number(source: bytes, target: bytes, flags: int) -> int:
        number, here = ctypes.c_long(_SYSCALL[platform.machine()]), ctypes.c_long(_AT_FDCWD)
        return ctypes.get_errno() if library.syscall(number, here, source, here, target, ctypes.c_ulong(flags)) else 0

    if hasattr(library, _NAME):
        return on_darwin if sys.platform == "darwin" else on_linux
    return by_number if sys.platform == "linux" and platform.machine() in _SYSCALL and sys.maxsize > 2**32 else None
