"""The judge of a run: who it is, its calibration before anything else is spent, and what is warned about."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evolvable_store.errors import InvalidArgument
from evolvable_tools.evolve.brains.brain import Brain
from evolvable_tools.evolve.budget import Reservation
from evolvable_tools.evolve.means import JUDGES, EvolveMeans, opening_of
from evolvable_tools.evolve.rollout import Usage
from evolvable_tools.evolve.run import QUESTION_TOKENS, Run
from evolvable_tools.evolve.run_folder import RunFolder
from evolvable_tools.evolve.run_settings import RunSettings
from evolvable_tools.evolve.scorers.answers import answer_in
from evolvable_tools.evolve.scorers.judge import (
    MOST_EACH,
    Calibration,
    Judge,
    Sample,
    calibrate,
    check_passed,
    rubric_digest,
    same_family,
)
from evolvable_tools.evolve.task import Task, TaskSet


@dataclass(frozen=True)
class Judging:
    """The judge of a run with the known answers of each rubric. Its calibrations are filled in by `be_calibrated`."""

    judge: Judge
    calibrations: dict[str, Calibration]
    samples: Mapping[str, Sequence[Sample]]


def needs_judge(tasks: Sequence[Task]) -> bool:
    """Returns whether a judge scores any of these tasks."""
    return any(task.scorer.type == "judge" for task in tasks)


def who_judges(settings: RunSettings, taskset: TaskSet) -> str:
    """Returns who judges in a run with these settings, '' where nobody has to: who is named, else the brain.

    Raises InvalidArgument when nobody is there who could.
    """
    if not needs_judge(taskset.tasks):
        return ""
    who = settings.judge or settings.brain
    if who.partition(":")[0] == "handoff":
        raise InvalidArgument(
            f"{taskset.name} has tasks that a judge scores, and a judge cannot be a hand-off: it is asked for every"
            " answer, and is the only one to know what was expected.",
            "Name one by --judge (settings.judge): anthropic[:MODEL], claude, codex, or the name of a judge.",
        )
    return who


def judging_of(settings: RunSettings, means: EvolveMeans, folder: RunFolder, taskset: TaskSet) -> Judging | None:
    """Returns the judge of a run, None where nobody has to judge. Raises InvalidArgument."""
    if not needs_judge(taskset.tasks):
        return None
    opening = opening_of(settings.judge, JUDGES, settings, means, folder)
    calibrations: dict[str, Calibration] = {}
    return Judging(Judge(opening, calibrations), calibrations, samples_of(taskset.tasks))


def family_warning(settings: RunSettings, judge: str, label: str) -> str:
    """Returns what is to be said where a model judges answers of its own maker's models, '' elsewhere."""
    judged = " ".join(str(settings.executor.get(name, "")) for name in ("kind", "model")) + f" {label}"
    if not judge or not same_family(judge, judged):
        return ""
    return f"{judge} judges answers of a model of the same maker ({label}): such judges favour their own."


async def be_calibrated(run: Run, judging: Judging, brain: Brain, label: str) -> None:
    """Has the judge show on known answers, of each rubric, that it tells good from bad; what was shown is kept.

    brain: the judge's, wherever it is asked. label: of who runs the tasks.
    Raises JudgeRefused when it does not, ScorerTrouble when it does not answer, BudgetSpent, Stopped.
    """
    for rubric, samples in judging.samples.items():
        known = _digest(samples)
        kept = [one for one in run.state.judges if (one["by"], one["known"]) == (brain.name, known)]
        if kept:
            found = _read(kept[-1])
        else:
            found = await _calibrated(run, brain, rubric, samples)
            run.note(
                "judge",
                by=brain.name,
                label=brain.label,
                known=known,
                calibration=asdict(found),
                agreement=found.agreement,
                passed=found.passes,
                about=rubric[:200],
                warning=family_warning(run.settings, brain.name, label),
            )
        check_passed(found)
        judging.calibrations[rubric_digest(rubric)] = found


async def _calibrated(run: Run, brain: Brain, rubric: str, samples: Sequence[Sample]) -> Calibration:
    upper = Usage(QUESTION_TOKENS, 0, 1)
    reserved: list[Reservation] = []

    def reserve() -> None:
        run.check()
        made = run.budget.reserve(upper)
        if made is None:
            raise run.budget.spent(upper)
        reserved.append(made)

    def paid(usage: Usage) -> None:
        run.budget.settle(reserved.pop(), usage)
        run.paid("", "judge", usage, brain.name)

    try:
        return await calibrate(brain, rubric, samples, before=reserve, paid=paid)
    finally:
        for one in reserved:
            run.budget.release(one)


def samples_of(tasks: Sequence[Task]) -> dict[str, list[Sample]]:
    """Returns the known answers that tasks give for each rubric, at most MOST_EACH of each side."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for task in tasks:
        if task.scorer.type != "judge":
            continue
        own = found[str(task.scorer.args["rubric"])]
        for side, good in (("good", True), ("bad", False)):
            said = task.scorer.args.get(side) or []
            for one in said if isinstance(said, list | tuple) else []:
                if sum(sample.good == good for sample in own) < MOST_EACH:
                    text = one if isinstance(one, str) else str(one.get("output", ""))
                    own.append(Sample(task, answer_in(text, str(task.scorer.args.get("answer", "whole"))), good))
    return dict(found)


def _digest(samples: Sequence[Sample]) -> str:
    known = [[one.task.digest, dict(one.task.scorer.args).get("rubric"), one.output, one.good] for one in samples]
    return hashlib.sha256(json.dumps(known).encode("ascii")).hexdigest()


def _read(record: Mapping[str, Any]) -> Calibration:
    fields = dict(record["calibration"])
    fields["wrong"] = tuple(fields["wrong"])
    return Calibration(**fields)
