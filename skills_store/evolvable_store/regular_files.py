"""Open regular files alone, and write files that only this account reads.

Anybody who may write into a folder can put a pipe, or a link to a device, where a file is expected:
opening the one could wait forever, and reading the other never end. The kind of the file is tested
in the open file, so that no other file can take its place between the test and the read.

Private files are replaced whole: a reader sees the old text or the new one.
"""

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path

# O_NONBLOCK: opening a pipe that nobody writes to returns at once. O_NOCTTY: a terminal does not
# become ours.
_FLAGS = sum(getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_NOCTTY"))


def regular_file(path: "str | os.PathLike[str]", flags: int) -> int:
    """Open a regular file, as the `opener` of open().

    Args:
        path: Of the file; a link to one is followed.
        flags: As those of os.open.

    Raises:
        OSError: For anything else, and as os.open.
    """
    descriptor = os.open(path, flags | _FLAGS)
    try:
        # fstat of the open file: between a stat of the path and the open, another file can take its
        # place.
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no file, but a pipe or a device", os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: "str | os.PathLike[str]", limit: int | None = None) -> bytes:
    """Return the bytes of a regular file.

    Raises OSError, also for a file of more than `limit` bytes.
    """
    with open(path, "rb", opener=regular_file) as file:
        # One byte more than the limit tells a longer file without a second look at its size.
        data = file.read() if limit is None else file.read(limit + 1)
    if limit is not None and len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", os.fspath(path))
    return data


_MODE = 0o600


def private_file(path: str, flags: int) -> int:
    """Open a file that is made with mode 0600, as the `opener` of open()."""
    return os.open(path, flags, _MODE)


def write_private(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file whole by one that only this account can read.

    durable: flush the file to the disk before the rename; not needed for what can be computed
    again. Raises OSError.
    """
    # In the same folder, as a rename over another file system is a copy; the random part keeps two
    # writers apart.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open(draft, "x", encoding="utf-8", opener=private_file) as file:
            file.write(text)
            file.flush()
            # Before the rename: after a power cut the name would otherwise lead to an empty file.
            if durable:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
