"""Show the token of a membership to its server, and renew it before it ends: one process at a time,
no lock meanwhile.

A provider may take back all tokens when one refresh token comes twice. So the process that renews
writes a lease: until it is done, has ended, or has taken too long, the others use the token that
they have, or wait for the new one.
"""

import json
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
from anyio.to_thread import run_sync

from evolvable_store import read_regular, write_private
from evolvable_store.errors import NotFound
from evolvable_store.workingcopy import exclusive
from evolvable_teams.joining import (
    Membership,
    load_membership,
    membership_file,
    renew_membership,
    save_membership,
)

EARLY_SECONDS = 60.0
"""How long before its end a token is renewed."""

LEASE_SECONDS = 40.0
"""How long one process may take to renew a token: the provider is asked a handful of times, five
seconds each.
"""

LOCK_SECONDS = 20.0
"""How long the lock of a membership is waited for; it is held to read and write small
files alone.
"""

_PAUSE = 0.1  # seconds between two looks


class MembershipAuth(httpx2.Auth):
    """Shows the token of a membership to its own server, and renews it before it ends."""

    def __init__(self, name: str) -> None:
        self._name, self._membership = name, load_membership(name)
        # Of this process: its requests renew one after another. The lease keeps other processes
        # out.
        self._lock = anyio.Lock()
        # The random part distinguishes two processes that had the same number one after the other.
        self._holder = f"{os.getpid()} {secrets.token_hex(8)}"

    @property
    def resource(self) -> str:
        """The address of the server."""
        return self._membership.resource

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Add the token to a request of the membership's own server."""
        if not _is_same_origin(str(request.url), self._membership.resource):
            yield request
            return
        # Renewed while the old token still works, so that other processes need not wait.
        if self._membership.expires - EARLY_SECONDS < time.time():
            await self._renew(self._membership.token, refused=False)
        tried = self._membership.token
        request.headers["authorization"] = f"Bearer {tried}"
        answer = yield request
        if answer.status_code == 401:
            await self._renew(tried, refused=True)
            request.headers["authorization"] = f"Bearer {self._membership.token}"
            yield request

    async def _renew(self, tried: str, *, refused: bool) -> None:
        """Have another token than the one that was tried.

        refused: it is of no use; else it is, until its end.
        """
        async with self._lock:
            while self._membership.token == tried:
                fresh, takes = None, True
                try:
                    takes = await run_sync(self._take_lease, tried)
                    fresh = await renew_membership(self._membership) if takes else None
                finally:
                    if takes:
                        # The provider has taken the old refresh token back; a cancelled task must
                        # still store the new one.
                        with anyio.CancelScope(shield=True):
                            await run_sync(self._end_lease, tried, fresh)
                if takes:
                    return
                if not refused and self._membership.expires > time.time():
                    return
                await anyio.sleep(_PAUSE)

    def _take_lease(self, tried: str) -> bool:
        """Return whether this process renews the token now; read the one that another process
        wrote.
        """
        with self._exclusive():
            self._membership = load_membership(self._name)
            if self._membership.token != tried or self._is_leased():
                return False
            lease = {"holder": self._holder, "until": time.time() + LEASE_SECONDS}
            write_private(self._lease, json.dumps(lease), durable=False)
            return True

    def _end_lease(self, tried: str, fresh: Membership | None) -> None:
        with self._exclusive():
            if fresh is not None:
                self._membership = fresh
                with suppress(NotFound):  # the person left the library meanwhile
                    if load_membership(self._name).token == tried:
                        save_membership(self._name, fresh)
            if _read_lease(self._lease)[0] == self._holder:
                self._lease.unlink(missing_ok=True)

    def _is_leased(self) -> bool:
        holder, until = _read_lease(self._lease)
        # A lease that ends later than any lease can was written under another clock, and does not
        # count.
        return 0 < until - time.time() <= LEASE_SECONDS and _lives(holder)

    @property
    def _lease(self) -> Path:
        return membership_file(self._name).with_name(f".{self._name}.renewing")

    def _exclusive(self) -> AbstractContextManager[None]:
        lock = self._lease.with_suffix(".lock")
        return exclusive(lock, LOCK_SECONDS, f"the sign-in to {self._membership.resource}")


def _read_lease(file: Path) -> tuple[str, float]:
    """Return who renews a token, and until when; nobody where the file is missing or damaged."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        lease = json.loads(read_regular(file, 1000))
        return str(lease["holder"]), float(lease["until"])
    return "", 0.0


def _lives(holder: str) -> bool:
    """Return whether the process of a lease still runs, as far as that can be known."""
    process = holder.partition(" ")[0]
    if sys.platform == "win32" or not process.isdecimal():
        return True
    try:
        # Signal 0 only asks whether the process is there.
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _is_same_origin(left: str, right: str) -> bool:
    first, second = urlsplit(left), urlsplit(right)
    return (first.scheme, first.netloc.lower()) == (second.scheme, second.netloc.lower())
