"""Measure resources as they are: does a skill help, against what, and for which model.

Several measurements have a joint answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates import Program, load_program
from evolvable_evolve.evolution.ledger import RunState, iter_run_states, load_run
from evolvable_evolve.evolution.run_config import HostContext
from evolvable_evolve.evolution.start import MeasuredProgram, StartedRun, start_run
from evolvable_evolve.evolution.statistics import Ruling, TryAnswer, alpha_of_look
from evolvable_evolve.evolution.task import Split
from evolvable_evolve.evolution.tasks import find_exposed, find_taught, look_at
from evolvable_evolve.evolution.tasks.locate import load_taskset
from evolvable_evolve.evolution.try_answer import ClaimOnTasks, SkillTrial, skills_from_json
from evolvable_evolve.evolution.try_start import MIN_TASKS, find_searched
from evolvable_evolve.evolution.try_verdict import joint_answers
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library

NOTHING = "none"
"""The value of `against` for a base without any resource."""

# The id of a run, or a beginning of it.
_RUN = re.compile(r"\d{8}(?:-\d{6}(?:-[0-9a-f]+)?)?")


@dataclass(frozen=True)
class StartedMeasurement:
    """A measurement that was begun: one run for each executor. family: the first run, by which all
    are known.

    left_out: tasks of train and validation that say nothing of it. look: what opening the test
    takes, '' where it stays closed.
    """

    family: str
    measured: str
    against: str
    runs: list[StartedRun]
    warnings: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    look: str = ""


def start_measurement(
    library: Library,
    caller: Caller,
    host: HostContext,
    task_set: Ref,
    program: Sequence[Ref],
    executors: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
    *,
    against: str = NOTHING,
    source: str | None = None,
) -> StartedMeasurement:
    """Make the runs that measure a program, one for each executor; they still have to be driven.

    program: the resources to measure. source: a run whose finalist is measured instead. against:
    `none`, a resource or a version of it, or a run, whose finalist it is; of a source by default
    its base. The sealed test stays closed unless the option open_test says otherwise. Raises as
    `start_run`.
    """
    if not executors:
        raise InvalidArgument(
            "No executor is named.", "Name one by --executor, several by --executors."
        )
    if bool(program) == bool(source):
        raise InvalidArgument(
            "Name what is measured by -p, or a run by --from, not both.", "Such as -p skill:pdf."
        )
    measured = _load_measured_program(library, caller, program, against, source)
    pins = list(program) or _list_refs(load_run(library.store.home, source)[1])
    open_test = bool(options.get("open_test"))
    if not open_test:
        measured = replace(
            measured, left_out=_find_left_out(library, caller, task_set, pins, measured)
        )
    runs: list[StartedRun] = []
    for spec in executors:
        # The first run names the family; it is known only once the run is made.
        family = runs[0].run if runs else ""
        settings = {"mode": "any", "iterations": 0, **options, "open_test": open_test}
        settings |= {"purpose": "measure", "family": family, "executors": len(executors)}
        runs.append(
            start_run(library, caller, host, task_set, pins, spec, settings, measured=measured)
        )
    base_name = ", ".join(part.ref for part in measured.base.parts) or NOTHING
    warnings = list(dict.fromkeys(warning for run in runs for warning in run.warnings))
    look = look_at(library.store.home, load_taskset(library, caller, task_set)[0])
    costs = describe_look(look) if open_test else ""
    return StartedMeasurement(
        runs[0].run, measured.label, base_name, runs, warnings, dict(measured.left_out), costs
    )


def describe_look(look: int) -> str:
    """Return the cost of opening a sealed test, in p-values, for the look of this number."""
    return (
        f"This is look {look} at these test tasks: a promotion needs p <= "
        f"{alpha_of_look(look):.2g}, and after it p <= {alpha_of_look(look + 1):.2g} on tasks "
        "that it opened. That cannot be taken back."
    )


def _find_left_out(
    library: Library, caller: Caller, task_set: Ref, refs: Sequence[Ref], measured: MeasuredProgram
) -> dict[str, str]:
    """Return the tasks of train and validation that say nothing of a program, with the reason.

    Raises InvalidArgument where too few are left.
    """
    taskset, _ = load_taskset(library, caller, task_set)
    program = measured.program or load_program(library, caller, refs)[0]
    reasons = find_searched(library.store.home, task_set, refs)
    reasons |= find_taught(library, taskset, refs, program)
    # A base with parts is compared as it is; an empty base must not find the skill in its
    # workspace.
    if not measured.base.parts:
        reasons |= find_exposed(taskset, program)
    open_ids = [task.id for task in taskset.tasks if task.split is not Split.TEST]
    left_out = {task_id: reasons[task_id] for task_id in open_ids if task_id in reasons}
    left = len(open_ids) - len(left_out)
    if left < MIN_TASKS:
        why = ""
        if left_out:
            why = f" {len(left_out)} are left out, such as {next(iter(left_out.values()))}."
        text = (
            f"{left} tasks of train and validation are left, and an answer takes {MIN_TASKS} at "
            f"least.{why}"
        )
        raise InvalidArgument(
            text, "Add tasks that the program was not made from, or open the sealed test."
        )
    return left_out


def _load_measured_program(
    library: Library, caller: Caller, program: Sequence[Ref], against: str, source: str | None
) -> MeasuredProgram:
    if source is not None:
        folder, state = load_run(library.store.home, source)
        finalist = _require_finalist(folder.id, state)
        label, chosen = f"finalist of run {folder.id}", folder.program(finalist)
        base = (
            folder.program(state.base)
            if against == NOTHING
            else _load_base(library, caller, against)
        )
        origin = state.settings.get("task_set")
        warning = f"It was found on {origin}; here it is measured as it is (zero-shot)."
        return MeasuredProgram(label, base, chosen, (warning,))
    return MeasuredProgram(", ".join(map(str, program)), _load_base(library, caller, against))


def _load_base(library: Library, caller: Caller, against: str) -> Program:
    if against == NOTHING:
        return Program()
    if _RUN.fullmatch(against):
        folder, state = load_run(library.store.home, against)
        return folder.program(_require_finalist(folder.id, state))
    return load_program(library, caller, [Ref.parse(against)])[0]


def _require_finalist(run: str, state: RunState) -> str:
    if not state.finalist:
        raise InvalidArgument(f"Run {run} has no finalist.", "Name a run that found something.")
    return state.finalist


def _list_refs(state: RunState) -> list[Ref]:
    return [Ref.parse(pin["ref"]) for pin in state.settings.get("program", ())]


@dataclass(frozen=True, slots=True)
class MeasuredUnder:
    """Result of a program under one executor. p: for either answer; joint: by Holm over all
    executors.

    ruling: the joint answer, '' while a run of the family is not finished. sentence: the result on
    train and validation where the test stayed closed; there p is of the nearer side, and joint
    adjusted over the batch.
    """

    run: str
    label: str
    n: int
    before: float | None
    after: float | None
    gain: float | None
    interval: tuple[float, float] | None
    p: float | None
    joint: float | None
    ruling: str
    sentence: str = ""


@dataclass(frozen=True)
class Measurement:
    """The joint result of the runs of one measurement.

    batch: where the test stayed closed, the number of answers on this task set that share an error
    of 5 % a side, else 0. They share it by Benjamini and Hochberg's rule.
    """

    family: str
    finished: bool
    rows: list[MeasuredUnder]
    batch: int = 0


def read_measurement(home: Path, run: str | None) -> Measurement | None:
    """Return the measurement that a run belongs to, None for a run that searched.

    Raises NoSuchRun.
    """
    folder, state = load_run(home, run)
    if state.settings.get("purpose") != "measure":
        return None
    family = str(state.settings.get("family") or folder.id)
    if not state.settings.get("open_test", True):
        return _read_open(home, family, state)
    members = [
        (member.id, member_state)
        for member, member_state in iter_run_states(home)
        if member.id == family or member_state.settings.get("family") == family
    ]
    members.sort()
    planned = int(state.settings.get("executors", 1))
    finished = len(members) == planned and all(member_state.verdict for _, member_state in members)
    p_values = {name: _read_p_value(member_state) for name, member_state in members}
    # One that was not measured to its end counts as one that shows nothing.
    adjusted = holm_adjusted([1.0 if p is None else p for p in p_values.values()], planned)
    joint = dict(zip(p_values, adjusted, strict=True))
    rows = [
        _make_row(name, member_state, p_values[name], joint[name], finished)
        for name, member_state in members
    ]
    return Measurement(family, finished, rows)


def _read_open(home: Path, family: str, first: RunState) -> Measurement:
    """Return a measurement on train and validation.

    Its batch: all such runs on this version of the task set.
    """
    batch = {
        folder.id: state
        for folder, state in iter_run_states(home)
        if not state.settings.get("open_test", True)
        and state.settings.get("task_set") == first.settings.get("task_set")
        and state.settings.get("task_set_digest") == first.settings.get("task_set_digest")
    }
    own = sorted(
        name for name, state in batch.items() if family in (name, state.settings.get("family"))
    )
    done = {
        name: skills_from_json(state.verdict["tried"])[0]
        for name, state in batch.items()
        if state.verdict
    }
    claims = [trial.on_these for trial in done.values()]
    # One answer needs no adjustment.
    joint_claims = joint_answers(claims) if len(claims) > 1 else claims
    answers = dict(zip(done, joint_claims, strict=True))
    for name, trial in done.items():
        # A run that could not tell for a reason of its own keeps that answer.
        if trial.why and trial.on_these.answer is TryAnswer.CANNOT_TELL:
            answers[name] = trial.on_these
    nearer = {name: min(claim.p, claim.p_worse) for name, claim in answers.items()}
    joint = dict(zip(nearer, step_up_adjusted(list(nearer.values())), strict=True))
    planned = int(first.settings.get("executors", 1))
    rows = [
        _make_open_row(name, batch[name].label, done.get(name), answers.get(name), joint.get(name))
        for name in own
    ]
    finished = len(own) == planned and all(name in done for name in own)
    return Measurement(family, finished, rows, len(done))


def _make_open_row(
    name: str, label: str, trial: SkillTrial | None, claim: ClaimOnTasks | None, joint: float | None
) -> MeasuredUnder:
    if trial is None or claim is None or not claim.tasks:
        answer = str(claim.answer) if claim is not None else ""
        sentence = trial.sentence if trial is not None else ""
        figures = dict.fromkeys(("before", "after", "gain", "interval", "p", "joint"))
        return MeasuredUnder(name, label, 0, **figures, ruling=answer, sentence=sentence)
    before, after = claim.passed_without / claim.tasks, claim.passed_with / claim.tasks
    return MeasuredUnder(
        name,
        label,
        claim.tasks,
        before,
        after,
        gain=after - before,
        interval=None,
        p=min(claim.p, claim.p_worse),
        joint=joint,
        ruling=str(claim.answer),
        sentence=trial.sentence,
    )


def _read_p_value(state: RunState) -> float | None:
    """Return the p-value for either answer, None where the result allows neither."""
    verdict = state.verdict
    if verdict.get("verdict") in (Ruling.INDECISIVE, Ruling.DISQUALIFIED):
        return None
    if verdict.get("p_two_sided") is not None:
        return float(verdict["p_two_sided"])
    if verdict.get("p") is not None and verdict.get("p_worse") is not None:
        # Twice the smaller of both sides, because either answer was possible.
        return float(min(1.0, 2 * min(verdict["p"], verdict["p_worse"])))
    return None


def _make_row(
    name: str, state: RunState, p: float | None, joint: float, finished: bool
) -> MeasuredUnder:
    verdict = state.verdict
    means, interval = verdict.get("against_base") or {}, verdict.get("interval")
    ruling = str(verdict.get("verdict", "")) if finished else ""
    significant = p is not None and joint <= verdict.get("alpha", 0.0)
    # The veto by no skill is no matter of significance, and stays.
    if ruling == Ruling.NOT_SUPPORTED and significant and "But no skill" not in verdict["why"]:
        # Holm rejects what the single run, which knows nothing of the others, did not.
        better = Ruling.BETTER_HERE if state.exploratory else Ruling.PROMOTE
        ruling = str(better if verdict["p"] <= verdict["p_worse"] else Ruling.HARMFUL)
    return MeasuredUnder(
        name,
        state.label,
        int(verdict.get("n", 0)),
        means.get("before"),
        means.get("after"),
        verdict.get("delta"),
        (float(interval[0]), float(interval[1])) if interval else None,
        p,
        joint if p is not None else None,
        ruling,
    )


def format_measurement(found: Measurement) -> str:
    """Return the joint result as lines of text."""
    by = "Holm over" if not found.batch else "Benjamini and Hochberg over the"
    lines = [f"Measurement {found.family} (joint p by {by} {found.batch or len(found.rows)}):"]
    for row in found.rows:
        if row.gain is None:
            lines.append(f"{row.run} [{row.label}]: {row.sentence or 'nothing is measured yet'}")
            continue
        seen = f"{100 * row.gain:+.1f} points"
        if row.interval is not None:
            low, high = row.interval
            seen += f" (95 % {100 * low:+.1f} to {100 * high:+.1f})"
        joint = "" if row.joint is None else f", joint p = {row.joint:.2g}"
        lines.append(
            f"{row.run} [{row.label}]: {seen} on {row.n} tasks{joint}; "
            f"{row.ruling or 'no joint verdict yet'}"
        )
    return "\n".join(lines)


def holm_adjusted(p_values: Sequence[float], hypotheses: int) -> list[float]:
    """Return the p-values adjusted by Holm for so many hypotheses, in their order."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        # An adjusted value is never below that of a smaller p.
        highest = max(highest, min(1.0, (hypotheses - rank) * p_values[at]))
        adjusted[at] = highest
    return adjusted


def step_up_adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted by Benjamini and Hochberg, in their order."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at], reverse=True)
    adjusted, least = [1.0] * len(p_values), 1.0
    # From the largest p-value on: an adjusted value is never above that of a larger p.
    for rank, at in zip(range(len(order), 0, -1), order, strict=True):
        least = min(least, p_values[at] * len(order) / rank)
        adjusted[at] = least
    return adjusted
