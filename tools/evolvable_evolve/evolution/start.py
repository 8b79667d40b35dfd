"""Begin a run, after every check that costs nothing; name the resources that deserve one."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from evolvable_evolve.evolution.backend_choice import check_backend
from evolvable_evolve.evolution.candidates import Program, load_program
from evolvable_evolve.evolution.executors import CommandHost
from evolvable_evolve.evolution.ledger import (
    Ledger,
    RunDirectory,
    create_run,
    iter_run_states,
    load_run,
)
from evolvable_evolve.evolution.operators import JOINT_MODE, MODES, SOLUTION_MODE, STRUCTURE_MODE
from evolvable_evolve.evolution.reach import refuse_undecidable
from evolvable_evolve.evolution.run_config import HostContext, RunSettings, judge_name
from evolvable_evolve.evolution.run_context import (
    EXECUTOR_DIR,
    check_available,
    make_executor,
    takes_agents,
)
from evolvable_evolve.evolution.run_file import make_settings
from evolvable_evolve.evolution.scorers import TaskSetScorer, family_warning
from evolvable_evolve.evolution.solutions import check_rounds, refuse_without_checks
from evolvable_evolve.evolution.statistics import paired_interval
from evolvable_evolve.evolution.task import RegisteredScorer, Split, TaskSet
from evolvable_evolve.evolution.tasks import (
    IssueLevel,
    TaskSetCheck,
    check_taskset,
    count_by_split,
    format_ids,
    look_at,
    opened_before,
    refuse_learned_sessions,
)
from evolvable_evolve.evolution.tasks.locate import (
    load_taskset,
    refuse_untrusted,
    registered_scorers,
)
from evolvable_evolve.evolution.tasks.reader import ENVIRONMENT_FILE, InvalidTaskSet, scorer_files
from evolvable_store import parse_document
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library
from evolvable_tools.outcomes import stats

FAILING_BELOW = 0.5
"""The upper limit of the share of successes below which a resource is named as failing."""

REASON_ORDER = (
    "harms",
    "newer-is-worse",
    "failing",
    "model-differs",
    "used-not-shown",
    "loaded-not-used",
    "shown-not-loaded",
)
"""Reasons, the most pressing first."""


@dataclass(frozen=True, slots=True)
class EvolutionOpportunity:
    """One resource that deserves work. reason: a code; numbers: its evidence. runs: those that had
    it, with their verdicts, the newest first.
    """

    ref: str
    reason: str
    numbers: str
    runs: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Opportunities:
    """Resources that deserve work, the most pressing first.

    task_sets: environments a run could measure them on.
    """

    found: list[EvolutionOpportunity]
    task_sets: list[str]


def find_opportunities(
    library: Library, caller: Caller, *, days: int = 30, limit: int = 20
) -> Opportunities:
    """Return which resources deserve work and why; changes nothing. Raises InvalidArgument."""
    evidence, tried = stats(library, caller, days=days), dict[str, list[str]]()
    for _, state in iter_run_states(library.store.home):
        run_line = f"{state.run}: {state.verdict.get('verdict') or state.phase}"
        for pin in state.settings.get("program", ()):
            tried.setdefault(pin["ref"], []).append(run_line)
    opportunities = [
        (opportunity.ref, opportunity.reason, opportunity.numbers)
        for opportunity in evidence.opportunities
    ]
    harmed = {ref for ref, reason, _ in opportunities if reason == "harms"}
    for line in evidence.resources:
        share = line.helped
        # Fewer than three rated uses say nothing, and a known harm is the stronger reason.
        if line.ref not in harmed and share.n >= 3 and share.high < FAILING_BELOW:
            opportunities.append((line.ref, "failing", str(share)))

    def urgency(entry: tuple[str, str, str]) -> tuple[int, str]:
        ref, reason, _ = entry
        # Reasons that this version does not know come last.
        rank = REASON_ORDER.index(reason) if reason in REASON_ORDER else len(REASON_ORDER)
        return rank, ref

    opportunities.sort(key=urgency)
    found = [
        EvolutionOpportunity(*entry, tried.get(entry[0], [])[:3]) for entry in opportunities[:limit]
    ]
    environments = library.store.heads(Kind.ENVIRONMENT)
    task_sets = [str(head.ref) for head in environments if head.version is not None]
    return Opportunities(found, task_sets)


@dataclass(frozen=True)
class StartedRun:
    """A run that was begun. sizes: tasks of each split. warnings: those of the check of the task
    set as well.

    judge: the model that scores the tasks that need one, '' without such tasks.
    """

    run: str
    label: str
    brain: str
    base: list[str]
    sizes: dict[str, int]
    warnings: list[str] = field(default_factory=list)
    judge: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """The programs of a measurement. label: the measured one, in words. program: None for the
    resources as they are.

    left_out: tasks of train and validation that say nothing of it, with the reason.
    """

    label: str
    base: Program
    program: Program | None = None
    warnings: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def start_run(
    library: Library,
    caller: Caller,
    host: HostContext,
    task_set: Ref,
    program: Sequence[Ref],
    executor: Mapping[str, Any],
    options: Mapping[str, Any],
    merge: Sequence[str] = (),
    measured: MeasuredProgram | None = None,
) -> StartedRun:
    """Check the task set, load the program as it is, and make the run; it still has to be driven.

    executor: its spec. options: settings of the run by name (RunSettings), and `rounds` of the
    executor. merge: runs whose finalists are tried as one. measured: of a measurement, the programs
    to compare; mode solution_only compares the program with itself, with and without rounds. Raises
    NoSuchResource, InvalidTaskSet, InvalidArgument, NoSuchRun, ClientError.
    """
    # All checks come before `_record_run`: a refused run leaves nothing behind.
    executor, options = _take_rounds(executor, options, measured)
    taskset, version = load_taskset(library, caller, task_set)
    # Before the check below, which runs the set's commands.
    refuse_untrusted(library, caller, task_set, taskset)
    registered = registered_scorers(taskset.tasks, host.scorers)
    round_warnings = refuse_without_checks(taskset, executor.get("rounds", 0))
    requested = make_settings(options, internal=measured is not None)
    checked = _check_taskset(library, host, taskset, registered, requested.test_repeats)
    base, pins = load_program(library, caller, program)
    if requested.mode == SOLUTION_MODE:
        requested, measured = _measure_rounds(requested, base, executor["rounds"])
    refuse_learned_sessions(library, taskset, [Ref.parse(pin.ref) for pin in pins])
    settings = replace(
        requested,
        task_set=str(library.store.head(task_set.at(None), caller.scopes).ref),
        task_set_version=version,
        task_set_digest=taskset.digest,
        test_digest=taskset.test_digest,
        program=tuple(pins),
        executor=add_helpers(executor, taskset),
        judge=judge_name(requested, taskset, host),
        scorers={name: scorer.to_json() for name, scorer in registered.items()},
    )
    refuse_undecidable(taskset, settings, checked.looks + 1, exploratory=checked.exploratory)
    _check_agents(settings)
    check_available(settings, host, taskset.files)
    backend_warnings = check_backend(settings, host, taskset)
    if measured is not None:
        base, finalists, warnings = _choose_compared(measured, base)
    else:
        _check_program(settings, base)
        finalists, warnings = merged_finalists(library, settings, taskset, merge)
    about, exploratory = _make_about(measured), checked.exploratory
    run, label = _record_run(library, settings, taskset, base, host, finalists, exploratory, about)
    warnings += [*round_warnings, *backend_warnings]
    warnings += _list_warnings(library, taskset, checked, settings, label)
    refs, sizes = [f"{pin.ref}@{pin.version}" for pin in pins], count_by_split(taskset)
    return StartedRun(run, label, settings.brain, refs, sizes, warnings, settings.judge)


def _record_run(
    library: Library,
    settings: RunSettings,
    taskset: TaskSet,
    base: Program,
    host: HostContext,
    finalists: Sequence[tuple[str, Program]],
    exploratory: bool,
    about: Mapping[str, Any],
) -> tuple[str, str]:
    """Make the directory of a run with its first record. Return its name and the label of its
    figures.
    """
    folder = create_run(library.store.home, library.store.clock())
    try:
        label = write_first_record(
            folder, settings, taskset, base, host, finalists, exploratory, about
        )
    except EvolvableError:
        shutil.rmtree(folder.path, ignore_errors=True)  # nothing was begun
        raise
    return folder.id, label


def _make_about(measured: MeasuredProgram | None) -> dict[str, Any]:
    return {"left_out": dict(measured.left_out)} if measured is not None else {}


def _take_rounds(
    executor: Mapping[str, Any], options: Mapping[str, Any], measured: MeasuredProgram | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the executor with its rounds, and the options without them. Raises InvalidArgument."""
    rest = dict(options)
    rounds = check_rounds(rest.pop("rounds", 0) or executor.get("rounds", 0))
    mode = rest.get("mode")
    if mode in (SOLUTION_MODE, JOINT_MODE) and not rounds:
        text = f"Mode {mode} improves answers, and no rounds are given."
        raise InvalidArgument(text, "Name them: rounds is 1 to 3.")
    if mode == SOLUTION_MODE and measured is not None:
        text = (
            "A measurement compares programs, and mode solution_only compares a program "
            "with itself."
        )
        raise InvalidArgument(text, "Start a run in that mode instead.")
    return {**executor, **({"rounds": rounds} if rounds else {})}, rest


def _measure_rounds(
    requested: RunSettings, program: Program, rounds: int
) -> tuple[RunSettings, MeasuredProgram]:
    """Return the settings and the arms of a run that compares the first answers of a frozen program
    with its last.
    """
    first_answers = replace(program, answers_once=True)
    arms = MeasuredProgram(f"answers in {rounds} rounds", first_answers, program)
    return replace(requested, purpose="measure", iterations=0), arms


def _choose_compared(
    measured: MeasuredProgram, current: Program
) -> tuple[Program, list[tuple[str, Program]], list[str]]:
    """Return the base of a measurement, the measured program, and its warnings.

    current: the resources as they are.
    """
    program = measured.program or current
    if measured.base.digest == program.digest:
        raise InvalidArgument("Both programs are the same.", "Name another one by --against.")
    return measured.base, [(measured.label, program)], list(measured.warnings)


def _list_warnings(
    library: Library, taskset: TaskSet, checked: TaskSetCheck, settings: RunSettings, label: str
) -> list[str]:
    """Return the warnings of the check, about opened tasks, and about the judge of a run."""
    warnings = [
        f"{remark.text} {remark.hint}".strip()
        for remark in checked.remarks
        if remark.level is IssueLevel.WARN
    ]
    warnings += _warn_of_opened(library, taskset)
    about_judge = family_warning(settings.executor, settings.judge, label)
    if about_judge:
        warnings.append(about_judge)
    return warnings


def _warn_of_opened(library: Library, taskset: TaskSet) -> list[str]:
    open_tasks = [task for task in taskset.tasks if task.split is not Split.TEST]
    opened = opened_before(library.store.home, taskset, open_tasks)
    if not opened:
        return []
    text = f"A sealed test opened {format_ids(opened)} before; now they are learned from"
    return [f"{text}, and no test may have them again."]


def _check_taskset(
    library: Library,
    host: HostContext,
    taskset: TaskSet,
    registered: Mapping[str, RegisteredScorer],
    repeats: int,
) -> TaskSetCheck:
    """Return the check of a task set. Raises InvalidTaskSet with the reasons of its refusal."""
    # The number of the next look is one more than the looks so far.
    looks = look_at(library.store.home, taskset) - 1
    scoring = TaskSetScorer(host=CommandHost.of(host), registered=registered)
    checked = asyncio.run(check_taskset(taskset, looks=looks, scoring=scoring, repeats=repeats))
    if not checked.passes:
        refused = [
            remark.text.rstrip(".")
            for remark in checked.remarks
            if remark.level is IssueLevel.REFUSE
        ]
        raise InvalidTaskSet(taskset.name, refused)
    return checked


def add_helpers(executor: Mapping[str, Any], taskset: TaskSet) -> dict[str, Any]:
    """Return the executor with the files that ENVIRONMENT.md names as `runner-files`: its command
    sees them too.

    Raises InvalidTaskSet for a name that is no such file, or a file that may hold expected answers.
    """
    about = taskset.files.get(ENVIRONMENT_FILE)
    names = parse_document(about).fields.get("runner-files") if about is not None else None
    if names is None:
        return dict(executor)
    allowed = scorer_files(taskset)

    def is_allowed(path: object) -> bool:
        return isinstance(path, str) and path in allowed

    if not isinstance(names, list) or not all(map(is_allowed, names)):
        problem = (
            f"runner-files of {ENVIRONMENT_FILE} is a list of files beside it, without the tasks"
        )
        raise InvalidTaskSet(taskset.name, [problem])
    return {**executor, "helpers": list(names)}


def _check_agents(settings: RunSettings) -> None:
    """Raise InvalidArgument when a run that restructures agents has an executor that cannot be
    given any.
    """
    if settings.mode == STRUCTURE_MODE and not takes_agents(settings.executor):
        name = str(settings.executor.get("name") or settings.executor.get("kind"))
        text = (
            "Mode structure needs an executor that can be given agents, and "
            f"{ascii(name[:80])} cannot."
        )
        hint = (
            "Use claude:MODEL, or a command that a person named by `evolvable role executor add "
            "NAME --agents -- COMMAND`."
        )
        raise InvalidArgument(text, hint)


def _check_program(settings: RunSettings, base: Program) -> None:
    kinds = MODES[settings.mode]
    if base.parts and not any(part.kind in kinds for part in base.parts):
        refs = ", ".join(part.ref for part in base.parts)
        text = f"Nothing of {refs} may change in mode {settings.mode}."
        raise InvalidArgument(text, f"The modes are {', '.join(MODES)}.")
    if any(part.kind is Kind.ENVIRONMENT for part in base.parts):
        raise InvalidArgument(
            "An environment is no part of a program.", "It holds the tasks and what judges them."
        )


def merged_finalists(
    library: Library, settings: RunSettings, taskset: TaskSet, merge: Sequence[str]
) -> tuple[list[tuple[str, Program]], list[str]]:
    """Return the finalists of runs, the one with the surest gain over its own base first, and
    warnings.

    Raises InvalidArgument for runs under another executor, which cannot be compared. It does so too
    where a run opened tasks that this one would test on: their results were part of the choice of
    the runs.
    """
    finalists: list[tuple[float, str, Program]] = []
    warnings = []
    opened: list[str] = []
    if merge:
        opened = opened_before(library.store.home, taskset, taskset.of(Split.TEST))
    if opened:
        text = (
            f"The merged program would be tested on tasks that a run opened, {len(opened)} "
            "of its test."
        )
        raise InvalidArgument(
            text, "Add test tasks that no run has opened, and put the old ones into train or val."
        )
    for name in merge:
        folder, state = load_run(library.store.home, name)
        if not state.finalist:
            text = f"Run {folder.id} found nothing that could be merged."
            raise InvalidArgument(text, "Merge runs with a finalist.")
        executor = _identify_executor(state.settings.get("executor", {}))
        if executor != _identify_executor(settings.executor):
            text = (
                f"Run {folder.id} measured under another executor, so its gain cannot be compared."
            )
            raise InvalidArgument(text, "Merge runs under one executor, and start with the same.")
        task_set = state.settings.get("task_set")
        if task_set != settings.task_set:
            warnings.append(f"Run {folder.id} is from {task_set}: its gain is on other tasks.")
        finalist, base = state.candidates[state.finalist], state.candidates[state.base]
        gains = [
            score - base.scores[task]
            for task, score in finalist.scores.items()
            if task in base.scores
        ]
        # By the lower end of the interval: a high mean of few tasks is no sure gain.
        sure_gain = paired_interval(gains)[0] if gains else -1.0
        finalists.append((sure_gain, folder.id, folder.program(state.finalist)))
    ranked = sorted(finalists, key=lambda entry: -entry[0])
    return [(name, program) for _, name, program in ranked], warnings


def _identify_executor(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the fields that identify an executor; prices and files beside it do not."""
    command = tuple(spec.get("command") or ())
    return spec.get("kind"), spec.get("model"), command, spec.get("rounds", 0)


def write_first_record(
    folder: RunDirectory,
    settings: RunSettings,
    taskset: TaskSet,
    base: Program,
    host: HostContext,
    finalists: Sequence[tuple[str, Program]],
    exploratory: bool,
    about: Mapping[str, Any] | None = None,
) -> str:
    """Store the programs of a run, write its first record, and return the label of its figures.

    about: further fields of the record, of a trial of skills.
    """
    executor = make_executor(settings.executor, host, taskset, folder.path / EXECUTOR_DIR)
    # Before the record that names them: without a first record there is no run.
    for program in (base, *(program for _, program in finalists)):
        folder.store_program(program)
    open_tasks = [task for task in taskset.tasks if task.split is not Split.TEST]
    with Ledger.open(folder.ledger) as ledger:
        ledger.append(
            "run",
            {
                "run": folder.id,
                "label": executor.label,
                "fingerprint": executor.fingerprint,
                "settings": settings.to_json(),
                # Test tasks are counted and not named: the ledger is open to agents.
                "tasks": [[task.id, task.split, task.category] for task in open_tasks],
                "test_tasks": len(taskset.of(Split.TEST)),
                "exploratory": exploratory,
                "base": base.digest,
                "size": base.size,
                "merged": [[run, program.digest] for run, program in finalists],
                "about": dict(about or {}),
            },
        )
    return executor.label
