"""Make the parts of a run that its settings name, and check before that everything they need is here."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_tools.evolve.executors.base import Executor
from evolvable_tools.evolve.executors.command_executor import check_named_executor
from evolvable_tools.evolve.ledger.run_directory import RunDirectory, translate_damage
from evolvable_tools.evolve.ledger.run_state import RunState, load_run_state
from evolvable_tools.evolve.proposers import proposer_model
from evolvable_tools.evolve.run_config import EXECUTORS, HostContext, RunSettings
from evolvable_tools.evolve.run_context import RunTampered
from evolvable_tools.evolve.scorers.external_scorers import JudgeCalibration, JudgeScorer, JudgeSetup
from evolvable_tools.evolve.scorers.registry import known_samples
from evolvable_tools.evolve.task import TaskSet
from evolvable_tools.evolve.tasks.locate import (
    IntegrityGuard,
    RegisteredScorer,
    load_taskset,
    needs_commands,
    refuse_changed,
    registered_scorers,
)
from evolvable_tools.evolve.tasks.reader import scorer_files
from evolvable_tools.library import Caller, Library

EXECUTOR_DIR = "executor"
"""The directory of a run in which a command finds the files of the task set."""


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """A kind of executor.

    target: MODULE:CLASS below `executors`, which has `from_spec`. needs_canary: whether it has to show first that a
    program reaches its model.
    """

    target: str
    runs_commands: bool = False
    uses_taskset_files: bool = False
    needs_canary: bool = False


EXECUTOR_KINDS = {
    "command": ExecutorKind("command_executor:CommandExecutor", runs_commands=True, uses_taskset_files=True),
    "claude": ExecutorKind("coding_agents:ClaudeExecutor", runs_commands=True, needs_canary=True),
    "codex": ExecutorKind("coding_agents:CodexExecutor", runs_commands=True, needs_canary=True),
    "anthropic": ExecutorKind("anthropic_api:AnthropicExecutor", needs_canary=True),
    "simulated": ExecutorKind("simulated:SimulatedExecutor"),
}


def executor_kind(spec: Mapping[str, Any]) -> ExecutorKind:
    """Return the kind of the executor that a run's settings name; one without a target is unknown."""
    return EXECUTOR_KINDS.get(str(spec.get("kind")), ExecutorKind(""))


def make_executor(spec: Mapping[str, Any], host: HostContext, taskset: TaskSet, directory: Path) -> Executor:
    """Return the executor that a run's settings name.

    directory: where a command finds the files of the task set. Raises InvalidArgument, Refused, ClientError.
    """
    module, _, name = executor_kind(spec).target.partition(":")
    if not module:
        kind = ascii(str(spec.get("kind"))[:40])
        raise InvalidArgument(f"{kind} is no executor.", f"It is one of {', '.join(EXECUTORS)}.")
    # Imported by name: a run needs one of them, and each starts slower than this module.
    cls, files = getattr(import_module(f"evolvable_tools.evolve.executors.{module}"), name), scorer_files(taskset)
    executor: Executor = cls.from_spec(spec, host, tasks=taskset.tasks, files=files, directory=directory)
    return executor


def make_judge(settings: RunSettings, host: HostContext, folder: RunDirectory, taskset: TaskSet) -> JudgeSetup | None:
    """Return the judge of a run, None when no task needs one. Raises InvalidArgument, Refused."""
    if not any(task.scorer.type == "judge" for task in taskset.tasks):
        return None
    spec = proposer_model.ModelSpec.from_settings(settings.judge, proposer_model.JUDGE_ROLES, settings, host, folder)
    calibrations: dict[str, JudgeCalibration] = {}
    return JudgeSetup(JudgeScorer(spec, calibrations), calibrations, known_samples(taskset.tasks))


@dataclass(frozen=True)
class RunParts:
    """What the settings of a run name, opened. runs_commands: whether any of it starts a command."""

    settings: RunSettings
    taskset: TaskSet
    executor: Executor
    judging: JudgeSetup | None
    brain: proposer_model.HandOffModel | proposer_model.ModelSpec
    guard: IntegrityGuard
    registered: Mapping[str, RegisteredScorer]
    runs_commands: bool


def make_run_parts(
    library: Library, caller: Caller, folder: RunDirectory, host: HostContext, state: RunState
) -> RunParts:
    """Return the parts of a run. Raises RunTampered, Refused, and InvalidArgument for a part that is gone."""
    settings, directory = RunSettings.from_json(state.settings), folder.path / EXECUTOR_DIR
    taskset, ref = _open_taskset(library, caller, settings)
    registered = registered_scorers(taskset.tasks, host.scorers)
    refuse_changed(registered, settings.scorers)
    kind, guarded = executor_kind(settings.executor), dict[str, bytes]()
    if kind.uses_taskset_files:
        own = [word for word in settings.executor["command"] if Path(word).is_absolute() and Path(word).is_file()]
        guarded = {**scorer_files(taskset), **{word: Path(word).read_bytes() for word in own}}
    for scorer in registered.values():
        guarded |= scorer.files
    executor = make_executor(settings.executor, host, taskset, directory)
    if executor.fingerprint != state.fingerprint:
        text = f"The executor is now {executor.fingerprint}, and the run began with {state.fingerprint}."
        raise RunTampered(text, "Figures of both cannot stand beside each other: start a new run.")
    return RunParts(
        settings,
        taskset,
        executor,
        make_judge(settings, host, folder, taskset),
        proposer_model.make_proposer_model(settings, host, folder),
        IntegrityGuard(library, caller, ref, guarded, directory),
        registered,
        kind.runs_commands or any(_is_command(who) for who, *_ in _models(settings)) or needs_commands(taskset),
    )


def _open_taskset(library: Library, caller: Caller, settings: RunSettings) -> tuple[TaskSet, Ref]:
    """Return the task set that the run began with, and its ref. Raises RunTampered when its content differs now."""
    named = Ref.parse(settings.task_set)
    ref = named.within(named.scope or USER_SCOPE).at(settings.task_set_version)
    taskset, _ = load_taskset(library, caller, ref)
    if (taskset.digest, taskset.test_digest) != (settings.task_set_digest, settings.test_digest):
        raise RunTampered(f"{ref} is not the task set that the run began with.")
    return taskset, ref


def _models(settings: RunSettings) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield who proposes and who judges, with the verb, and the roles in which the person may have named it."""
    yield settings.brain, "think", proposer_model.PROPOSER_ROLES
    yield settings.judge, "judge", proposer_model.JUDGE_ROLES


def _is_command(who: str) -> bool:
    return who.partition(":")[0] not in ("", "anthropic", "handoff")


@translate_damage
def check_runnable(folder: RunDirectory, host: HostContext) -> None:
    """Raise Refused when a run needs a command that the person did not name. Changes nothing."""
    settings = load_run_state(folder).settings
    if settings:
        check_commands_named(RunSettings.from_json(settings), host)


def check_commands_named(settings: RunSettings, host: HostContext) -> None:
    """Raise Refused when a run needs a command that the person did not name, or names otherwise than at its start."""
    if executor_kind(settings.executor).uses_taskset_files:
        check_named_executor(settings.executor, host)
    if host.scorers is not None:
        for name in settings.scorers:
            host.scorers.get(name)
    for who, _, roles in _models(settings):
        if _is_command(who):
            proposer_model.command_words(who, roles, host)


def check_available(settings: RunSettings, host: HostContext, files: Mapping[str, bytes]) -> None:
    """Raise InvalidArgument when a command or a key that a run needs is missing here. Asks no model.

    files: of the task set; the executor's command may be one of them.
    """
    needed: list[tuple[str, str]] = []
    for who, verb, roles in _models(settings):
        if who.partition(":")[0] == "anthropic" and not host.key:
            text = f"There is no key for the Anthropic API, which is to {verb}."
            raise InvalidArgument(text, "Set ANTHROPIC_API_KEY.")
        if _is_command(who):
            needed += [(word, verb) for word in proposer_model.command_words(who, roles, host)[:1]]
    check_commands_named(settings, host)
    if executor_kind(settings.executor).uses_taskset_files:
        own = (*files, "{python}")
        needed += [(word, "do the tasks") for word in settings.executor["command"][:1] if word not in own]
    for word, verb in needed:
        if not Path(word).parent.name and shutil.which(word, path=host.environment.get("PATH")) is None:
            hint = "Install it, give its whole path, or name another."
            raise InvalidArgument(f"{ascii(word[:80])}, which is to {verb}, is not on the PATH.", hint)
