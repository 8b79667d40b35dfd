"""Try the scorers of a task set on known good and bad answers, before anything is spent on it."""

import asyncio
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution import scorers
from evolvable_evolve.evolution.executors import WorkspaceError, open_workspace
from evolvable_evolve.evolution.scorers import TaskSetScorer, sample_list
from evolvable_evolve.evolution.task import (
    Rollout,
    Score,
    ScorerError,
    Task,
    TaskSet,
    task_fixtures,
)
from evolvable_evolve.evolution.tasks.reader import scorer_files

_MAX_IDS = 5  # tasks that a remark names


class IssueLevel(StrEnum):
    """The level of a remark: with a remark of the first level, nothing is spent on the task set."""

    REFUSE = "refuse"
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class TaskSetIssue:
    """One remark: its rule, the tasks that it is about, and what to do about it."""

    level: IssueLevel
    rule: str
    text: str
    hint: str = ""
    tasks: tuple[str, ...] = ()


@cache
def _issue_texts() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads(Path(__file__).with_name("issues.toml").read_text(encoding="utf-8"))


def make_issue(name: str, tasks: Sequence[str] = (), /, **values: object) -> TaskSetIssue:
    """Return the issue of this name in issues.toml, about these tasks.

    values: for the other words in its texts.
    """
    entry = _issue_texts()[name]
    values["tasks"] = format_tasks(tasks) if tasks else ""
    text, hint = (entry.get(part, "").format(**values) for part in ("text", "hint"))
    return TaskSetIssue(
        IssueLevel(entry["level"]),
        entry.get("rule", name),
        text[0].upper() + text[1:],
        hint,
        tuple(tasks),
    )


def format_ids(ids: Sequence[str]) -> str:
    """Return the first few ids in a row, and how many more there are."""
    more = f" and {len(ids) - _MAX_IDS} more" if len(ids) > _MAX_IDS else ""
    return ", ".join(ids[:_MAX_IDS]) + more


def format_tasks(ids: Sequence[str]) -> str:
    """Return `task a` or `3 tasks (a, b, c)`."""
    return f"task {ids[0]}" if len(ids) == 1 else f"{len(ids)} tasks ({format_ids(ids)})"


SLOW_SCORERS = ("command", "regex", "judge")
"""Scorers that start a process or ask a model: they are tried on a few tasks, others on all."""

MIN_TRIED_TASKS = 3
"""Tasks without known answers of their own on which a slow scorer is tried."""

MAX_TRIED_TASKS = 12
"""The most tasks on which a slow scorer is tried."""

MAX_CONCURRENT = 4
"""The most tasks that are tried beside each other."""

# Answers that are wrong for every task.
_WRONG = ("", "I do not know.")
# Few are enough: a scorer that accepts a list accepts any.
_GUESSES = 4


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """An output with files that a run would have left in the workspace, and whether it is good.

    assumed: it is a bare expected answer of a command whose outputs may have another form.
    """

    output: str
    files: Mapping[str, bytes]
    good: bool
    assumed: bool = False


@dataclass(slots=True)
class _CalibrationCounts:
    """Findings on the tasks of one scorer, as ids of tasks.

    good_low: a good answer below 1. no_output: the expected answer is no output. bad_high: a bad
    answer with 1. unsteady: two scores of one answer differ. guessed: a list of guesses passes.
    trouble: with the error of the scorer. good, bad: the numbers of scored answers. shapes: for
    each good answer, whether only its shape was checked.
    """

    good_low: list[str] = field(default_factory=list)
    no_output: list[str] = field(default_factory=list)
    bad_high: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    trouble: list[tuple[str, str]] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    shapes: list[bool] = field(default_factory=list)


async def calibrate_scorers(taskset: TaskSet, scoring: TaskSetScorer) -> list[TaskSetIssue]:
    """Return the faults of the scorers: each gets known answers, and each answer twice.

    scoring: its host and judge, without the files of the task set.
    """
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in taskset.tasks:
        # A task that waits for its review may have a scorer that is not finished.
        if task.reviewed:
            groups[_name_scorer_group(task)].append(task)
    remarks: list[TaskSetIssue] = []
    scoring = replace(scoring, files=scorer_files(taskset))
    for name, own in groups.items():
        # A judge is calibrated by the run itself, with its own model.
        if own[0].scorer.type == "judge":
            remarks += _find_judge_issues(own, scoring.judge)
            continue
        # Another task's answer is a plausible wrong one.
        others = sorted({task.expected for task in own if task.expected})
        places = asyncio.Semaphore(MAX_CONCURRENT)
        trials = [
            _try_scorer(taskset, task, _list_known_answers(task, others), scoring, places)
            for task in _choose_tasks(own)
        ]
        counts = _sum_counts(await asyncio.gather(*trials))
        remarks += _find_scorer_issues(name, own, counts)
    return remarks


def _name_scorer_group(task: Task) -> str:
    """Return the name of the scorer that a task shares with others.

    It is the type, with the command of a command scorer, or the rubric of a judge.
    """
    command = "name" if "name" in task.scorer.args else "argv"
    argument = {"command": command, "judge": "rubric"}.get(task.scorer.type)
    if not argument:
        return task.scorer.type
    return f"{task.scorer.type} {json.dumps(task.scorer.args.get(argument))}"


def _choose_tasks(own: Sequence[Task]) -> list[Task]:
    if own[0].scorer.type not in SLOW_SCORERS:
        return list(own)
    with_samples = [
        task for task in own if task.scorer.args.get("good") or task.scorer.args.get("bad")
    ]
    others = [task for task in own if task not in with_samples]
    # Tasks with known answers first: they tell more than assumed ones.
    missing = max(0, MIN_TRIED_TASKS - len(with_samples))
    return with_samples[:MAX_TRIED_TASKS] + others[:missing]


def _list_known_answers(task: Task, others: Sequence[str]) -> Iterator[KnownAnswer]:
    """Yield the known answers of a task: its samples, its expected answer, and wrong answers."""
    args = task.scorer.args
    for side in ("good", "bad"):
        for sample in sample_list(args.get(side)):
            yield parse_known_answer(sample, side == "good")
    # Without a pattern of its own, the expected answer is the pattern and no output.
    is_answer = task.scorer.type != "regex" or "pattern" in args
    assumed = task.scorer.type == "command"
    if task.expected and is_answer and not args.get("good"):
        yield KnownAnswer(_tag_answer(task, task.expected), {}, True, assumed)
    # Where files are scored and not the text, two wrong texts are the same wrong answer.
    by_files = any(not isinstance(sample, str) for sample in sample_list(args.get("good")))
    for text in _WRONG[:1] if by_files else _WRONG:
        yield KnownAnswer(_tag_answer(task, text), {}, False)
    other = next((text for text in others if _differs(text, task.expected)), None)
    if other is not None and is_answer:
        yield KnownAnswer(_tag_answer(task, other), {}, False, assumed)


def parse_known_answer(sample: Any, good: bool) -> KnownAnswer:
    """Return the known answer of an argument: an output, or an object with output and files."""
    if isinstance(sample, str):
        return KnownAnswer(sample, {}, good)
    files = {str(path): str(text).encode() for path, text in (sample.get("files") or {}).items()}
    return KnownAnswer(str(sample.get("output", "")), files, good)


def _tag_answer(task: Task, text: str) -> str:
    is_tagged = task.scorer.args.get("answer") == "tagged"
    return f"<FINAL_ANSWER>{text}</FINAL_ANSWER>" if is_tagged else text


def _differs(text: str, expected: str | None) -> bool:
    """Return whether two answers certainly differ: neither is a part of the other."""
    first, second = (" ".join((each or "").casefold().split()) for each in (text, expected))
    return bool(first) and first not in second and second not in first


async def _try_scorer(
    taskset: TaskSet,
    task: Task,
    known_answers: Iterator[KnownAnswer],
    scoring: TaskSetScorer,
    places: asyncio.Semaphore,
) -> _CalibrationCounts:
    counts = _CalibrationCounts()
    async with places:
        for known_answer in known_answers:
            try:
                # Twice, because a scorer with chance in it makes every comparison worthless.
                first = await score_known_answer(taskset, task, known_answer, scoring)
                second = await score_known_answer(taskset, task, known_answer, scoring)
            except (ScorerError, WorkspaceError) as error:
                # The bare expected answer may have another form than the command's outputs.
                if known_answer.assumed and isinstance(error, ScorerError):
                    if known_answer.good:
                        counts.no_output.append(task.id)
                    continue
                counts.trouble.append((task.id, error.text))
                # After a fault of the scorer its further scores say nothing.
                return counts
            _count_scores(counts, task.id, known_answer, first, second)
        if await _accepts_guesses(task):
            counts.guessed.append(task.id)
    return counts


def _count_scores(
    counts: _CalibrationCounts, id_: str, known_answer: KnownAnswer, first: Score, second: Score
) -> None:
    if (first.value, first.checks) != (second.value, second.checks):
        counts.unsteady.append(id_)
    if known_answer.good:
        counts.good += 1
        only_shapes = all(check.kind == "shape" for check in first.checks)
        counts.shapes.append(bool(first.checks) and only_shapes)
        # A score below 1 for a good answer makes every pass rate too low.
        if first.value < 1:
            counts.good_low.append(id_)
    else:
        counts.bad += 1
        if first.value >= 1:
            counts.bad_high.append(id_)


def _sum_counts(parts: Sequence[_CalibrationCounts]) -> _CalibrationCounts:
    whole = _CalibrationCounts()
    for part in parts:
        for name in _CalibrationCounts.__slots__:
            setattr(whole, name, getattr(whole, name) + getattr(part, name))
    return whole


async def score_known_answer(
    taskset: TaskSet, task: Task, known_answer: KnownAnswer, scoring: TaskSetScorer
) -> Score:
    """Return the score of a known answer in a fresh workspace of its task.

    Raises ScorerError, WorkspaceError.
    """
    # Only a command looks at files.
    if task.scorer.type != "command":
        return await scoring(task, Rollout(known_answer.output))
    begins = {**task_fixtures(task, taskset.files), **known_answer.files}
    async with open_workspace(task, begins, host=scoring.host) as folder:
        return await scoring(task, Rollout(known_answer.output), folder)


async def _accepts_guesses(task: Task) -> bool:
    """Return whether a list of guesses passes, with the right answer after wrong ones."""
    if task.scorer.type not in ("officeqa_compat", "numeric_strict", "exact") or not task.expected:
        return False
    wrong = [f"{number}{task.expected}" for number in range(1, _GUESSES)]
    guesses = "; ".join([*wrong, task.expected])
    score = await TaskSetScorer()(task, Rollout(_tag_answer(task, guesses)))
    return score.value >= 1


def _find_scorer_issues(
    name: str, own: Sequence[Task], counts: _CalibrationCounts
) -> Iterator[TaskSetIssue]:
    kind = own[0].scorer.type
    for id_, why in counts.trouble[:MIN_TRIED_TASKS]:
        yield make_issue("scorer-trouble", [id_], why=why)
    by_rule = {
        "scorer-unsteady": counts.unsteady,
        "good-not-1": counts.good_low,
        "bad-is-1": counts.bad_high,
    }
    for rule, ids in by_rule.items():
        if ids:
            yield make_issue(rule, list(dict.fromkeys(ids)), kind=kind)
    # With trouble the missing scores are explained already.
    if counts.no_output and not counts.trouble:
        yield make_issue("expected-is-no-output", counts.no_output, kind=kind)
    elif not counts.trouble and not (counts.good and counts.bad):
        yield make_issue("no-known", side="bad" if counts.good else "good", name=name, kind=kind)
    patterns = {str(task.scorer.args.get("pattern", task.expected)) for task in own}
    if counts.shapes and all(counts.shapes):
        yield make_issue("shape-only", name=name)
    # One pattern for all tasks is passed by one answer for all tasks.
    elif kind == "regex" and len(own) > 1 and len(patterns) == 1:
        yield make_issue("one-pattern", count=len(own))
    if counts.guessed:
        yield make_issue("guesses-pass", counts.guessed)


def _find_judge_issues(
    own: Sequence[Task], judge: scorers.JudgeScorer | None
) -> Iterator[TaskSetIssue]:
    counts = {
        side: sum(len(sample_list(task.scorer.args.get(side))) for task in own)
        for side in ("good", "bad")
    }
    judged = format_tasks([task.id for task in own])
    if min(counts.values()) < scorers.MIN_KNOWN_ANSWERS:
        yield make_issue("judge-uncalibrated", judged=judged, least=scorers.MIN_KNOWN_ANSWERS)
    elif judge is None:
        samples = {side: min(scorers.MAX_KNOWN_ANSWERS, count) for side, count in counts.items()}
        yield make_issue("judge", judged=judged, agreement=scorers.MIN_AGREEMENT, **samples)
