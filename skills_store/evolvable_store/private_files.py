"""Files that only this account reads, and that are replaced whole: a reader sees the old text or the new one."""

import contextlib
import os
import secrets
from pathlib import Path

_MODE = 0o600


def private_file(path: str, flags: int) -> int:
    """Open a file that is made with mode 0600, as the `opener` of open()."""
    return os.open(path, flags, _MODE)


def write_private(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file whole by one that only this account can read.

    durable: it is on the disk before it takes the place; what can be found out again needs that not. Raises OSError.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with open(draft, "x", encoding="utf-8", opener=private_file) as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
