"""A Ray cluster of nodes on this machine, each with processes of its own, and with a token."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from processes import poll

from evolvable_evolve.evolution.run_config import RayCluster

SUPPORT = Path(__file__).parent


class RayNodes:
    """Nodes that were started by `ray start`. place: a short path, as Ray puts sockets below it."""

    def __init__(self, place: Path, *, token: bool = True) -> None:
        self.place, self._with_token = place, token
        self.token = place / "token"
        self.token.write_text(secrets.token_hex(32))
        with socket.socket() as free, socket.socket(type=socket.SOCK_DGRAM) as outward:
            # Ray refuses a second node on the loopback interface. Nothing is sent by this.
            with contextlib.suppress(OSError):
                outward.connect(("192.0.2.1", 9))
            host = outward.getsockname()[0]
            free.bind((host, 0))
            self.address = f"{host if host != '0.0.0.0' else '127.0.0.1'}:{free.getsockname()[1]}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.python_path = [SUPPORT]

    @property
    def cluster(self) -> RayCluster:
        return RayCluster(self.address, self.token)

    @property
    def environment(self) -> dict[str, str]:
        mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.place),
            "TMPDIR": str(self.place),
            "PYTHONPATH": os.pathsep.join(map(str, self.python_path)),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that was killed refuses connections at once, and a busy one answers late.
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "20000",
            "RAY_health_check_failure_threshold": "3",
            **(mode if self._with_token else {"RAY_AUTH_MODE": "disabled"}),
        }

    def start(self, slots: int) -> int:
        """Start one more node and return its number."""
        command = [
            sys.executable,
            "-P",
            "-c",
            "from ray.scripts.scripts import main; main()",
            "start",
            "--block",
        ]
        command += [
            "--num-cpus=0",
            f"--resources={json.dumps({'agent_slot': slots})}",
            "--disable-usage-stats",
        ]
        port = self.address.partition(":")[2]
        first = [
            "--head",
            f"--port={port}",
            "--include-dashboard=false",
            f"--temp-dir={self.place}",
        ]
        command += [f"--address={self.address}"] if self.nodes else first
        command += ["--object-store-memory=80000000"]
        with open(self.place / f"node-{len(self.nodes)}.log", "wb") as log:
            self.nodes.append(
                subprocess.Popen(
                    command,
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    cwd=self.place,
                    start_new_session=True,
                )
            )
        number = len(self.nodes) - 1
        log_file = self.place / f"node-{number}.log"
        poll(
            lambda: b"Ray runtime started" in log_file.read_bytes(), f"node {number} to start", 300
        )
        return number

    def kill(self, number: int) -> None:
        """Kill a node with all of its processes, as a machine that loses power."""
        top = psutil.Process(self.nodes[number].pid)
        for one in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        self.nodes[number].wait()

    def processes(self) -> list[psutil.Process]:
        """All processes of the nodes that live."""
        tops = [psutil.Process(node.pid) for node in self.nodes if node.poll() is None]
        return [one for top in tops for one in [top, *top.children(recursive=True)]]


@contextmanager
def ray_nodes(*slots: int, token: bool = True) -> Iterator[RayNodes]:
    """Yield a cluster with a node for each of these numbers of slots; all of it is killed at the
    end.
    """
    with tempfile.TemporaryDirectory(prefix="rn-", dir="/tmp", ignore_cleanup_errors=True) as place:
        nodes = RayNodes(Path(place), token=token)
        try:
            for number in slots:
                nodes.start(number)
            yield nodes
        finally:
            for number, node in enumerate(nodes.nodes):
                if node.poll() is None:
                    nodes.kill(number)
