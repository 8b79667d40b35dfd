"""Show the token of a membership to its server, and renew it before it expires.

A provider may revoke all tokens when one refresh token comes twice, so one process renews at a
time. It writes a lease and holds no lock meanwhile. Until the lease or its process ends, the others
use the token that they have, or wait for the new one.
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
"""How long before it expires a token is renewed."""

LEASE_SECONDS = 40.0
"""How long one process may take to renew a token: a handful of requests of at most five seconds."""

LOCK_SECONDS = 20.0
"""How long to wait for the lock of a membership, held only while its files are read or written."""

_PAUSE = 0.1  # seconds between two looks at the lease of another process


class MembershipAuth(httpx2.Auth):
    """Shows the token of a membership to its own server, and renews it before it ends."""

    def __init__(self, name: str) -> None:
        self._name, self._membership = name, load_membership(name)
        # Guards `_membership` between the requests of this process, so that one of them renews it.
        # The lease keeps other processes out.
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
        token = self._membership.token
        request.headers["authorization"] = f"Bearer {token}"
        answer = yield request
        if answer.status_code == 401:
            await self._renew(token, refused=True)
            request.headers["authorization"] = f"Bearer {self._membership.token}"
            yield request

    async def _renew(self, old: str, *, refused: bool) -> None:
        """Replace the token `old`: renew it, or wait for the process that renews it.

        refused: the server refused it; otherwise it can be used until it expires.
        """
        async with self._lock:
            while self._membership.token == old:
                # True until known: a cancelled task may have taken the lease.
                fresh, has_lease = None, True
                try:
                    has_lease = await run_sync(self._take_lease, old)
                    fresh = await renew_membership(self._membership) if has_lease else None
                finally:
                    if has_lease:
                        # The old refresh token is used up, so a cancelled task must still store the
                        # new one.
                        with anyio.CancelScope(shield=True):
                            await run_sync(self._end_lease, old, fresh)
                if has_lease:
                    return
                if not refused and self._membership.expires > time.time():
                    return
                await anyio.sleep(_PAUSE)

    def _take_lease(self, old: str) -> bool:
        """Return whether this process renews the token now, after it reads the stored one."""
        with self._exclusive():
            self._membership = load_membership(self._name)
            if self._membership.token != old or self._is_leased():
                return False
            lease = {"holder": self._holder, "until": time.time() + LEASE_SECONDS}
            write_private(self._lease, json.dumps(lease), durable=False)
            return True

    def _end_lease(self, old: str, fresh: Membership | None) -> None:
        """Store the new token, unless the stored one is another by now, and delete the lease."""
        with self._exclusive():
            if fresh is not None:
                self._membership = fresh
                with suppress(NotFound):  # the person left the library meanwhile
                    if load_membership(self._name).token == old:
                        save_membership(self._name, fresh)
            if _read_lease(self._lease)[0] == self._holder:
                self._lease.unlink(missing_ok=True)

    def _is_leased(self) -> bool:
        holder, until = _read_lease(self._lease)
        # A lease that ends later than a new one would was written under another clock; it is void.
        return 0 < until - time.time() <= LEASE_SECONDS and _is_running(holder)

    @property
    def _lease(self) -> Path:
        return membership_file(self._name).with_name(f".{self._name}.renewing")

    def _exclusive(self) -> AbstractContextManager[None]:
        lock = self._lease.with_suffix(".lock")
        return exclusive(lock, LOCK_SECONDS, f"the sign-in to {self._membership.resource}")


def _read_lease(file: Path) -> tuple[str, float]:
    """Return the holder of a lease and when it ends; '' and 0 for none, or a damaged one."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        lease = json.loads(read_regular(file, 1000))
        return str(lease["holder"]), float(lease["until"])
    return "", 0.0


def _is_running(holder: str) -> bool:
    """Return whether the process of a lease still runs; True where that cannot be known."""
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
