"""The signing keys of the approvals lock, as files beside the person's configuration.

One is the account's own. People who sign in at the page each have one that their passphrase opens.
The server keeps it sealed, and the configuration lists the keys that count.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolvable_server.config_file import PRIVATE, check_owner
from evolvable_server.person_config import config_path, read_person_config
from evolvable_server.second_config import own_path
from evolvable_store import regular_file
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools import SigningKey, make_key, open_key

FILE = "approvals.key"

FOLDER = "approvers"
"""The directory of the keys of people who sign in."""

# With WAIT_SECONDS, a stolen session can try at most 480 passphrases a day. A person who mistypes
# waits 15 minutes.
MAX_WRONG = 5
"""Wrong passphrases in a row after which the key of a person who signs in stays closed."""

WAIT_SECONDS = 900.0
"""How long the key stays closed then."""

Ask = Callable[[], str]
"""Asks the person for the passphrase."""


class PassphraseSigner:
    """Signs with one key; asks for the passphrase once, when a decision first needs it."""

    def __init__(self, key: str, ask: Ask, path: Path | None = None) -> None:
        """key: the public key that the person's configuration names.

        path: its file, by default the account's own.
        """
        self._key, self._ask, self._path = key, ask, path
        self._opened: SigningKey | None = None

    @property
    def key(self) -> str:
        return self._key

    def unlock(self) -> None:
        if self._opened is not None:
            return
        path = self._path or key_path()
        opened = open_key(_read_key(path), self._ask())
        if opened.key != self._key:
            raise Refused(
                f"{path} holds another key than the configuration names.",
                "Restore the file, or lock again.",
            )
        self._opened = opened

    def sign(self, statement: bytes) -> bytes:
        if self._opened is None:
            raise Refused(
                "The approvals lock is not open, so nothing is signed.",
                "Enter its passphrase first.",
            )
        return self._opened.sign(statement)


def key_path() -> Path:
    """Return the path of the account's key.

    It lies beside the account's configuration where that is locked, else beside the file that
    commands change. Raise Refused when the account has no home directory.
    """
    config = config_path() if read_person_config().lock_key else own_path()
    if config is None:
        raise Refused(
            "This account has no home directory, so it has no key.", "Use an account that has one."
        )
    return config.with_name(FILE)


def create_key(passphrase: str, path: Path | None = None) -> str:
    """Make a key, write its file, and return the public key.

    Raise Refused when there is a key already.
    """
    path = path or key_path()
    signing_key, fields = make_key(passphrase)
    # A new folder is closed to other accounts; one that is there keeps its mode.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # O_EXCL: libraries need the key that is there, so a new one never takes its place.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise Refused(
            f"{path} exists already.", "Move it away only if no library needs it."
        ) from None
    with open(fd, "w", encoding="utf-8") as stream:
        json.dump(fields, stream, indent=2)
        stream.flush()
        # On disk before the configuration names the public key: a power cut must not leave a lock
        # without its key.
        os.fsync(stream.fileno())
    return signing_key.key


def _read_key(path: Path) -> Any:
    try:
        with open(path, encoding="utf-8", opener=regular_file) as stream:
            # Of the open file: the path could be exchanged between the check and the reading.
            check_owner(path, os.fstat(stream.fileno()))
            # A key's file has a few hundred characters. The limit keeps a wrong file out of memory.
            return json.loads(stream.read(100_000))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error}.", "Restore it from a backup."
        ) from None


def approver_path(via: str) -> Path:
    """Return the path of the key of a person who signs in. via: how the person is known."""
    # A hash, because `via` is text of the identity provider and may hold a path separator.
    name = hashlib.sha256(via.encode("utf-8")).hexdigest()[:32]
    return key_path().with_name(FOLDER) / f"{name}.key"


class ApproverKeys:
    """The keys of people who sign in, as the page opens them. Used from any thread.

    A stolen session could be used to try passphrases, so after MAX_WRONG wrong ones in a row the
    key stays closed for WAIT_SECONDS. One is tried at a time, because each takes 64 MiB.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards `_wrong` and the creation of keys, and lets one derivation run at a time: each
        # takes 64 MiB.
        self._deriving = threading.Lock()
        self._wrong: dict[str, tuple[int, float]] = {}

    def public_key(self, via: str) -> str:
        """Return the public key that a person made here, '' before that.

        Raise InvalidArgument, Refused.
        """
        path = approver_path(via)
        return str(_read_key(path).get("public", "")) if path.exists() else ""

    def create(self, via: str, passphrase: str) -> str:
        """Make the key of a person; return the public key.

        Raise Refused when they have one already.
        """
        path = approver_path(via)
        with self._deriving:
            if path.exists():
                raise Refused(
                    "You have a signing key already.",
                    "The person who serves this page can remove it.",
                )
            return create_key(passphrase, path)

    def open(self, via: str, key: str, passphrase: str) -> PassphraseSigner:
        """Return the signer of a person.

        key: the listed public key. Raise Refused for a wrong passphrase.
        """
        signer = PassphraseSigner(key, lambda: passphrase, approver_path(via))
        with self._deriving:
            count, since = self._wrong.get(via, (0, 0.0))
            if count >= MAX_WRONG and since + WAIT_SECONDS > self._clock():
                raise Refused(
                    "Too many wrong passphrases in a row.", f"Wait {WAIT_SECONDS / 60:.0f} minutes."
                )
            try:
                signer.unlock()
            except Refused:
                # After a wait the count starts at 1 again: the next wait takes MAX_WRONG wrong
                # passphrases more.
                self._wrong[via] = (count % MAX_WRONG + 1, self._clock())
                raise
            self._wrong.pop(via, None)
        return signer
