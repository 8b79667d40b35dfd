"""The approvals key of the account: a file beside the person's configuration that a passphrase opens."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolvable_server.person import PRIVATE, check_owner, config_path
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.approvals_lock import SigningKey, make_key, open_key

FILE = "approvals.key"

Ask = Callable[[], str]
"""Asks the person at the terminal for the passphrase."""


class PassphraseSigner:
    """Signs with the account's key; asks for the passphrase once, when a decision first needs it."""

    def __init__(self, key: str, ask: Ask) -> None:
        """key: the public key that the person's configuration names."""
        self._key, self._ask = key, ask
        self._opened: SigningKey | None = None

    @property
    def key(self) -> str:
        return self._key

    def unlock(self) -> None:
        if self._opened is not None:
            return
        opened = open_key(_read(key_path()), self._ask())
        if opened.key != self._key:
            raise Refused(
                f"{key_path()} holds another key than the configuration names.", "Restore the file, or lock again."
            )
        self._opened = opened

    def sign(self, statement: bytes) -> bytes:
        assert self._opened is not None, "unlock comes first"
        return self._opened.sign(statement)


def key_path() -> Path:
    """Return where the key lies. Raise Refused when the account has no home directory."""
    config = config_path()
    if config is None:
        raise Refused("This account has no home directory, so it has no key.", "Use an account that has one.")
    return config.with_name(FILE)


def create_key(passphrase: str) -> str:
    """Make a key, write its file, and return the public key. Raise Refused when there is a key already."""
    path = key_path()
    made, fields = make_key(passphrase)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise Refused(f"{path} exists already.", "Move it away only if no library needs it.") from None
    with open(fd, "w", encoding="utf-8") as stream:
        json.dump(fields, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    return made.key


def _read(path: Path) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            check_owner(path, os.fstat(stream.fileno()))
            return json.loads(stream.read(100_000))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}.", "Restore it from a backup.") from None
