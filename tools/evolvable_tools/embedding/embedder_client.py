"""The client of the shared embedder: asks at once, waits briefly, and starts the process where none
runs.

A thread of its own connects and starts, so no answer waits for that.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_store import private_file, work_tree
from evolvable_store.resource import Kind
from evolvable_tools.embedding import ipc
from evolvable_tools.embedding.embedder import NearestDescription, SimilarResources, absolute_spec
from evolvable_tools.embedding.ipc import EmbedderConnection

PATIENCE = 0.05
"""Seconds that an answer is waited for."""

START_AFTER = 0.2
"""Seconds from the search of a server that found no process until one is started."""

MAX_TASK = 120
"""Characters of a task that are sent.

The time to embed grows with the text, and more of it finds nothing better.
"""

LOG = "embedder.log"
"""The log of the process, in the library's folder."""

# Connections of one server. When all are in use, a search goes on with words alone.
_MOST_CONNECTIONS = 8
_WARMING_UP = "embedder is warming up"
_CANNOT_START = "the embedder cannot start"
# Such a trouble stays until the embedder is installed or repaired, so `nearest_description` does
# not wait for it to pass.
_HOPELESS = (_CANNOT_START,)
_BUSY = "the embedder is still at an earlier task"
_START_AGAIN = (2.0, 60.0)  # seconds between two starts, first and at most
# Seconds between two attempts to connect, and between two questions of `nearest_description`.
_TRY_AGAIN = 0.05

# The process lives long and needs no secret of its starter, but for those that the hub asks for.
_SECRET = ("_API_KEY", "_TOKEN", "_SECRET")
_OF_THE_HUB = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")

_CACHES = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "SENTENCE_TRANSFORMERS_HOME",
    "XDG_CACHE_HOME",
)
"""Variables that name a folder of models that were fetched."""


def truncate_task(task: str) -> str:
    """Return as much of the task as is embedded."""
    return task[:MAX_TASK]


class SharedEmbedder:
    """The process that embeds for the library in `home`, shared by every process that opens it.

    propose: whether to replace a process that serves another model; without it the model that
    serves is used, whatever `spec` names. environment: of the process, by default ours; secrets and
    folders of models in a work tree are left out of it.

    Makes nothing and starts nothing before the first `begin`. Safe to share between threads. Raises
    InvalidArgument for a spec that names no embedder.
    """

    def __init__(
        self,
        home: Path,
        spec: str,
        *,
        propose: bool = True,
        patience: float = PATIENCE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = harmless_environment(os.environ if environment is None else environment)
        self._home, self._spec, self.patience = home.absolute(), absolute_spec(spec), patience
        self._propose = propose
        # Guards the connections and their count. Notified when one is free, opened or could not be
        # opened.
        self._changed = threading.Condition()
        self._idle: list[EmbedderConnection] = []
        self._late: list[EmbedderConnection] = []
        self._count = 0
        self._connecting = self._closed = self._proposed = False
        self._not_before = self._start_not_before = 0.0
        self._pause = _START_AGAIN[0]
        self._started: subprocess.Popen[bytes] | None = None
        self._trouble = _WARMING_UP

    def begin(self, task: str) -> "PendingEmbedding":
        """Send the task at once if a connection is free, and return the pending query.

        Never waits and never raises.
        """
        pending = PendingEmbedding(self, truncate_task(task))
        connection = self.take(0)
        if connection is not None:
            pending.send_over(connection)
        return pending

    def close(self) -> None:
        """Close every idle connection; the process ends by itself after the last one."""
        with self._changed:
            self._closed = True
            connections, self._idle, self._late = self._idle + self._late, [], []
            self._changed.notify_all()
        for connection in connections:
            connection.close()

    # For PendingEmbedding

    @property
    def trouble(self) -> str:
        """Why there is no connection."""
        return _BUSY if self._late else self._trouble

    def take(self, seconds: float) -> EmbedderConnection | None:
        """Return an idle connection, waiting at most so long.

        Start to open one when there is none.
        """
        with self._changed:
            self._sort_connections()
            if not self._idle:
                self._connect_in_background()
                self._changed.wait_for(
                    lambda: self._idle or self._closed or not self._connecting, seconds
                )
            return self._idle.pop() if self._idle else None

    def give_back(self, connection: EmbedderConnection) -> None:
        """Return a connection to the pool: for the next task, or until its pending
        answer arrives.
        """
        with self._changed:
            self._keep(connection)
            self._changed.notify()

    def _sort_connections(self) -> None:
        """Sort out which connections can be used: one that was late may have answered, an idle one
        may be lost.
        """
        connections, self._idle, self._late = self._idle + self._late, [], []
        for connection in connections:
            connection.drain()
            self._keep(connection)

    def _keep(self, connection: EmbedderConnection) -> None:
        """Put a connection where it belongs; close it where it cannot be used again."""
        if self._closed or connection.is_lost:
            connection.close()
            self._count -= 1
        else:
            (self._late if connection.owes else self._idle).append(connection)

    # Connecting, in a thread of its own

    def _connect_in_background(self) -> None:
        # One attempt at a time, and none right after a failed one: searches go on with words
        # meanwhile.
        may_connect = self._count < _MOST_CONNECTIONS and time.monotonic() >= self._not_before
        if self._connecting or self._closed or not may_connect:
            return
        self._connecting = True
        threading.Thread(target=self._connect, name="embedder", daemon=True).start()

    def _connect(self) -> None:
        connection, wants_process = None, False
        try:
            connection, wants_process = self._try_connect()
        # Also after an error: searches wait for the end of this attempt.
        finally:
            with self._changed:
                self._connecting = False
                if connection is None:
                    self._not_before = time.monotonic() + _TRY_AGAIN
                elif self._closed:
                    connection.close()
                else:
                    self._count += 1
                    self._idle.append(connection)
                self._changed.notify_all()
        if wants_process:
            if self._propose:
                # A server: the search that found no process is answered without one, and that comes
                # first. A command may end before that.
                time.sleep(START_AFTER)
            self._start_process()

    def _try_connect(self) -> tuple[EmbedderConnection | None, bool]:
        """Return a connection where a process listens, and whether one should be started."""
        serving = ipc.read_announcement(self._home)
        connection = ipc.dial(self._home, serving) if serving is not None else None
        if serving is None or connection is None:
            error = serving.error if serving is not None and serving.spec == self._spec else ""
            self._trouble = f"{_CANNOT_START}: {error}" if error else _WARMING_UP
            return None, True
        # Proposed once only: the last one started decides, so two servers that differ do not
        # alternate endlessly.
        differs = self._propose and not serving.offers(self._spec) and not self._proposed
        self._trouble, self._pause, self._proposed = _WARMING_UP, _START_AGAIN[0], True
        return ipc.EmbedderConnection(connection), differs

    def _start_process(self) -> None:
        with self._changed:
            # No process for a folder that was removed, which the log file would not bring back.
            if self._closed or time.monotonic() < self._start_not_before or not self._home.is_dir():
                return
            if self._started is not None and self._started.poll() is None:
                return  # it still starts; a second one would only wait for it and end
            # The pause doubles, so that an embedder that ends at once is not started in a loop.
            self._start_not_before = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _START_AGAIN[1])
        # -P keeps the working directory out of sys.path: no module of a work tree may run here.
        module = "evolvable_tools.embedding"
        command = [sys.executable, "-P", "-m", module, str(self._home), self._spec]
        if not self._propose:
            command.append("--give-way")
        try:
            with open(self._home / LOG, "ab", opener=private_file) as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    # The root: a process that lives long must not keep a project's folder from
                    # being removed or unmounted.
                    cwd=self._home.anchor,
                    env=self._environment,
                    # A session of its own: Ctrl+C in the terminal of the server that started it
                    # must not end it for the others.
                    start_new_session=os.name == "posix",
                )
        except OSError as error:
            self._trouble = f"{_CANNOT_START}: {error}"
            return
        self._started = process
        # Its end has to be waited for, or it stays in the table of processes.
        threading.Thread(target=process.wait, name="embedder ended", daemon=True).start()


def harmless_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without variables whose names end like those of secrets, and without
    untrusted caches.

    A folder of models in a work tree may come with the repository.
    """
    names = [
        name for name in environment if name in _OF_THE_HUB or not name.upper().endswith(_SECRET)
    ]
    names = [
        name
        for name in names
        if name not in _CACHES or work_tree(Path(os.path.realpath(environment[name]))) is None
    ]
    return {name: environment[name] for name in names}


class PendingEmbedding:
    """One task that the embedder has. For one thread; several queries may use it."""

    def __init__(self, embedder: SharedEmbedder, task: str) -> None:
        self._embedder, self._task = embedder, task
        self._connection: EmbedderConnection | None = None
        self._number = 0

    def __del__(self) -> None:
        # A search that asks nothing more gives its connection back, also when it ended with an
        # error.
        connection, self._connection = self._connection, None
        if connection is not None:
            self._embedder.give_back(connection)

    def send_over(self, connection: EmbedderConnection) -> None:
        """Send the task over this connection, and keep the connection until this object
        goes away.
        """
        self._number = connection.begin(self._task)
        if connection.is_lost:
            self._embedder.give_back(connection)
        else:
            self._connection = connection

    @property
    def trouble(self) -> str:
        """Why there will be no answer, as far as that is known at once.

        Empty when there may be one.
        """
        return "" if self._connection is not None else self._embedder.trouble

    def similar(
        self, ids: Sequence[int], *, kind: Kind, scopes: Sequence[str] | None, limit: int
    ) -> SimilarResources:
        """Return how near these resources are to the task, and the nearest there are; waits
        `patience` at most.

        Never raises: without an answer `said` tells why.
        """
        question = {"op": "similar", "ids": list(ids), "limit": limit}
        answer = self._ask(question, kind, scopes, self._embedder.patience)
        if isinstance(answer, str):
            return SimilarResources(said=answer)
        try:
            return SimilarResources(
                {int(id_): float(cosine) for id_, cosine in answer["cosines"].items()},
                tuple(int(id_) for id_ in answer["nearest"]),
                str(answer["said"]),
                bool(answer["available"]),
                {int(id_): float(alike) for id_, alike in answer.get("late", {}).items()},
                {int(id_): float(near) for id_, near in answer.get("learned", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return SimilarResources(said="the embedder's answer cannot be read")

    def nearest_description(
        self, kind: Kind, scopes: Sequence[str] | None, *, within: float | None = None
    ) -> NearestDescription:
        """Return the resource whose description alone is nearest to the task, as `similar` does.

        within: seconds to wait instead of `patience`; then also while the embedder starts, is at
        another task, or has not embedded the descriptions yet.
        """
        if within is None:
            return self._ask_nearest_description(kind, scopes, self._embedder.patience)
        deadline = time.monotonic() + within
        while True:
            nearest = self._ask_nearest_description(
                kind, scopes, max(0.0, deadline - time.monotonic())
            )
            is_final = nearest.available or nearest.said.startswith(_HOPELESS)
            if is_final or time.monotonic() + _TRY_AGAIN >= deadline:
                return nearest
            # No message says that the model or the descriptions are ready, so the question is
            # repeated.
            time.sleep(_TRY_AGAIN)

    def _ask_nearest_description(
        self, kind: Kind, scopes: Sequence[str] | None, seconds: float
    ) -> NearestDescription:
        answer = self._ask({"op": "described"}, kind, scopes, seconds)
        if isinstance(answer, str):
            return NearestDescription(said=answer)
        try:
            best = answer["best"]
            nearest = (int(best[0]), float(best[1])) if best else None
            return NearestDescription(nearest, str(answer["said"]), bool(answer["available"]))
        except (KeyError, TypeError, ValueError, IndexError):
            return NearestDescription(said="the embedder's answer cannot be read")

    def _ask(
        self,
        question: dict[str, Any],
        kind: Kind | None,
        scopes: Sequence[str] | None,
        seconds: float,
    ) -> dict[str, Any] | str:
        """Return the answer, or one line that says why there is none."""
        deadline = time.monotonic() + seconds
        if self._connection is None:
            connection = self._embedder.take(seconds)
            if connection is None:
                return self._embedder.trouble
            self.send_over(connection)
        connection = self._connection
        if connection is None:
            return "the embedder went away"
        where = {
            "kind": kind.value if kind is not None else None,
            "scopes": None if scopes is None else list(scopes),
        }
        answer = connection.ask(
            self._number, question | where, max(0.0, deadline - time.monotonic())
        )
        if answer is not None:
            return answer
        # The answer may still come, so this connection serves no other task until it has:
        # `give_back` keeps it apart.
        self._connection = None
        self._embedder.give_back(connection)
        if connection.is_lost:
            return "the embedder went away"
        return f"the embedder did not answer within {seconds * 1000:.0f} ms"
