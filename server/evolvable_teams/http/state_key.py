"""The key that seals the state of a question to a client, shared by the servers of one home.

In the current protocol a question ends the call, and the client repeats the call with the answer
and with the sealed state of the first call. Behind a load balancer another server may get the
answer, so all of them need one key.
"""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from evolvable_store import private_file, regular_file
from evolvable_store.errors import LibraryCorrupt, Refused

FILE = "state.key"
_BYTES = 32
_HINT = "Delete it: the server makes a new one, and open questions have to be asked again."


def read_state_key(home: Path) -> bytes:
    """Return the key in the library's folder, made when it is missing.

    Where the folder cannot be written, the key is this process's own. Raise Refused,
    LibraryCorrupt.
    """
    path = home / FILE
    if path.is_symlink():
        raise Refused(f"{path} is a link, so it is not believed.", _HINT)
    try:
        if not path.exists():
            _make_key(path)
    except OSError:
        return secrets.token_bytes(_BYTES)
    # Opened first and checked by its descriptor, so that the file cannot be exchanged in between.
    descriptor = regular_file(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with open(descriptor, encoding="ascii", errors="replace") as stream:
        status = os.fstat(descriptor)
        text = stream.read(4 * _BYTES).strip()
    if os.name == "posix" and not _is_private(status, home):
        raise Refused(
            f"{path} is not believed: another account made it, can read it or can change it "
            f"(owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}).",
            _HINT,
        )
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise LibraryCorrupt(f"{path} is no key of {_BYTES} bytes in hexadecimal.", _HINT)
    return key


def _is_private(status: os.stat_result, home: Path) -> bool:
    """Return whether this account or the home's owner owns a file, and nobody else has access."""
    owners = (os.geteuid(), home.stat().st_uid)
    return status.st_uid in owners and not status.st_mode & 0o077


def _make_key(path: Path) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with open(draft, "x", encoding="ascii", opener=private_file) as stream:
        stream.write(f"{secrets.token_hex(_BYTES)}\n")
    try:
        # A link fails where the file exists: of two servers, both use the key of the first.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
