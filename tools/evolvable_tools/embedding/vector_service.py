"""The process that embeds for one library, shared by all its servers: its lock, its threads and its
answers.

The first server that asks starts it. It ends when it is idle.
"""

import contextlib
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from evolvable_store import Store
from evolvable_store.errors import DamagedFile, EvolvableError, LibraryError
from evolvable_store.search import VECTORS_FILE, TextRole, Vectors, set_aside
from evolvable_tools.embedding import ipc
from evolvable_tools.embedding.embedder import (
    CLOSEST,
    Embedder,
    NearestDescription,
    SimilarResources,
)
from evolvable_tools.embedding.indexer import IndexingState, VectorIndexer
from evolvable_tools.embedding.ipc import MalformedMessage
from evolvable_tools.embedding.local_models import open_embedder
from evolvable_tools.embedding.token_vectors import (
    Floats,
    TokenVectors,
    late_interaction,
    normalize_rows,
)
from evolvable_tools.embedding.vector_matrix import Product

_REMEMBERED = 256  # tasks whose vectors are cached
# Bounds an answer, whatever limit a client sends.
_MOST_NEAREST = 1_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task for a model that serves: its vector, and what can be computed before anything is asked
    about it.

    tokens: the vectors of its tokens, each of length 1.
    """

    task: str
    service: IndexingState
    vector: Floats
    product: Product
    tokens: Floats


class TokenReader:
    """The stored vectors of tokens, over a connection of its own. Safe to share between threads."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors, self._closed = vectors, False
        # Guards the connection: one thread reads at a time, and none after `close`.
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the connection when no thread reads any more."""
        # SQLite crashes if a connection is closed under a thread that uses it.
        with self._lock:
            self._closed = True
            self._vectors.close()

    def read(self, service: IndexingState, resources: Sequence[int]) -> dict[int, TokenVectors]:
        """Return the token vectors of those of these resources that have them.

        None from a damaged or closed file.
        """
        # ValueError: the row is no multiple of the dimension.
        with self._lock, contextlib.suppress(DamagedFile, LibraryError, ValueError):
            if self._closed:
                return {}
            stored = self._vectors.tokens_of(service.model, resources)
            shape = (-1, service.embedder.dimension)
            return {
                id_: np.frombuffer(data, np.int8).reshape(shape) for id_, data in stored.items()
            }
        return {}


class RequestHandler:
    """Answers the clients of one library from its indexer. Safe to share between threads."""

    def __init__(self, indexer: VectorIndexer, tokens: TokenReader | None = None) -> None:
        """Serve from this indexer.

        Without `tokens` no text is compared with a task token by token.
        """
        self._indexer, self._tokens = indexer, tokens
        # Guards `_tasks`.
        self._lock = threading.Lock()
        self._tasks: OrderedDict[tuple[str, str], tuple[Floats, Floats]] = OrderedDict()

    def prepare(self, task: str) -> Prepared:
        """Embed a task with the model that serves."""
        service = self._indexer.serving
        vector, tokens = self._encode(service, task)
        return Prepared(task, service, vector, service.matrix.product(vector), tokens)

    def answer(self, message: Mapping[str, Any], prepared: Prepared) -> dict[str, Any]:
        """Return the answer to a question about a task, ready to send. Raises MalformedMessage."""
        # Another model has come into service meanwhile.
        if prepared.service is not self._indexer.serving:
            prepared = self.prepare(prepared.task)
        kind, scopes = message.get("kind"), message.get("scopes")
        if not isinstance(kind, str) or not (scopes is None or _are_all(scopes, str)):
            raise MalformedMessage("kind and scopes are missing")
        if message.get("op") == "described":
            return asdict(self._find_nearest_description(prepared, kind, scopes))
        ids, limit = message.get("ids"), message.get("limit")
        if not isinstance(ids, list) or not _are_all(ids, int) or type(limit) is not int:
            raise MalformedMessage("ids and limit are missing")
        bounded_limit = max(0, min(limit, _MOST_NEAREST))
        similar = asdict(self._find_similar(prepared, ids, kind, scopes, bounded_limit))
        late = self._compare_tokens(prepared, ids[:CLOSEST])
        near = prepared.service.learned.nearness(prepared.vector)
        learned = {id_: round(near[id_], 4) for id_ in ids[:CLOSEST] if id_ in near}
        # Four digits, which is more than float16 holds, keep the answer short.
        cosines = {id_: round(cosine, 4) for id_, cosine in similar["cosines"].items()}
        return similar | {"cosines": cosines, "late": late, "learned": learned}

    def _compare_tokens(self, prepared: Prepared, ids: Sequence[int]) -> dict[int, float]:
        """Return how near the task is to these resources token by token, of those whose tokens are
        known.
        """
        texts = (
            self._tokens.read(prepared.service, ids)
            if self._tokens is not None and len(prepared.tokens)
            else {}
        )
        return {
            id_: round(late_interaction(prepared.tokens, token_vectors), 4)
            for id_, token_vectors in texts.items()
        }

    def _find_similar(
        self, prepared: Prepared, ids: list[int], kind: str, scopes: list[str] | None, limit: int
    ) -> SimilarResources:
        service = prepared.service
        done, total = service.matrix.count_vectors()
        if not total:
            return SimilarResources(said="the library is empty")
        if not done:
            return SimilarResources(
                said=f"embedder is warming up: 0 of {total:,} resources embedded"
            )
        similar = service.matrix.similar(
            prepared.vector, ids, kind, scopes, limit, prepared.product
        )
        return replace(similar, said=self._describe_state(service, done, total), available=True)

    def _describe_state(self, service: IndexingState, done: int, total: int) -> str:
        text = service.model.name
        if done < total:
            text += f", {done:,} of {total:,} resources embedded"
        if self._indexer.coming:
            text += f"; {self._indexer.coming.model.name} is being prepared"
        return text

    def _find_nearest_description(
        self, prepared: Prepared, kind: str, scopes: list[str] | None
    ) -> NearestDescription:
        # Only mode "paper" asks for descriptions alone, so they are not embedded before its first
        # question.
        self._indexer.wants_descriptions = True
        service = prepared.service
        waiting = service.waiting.get(TextRole.DESCRIPTION)
        if waiting is None or waiting:
            return NearestDescription(said="the descriptions are being embedded")
        best = service.matrix.nearest_description(prepared.vector, kind, scopes)
        return NearestDescription(best, service.model.name, available=True)

    def _encode(self, service: IndexingState, task: str) -> tuple[Floats, Floats]:
        key = (service.model.name, task)
        with self._lock:
            if key in self._tasks:
                self._tasks.move_to_end(key)
                return self._tasks[key]
        # Outside of the lock: two threads may embed the same task, which costs less than waiting
        # for each other.
        rows, tokens = service.embedder.encode_tokens([task])
        encoded = rows[0], normalize_rows(tokens[0].astype(np.float32))
        with self._lock:
            self._tasks[key] = encoded
            if len(self._tasks) > _REMEMBERED:
                self._tasks.popitem(last=False)
        return encoded


def _are_all(values: object, of: type) -> bool:
    return isinstance(values, list) and all(type(value) is of for value in values)


IDLE_SECONDS = 60.0
"""Seconds that the process stays without a client."""

POLL_SECONDS = 0.1
"""Seconds between its looks for changes of the library."""

HANDOVER_SECONDS = 30.0
"""Seconds that it waits for a process with another model to end."""

_LOOK_SECONDS = 0.25  # between looks at whether there is still a reason to run
_MOST_CLIENTS = 64  # connections; each has a thread
# Bytes of the log, from which it starts again.
_MOST_LOG = 256 * 1024
# For the indexer's thread: a task that a search waits for comes before the texts of the library.
_NICE = 10


def serve_vectors(
    home: Path, spec: str, *, idle: float = IDLE_SECONDS, give_way: bool = False
) -> int:
    """Embed for the library in `home` until there is no reason to; return the exit status.

    0 if another process does it already, with the same spec. One with another spec is asked to end
    first; with `give_way` it is left alone too. Ends by itself after `idle` seconds without a
    client, and when the folder or its files go away or are replaced.
    """
    lock = FileLock(home / ipc.LOCK, timeout=0, mode=0o600)
    try:
        embedder = _take_over(home, spec, lock, give_way)
        if embedder is None:
            return 0
        # The server that started this process has opened the library.
        with (
            Store.open(home, registered=lambda: [home]) as store,
            Vectors.open(home) as vectors,
            contextlib.closing(TokenReader(Vectors.open(home))) as tokens,
        ):
            indexer = VectorIndexer(store, vectors, embedder, spec, _say)
            _EmbedderProcess(home, spec, indexer, tokens, idle).run()
        return 0
    except DamagedFile as error:
        _say(f"{VECTORS_FILE} is damaged ({error}) and is rebuilt")
        # The next client starts a process, which makes a new file.
        set_aside(home)
        return 0
    except EvolvableError as error:
        _say(error.text)
        # Without the lock the announcement belongs to another process, which would see it replaced
        # and end.
        if lock.is_locked:
            with contextlib.suppress(OSError):
                ipc.announce(home, ipc.Announcement(os.getpid(), spec, error=error.text))
        return 1
    finally:
        lock.release()


def _take_over(home: Path, spec: str, lock: FileLock, give_way: bool) -> Embedder | None:
    """Take the lock and return the embedder; None when the library is served already.

    While another model is served the new one is loaded first, so that the time between them is
    short. give_way: leave the other model in service. Raises EmbedderUnavailable, with the lock or
    without it.
    """
    try:
        # A process that serves holds the lock as long as it lives.
        lock.acquire()
    except Timeout:
        serving = ipc.read_announcement(home)
        # A process without an address is still loading and cannot be asked to end.
        if give_way or serving is None or serving.offers(spec) or serving.address is None:
            return None
        embedder = open_embedder(spec)
        connection = ipc.dial(home, serving)
        # It may have ended by itself, and then the lock is free.
        if connection is not None:
            with contextlib.suppress(OSError), connection:
                ipc.send(connection, {"op": "stop"})
        try:
            lock.acquire(timeout=HANDOVER_SECONDS, poll_interval=0.01)
        except Timeout:
            _say(f"the process {serving.pid} did not hand over")
            return None
        return embedder
    ipc.announce(home, ipc.Announcement(os.getpid(), spec))
    return open_embedder(spec)


class _EmbedderProcess:
    """The threads of the process: one takes calls, one for each client answers, one keeps the
    vectors in sync.
    """

    def __init__(
        self, home: Path, spec: str, indexer: VectorIndexer, tokens: TokenReader, idle: float
    ) -> None:
        self._home, self._spec, self._indexer, self._idle = home, spec, indexer, idle
        self._handler = RequestHandler(indexer, tokens)
        self._ending = threading.Event()
        self._failure: Exception | None = None
        # The threads that serve a client, and when the last of them ended.
        self._clients: set[int] = set()
        self._last_client_end = time.monotonic()

    def run(self) -> None:
        """Serve until there is no reason to. Raises DamagedFile, LibraryError."""
        # Key and listener come before the announcement: a server that reads it can connect at once.
        key = ipc.new_key(self._home)
        listener = ipc.listen(self._home)
        background = threading.Thread(target=self._run_indexer, name="keeper", daemon=True)
        threading.Thread(
            target=self._accept, args=(listener, key), name="calls", daemon=True
        ).start()
        try:
            address = listener.address
            where = str(address) if isinstance(address, str) else list(address)
            ipc.announce(self._home, ipc.Announcement(os.getpid(), self._spec, where))
            _say(f"{self._indexer.serving.model.name} serves {self._home}")
            background.start()
            # After the announcement, which is one of the watched files.
            watched = _find_identities(self._home)
            while not self._ending.wait(_LOOK_SECONDS):
                if _find_identities(self._home) != watched or self._is_idle():
                    break
        finally:
            self._ending.set()
            # First, so that servers start a successor and do not call this process any more.
            ipc.remove_announcement(self._home)
            listener.close()
            # The caller closes the files next, which the indexer's thread must not use then.
            if background.ident:
                background.join(HANDOVER_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _is_idle(self) -> bool:
        return not self._clients and time.monotonic() - self._last_client_end > self._idle

    def _run_indexer(self) -> None:
        """Keep the vectors in sync, at a lower priority than answers where threads have one of
        their own.
        """
        with contextlib.suppress(OSError, AttributeError):
            if sys.platform == "linux":
                # On Linux each thread has a priority, and its id is accepted for that of a process.
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        while not self._ending.is_set():
            try:
                if not self._indexer.step():
                    self._ending.wait(POLL_SECONDS)
            except LibraryError as error:  # busy, or a full disk: it may pass
                _say(error.text)
                self._ending.wait(1.0)
            # Nothing is known about the indexer's state, so the process ends; the next one reads
            # what is stored.
            except Exception as error:
                if not isinstance(error, DamagedFile):
                    _say(traceback.format_exc())
                self._failure = error
                self._ending.set()

    def _accept(self, listener: Listener, key: bytes) -> None:
        while not self._ending.is_set():
            try:
                connection = listener.accept()
            # The listener was closed, or there are too many open files, which passes.
            except OSError:
                if self._ending.wait(0.05):
                    return
                continue
            # The handshake is in the thread of the client, so one that sends nothing holds up no
            # other.
            threading.Thread(
                target=self._serve_client, args=(connection, key), name="client", daemon=True
            ).start()

    def _serve_client(self, connection: "Connection[Any, Any]", key: bytes) -> None:
        """Answer one client until it closes the connection or sends a malformed message."""
        thread_id = threading.get_ident()
        with (
            contextlib.suppress(
                OSError, EOFError, AuthenticationError, ipc.MalformedMessage, ValueError
            ),
            connection,
        ):
            deliver_challenge(connection, key)
            answer_challenge(connection, key)
            if len(self._clients) >= _MOST_CLIENTS:
                return
            self._clients.add(thread_id)
            try:
                self._answer_messages(connection)
            except (OSError, EOFError, ipc.MalformedMessage):
                pass
            except Exception:
                _say(traceback.format_exc())
            finally:
                self._last_client_end = time.monotonic()
                self._clients.discard(thread_id)

    def _answer_messages(self, connection: "Connection[Any, Any]") -> None:
        # The last task only: a client asks about one at a time.
        begun: tuple[int, Prepared] | None = None
        for message in _receive_messages(connection):
            operation, number = message.get("op"), message.get("number")
            task = message.get("task")
            if operation == "stop":
                self._ending.set()
            elif operation == "begin" and type(number) is int and isinstance(task, str):
                begun = number, self._handler.prepare(task)
            elif operation in ("similar", "described") and begun is not None and number == begun[0]:
                answer = self._handler.answer(message, begun[1])
                ipc.send(connection, answer | {"number": number})
            elif operation == "status":
                status = {"pid": os.getpid(), "model": self._indexer.serving.model.name}
                ipc.send(connection, {"number": number, **status})
            else:
                raise ipc.MalformedMessage(str(operation))


def _receive_messages(connection: "Connection[Any, Any]") -> Iterator[dict[str, Any]]:
    while True:
        yield ipc.receive(connection)


def _find_identities(home: Path) -> list[tuple[int, int] | None]:
    """Return the device and the inode of each of this process's files, None of a missing one.

    A file that replaces one of them has other numbers.
    """
    identities: list[tuple[int, int] | None] = []
    for name in (ipc.LOCK, VECTORS_FILE, ipc.ADDRESS):
        try:
            status = (home / name).stat()
            identities.append((status.st_dev, status.st_ino))
        except OSError:
            identities.append(None)
    return identities


def _say(text: str) -> None:
    """Write a line to the log, which is emptied first when it is too long."""
    with contextlib.suppress(OSError, ValueError):
        if os.fstat(sys.stderr.fileno()).st_size > _MOST_LOG:
            os.ftruncate(sys.stderr.fileno(), 0)
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        print(f"{now} [{os.getpid()}] {text}", file=sys.stderr, flush=True)
