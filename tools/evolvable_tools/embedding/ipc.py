"""The connection between a server and the embedder's process: JSON over a local connection with a
shared key.

A connection serves one task at a time. The number of an answer shows to which task it belongs.
"""

import contextlib
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_store import private_file

if TYPE_CHECKING:
    from multiprocessing.connection import Connection, Listener

# Start time: the first search asks whether a process is announced, and mostly there is none yet to
# connect to.

LOCK = "embedder.lock"
ADDRESS = "embedder.json"
_KEY = "embedder.key"
_SOCKET = "embedder.sock"

_LONGEST_PATH = 100  # bytes that a Unix socket's address may have everywhere

PROTOCOL = 1
"""Counts up whenever a message gets another meaning; a process of another version is
asked to end.
"""

# Bounds the memory that a broken or hostile other side can take.
MAX_MESSAGE = 1_000_000
"""Bytes of a message."""


class MalformedMessage(Exception):
    """The other side sent what is no message."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """Who embeds for this library: the process, how its embedder was named, and where it listens.

    address: None while it is loading; the host and the port of a loopback address as a list. error:
    why it gave up.
    """

    pid: int
    spec: str
    address: str | list[Any] | None = None
    error: str = ""
    protocol: int = PROTOCOL

    def offers(self, spec: str) -> bool:
        """Return whether this process is what a server with this spec would start."""
        return (self.spec, self.protocol) == (spec, PROTOCOL)


def announce(home: Path, announcement: Announcement) -> None:
    """Write the announcement, whole or not at all. Raises OSError."""
    new = home / f"{ADDRESS}.new"
    with open(new, "w", encoding="utf-8", opener=private_file) as file:
        json.dump(asdict(announcement), file)
    # Renamed into place, because servers read it at any time.
    new.replace(home / ADDRESS)


def read_announcement(home: Path) -> Announcement | None:
    """Return the announcement, None when there is none that can be read."""
    try:
        values = json.loads((home / ADDRESS).read_bytes())
        about = (int(values["pid"]), str(values["spec"]), values["address"])
        return Announcement(*about, str(values["error"]), int(values["protocol"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_announcement(home: Path) -> None:
    """Remove this process's own announcement."""
    # A successor may have announced itself meanwhile.
    announcement = read_announcement(home)
    if announcement is not None and announcement.pid == os.getpid():
        with contextlib.suppress(OSError):
            (home / ADDRESS).unlink()


def listen(home: Path) -> "Listener":
    """Return a listener on a local address; for the holder of the lock. Raises OSError."""
    from multiprocessing.connection import Listener

    path = home / _SOCKET
    if os.name == "posix" and len(os.fsencode(path)) <= _LONGEST_PATH:
        with contextlib.suppress(OSError):  # some file systems have no sockets
            # A killed process leaves its socket, and bind refuses a path that exists. Only the
            # holder of the lock gets here.
            path.unlink(missing_ok=True)
            listener = Listener(str(path), "AF_UNIX", backlog=32)
            # Until here the umask decides who may connect; without the key nobody gets an answer.
            path.chmod(0o600)
            return listener
    # On Windows, for a long path and without sockets in the file system: a free port of the
    # loopback address.
    return Listener(("127.0.0.1", 0), "AF_INET", backlog=32)


def dial(home: Path, announcement: Announcement) -> "Connection[Any, Any] | None":
    """Return an open connection to the process; None when it does not listen, or
    refuses our key.
    """
    address = announcement.address
    if address is None:
        return None
    from multiprocessing import AuthenticationError
    from multiprocessing.connection import Client

    try:
        key = (home / _KEY).read_bytes()
        if isinstance(address, str):
            return Client(address, "AF_UNIX", authkey=key)
        # Only loopback: a changed announcement must not lead to another host.
        if isinstance(address, list) and address[0] == "127.0.0.1":
            return Client((str(address[0]), int(address[1])), "AF_INET", authkey=key)
    # The process has just ended, or its file or key is of another start.
    except (OSError, EOFError, ValueError, LookupError, TypeError, AuthenticationError):
        pass
    return None


def new_key(home: Path) -> bytes:
    """Make the key that both sides must know, readable by this user only, and return it.

    Raises OSError.
    """
    key = secrets.token_bytes(32)
    new = home / f"{_KEY}.new"
    new.unlink(missing_ok=True)
    # Created with its mode, and only if nobody made the file: no other user can open it before the
    # key is in it.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(key)
    new.replace(home / _KEY)
    return key


def send(connection: "Connection[Any, Any]", message: dict[str, Any]) -> None:
    """Send a message. Raises OSError or ValueError (too long)."""
    connection.send_bytes(json.dumps(message).encode("ascii"))


def receive(connection: "Connection[Any, Any]") -> dict[str, Any]:
    """Return the next message. Raises EOFError, OSError or MalformedMessage."""
    try:
        message = json.loads(connection.recv_bytes(MAX_MESSAGE))
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(str(error)) from error
    if not isinstance(message, dict):
        raise MalformedMessage("it is no object")
    return message


# Tasks begun and never asked about, after which a process that hangs could make us wait.
_MOST_UNANSWERED = 32


class EmbedderConnection:
    """An open connection to the embedder.

    owes: an answer that was not waited for is still to come. is_lost: it cannot be used.
    """

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._number = self._unanswered = 0
        self.owes = self.is_lost = False

    def begin(self, task: str) -> int:
        """Send a task; return its number. Afterwards the connection may be lost."""
        self._number += 1
        self._unanswered += 1
        # A process that hangs reads nothing, and a full socket would block the next task.
        if self._unanswered > _MOST_UNANSWERED:
            self.is_lost = True
            return self._number
        self._send({"op": "begin", "number": self._number, "task": task})
        return self._number

    def ask(self, number: int, question: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return the answer to a question about the task of this number; None when none comes in
        time or at all.
        """
        self._send(question | {"number": number})
        self.owes = True
        deadline = time.monotonic() + seconds
        while not self.is_lost and (left := deadline - time.monotonic()) >= 0:
            answer = self._receive_next(left)
            # Answers to tasks that were given up may come first.
            if answer is not None and answer.get("number") == number:
                return answer
        return None

    def drain(self) -> None:
        """Discard late answers, and note when the process has gone; never waits."""
        while self._receive_next(0) is not None:
            pass

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            send(self._connection, message)
        except (OSError, ValueError):
            self.is_lost = True

    def _receive_next(self, seconds: float) -> dict[str, Any] | None:
        try:
            if not self._connection.poll(seconds):
                return None
            answer = receive(self._connection)
        except (OSError, EOFError, MalformedMessage):
            self.is_lost = True
            return None
        self.owes = self.owes and answer.get("number") != self._number
        self._unanswered = 0
        return answer
