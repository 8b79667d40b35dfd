"""The context of a run while a process drives it: its ledger, tasks, runner, proposer model and
budget.

Its parts are made from the settings of the run, after a check that everything they need is
available.
"""

import base64
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution import proposers
from evolvable_evolve.evolution.candidates import LeakCorpus, Program
from evolvable_evolve.evolution.executors import CommandHost, Executor, check_named_executor
from evolvable_evolve.evolution.ledger import (
    Journal,
    LedgerRecord,
    RunDirectory,
    RunState,
    load_run_state,
    translate_damage,
)
from evolvable_evolve.evolution.operators import Mask, make_mask, proposed_kinds
from evolvable_evolve.evolution.proposers import ModelAnswer, ModelQuestion, NoAnswer, ProposerModel
from evolvable_evolve.evolution.run_config import EXECUTORS, HostContext, RunSettings
from evolvable_evolve.evolution.scorers import (
    JudgeCalibration,
    JudgeScorer,
    JudgeSetup,
    known_samples,
)
from evolvable_evolve.evolution.solutions import public_files, with_rounds
from evolvable_evolve.evolution.task import (
    ModelUsage,
    RegisteredScorer,
    Task,
    TaskSet,
    Trial,
    TrialOutcome,
)
from evolvable_evolve.evolution.tasks import HeldOutTest, TestRunner, locate
from evolvable_evolve.evolution.tasks.reader import read_taskset, scorer_files
from evolvable_evolve.evolution.trials import RunBudget, TrialRequest, TrialRunner
from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_tools import Caller, Library
from evolvable_tools.llm import ModelAttempt
from evolvable_tools.redaction import Redactor

# A question has at most 240,000 characters, about four a token.
QUESTION_TOKENS = 60_000
"""Tokens that are reserved for one question and its answer; the real usage is settled."""


class RunStopped(EvolvableError):
    """A stop of the run was requested. It can be continued."""


class NeedsPerson(EvolvableError):
    """A candidate may not run before a person has seen it.

    The run waits, and continues with the decision.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name} waits for a person: {why}.", "`evolvable evolve pending` says what is asked."
        )


class RunTampered(Refused):
    """Tasks, splits or scorers are not those that the run began with."""

    def __init__(
        self, text: str, hint: str = "Nothing of this run can be trusted any more: start a new one."
    ) -> None:
        super().__init__(text, hint)


@dataclass
class RunContext:
    """The collaborators of all steps of a run. It holds no task of the test.

    merged: finalists of other runs, by run, tried as one before any proposal. stop: checked before
    every step. intact: checked before every measurement; returns why tasks or scorers are not the
    recorded ones, or ''. sandboxed: whether trials run in a sandbox. plant_canary: stores data in
    the library that no verb finds. judge: of tasks that have one.
    """

    folder: RunDirectory
    journal: Journal
    settings: RunSettings
    train: Sequence[Task]
    val: Sequence[Task]
    sealed: HeldOutTest
    trials: TrialRunner
    proposer_model: ProposerModel
    budget: RunBudget
    redactor: Redactor
    merged: Sequence[tuple[str, Program]] = ()
    stop: Callable[[], bool] = lambda: False
    intact: Callable[[], str] = str
    sandboxed: bool = True
    plant_canary: Callable[[bytes], object] = len
    judge: JudgeScorer | None = None
    _programs: dict[str, Program] = field(default_factory=dict)

    @cached_property
    def corpus(self) -> LeakCorpus:
        """The texts of train and val that no candidate may repeat."""
        return LeakCorpus([*self.train, *self.val])

    @property
    def state(self) -> RunState:
        """The state after all records so far."""
        return self.journal.state

    @property
    def base(self) -> Program:
        """The program that every candidate is compared with at the end."""
        return self.program(self.state.base)

    @property
    def mask(self) -> Mask:
        """The parts that may change."""
        return make_mask(self.settings.mode, self.base)

    @property
    def proposed_kinds(self) -> frozenset[Kind]:
        """The kinds of which a model may propose edits."""
        return proposed_kinds(self.settings.mode)

    def program(self, digest: str) -> Program:
        """Return a program of this run."""
        if digest not in self._programs:
            self._programs[digest] = self.folder.program(digest)
        return self._programs[digest]

    def note(self, type: str, **fields: Any) -> LedgerRecord:
        """Append a record. Raises RunStopped instead when a stop was requested."""
        self.check()
        return self.journal.note(type, **fields)

    def check(self) -> None:
        """Raise RunStopped when a stop was requested."""
        if self.stop():
            raise RunStopped(
                "The run was asked to stop.", "`evolvable evolve continue` goes on with it."
            )

    async def measure(
        self, requests: Sequence[TrialRequest], batch: str, runner: TestRunner | None = None
    ) -> list[Trial]:
        """Measure a batch, by default with the runner of train and val.

        In the search a candidate that tampers is discarded; anywhere else tampering raises
        RunTampered. Raises RunStopped, BudgetSpent, TrialsFailing, RunTampered.
        """
        self.check()
        # Before the measurement, for all of it; the runner checks again as trials end.
        if why := self.intact():
            raise RunTampered(why)
        trials = await (runner or self.trials).measure(requests, batch=batch)
        spoiled = next(
            (trial.detail for trial in trials if trial.outcome is TrialOutcome.TAMPERED), ""
        )
        # In the search only the candidate of this batch is worthless; elsewhere the whole run is.
        if spoiled and batch.partition("/")[0] not in ("val", "screen"):
            raise RunTampered(spoiled)
        return trials

    async def ask(self, question: ModelQuestion) -> Mapping[str, Any]:
        """Return the answer to a question. A continued run neither asks nor pays for the same
        question again.

        Raises NeedsAnswer, NoAnswer, WrongAnswer, BudgetSpent, RunStopped.
        """
        earlier, role = self.state.packets.get(question.id), str(question.role)
        if earlier is not None and earlier.answer is not None:
            answer: Mapping[str, Any] = self.folder.read_json(earlier.answer)
            return answer
        if earlier is None:
            # The text before the record that names it: a kill in between leaves a file without a
            # record.
            artifact = self.folder.store_json(question.packet())
            iteration = self.state.iteration
            self.note(
                "asked", packet=question.id, role=role, iteration=iteration, artifact=artifact
            )
        most_output = question.max_tokens
        model_answer = await self.ask_reserved(
            self.proposer_model, question, (question.id, role), most_output=most_output
        )
        # Likewise the answer: its record must not name a file that is not there.
        artifact = self.folder.store_json(model_answer.value)
        self.record_cost(question.id, role, model_answer.usage, model_answer.by, artifact)
        return model_answer.value

    async def ask_reserved(
        self,
        model: ProposerModel,
        question: ModelQuestion,
        packet_role: tuple[str, str],
        *,
        most_output: int,
    ) -> ModelAnswer:
        """Return a model's answer within the budget. A failure that cost something is settled and
        recorded.

        Raises NeedsAnswer, NoAnswer, WrongAnswer, BudgetSpent.
        """
        # A question to several models may be billed by each of them.
        tries = getattr(model, "tries", 1)
        reserved = ModelUsage(QUESTION_TOKENS * tries, most_output * tries, tries)
        with self.budget.reserving(reserved) as settle:
            try:
                answer = await model.ask(question)
            except NoAnswer as error:
                # Failed attempts are paid as well, and only NoAnswer knows them.
                self.note_attempts(packet_role, error.attempts)
                if error.usage.calls:
                    settle(error.usage)
                    self.record_cost(*packet_role, error.usage, model.name)
                raise
            self.note_attempts(packet_role, answer.attempts)
            settle(answer.usage)
        return answer

    def note_attempts(self, packet_role: tuple[str, str], attempts: Sequence[ModelAttempt]) -> None:
        """Record each attempt to get an answer.

        `answered` records hold their sum, which is billed.
        """
        packet, role = packet_role
        for attempt in attempts:
            self.journal.note("attempted", packet=packet, role=role, **asdict(attempt))

    def record_cost(
        self, packet: str, role: str, usage: ModelUsage, by: str, artifact: str = ""
    ) -> None:
        """Record the cost of a question. Without an artifact there was no answer."""
        self.journal.note(
            "answered", packet=packet, role=role, by=by, artifact=artifact, **asdict(usage)
        )


EXECUTOR_DIR = "executor"
"""The directory of a run in which a command finds the files of the task set."""


@dataclass(frozen=True, slots=True)
class ExecutorKind:
    """A kind of executor.

    target: MODULE:CLASS below `executors`, which has `from_spec`. needs_canary: whether it has to
    show first that a program reaches its model. agents: whether it can be given agents; None: by
    the executor's spec.
    """

    target: str
    runs_commands: bool = False
    uses_taskset_files: bool = False
    needs_canary: bool = False
    agents: bool | None = False


EXECUTOR_KINDS = {
    "command": ExecutorKind(
        "command_executor:CommandExecutor", runs_commands=True, uses_taskset_files=True, agents=None
    ),
    "claude": ExecutorKind(
        "coding_agents:ClaudeExecutor", runs_commands=True, needs_canary=True, agents=True
    ),
    "codex": ExecutorKind("coding_agents:CodexExecutor", runs_commands=True, needs_canary=True),
    "anthropic": ExecutorKind("model_api:ModelExecutor", needs_canary=True),
    "model": ExecutorKind("model_api:ModelExecutor", needs_canary=True),
    "simulated": ExecutorKind("simulated:SimulatedExecutor"),
}


def executor_kind(spec: Mapping[str, Any]) -> ExecutorKind:
    """Return the kind of the executor that a run's settings name.

    One without a target is unknown.
    """
    return EXECUTOR_KINDS.get(str(spec.get("kind")), ExecutorKind(""))


def takes_agents(spec: Mapping[str, Any]) -> bool:
    """Return whether the executor of a run's settings can be given agents."""
    agents = executor_kind(spec).agents
    return spec.get("agents") is True if agents is None else agents


def make_executor(
    spec: Mapping[str, Any], host: HostContext, taskset: TaskSet, directory: Path
) -> Executor:
    """Return the executor that a run's settings name.

    directory: where a command finds the files of the task set. Raises InvalidArgument, Refused,
    ClientError.
    """
    module, _, name = executor_kind(spec).target.partition(":")
    if not module:
        kind = ascii(str(spec.get("kind"))[:40])
        raise InvalidArgument(f"{kind} is no executor.", f"It is one of {', '.join(EXECUTORS)}.")
    # Imported by name: a run needs one of them, and each starts slower than this module.
    executor_class = getattr(import_module(f"evolvable_evolve.evolution.executors.{module}"), name)
    files = scorer_files(taskset)
    executor: Executor = executor_class.from_spec(
        spec, host, tasks=taskset.tasks, files=files, directory=directory
    )
    public = public_files(taskset, files)
    return with_rounds(executor, spec.get("rounds", 0), public, CommandHost.of(host))


def make_judge(
    settings: RunSettings, host: HostContext, folder: RunDirectory, taskset: TaskSet
) -> JudgeSetup | None:
    """Return the judge of a run, None when no task needs one. Raises InvalidArgument, Refused."""
    if not any(task.scorer.type == "judge" for task in taskset.tasks):
        return None
    spec = proposers.ModelSpec.from_settings(
        settings.judge, proposers.JUDGE_ROLES, settings, host, folder
    )
    calibrations: dict[str, JudgeCalibration] = {}
    return JudgeSetup(JudgeScorer(spec, calibrations), calibrations, known_samples(taskset.tasks))


@dataclass(frozen=True)
class RunParts:
    """The opened parts of a run, by its settings.

    runs_commands: whether any of them starts a command.
    """

    settings: RunSettings
    taskset: TaskSet
    executor: Executor
    judging: JudgeSetup | None
    proposer_model: proposers.HandOffModel | proposers.ModelSpec
    guard: locate.IntegrityGuard
    registered: Mapping[str, RegisteredScorer]
    runs_commands: bool


def make_run_parts(
    library: Library, caller: Caller, folder: RunDirectory, host: HostContext, state: RunState
) -> RunParts:
    """Return the parts of a run.

    Raises RunTampered, Refused, and InvalidArgument for a part that is gone.
    """
    settings, directory = RunSettings.from_json(state.settings), folder.path / EXECUTOR_DIR
    ref: Ref | None = None
    if settings.kept_tasks:
        taskset = _read_kept_taskset(folder, settings)
    else:
        taskset, ref = _open_taskset(library, caller, settings)
    registered = locate.registered_scorers(taskset.tasks, host.scorers)
    locate.refuse_changed(registered, settings.scorers)
    kind, guarded = executor_kind(settings.executor), dict[str, bytes]()
    if kind.uses_taskset_files:
        guarded |= scorer_files(taskset)
        # Files that the command names by whole paths decide results too.
        for word in settings.executor["command"]:
            if Path(word).is_absolute() and Path(word).is_file():
                guarded[word] = Path(word).read_bytes()
    for scorer in registered.values():
        guarded |= scorer.files
    executor = make_executor(settings.executor, host, taskset, directory)
    # Before anything is measured with it.
    if executor.fingerprint != state.fingerprint:
        text = (
            f"The executor is now {executor.fingerprint}, and the run began with "
            f"{state.fingerprint}."
        )
        raise RunTampered(text, "Figures of both cannot stand beside each other: start a new run.")
    has_command_model = any(_is_command(name, host) for name, *_ in _list_models(settings))
    return RunParts(
        settings,
        taskset,
        executor,
        make_judge(settings, host, folder, taskset),
        _make_proposer_model(settings, host, folder),
        locate.IntegrityGuard(library, caller, ref, guarded, directory),
        registered,
        kind.runs_commands or has_command_model or locate.needs_commands(taskset),
    )


def _open_taskset(library: Library, caller: Caller, settings: RunSettings) -> tuple[TaskSet, Ref]:
    """Return the task set that the run began with, and its ref.

    Raises RunTampered when its content differs now.
    """
    stored_ref = Ref.parse(settings.task_set)
    ref = stored_ref.within(stored_ref.scope or USER_SCOPE).at(settings.task_set_version)
    taskset, _ = locate.load_taskset(library, caller, ref)
    # The version is the same, but its tasks may have been purged, or read by newer rules.
    if (taskset.digest, taskset.test_digest) != (settings.task_set_digest, settings.test_digest):
        raise RunTampered(f"{ref} is not the task set that the run began with.")
    return taskset, ref


def _make_proposer_model(
    settings: RunSettings, host: HostContext, folder: RunDirectory
) -> proposers.HandOffModel | proposers.ModelSpec:
    """Return the model that a run asks: the proposer model, or in a trial of a skill the judge of
    its answers.
    """
    if settings.purpose == "try" and settings.judge:
        return proposers.ModelSpec.from_settings(
            settings.judge, proposers.JUDGE_ROLES, settings, host, folder
        )
    return proposers.make_proposer_model(settings, host, folder)


def _read_kept_taskset(folder: RunDirectory, settings: RunSettings) -> TaskSet:
    """Return the task set that a run stores itself.

    Raises RunTampered when it is not the one it began with.
    """
    files = {
        path: base64.b64decode(data) for path, data in folder.read_json(settings.kept_tasks).items()
    }
    taskset = read_taskset(Ref.parse(settings.task_set).name, files)
    if taskset.digest != settings.task_set_digest:
        raise RunTampered(f"The tasks of run {folder.id} are not those that it began with.")
    return taskset


def _list_models(settings: RunSettings) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield each proposer model and the judge: the name, the verb of the work, the roles that may
    name it.
    """
    for model_name in settings.brain.split(","):
        yield model_name.strip(), "think", proposers.PROPOSER_ROLES
    yield settings.judge, "judge", proposers.JUDGE_ROLES


def _is_command(model_name: str, host: HostContext) -> bool:
    is_endpoint = host.models is not None and model_name in host.models.endpoints
    return not is_endpoint and model_name.partition(":")[0] not in ("", "anthropic", "handoff")


@translate_damage
def check_runnable(folder: RunDirectory, host: HostContext) -> None:
    """Raise Refused when a run needs a command that the person did not name. Changes nothing."""
    settings = load_run_state(folder).settings
    if settings:
        check_commands_named(RunSettings.from_json(settings), host)


def check_commands_named(settings: RunSettings, host: HostContext) -> None:
    """Raise Refused when a run needs a command that the person did not name, or names otherwise
    than at its start.
    """
    if executor_kind(settings.executor).uses_taskset_files:
        check_named_executor(settings.executor, host)
    if host.scorers is not None:
        for name in settings.scorers:
            # `get` raises for a name that is not registered any more.
            host.scorers.get(name)
    for model_name, _, roles in _list_models(settings):
        if _is_command(model_name, host):
            proposers.command_words(model_name, roles, host)


def check_available(settings: RunSettings, host: HostContext, files: Mapping[str, bytes]) -> None:
    """Raise InvalidArgument when a command or a key that a run needs is missing here. Asks no
    model.

    files: of the task set; the executor's command may be one of them.
    """
    needed: list[tuple[str, str]] = []
    for model_name, verb, roles in _list_models(settings):
        if model_name.partition(":")[0] == "anthropic" and not host.key:
            text = f"There is no key for the Anthropic API, which is to {verb}."
            raise InvalidArgument(text, "Set ANTHROPIC_API_KEY.")
        proposers.find_endpoint(model_name, host)
        if _is_command(model_name, host):
            words = proposers.command_words(model_name, roles, host)
            needed += [(word, verb) for word in words[:1]]
    check_commands_named(settings, host)
    if executor_kind(settings.executor).uses_taskset_files:
        own, program = (*files, "{python}"), settings.executor["command"][:1]
        needed += [(word, "do the tasks") for word in program if word not in own]
    search_path = host.environment.get("PATH")
    for word, verb in needed:
        # A word with a folder is a path, and is not looked for on the PATH.
        if Path(word).parent.name or shutil.which(word, path=search_path) is not None:
            continue
        hint = "Install it, give its whole path, or name another."
        raise InvalidArgument(f"{ascii(word[:80])}, which is to {verb}, is not on the PATH.", hint)
