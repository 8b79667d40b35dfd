"""The page that a home keeps: one host name, one port, and the hashes of the cookies for reading.

A browser finds the page at the same address after each start. The file holds no secret that opens
anything: a cookie is known by its hash, and its secret is replaced the first time that a later
start sees it.
"""

import contextlib
import json
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from evolvable_store.errors import InvalidArgument

FILE, LOCK = "page.json", "page.lock"

# A page that is opened once a month still opens; a browser that was given away reads no longer than
# that.
READING_SECONDS = 30 * 86_400.0
"""How long a cookie opens reading after its last use."""

# Trades an error of an hour in 30 days for a write to the disk with each request.
NOTED_SECONDS = 3600.0
"""How exactly the last use of a cookie is stored."""

MAX_READERS = 16
"""Browsers that may read; the one that was quiet longest is forgotten for another."""

# Linux hands out ports from 32,768 to 60,999 by itself, macOS and Windows those from 49,152.
PORTS = range(20_000, 32_000)
"""Where a port is chosen: below those that systems hand out by themselves, so that it stays free
while it is kept.
"""


class KeptPage:
    """The name, the port and the readers of a home's page. Used from any thread."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        # The lock guards `_readers`, `_noted` and the order of writes. `only_page` keeps other
        # processes out.
        self._path, self._clock, self._lock = home / FILE, clock, threading.Lock()
        fields = self._read()
        self.host: str = fields.get("host") or secrets.token_hex(8)
        self.port: int = fields.get("port") or 0
        self._readers: dict[str, float] = fields.get("readers") or {}
        self._noted = dict(self._readers)

    def choose_port(self) -> int:
        """Return the port of the home; a random one where none is kept yet."""
        return self.port or secrets.choice(PORTS)

    def keep(self, port: int) -> None:
        """Keep the name, and this port."""
        with self._lock:
            self.port = port
            self._write(new=True)

    @property
    def holds(self) -> bool:
        """Whether the home still keeps this page: not after `forget`, in any process."""
        return self._read().get("host") == self.host

    def add(self, digest: bytes) -> None:
        """Have a cookie open the page for reading, from now."""
        with self._lock:
            # A loop, since an older version or a person may have left more of them in the file.
            while len(self._readers) >= MAX_READERS:
                del self._readers[min(self._readers, key=self._readers.__getitem__)]
            self._readers[digest.hex()] = self._clock()
            self._write()

    def remove(self, *digests: bytes) -> None:
        """Have these cookies open nothing any more."""
        with self._lock:
            removed = [
                digest.hex()
                for digest in digests
                if self._readers.pop(digest.hex(), None) is not None
            ]
            if removed:
                self._write()

    def opens(self, digest: bytes) -> bool:
        """Return whether a cookie opens reading, and note its use."""
        with self._lock:
            key, now = digest.hex(), self._clock()
            seen = self._readers.get(key)
            if seen is None or seen + READING_SECONDS <= now:
                return False
            self._readers[key] = now
            # `_noted` is what the file says; the time in memory is exact.
            if self._noted.get(key, 0.0) + NOTED_SECONDS <= now:
                self._write()
            return True

    def end_reading(self) -> None:
        """Have no cookie open reading any more."""
        with self._lock:
            self._readers.clear()
            # Without a port the home never kept a page, and no file is to appear.
            if self.port:
                self._write()

    def forget(self) -> bool:
        """Remove the name, the port and every cookie; return whether there was anything."""
        existed = self._path.exists()
        self._path.unlink(missing_ok=True)
        return existed

    def _read(self) -> dict[str, Any]:
        """Return the fields of the file, {} where it is missing or malformed."""
        try:
            fields = json.loads(self._path.read_bytes())
            host, port, readers = str(fields["host"]), int(fields["port"]), dict(fields["readers"])
            seen = {str(key): float(at) for key, at in readers.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}
        # The name goes into links and headers: only what `token_hex(8)` can have made is taken from
        # the file.
        is_name = len(host) == 16 and set(host) <= set("0123456789abcdef")
        if not is_name or not 0 < port < 65_536:
            return {}
        return {"host": host, "port": port, "readers": seen}

    def _write(self, *, new: bool = False) -> None:
        if not new and not self.holds:
            return  # another process forgot it
        # For the owner alone, and whole or not at all: another account could name a host and a port
        # of its own.
        handle, name = tempfile.mkstemp(prefix=f".{FILE}.", dir=self._path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump({"host": self.host, "port": self.port, "readers": self._readers}, stream)
            # No fsync: after a power cut a browser needs a new link, and nothing else is lost.
            os.replace(name, self._path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        self._noted = dict(self._readers)


@contextlib.contextmanager
def only_page(home: Path) -> Iterator[None]:
    """Hold the right to serve the page of a home.

    Raise InvalidArgument where another process has it.
    """
    lock = FileLock(home / LOCK)
    try:
        # The system releases it when the process dies, so a page that was killed never blocks the
        # next one.
        lock.acquire(blocking=False)
    except Timeout:
        raise InvalidArgument(
            f"The page of {home} is open already.",
            "Press Enter at the terminal where it runs for a new link.",
        ) from None
    try:
        yield
    finally:
        lock.release()


def forwarding_page(home: Path, link: str) -> Path:
    """Write a file that forwards a browser to a link, for this account alone, and return it.

    Other accounts read the command lines of processes: the secret of the link must not stand in
    one.
    """
    for older in home.glob("open-page-*.html"):  # of a page that was killed
        older.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(prefix="open-page-", suffix=".html", dir=home)  # of mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="referrer" '
            'content="no-referrer"><meta http-equiv="refresh" content="0; '
            f'url={link}"><title>Evolvable</title></head><body><p><a href="{link}">Open the '
            "page</a></p></body></html>"
        )
    return Path(name)
