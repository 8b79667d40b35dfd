"""Choose where the trials of a run go: this process, processes of this machine, or a
Ray cluster.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.executors import CommandHost, Executor
from evolvable_evolve.evolution.run_config import HostContext, RayCluster, RunSettings
from evolvable_evolve.evolution.run_context import RunParts, make_executor
from evolvable_evolve.evolution.scorers import TaskSetScorer
from evolvable_evolve.evolution.task import Task, TaskSet
from evolvable_evolve.evolution.tasks.locate import needs_commands
from evolvable_evolve.evolution.tasks.reader import scorer_files
from evolvable_evolve.evolution.trials import (
    AsyncioBackend,
    NodeMismatch,
    ProcessBackend,
    RayBackend,
    RayMissing,
    TrialBackend,
)
from evolvable_evolve.sandbox import SandboxChoice, environment_inside
from evolvable_store import __version__
from evolvable_store.errors import InvalidArgument, Refused

ON_NODES = ("command", "simulated")
"""The kinds of executors that need no key and no sign-in, because a cluster is sent none."""

NODE_DIR = "node"
"""The directory of a run in which the executor of the nodes is made once, so that its fingerprint
can be compared.
"""

SHIPPED = "shipped"
"""The folder below the files of a task set in which a node finds the files that a registered
command names.
"""


@dataclass(frozen=True, slots=True)
class RunRecipe:
    """The executor and the scorers of a run as data: settings and files, by which a node makes its
    own.

    files: of the task set. own: further ones that the executor's command names. fingerprint: that
    the executor must have on the node. sandbox: the name of the sandbox that trials need, `none`
    without. container: the command of the person's container. hidden: directories that no trial may
    read.
    """

    spec: Mapping[str, Any]
    files: Mapping[str, bytes]
    own: Mapping[str, bytes]
    fingerprint: str
    sandbox: str
    container: tuple[str, ...] = ()
    hidden: tuple[Path, ...] = ()
    version: str = field(default=__version__)

    def prepare(self, task: Task, directory: Path) -> tuple[Executor, TaskSetScorer, CommandHost]:
        """Return the executor, the scorer and the host that this node makes of the settings.

        Raises NodeMismatch.
        """
        # Another version may score the same answer differently.
        if self.version != __version__:
            raise NodeMismatch(f"it has evolvable {__version__}, and the run has {self.version}")
        host = node_host(self.container, self.hidden)
        sandbox = host.working_sandbox.name if host.working_sandbox is not None else "none"
        if sandbox != self.sandbox:
            raise NodeMismatch(
                f"its sandbox is {sandbox}, and trials of the run have {self.sandbox}"
            )
        taskset = TaskSet("", (task,), {**self.files, **self.own}, "", "")
        executor = make_executor(self.spec, host, taskset, directory)
        # The same settings can lead to another program on another machine.
        if executor.fingerprint != self.fingerprint:
            raise NodeMismatch(
                f"its executor is {executor.fingerprint}, and that of the run is {self.fingerprint}"
            )
        commands = CommandHost.of(host)
        return executor, TaskSetScorer(self.files, commands), commands


def node_host(container: tuple[str, ...], hidden: tuple[Path, ...]) -> HostContext:
    """Return the host of trials on this node: its programs and its sandbox, without its environment
    and keys.
    """
    environment = environment_inside(os.environ, os.environ.get("HOME", "/tmp"))
    return HostContext(environment, sandbox=SandboxChoice(container), hidden=hidden)


def why_not_on_nodes(settings: RunSettings, host: HostContext, taskset: TaskSet) -> str:
    """Return why the trials of a run cannot go to a cluster, '' when they can."""
    kind = str(settings.executor.get("kind"))
    if kind not in ON_NODES:
        return f"the executor {kind} needs a key or a sign-in, and a cluster is sent none"
    if any(task.scorer.type == "judge" for task in taskset.tasks):
        return "a judge needs a model, and a cluster is sent no key"
    if settings.scorers:
        return f"the registered scorer {next(iter(settings.scorers))} is a command of this machine"
    if host.working_sandbox is None and (kind == "command" or needs_commands(taskset)):
        return (
            "this machine has no sandbox for its commands, and on a node they could reach "
            "the cluster"
        )
    return ""


def check_backend(settings: RunSettings, host: HostContext, taskset: TaskSet) -> list[str]:
    """Return warnings about where the trials of a run go.

    Raises InvalidArgument, Refused, RayMissing.
    """
    where, _, address = settings.backend.partition(":")
    configured = host.cluster.address if host.cluster is not None else ""
    # The address comes from a run's settings, which an agent may have written.
    if address and address != configured:
        raise Refused(
            f"The Ray cluster {address} is not the one that the person configured.",
            "A person writes [ray] address = 'HOST:PORT' into their configuration; see "
            "docs/ray.md.",
        )
    why = why_not_on_nodes(settings, host, taskset)
    # `auto` goes to a cluster only where the person configured one.
    is_wanted = where == "ray" or (where == "auto" and bool(configured))
    if where == "ray" and why:
        raise InvalidArgument(
            f"Trials of this run cannot go to a Ray cluster: {why}.", "Use --backend processes."
        )
    if is_wanted and not why and find_spec("ray") is None:
        raise RayMissing()
    if not is_wanted or not why:
        return []
    return [f"The trials run on this machine and not on the Ray cluster: {why}."]


def cluster_of(settings: RunSettings, host: HostContext, taskset: TaskSet) -> RayCluster | None:
    """Return the cluster that the trials of a run go to, None when they stay on this machine.

    Raises InvalidArgument, Refused, RayMissing.
    """
    check_backend(settings, host, taskset)
    where = settings.backend.partition(":")[0]
    if where == "ray":
        return host.cluster or RayCluster(environment=host.environment)
    if where != "auto" or why_not_on_nodes(settings, host, taskset):
        return None
    return host.cluster


def make_local_backend(parts: RunParts) -> TrialBackend:
    """Return the backend of this machine.

    A run that starts commands has processes, which end with the driver.
    """
    where = parts.settings.backend
    in_processes = where == "processes"
    if where not in ("tasks", "processes"):
        in_processes = parts.runs_commands
    return ProcessBackend() if in_processes else AsyncioBackend()


async def open_trial_backend(
    parts: RunParts, host: HostContext, directory: Path, local: TrialBackend
) -> TrialBackend:
    """Return the backend of a run: `local`, or a cluster that answers.

    directory: where the executor of the nodes is made once, to be compared with theirs.

    Raises InvalidArgument, Refused, RayMissing, RayUnavailable.
    """
    cluster = cluster_of(parts.settings, host, parts.taskset)
    if cluster is None:
        return local
    backend = RayBackend(cluster, make_recipe(parts, host, directory))
    await backend.open()
    return backend


def make_recipe(parts: RunParts, host: HostContext, directory: Path) -> RunRecipe:
    """Return the recipe by which nodes make the executor and the scorers of a run."""
    files = scorer_files(parts.taskset)
    spec, own = _ship(parts.settings.executor)
    # The person's name for the command was checked when the run's own executor was made.
    unnamed = replace(host, commands=None)
    here = make_executor(spec, unnamed, replace(parts.taskset, files={**files, **own}), directory)
    sandbox = host.working_sandbox
    return RunRecipe(
        spec,
        files,
        own,
        here.fingerprint,
        sandbox.name if sandbox is not None else "none",
        host.sandbox.container,
        host.hidden,
    )


def _ship(spec: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return an executor's spec with files named by whole paths replaced by copies, and the copies
    by their paths.

    The program itself, the first word, is that of each node.
    """
    command, own = list(spec.get("command", ())), dict[str, bytes]()
    for number, word in enumerate(command[1:], 1):
        if Path(word).is_absolute() and Path(word).is_file():
            name = f"{SHIPPED}/{number}/{Path(word).name}"
            command[number], own[name] = name, Path(word).read_bytes()
    return {**spec, **({"command": command} if command else {})}, own
