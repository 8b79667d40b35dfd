"""The bearer tokens of a library: made once, stored as hashes, checked at every request.

Tokens are in a file beside the library and not in it: a backup or an export carries no access, and
a read-only library can still be served to a team. A server sees a token that another process
revoked after one short read. Writers take turns by a lock and replace the whole file, so every
reader sees a complete one.
"""

import contextlib
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from filelock import FileLock, Timeout
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from evolvable_server import Permission
from evolvable_store import regular_file, write_private
from evolvable_store.errors import (
    AlreadyExists,
    InvalidArgument,
    LibraryBusy,
    LibraryCorrupt,
    LibraryReadOnly,
    LibraryUnreachable,
    NoLibrary,
    NotFound,
    Refused,
    TryAgain,
)

PREFIX = "evo_"
"""What every secret begins with, so that scanners for leaked secrets can know it."""

FILE = "tokens.json"

USE_SECONDS = 60
"""Seconds between two writes of the last use of a token, and so how exact that time is."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_PATIENCE = 10.0  # seconds to wait for another writer


class NoSuchToken(NotFound):
    """No token has this name."""


def _with_zone(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("it has no time zone")
    return text


_Time = Annotated[str, AfterValidator(_with_zone)]


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored. Times are ISO 8601 in UTC. digest: the sha256 of its secret."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    name: str
    permissions: tuple[Permission, ...]
    created: _Time
    digest: str
    expires: _Time | None = None
    last_used: _Time | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether it has not expired."""
        return self.expires is None or now < datetime.fromisoformat(self.expires)


class TokenFile(BaseModel):
    """The content of the file of tokens."""

    version: Literal[1] = 1
    tokens: tuple[Token, ...]


class Tokens:
    """The tokens of the library in `home`, shared with every other process."""

    def __init__(
        self, home: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._home, self._path, self._clock = home, home / FILE, clock
        self._read: bytes | None = None
        self._parsed: tuple[Token, ...] = ()
        # Times of uses that are not in the file yet, or could not be written.
        self._noted: dict[str, datetime] = {}

    def is_in_use(self) -> bool:
        """Return whether a token was ever made here; from then on a server asks for one."""
        return self._path.exists()

    def all(self) -> tuple[Token, ...]:
        """Return the tokens by name.

        Raise LibraryCorrupt when their file cannot be read as ours, Refused when another account
        made it or could have changed it.
        """
        try:
            with open(self._path, "rb", opener=regular_file) as stream:
                self._check_owner(os.fstat(stream.fileno()))
                data = stream.read()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise LibraryCorrupt(
                f"{self._path} cannot be read: {error.strerror}.", _REPAIR_HINT
            ) from None
        # Parsing is the expensive part; the file is read at every request and changes rarely.
        if data != self._read:
            try:
                self._parsed, self._read = TokenFile.model_validate_json(data).tokens, data
            except ValidationError:
                raise LibraryCorrupt(
                    f"{self._path} is not a list of tokens.", _REPAIR_HINT
                ) from None
        return self._parsed

    def _check_owner(self, status: os.stat_result) -> None:
        """Raise Refused for a file that another account made or could have changed."""
        if os.name != "posix":
            return
        # The owner of the home may own the file too: a home of another account is opened only after
        # the person registered it.
        owners = {os.geteuid(), self._home.stat().st_uid}
        if status.st_uid in owners and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return
        raise Refused(
            f"{self._path} is not believed: another account made it or could have changed it "
            f"(owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}; this process runs "
            f"as user {os.geteuid()}).",
            "Nobody is let in. Look at what stands in it; then delete it and make new tokens, or "
            "take it over with chown and chmod 600.",
        )

    def add(
        self, name: str, permissions: Iterable[Permission], lifetime: timedelta | None = None
    ) -> tuple[Token, str]:
        """Make a token; return it and its secret, which is kept nowhere.

        Every token may read. Raise InvalidArgument, AlreadyExists for a name in use, NoLibrary,
        LibraryBusy, LibraryReadOnly, LibraryCorrupt.
        """
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"{ascii(name[:80])} is no name for a token.",
                "Use up to 64 small letters, digits, dots, dashes and underscores, such as "
                "alice-laptop.",
            )
        if not self._home.is_dir():
            raise NoLibrary(f"There is no library in {self._home}.", "`evolvable init` makes one.")
        secret = PREFIX + secrets.token_urlsafe(32)
        now = self._clock()
        with self._changing() as tokens:
            if any(token.name == name for token in tokens):
                raise AlreadyExists(
                    f"There is a token {name} already.",
                    f"`evolvable team token revoke {name}` ends it.",
                )
            chosen = {Permission.READ, *permissions}
            ordered = tuple(permission for permission in Permission if permission in chosen)
            expires = _format_utc(now + lifetime) if lifetime is not None else None
            token = Token(name, ordered, _format_utc(now), digest_of(secret), expires)
            tokens.append(token)
        return token, secret

    def revoke(self, name: str) -> Token:
        """Delete a token; servers refuse it from their next request on.

        Raise NoSuchToken, and as `add`.
        """
        with self._changing() as tokens:
            for token in tokens:
                if token.name == name:
                    tokens.remove(token)
                    return token
            raise NoSuchToken(
                f"There is no token {ascii(name[:80])}.", "`evolvable team token list` shows them."
            )

    def find(self, secret: str) -> Token | None:
        """Return the valid token of this secret. Raise LibraryCorrupt.

        Every stored hash is compared in constant time, so the time tells nothing. A plain hash is
        enough, because a secret is 256 random bits, which nobody can guess.
        """
        digest, match = digest_of(secret), None
        for token in self.all():
            if hmac.compare_digest(token.digest, digest):
                match = token
        return match if match is not None and match.is_valid(self._clock()) else None

    def note_use(self, token: Token) -> None:
        """Store that a token was used now, at most once in USE_SECONDS.

        A home that cannot be written is left alone.
        """
        now = self._clock()
        uses = [datetime.fromisoformat(token.last_used)] if token.last_used else []
        uses += [self._noted[token.digest]] if token.digest in self._noted else []
        if uses and now - max(uses) < timedelta(seconds=USE_SECONDS):
            return
        self._noted[token.digest] = now
        with (
            contextlib.suppress(TryAgain, LibraryCorrupt, Refused),
            self._changing(patience=1.0) as tokens,
        ):
            tokens[:] = [
                replace(each, last_used=_format_utc(now)) if each.digest == token.digest else each
                for each in tokens
            ]

    @contextlib.contextmanager
    def _changing(self, patience: float = _PATIENCE) -> Iterator[list[Token]]:
        """Yield the list of tokens to change, and write it when the block ends without an error."""
        try:
            # The lock guards the file of tokens between reading and replacing it. It is another
            # file: a lock on the replaced one would be lost.
            with FileLock(self._home / "tokens.lock", timeout=patience, mode=0o600):
                tokens = list(self.all())
                yield tokens
                stored = TokenFile(tokens=tuple(sorted(tokens, key=lambda token: token.name)))
                write_private(self._path, stored.model_dump_json(indent=1) + "\n")
        except Timeout:
            raise LibraryBusy("Another process is changing the tokens.", "Try again.") from None
        except PermissionError:
            raise LibraryReadOnly(
                f"{self._home} cannot be written.", "Ask the owner of the folder."
            ) from None
        except OSError as error:
            raise LibraryUnreachable(
                f"{self._home} cannot be written: {error.strerror}.", "Nothing changed."
            ) from None


_REPAIR_HINT = "Nobody is let in until it is fixed; delete it to begin again, with new tokens."


def digest_of(secret: str) -> str:
    """Return the hash that stands for a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _format_utc(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds")


def token_row(token: Token, secret: str | None = None) -> dict[str, Any]:
    """Return a token as people are shown it, with its secret only when it was just made."""
    row = asdict(token) | {"secret": secret}
    del row["digest"]
    return row
