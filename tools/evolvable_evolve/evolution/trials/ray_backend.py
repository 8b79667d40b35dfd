"""Trials on the nodes of a Ray cluster, through a process that speaks with the cluster."""

import asyncio
import contextlib
import hashlib
import importlib.util
import itertools
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final

from evolvable_evolve.evolution.run_config import RayCluster
from evolvable_evolve.evolution.trials import trial
from evolvable_evolve.evolution.trials.attempt_json import InvalidAttempt, decode_attempt
from evolvable_evolve.evolution.trials.backends import FinishedJobs
from evolvable_evolve.evolution.trials.ray_worker import GivenRecipe, NodeRecipe, pack_job
from evolvable_evolve.sandbox import environment_inside
from evolvable_store.errors import EvolvableError

BRIDGE: Final = "evolvable_evolve.evolution.trials.ray_bridge"
_START = 180.0  # seconds for a cluster to answer, or to start on this machine
_STOP = 25.0  # seconds for the bridge to end what it has started
_SHARED = 256  # different contents that stay in the object store for later jobs


class RayMissing(EvolvableError):
    """Ray is not installed."""

    def __init__(self) -> None:
        super().__init__("Ray is not installed.", "pip install '.[ray]' in your clone")


class RayUnavailable(EvolvableError):
    """The Ray cluster cannot be reached or used."""


def _bridge_environment(cluster: RayCluster) -> dict[str, str]:
    """Return the whole environment of the bridge process: no keys, and no variables of Ray."""
    environment = os.environ if cluster.environment is None else cluster.environment
    return environment_inside(environment, environment.get("HOME", "/tmp"))


class _Bridge:
    """The bridge process, its pipe, and a thread that reads its frames."""

    def __init__(
        self, cluster: RayCluster, on_frame: Callable[["_Bridge", dict[str, Any], bytes], None]
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise RayMissing()
        ours, theirs = Pipe()
        # -P: nothing is imported from the current folder, which is not ours.
        module = [sys.executable, "-P", "-m", BRIDGE]
        arguments = [theirs.fileno(), cluster.address, cluster.slots, cluster.token_file]
        # A session of its own: Ctrl-C at the terminal is for the driver, which then stops the
        # trials.
        self._process = subprocess.Popen(
            [*module, *map(str, arguments)],
            env=_bridge_environment(cluster),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd="/",
            start_new_session=True,
        )
        # With this copy open, the death of the process would not end the pipe.
        theirs.close()
        self._connection: Connection = ours
        self._on_frame = on_frame
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def send(self, order: dict[str, Any], data: bytes | None = None) -> None:
        """Send one order. A process that is gone is reported by its thread."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(json.dumps({**order, "bytes": data is not None}).encode())
            if data is not None:
                self._connection.send_bytes(data)

    def _read(self) -> None:
        try:
            while True:
                frame = json.loads(self._connection.recv_bytes())
                data = self._connection.recv_bytes() if frame.get("bytes") else b""
                self._loop.call_soon_threadsafe(self._on_frame, self, frame, data)
        except (EOFError, OSError, ValueError, RuntimeError):
            pass
        self._process.wait()
        # The loop may have ended, and then nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_frame, self, {"gone": True}, b"")

    async def stop(self) -> None:
        """End the orders, so that the process stops the trials and itself; kill it if it hangs."""
        with contextlib.suppress(OSError):
            self._shut_orders()
        try:
            async with asyncio.timeout(_STOP):
                await self.gone.wait()
        except TimeoutError:
            self._process.kill()
            await self.gone.wait()
        self._connection.close()

    def _shut_orders(self) -> None:
        """End the stream of orders; the last frames of the process can still be read."""
        with socket.socket(fileno=os.dup(self._connection.fileno())) as pipe:
            pipe.shutdown(socket.SHUT_WR)


class RayBackend:
    """Runs each job as a task of Ray.

    Ray never runs a task twice: a retry has a record of its own in the ledger. Recipe, program and
    files, which many jobs share, go into the object store once, by their hashes. A node returns
    JSON, which is checked here. A bridge that dies fails the jobs under way, and the next job
    starts another one.
    """

    def __init__(self, cluster: RayCluster, recipe: NodeRecipe | None = None) -> None:
        """Make the backend.

        recipe: makes executor and scorer on the nodes. None: each job's own are sent, which then
        must have no secrets.
        """
        self._cluster, self._recipe = cluster, recipe
        self._bridge: _Bridge | None = None
        self._sent: OrderedDict[str, None] = OrderedDict()
        self._packed: dict[tuple[int, int], tuple[trial.TrialJob, bytes]] = {}
        self._flying: set[str] = set()
        self._finished = FinishedJobs()
        self._answered = asyncio.Event()
        self._cancelled: set[str] = set()
        self._problem: tuple[str, str] | None = None
        self._numbers = itertools.count(1)
        self.report: dict[str, Any] = {}

    @property
    def pid(self) -> int | None:
        """The id of the bridge process, None while there is none."""
        return self._bridge.pid if self._bridge is not None else None

    async def open(self) -> dict[str, Any]:
        """Connect and return the report of the cluster: versions, nodes and slots.

        Raises RayMissing, RayUnavailable.
        """
        self._open_bridge()
        try:
            async with asyncio.timeout(_START):
                await self._answered.wait()
        except TimeoutError:
            self._problem = (
                "The Ray cluster did not answer in time.",
                "Look at the cluster with `ray status`.",
            )
        if self._problem is not None:
            await self.close()
            raise RayUnavailable(*self._problem)
        return self.report

    def _open_bridge(self) -> _Bridge:
        if self._bridge is None:
            # A new process has an empty object store.
            self._sent.clear()
            self._answered.clear()
            self._bridge = _Bridge(self._cluster, self._take_frame)
        return self._bridge

    def submit(self, job: trial.TrialJob) -> str:
        """Start a job and return its ticket. Raises what pickling raises."""
        bridge, ticket = self._open_bridge(), str(next(self._numbers))
        packed = pack_job(job)
        contents = (self._pack_recipe(job), *map(pickle.dumps, _list_contents(job)))
        # Before the order to run: the bridge looks the contents up when it takes the job.
        shared = [self._share(bridge, content) for content in contents]
        digest = hashlib.sha256(packed).hexdigest()
        bridge.send({"order": "run", "ticket": ticket, "shared": shared, "digest": digest}, packed)
        self._flying.add(ticket)
        self._forget_oldest(bridge, keep=len(shared))
        return ticket

    def _pack_recipe(self, job: trial.TrialJob) -> bytes:
        if self._recipe is not None:
            # The node makes its own scorer, so the job's must not make another entry.
            job = trial.TrialJob(job.executor, None, job.task, job.program, 0)
        key = id(job.executor), id(job.scoring)
        if key not in self._packed:
            recipe = self._recipe or GivenRecipe(job.executor, job.scoring, job.host)
            # The job is kept, so that no other gets these ids.
            self._packed[key] = job, pickle.dumps(recipe)
        return self._packed[key][1]

    def _share(self, bridge: _Bridge, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._sent:
            bridge.send({"order": "share", "digest": digest}, data)
        self._sent[digest] = None
        self._sent.move_to_end(digest)
        return digest

    def _forget_oldest(self, bridge: _Bridge, keep: int) -> None:
        """Drop the contents that no job used for longest. keep: as many newest ones stay."""
        excess = len(self._sent) - max(_SHARED, keep)
        old = [self._sent.popitem(last=False)[0] for _ in range(excess)]
        if old:
            bridge.send({"order": "forget", "digests": old})

    async def poll(self, timeout: float | None = None) -> Sequence[trial.FinishedJob]:
        """Wait until a job is done and return all that are."""
        return await self._finished.take(timeout) if self._flying or self._finished.jobs else []

    def _take_frame(self, bridge: _Bridge, frame: dict[str, Any], data: bytes) -> None:
        """Take one frame of the bridge."""
        if "ready" in frame:
            self.report = frame["ready"]
            self._answered.set()
        elif "failed" in frame:
            self._problem = (str(frame["failed"][0]), str(frame["failed"][1]))
        elif "done" in frame:
            attempt = _decode_answer(data) if frame["bytes"] else _make_lost_attempt(frame["why"])
            self._end_job(str(frame["done"]), attempt)
        elif "cancelled" in frame:
            self._cancelled.update(frame["cancelled"])
            self._finished.news.set()
        elif "gone" in frame:
            bridge.gone.set()
            if self._bridge is bridge:
                self._bridge = None
            for ticket in sorted(self._flying, key=int):
                self._end_job(
                    ticket, _make_lost_attempt("the process that speaks with the cluster ended")
                )
            self._problem = self._problem or (
                "The Ray cluster could not be reached.",
                "Look at it with `ray status`.",
            )
            self._answered.set()
            self._finished.news.set()

    def _end_job(self, ticket: str, attempt: trial.TrialAttempt) -> None:
        if ticket in self._flying:
            self._flying.discard(ticket)
            self._finished.add(ticket, attempt)

    async def cancel(self, tickets: Collection[str]) -> None:
        """Stop these jobs, and return when they have ended on their nodes."""
        flying = [ticket for ticket in tickets if ticket in self._flying]
        # Taken out first, so that their ends are not returned as results.
        self._flying.difference_update(flying)
        self._finished.forget(tickets)
        bridge = self._bridge
        if not flying or bridge is None:
            return
        bridge.send({"order": "cancel", "tickets": flying})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP):
                while not self._cancelled.issuperset(flying) and not bridge.gone.is_set():
                    self._finished.news.clear()
                    await self._finished.news.wait()
        self._cancelled.difference_update(flying)

    async def close(self) -> None:
        """Stop all jobs, leave the cluster, and end it if it was started here."""
        self._flying.clear()
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            await bridge.stop()


def _list_contents(job: trial.TrialJob) -> tuple[object, object]:
    """Return the program and the files of a job, which other jobs may share."""
    # Sorted, so that equal files are equal bytes.
    return job.program, dict(sorted(job.files.items()))


def _make_lost_attempt(why: object) -> trial.TrialAttempt:
    reason = ascii(str(why)[:200])[1:-1]
    return trial.infrastructure_error(f"the worker died ({reason})", lost=True)


def _decode_answer(data: bytes) -> trial.TrialAttempt:
    try:
        return decode_attempt(data)
    except InvalidAttempt as error:
        return trial.infrastructure_error(f"what the node returned was refused: {error}", lost=True)
