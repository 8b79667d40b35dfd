"""The process that connects the driver of a run with a Ray cluster; only this one imports Ray.

`python -P -m evolvable_evolve.evolution.trials.ray_bridge DESCRIPTOR ADDRESS SLOTS`; without an
address it starts a cluster of this machine. Frames of a pipe carry JSON and bytes. What a node
returns is passed on as bytes; a pickle that names anything is refused. It ends when the other end
of the pipe is gone.
"""

import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from evolvable_evolve.evolution.executors import remove_tree
from evolvable_evolve.evolution.trials.attempt_json import MAX_ATTEMPT
from evolvable_evolve.evolution.trials.ray_worker import remove_stale_folders, run_on_node

# Slots and not CPUs, because a trial mostly waits for a model.
RAY_SLOT: Final = "agent_slot"
"""The custom resource that one trial holds: a node offers as many as it can run at once."""

SESSION_PREFIX: Final = "evolvable-ray-"
_RESULT_WAIT = 0.05  # seconds of one wait for results
_GRACE = 5.0  # seconds for a cancelled task to end what it has started
_LAST = 20.0  # seconds after which this process ends in any case
_STORE_BYTES = 100 * 2**20  # of shared memory for the contents that trials of this machine share
_SLOTS_INTERVAL = 5.0  # seconds without a result between two counts of the slots
_METADATA = 1000  # bytes that Ray stores beside those of a result, at most
_NO_BYTES = "it failed, or returned something else than bytes"
_NO_SLOTS = 6  # counts without any slot after which waiting trials are given up

# Set to 0, every port of Ray listens on the loopback interface, and the address of this node is
# 127.0.0.1.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# A driver of a cluster in token mode is refused here. The address comes from the person's
# configuration.
_UNAUTHENTICATED = "from ray.scripts.scripts import main; main()", "status", "--address"


class ClusterRefused(Exception):
    """The cluster cannot be used. Holds the reason and a hint."""


def restrict_ray(token_file: Path) -> None:
    """Set Ray's environment before it is imported: a token, no usage statistics, no logs."""
    os.environ |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_LOG_TO_DRIVER": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


class UnpickledName(Exception):
    """A pickle names a class or a function, which could run anything."""


# An audit hook is for the whole process and cannot be removed: this tells in which thread it
# refuses.
_reading = threading.local()


@cache
def _watch_unpickling() -> None:
    def refuse(event: str, _: tuple[object, ...]) -> None:
        if event == "pickle.find_class" and getattr(_reading, "now", False):
            raise UnpickledName("UnpickledName: the result is refused")

    sys.addaudithook(refuse)


@contextmanager
def no_names_unpickled() -> Iterator[None]:
    """Make unpickling in this thread raise UnpickledName where a pickle names a class or function.

    `ray.get` unpickles every result that is not bytes. A pickle without names has plain values
    only, and runs nothing.
    """
    _watch_unpickling()
    _reading.now = True
    try:
        yield
    finally:
        _reading.now = False


class Cluster:
    """A connection to a cluster, and the tasks that run there for one driver."""

    def __init__(self, address: str, slots: int) -> None:
        """Connect, or start a cluster on the loopback interface.

        Raises ClusterRefused, and what Ray raises.
        """
        self._folder: Path | None = None
        options: dict[str, Any]
        if address:
            if address.partition(":")[0] in ("127.0.0.1", "localhost"):
                os.environ[_LOOPBACK] = "0"
            _refuse_open_cluster(address)
            options = {"address": address}
        else:
            options = self._start_local(slots)
        ray: Any = import_module("ray")  # after its environment is set; this process alone has it
        ray.init(log_to_driver=False, configure_logging=False, **options)
        self._ray = ray
        self._locations: Any = import_module("ray.experimental").get_object_locations
        # No retries of Ray's: a second run would be paid without a record in the ledger.
        self._run = ray.remote(max_retries=0, num_cpus=0, resources={RAY_SLOT: 1})(run_on_node)
        self._shared: dict[str, Any] = {}
        self.flying: dict[Any, str] = {}

    def _start_local(self, slots: int) -> dict[str, Any]:
        remove_stale_folders(SESSION_PREFIX)
        # Ray puts sockets below, whose paths must be short.
        place = tempfile.gettempdir() if len(tempfile.gettempdir()) < 24 else "/tmp"
        folder = tempfile.mkdtemp(prefix=f"{SESSION_PREFIX}{os.getpid()}-", dir=place)
        self._folder = Path(folder)
        token = self._folder / "token"
        token.write_text(secrets.token_hex(32), encoding="ascii")
        # Its content opens the cluster to every account of this machine.
        token.chmod(0o600)
        os.environ |= {
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_TMPDIR": str(self._folder),
            _LOOPBACK: "0",
        }
        return {
            # Only slots decide how many trials run.
            "num_cpus": 0,
            "num_gpus": 0,
            "resources": {RAY_SLOT: slots},
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
        }

    def report(self) -> dict[str, Any]:
        """Return the nodes with their slots, and the versions that all of them share."""
        nodes = []
        for node in self._ray.nodes():
            if node["Alive"]:
                slots = int(node["Resources"].get(RAY_SLOT, 0))
                nodes.append({"node": str(node["NodeManagerAddress"]), "slots": slots})
        return {"ray": self._ray.__version__, "python": sys.version.split()[0], "nodes": nodes}

    def share(self, digest: str, data: bytes) -> None:
        """Put bytes into the object store, once; Ray copies them once to each node."""
        if digest not in self._shared:
            self._shared[digest] = self._ray.put(data)

    def forget(self, digests: Iterable[str]) -> None:
        """Drop contents that no later job needs from the object store."""
        for digest in digests:
            self._shared.pop(digest, None)

    def run(self, ticket: str, shared: Sequence[str], job: bytes, digest: str) -> None:
        """Start one job with the shared bytes of these hashes."""
        contents = [self._shared[key] for key in shared]
        reference = self._run.remote(*contents, job, [*shared, digest])
        self.flying[reference] = ticket

    def take_finished(self) -> list[tuple[str, bytes | None, str]]:
        """Return the jobs that have ended: the ticket, and its bytes or why there are none."""
        # Waits for one, and then takes all others that are done without waiting.
        ready, _ = self._ray.wait(list(self.flying), num_returns=1, timeout=_RESULT_WAIT)
        if ready:
            references = list(self.flying)
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return [(self.flying.pop(reference), *self._read_bytes(reference)) for reference in ready]

    def _read_bytes(self, reference: Any) -> tuple[bytes | None, str]:
        """Return the bytes that a task returned, or why there are none.

        No code in a node's result runs here.
        """
        # Checked before `get`, which loads a result of any size.
        size = self._locations([reference], 60_000).get(reference, {}).get("object_size")
        if (size or 0) > MAX_ATTEMPT + _METADATA:
            return None, "it returned too much"
        try:
            with no_names_unpickled():
                value = self._ray.get(reference, timeout=60)
        except UnpickledName:
            return None, _NO_BYTES
        except Exception as error:
            # Ray wraps what unpickling raises, also of the exception that a task ended with.
            return None, _NO_BYTES if "UnpickledName" in str(error) else type(error).__name__
        if not isinstance(value, bytes):
            return None, _NO_BYTES
        return (value, "") if len(value) <= MAX_ATTEMPT else (None, "it returned too much")

    def cancel(self, tickets: Iterable[str]) -> None:
        """Stop these jobs: ask each to stop its processes, then kill its worker."""
        ticket_set = set(tickets)
        left = [reference for reference, ticket in self.flying.items() if ticket in ticket_set]
        # First a cancellation that the task can handle, then the end of its worker.
        for force in (False, True):
            for reference in left:
                # It may have ended this moment.
                with suppress(Exception):
                    self._ray.cancel(reference, force=force)
            if left:
                _, left = self._ray.wait(left, num_returns=len(left), timeout=_GRACE)
        self.flying = {
            reference: ticket
            for reference, ticket in self.flying.items()
            if ticket not in ticket_set
        }

    def slots(self) -> int:
        """Return how many slots the living nodes offer."""
        return int(self._ray.cluster_resources().get(RAY_SLOT, 0))

    def close(self) -> None:
        """Stop all jobs, leave the cluster, and end it if it was started here."""
        self.cancel(list(self.flying.values()))
        self._ray.shutdown()
        if self._folder is not None:
            remove_tree(self._folder)


def _refuse_open_cluster(address: str) -> None:
    """Raise ClusterRefused when the cluster accepts clients without a token, Ray's default."""
    command = [sys.executable, "-P", "-c", *_UNAUTHENTICATED, address]
    # A process of its own, whose environment has no token.
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    environment.pop("RAY_AUTH_TOKEN_PATH", None)
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterRefused(
            f"No Ray cluster answers at {address}.", "Start it, or correct the address."
        ) from None
    if process.returncode == 0:
        raise ClusterRefused(
            f"The Ray cluster at {address} lets in everybody who reaches it, without a token.",
            "Start its nodes with RAY_AUTH_MODE=token; docs/ray.md says how.",
        )
    error_text = process.stderr.decode(errors="replace")
    # The expected refusal. Its first letters differ in case between messages.
    if "nauthenticated" not in error_text and "uthentication" not in error_text:
        last = error_text.strip().rpartition("\n")[2][:200]
        raise ClusterRefused(
            f"No Ray cluster answers at {address}: {ascii(last)}",
            "Start it, or correct the address.",
        )


class Bridge:
    """Passes jobs of one driver to a cluster, and attempts back."""

    def __init__(self, connection: Connection, cluster: Cluster) -> None:
        self._connection, self._cluster = connection, cluster
        self._orders: queue.Queue[tuple[dict[str, Any], bytes] | None] = queue.Queue()
        # The time of the next count of the slots, and the counts so far without any.
        self._next_count, self._without_slots = 0.0, 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                order = json.loads(self._connection.recv_bytes())
                data = self._connection.recv_bytes() if order.get("bytes") else b""
                self._orders.put((order, data))
        except (EOFError, OSError):
            pass
        # Ray may hang while it shuts down.
        last = threading.Timer(_LAST, os._exit, [1])
        last.daemon = True
        last.start()
        self._orders.put(None)

    def send(self, frame: dict[str, Any], data: bytes | None = None) -> None:
        """Send one frame to the driver, with its bytes in a second."""
        self._connection.send_bytes(json.dumps({**frame, "bytes": data is not None}).encode())
        if data is not None:
            self._connection.send_bytes(data)

    def serve(self) -> None:
        """Take orders until the driver is gone."""
        while True:
            flying = bool(self._cluster.flying)
            with suppress(queue.Empty):
                while True:
                    # Blocks only while no job runs: otherwise results are polled between orders.
                    order = self._orders.get(block=not flying)
                    if order is None:
                        return
                    self._follow_order(*order)
                    # The orders in the queue come before the results.
                    flying = True
            if self._cluster.flying:
                self._report_results()

    def _follow_order(self, order: dict[str, Any], data: bytes) -> None:
        cluster, what = self._cluster, order["order"]
        if what == "share":
            cluster.share(order["digest"], data)
        elif what == "forget":
            cluster.forget(order["digests"])
        elif what == "run":
            cluster.run(order["ticket"], order["shared"], data, order["digest"])
        elif what == "cancel":
            cluster.cancel(order["tickets"])
            self.send({"cancelled": order["tickets"]})

    def _report_results(self) -> None:
        now, done = time.monotonic(), self._cluster.take_finished()
        for ticket, data, why in done:
            self.send({"done": ticket, "why": why}, data)
        if done or now < self._next_count:
            # A result shows that there are slots, so the next count can wait.
            if done:
                self._next_count = now + _SLOTS_INTERVAL
            return
        self._next_count = now + _SLOTS_INTERVAL
        self._without_slots = 0 if self._cluster.slots() else self._without_slots + 1
        if self._without_slots >= _NO_SLOTS:
            waiting = list(self._cluster.flying.values())
            for ticket in waiting:
                self.send({"done": ticket, "why": f"no node of the cluster offers {RAY_SLOT}"})
            self._cluster.cancel(waiting)


def main(arguments: Sequence[str]) -> None:
    """Connect and serve. An error of the connection is sent as the first frame."""
    connection = Connection(int(arguments[0]))
    address, slots, token_file = arguments[1], int(arguments[2]), Path(arguments[3])
    restrict_ray(token_file)
    try:
        cluster = Cluster(address, slots)
    except Exception as error:
        if isinstance(error, ClusterRefused):
            reason = list(error.args)
        else:
            reason = [f"{type(error).__name__}: {error}"[:500], ""]
        connection.send_bytes(json.dumps({"failed": reason}).encode())
        # Threads of Ray must not keep a process without a driver alive.
        os._exit(1)
    try:
        bridge = Bridge(connection, cluster)
        bridge.send({"ready": cluster.report()})
        bridge.serve()
    except OSError:
        # The driver is gone.
        pass
    finally:
        cluster.close()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
