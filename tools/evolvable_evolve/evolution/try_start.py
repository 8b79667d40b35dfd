"""Begin a trial of skills: leave out tasks that would say nothing, plan its cost, and make its run.

The run stores its own tasks.
"""

import base64
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.backend_choice import check_backend
from evolvable_evolve.evolution.candidates import Program, load_program
from evolvable_evolve.evolution.ledger import create_run, iter_run_states, load_run
from evolvable_evolve.evolution.run_config import HostContext, judge_name
from evolvable_evolve.evolution.run_context import check_available
from evolvable_evolve.evolution.run_control import run_condition
from evolvable_evolve.evolution.run_file import make_settings
from evolvable_evolve.evolution.start import add_helpers, write_first_record
from evolvable_evolve.evolution.statistics import (
    DEFAULT_STAGES,
    FOUND_GAIN,
    carried_difference,
    forecast_found,
)
from evolvable_evolve.evolution.tasks import (
    COMPARED,
    TryTask,
    TryTaskList,
    find_copies,
    find_exposed,
    find_taught,
)
from evolvable_evolve.evolution.tasks.locate import refuse_unapproved, registered_scorers
from evolvable_evolve.evolution.try_answer import TryResult, skills_from_json
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library

MIN_TASKS = 2
"""The fewest tasks of a trial: a net of two tasks' worth is called help or harm."""

_TASK_SET = "environment:tried"  # no resource of the library: the run stores the tasks
_LEFT_OUT, _EXPOSED = "left_out", "exposed"  # fields of the first record
# Without a sandbox these executors can read more than the workspace.
_RUNS_COMMANDS = ("command", "claude", "codex")


@dataclass(frozen=True)
class TryPlan:
    """The plan of a trial.

    most: the most trials. likely: the trials for a skill that is worth `gain`. found: the chance to
    find it. difference: of `no difference of more than`. dollars, tokens, minutes: likely and at
    most, by earlier trials of this executor; None where there were none.
    """

    skills: list[str]
    source: str
    tasks: list[TryTask]
    left_out: dict[str, str]
    repeats: int
    most: int
    likely: int
    gain: float
    found: float
    difference: float
    dollars: tuple[float, float] | None = None
    tokens: tuple[int, int] | None = None
    minutes: tuple[float, float] | None = None


@dataclass(frozen=True)
class StartedTry:
    """A trial that was begun; its run still has to be driven. waits: a person has to begin it."""

    run: str
    label: str
    plan: TryPlan
    warnings: list[str] = field(default_factory=list)
    waits: bool = False


def plan_try(
    library: Library,
    caller: Caller,
    refs: Sequence[Ref],
    task_list: TryTaskList,
    executor: Mapping[str, Any],
    repeats: int = DEFAULT_STAGES,
) -> tuple[TryPlan, TryTaskList]:
    """Return the plan of a trial of these skills, and the tasks that are left for it. Spends
    nothing.

    Raises NoSuchResource, and InvalidArgument where too few tasks are left for an answer.
    """
    arms, _ = _load_arms(library, caller, refs)
    for ref, program in zip(refs, arms, strict=True):
        # A list without tasks is no task set, and reading it raises.
        if task_list.tasks:
            task_list = task_list.without(find_taught(library, task_list.taskset, [ref], program))
        if task_list.tasks:
            task_list = task_list.without(find_exposed(task_list.taskset, program))
    tasks = task_list.tasks
    if len(tasks) < MIN_TASKS:
        raise _make_too_few_error(tasks, task_list)
    # A judge compares two answers once, so further repeats would not be used.
    if any(COMPARED in task.tags for task in task_list.taskset.tasks):
        repeats = 1
    forecast = forecast_found(len(tasks), repeats)
    # The forecast is for two arms, and all skills share one base.
    share = (1 + len(arms)) / 2
    most, likely = (1 + len(arms)) * len(tasks) * repeats, round(forecast.trials * share)
    plan = TryPlan(
        [str(ref) for ref in refs],
        task_list.source,
        tasks,
        task_list.left_out,
        repeats,
        most,
        likely,
        FOUND_GAIN,
        forecast.found,
        carried_difference(len(tasks), repeats),
    )
    return _add_costs(plan, library.store.home, executor), task_list


def find_searched(home: Path, task_set: Ref, refs: Sequence[Ref]) -> dict[str, str]:
    """Return the tasks of a set that an adopted search for these resources used, with the reason to
    leave them out.
    """
    names, searched = {ref.name for ref in refs}, dict[str, str]()
    for _, state in iter_run_states(home):
        set_ref = Ref.parse(str(state.settings.get("task_set", "")) or _TASK_SET)
        # A search whose edit is not live taught the skill nothing.
        is_live = bool(state.adoption) and not state.adoption.get("undone")
        if not is_live or set_ref.name != task_set.name:
            continue
        adopted = {Ref.parse(change[0]).name for change in state.adoption["changes"]}
        if names & adopted:
            searched |= dict.fromkeys(state.tasks, "taught: a search learned the skill from it")
    return searched


def _make_too_few_error(tasks: Sequence[TryTask], task_list: TryTaskList) -> InvalidArgument:
    reasons: dict[str, int] = {}
    for why in task_list.left_out.values():
        reasons[why] = reasons.get(why, 0) + 1
    left_out = "; ".join(f"{number} left out: {why}" for why, number in reasons.items())
    text = (
        f"{len(tasks)} tasks from {task_list.source} are left, and an answer takes "
        f"{MIN_TASKS} at least."
    )
    hint = (
        "Give others: `--from FILE.csv` with a question and an expected answer a row, or prompts "
        "by `--from -`."
    )
    return InvalidArgument(f"{text} {left_out}".strip(), hint)


def _load_arms(
    library: Library, caller: Caller, refs: Sequence[Ref]
) -> tuple[list[Program], list[Any]]:
    loaded = [load_program(library, caller, [ref]) for ref in refs]
    return [program for program, _ in loaded], [pin for _, pins in loaded for pin in pins]


def _add_costs(plan: TryPlan, home: Path, executor: Mapping[str, Any]) -> TryPlan:
    """Return the plan with costs by the newest earlier trials of this executor."""
    for _, state in iter_run_states(home):
        bill = state.bill
        if bill.trials < MIN_TASKS or not _is_same(state.settings.get("executor", {}), executor):
            continue
        # `wall` adds up the seconds of trials that ran side by side.
        at_once = max(1, int(state.settings.get("concurrency", 1)))
        seconds = bill.wall / bill.trials / at_once
        dollars = None if bill.unpriced else bill.cost / bill.trials
        tokens = bill.tokens // bill.trials
        return replace(
            plan,
            dollars=None if dollars is None else (dollars * plan.likely, dollars * plan.most),
            tokens=(tokens * plan.likely, tokens * plan.most) if tokens else None,
            minutes=(seconds * plan.likely / 60, seconds * plan.most / 60),
        )
    return plan


def _is_same(recorded: Mapping[str, Any], executor: Mapping[str, Any]) -> bool:
    names = ("kind", "name", "model", "command")
    return all(recorded.get(name) == executor.get(name) for name in names)


def start_try(
    library: Library,
    caller: Caller,
    host: HostContext,
    refs: Sequence[Ref],
    task_list: TryTaskList,
    executor: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    waits: bool = False,
) -> StartedTry:
    """Make the run of a trial of skills on these tasks; it still has to be driven.

    The arm without them has no skill at all. options: settings of the run by name; test_repeats is
    the most repeats. waits: only a person begins it. Raises NoSuchResource, InvalidArgument,
    InvalidTaskSet, Refused, CommandsUnapproved, ClientError.
    """
    repeats = int(options.get("test_repeats") or DEFAULT_STAGES)
    plan, task_list = plan_try(library, caller, refs, task_list, executor, repeats)
    taskset = task_list.taskset
    refuse_unapproved(library.store.home, taskset, f"The tasks from {task_list.source}")
    registered = registered_scorers(taskset.tasks, host.scorers)
    arms, pins = _load_arms(library, caller, refs)
    judge, other_options = _take_judge(task_list, host, dict(options))
    # Before the settings, which name an artefact of its folder. The folder is removed again where a
    # check fails.
    folder = create_run(library.store.home, library.store.clock())
    try:
        encoded = {
            path: base64.b64encode(data).decode("ascii") for path, data in taskset.files.items()
        }
        fixed_options = {"mode": "any", "iterations": 0, "purpose": "try"}
        settings = replace(
            make_settings({**other_options, **fixed_options}, internal=True),
            task_set=_TASK_SET,
            task_set_digest=taskset.digest,
            test_digest=taskset.test_digest,
            kept_tasks=folder.store_json(encoded),
            program=tuple(pins),
            executor=add_helpers(executor, taskset),
            test_repeats=plan.repeats,
            scorers={name: scorer.to_json() for name, scorer in registered.items()},
        )
        settings = replace(settings, judge=judge or judge_name(settings, taskset, host))
        check_available(settings, host, taskset.files)
        warnings = check_backend(settings, host, taskset)
        finalists = list(zip(plan.skills, arms, strict=True))
        exposed = _find_readable_copies(host, executor, arms)
        warnings = [*warnings, *_warn_of_exposed(exposed)]
        about = _describe_origin(task_list, caller, exposed, waits=waits)
        label = write_first_record(
            folder, settings, taskset, Program(), host, finalists, exploratory=False, about=about
        )
    except EvolvableError:
        shutil.rmtree(folder.path, ignore_errors=True)  # nothing was begun
        raise
    return StartedTry(folder.id, label, plan, list(warnings))


def _describe_origin(
    task_list: TryTaskList, caller: Caller, exposed: Sequence[str], *, waits: bool
) -> dict[str, Any]:
    """Return the origin of a trial's tasks and of the trial, for its first record."""
    about: dict[str, Any] = {
        "source": task_list.source,
        _LEFT_OUT: task_list.left_out,
        "caller": str(caller.identity.principal),
    }
    about |= {"waits": True} if waits else {}
    about |= {_EXPOSED: exposed} if exposed else {}
    about |= {"links": task_list.links} if task_list.links else {}
    return about


def _find_readable_copies(
    host: HostContext, executor: Mapping[str, Any], arms: Sequence[Program]
) -> list[str]:
    """Return the files in which the arm without the skills could read them: none in a sandbox, else
    those in folders of clients.
    """
    home = host.environment.get("HOME") or host.environment.get("USERPROFILE")
    if host.working_sandbox is not None or executor.get("kind") not in _RUNS_COMMANDS or not home:
        return []
    copies = (path for program in arms for path in find_copies(program, Path(home)))
    return list(dict.fromkeys(copies))


def _warn_of_exposed(exposed: Sequence[str]) -> list[str]:
    if not exposed:
        return []
    more = f" and {len(exposed) - 1} more" if len(exposed) > 1 else ""
    text = (
        f"No sandbox works here, and the arm without the skill could read it in {exposed[0]}{more}."
    )
    return [f"{text} If it does, the run is void. `evolvable doctor` says what a sandbox takes."]


def _take_judge(
    task_list: TryTaskList, host: HostContext, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the judge that compares answers, '' where nothing has to be compared, and the other
    options.

    Raises InvalidArgument where no judge is named.
    """
    if not any(COMPARED in task.tags for task in task_list.taskset.tasks):
        return "", options
    judge = str(options.get("judge") or next(iter(host.answering("judge")), ""))
    # A hand-off would see both answers and who asks.
    if not judge or judge.partition(":")[0] == "handoff":
        text = (
            "Prompts without an expected answer need a judge, who compares the answers with and "
            "without."
        )
        hint = (
            "Name one by --judge: anthropic[:MODEL], claude, codex, or a name of a judge or a "
            "model."
        )
        raise InvalidArgument(text, hint)
    return judge, options


def read_try(home: Path, run: str | None) -> TryResult | None:
    """Return a trial in its present state, None for another run. Raises NoSuchRun."""
    folder, state = load_run(home, run)
    if state.settings.get("purpose") != "try":
        return None
    bill, about = state.bill, state.about
    return TryResult(
        folder.id,
        state.label,
        run_condition(folder, state),
        bill.trials,
        None if bill.unpriced else bill.cost,
        bill.tokens,
        bill.wall,
        skills_from_json(state.verdict.get("tried", ())),
        dict(about.get(_LEFT_OUT, {})),
        str(about.get("source", "")),
        str(state.verdict.get("why", "") or state.stopped),
    )
