"""Trying the scorers on answers of which it is known whether they are good, before anything is spent on them."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.rollout import Score
from evolvable_tools.evolve.scorers import ScorerTrouble, score
from evolvable_tools.evolve.scorers.judge import LEAST_EACH, LEAST_RIGHT, MOST_EACH, Judge
from evolvable_tools.evolve.task import Task, TaskSet
from evolvable_tools.evolve.tasksets.reading import scorer_files, workspace_files
from evolvable_tools.evolve.tasksets.remarks import Level, Remark, tasks
from evolvable_tools.evolve.workspaces import WorkspaceTrouble, workspace
from evolvable_tools.sandbox import Sandbox

SLOW = ("command", "regex", "judge")
"""Scorers that start a process or ask somebody: they are tried on a few tasks, the others on all."""

TRIED = 3
"""Tasks on which a slow scorer is tried that were given no known answers of their own."""

MOST = 12
"""Tasks on which a slow scorer is tried at most."""

AT_ONCE = 4
"""Tasks that are tried beside each other."""

_WRONG = ("", "I do not know.")
_GUESSES = 4


@dataclass(frozen=True, slots=True)
class Known:
    """An output with files that a run would have left in the workspace, and whether it is good."""

    output: str
    files: Mapping[str, bytes]
    good: bool
    given: bool = False


@dataclass(frozen=True, slots=True)
class _Means:
    """What scorers are run with: files of the task set, the environment of commands, and what they run in.

    registered: the commands of scorers that tasks name. hidden: folders that the setup of a task does not see.
    """

    files: Mapping[str, bytes]
    environment: Mapping[str, str] | None
    sandbox: Sandbox | None
    registered: Mapping[str, Sequence[str]]
    hidden: Sequence[Path]


@dataclass(slots=True)
class _Seen:
    """What was found of the tasks of one scorer."""

    good_low: list[str] = field(default_factory=list)
    bad_high: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    trouble: list[tuple[str, str]] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    shapes: list[bool] = field(default_factory=list)


async def known_remarks(
    taskset: TaskSet,
    *,
    judge: Judge | None = None,
    environment: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    registered: Mapping[str, Sequence[str]] | None = None,
    hidden: Sequence[Path] = (),
) -> list[Remark]:
    """Returns what is wrong with the scorers: each is given known answers, and each answer twice."""
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in taskset.tasks:
        groups[_group(task)].append(task)
    remarks: list[Remark] = []
    how = _Means(scorer_files(taskset), environment, sandbox, registered or {}, hidden)
    for name, own in groups.items():
        if own[0].scorer.type == "judge":
            remarks += _judged(own, judge)
            continue
        others = sorted({task.expected for task in own if task.expected})
        places = asyncio.Semaphore(AT_ONCE)
        seen = await asyncio.gather(*(_try(taskset, task, _knowns(task, others), how, places) for task in _tried(own)))
        remarks += _said(name, own, _together(seen))
    return remarks


def _group(task: Task) -> str:
    """Returns the name of the scorer a task shares with others: its type, and for commands and judges which."""
    command = "name" if "name" in task.scorer.args else "argv"
    which = {"command": command, "judge": "rubric"}.get(task.scorer.type)
    return f"{task.scorer.type} {json.dumps(task.scorer.args.get(which))}" if which else task.scorer.type


def _tried(own: Sequence[Task]) -> list[Task]:
    if own[0].scorer.type not in SLOW:
        return list(own)
    given = [task for task in own if task.scorer.args.get("good") or task.scorer.args.get("bad")]
    ids = {task.id for task in given}
    return given[:MOST] + [task for task in own if task.id not in ids][: max(0, TRIED - len(given))]


def _knowns(task: Task, others: Sequence[str]) -> Iterator[Known]:
    """Yields the known answers of a task: those it was given, what it expects, and what must be wrong."""
    args = task.scorer.args
    for good in (True, False):
        samples = args.get("good" if good else "bad") or []
        yield from (_sample(said, good) for said in (samples if isinstance(samples, list) else []))
    is_answer = task.scorer.type != "regex" or "pattern" in args
    if task.expected and is_answer and not args.get("good"):
        yield Known(_as_answer(task, task.expected), {}, True)
    yield from (Known(_as_answer(task, text), {}, False) for text in _WRONG)
    other = next((text for text in others if _differs(text, task.expected)), None)
    if other is not None and is_answer:
        yield Known(_as_answer(task, other), {}, False)


def _sample(said: Any, good: bool) -> Known:
    if isinstance(said, str):
        return Known(said, {}, good, given=True)
    files = said.get("files") or {}
    return Known(
        str(said.get("output", "")), {str(p): str(text).encode() for p, text in files.items()}, good, given=True
    )


def _as_answer(task: Task, text: str) -> str:
    return f"<FINAL_ANSWER>{text}</FINAL_ANSWER>" if task.scorer.args.get("answer") == "tagged" else text


def _differs(text: str, expected: str | None) -> bool:
    """Returns whether two answers surely differ: what one says is no part of what the other says."""
    one, other = (" ".join((each or "").casefold().split()) for each in (text, expected))
    return bool(one) and one not in other and other not in one


async def _try(
    taskset: TaskSet,
    task: Task,
    knowns: Iterator[Known],
    how: "_Means",
    places: asyncio.Semaphore,
) -> _Seen:
    seen = _Seen()
    async with places:
        for known in knowns:
            try:
                first, second = [await _scored(taskset, task, known, how) for _ in range(2)]
            except (ScorerTrouble, WorkspaceTrouble) as error:
                seen.trouble.append((task.id, error.text))
                return seen
            _note(seen, task.id, known, first, second)
        if await _takes_guesses(task):
            seen.guessed.append(task.id)
    return seen


def _note(seen: _Seen, id_: str, known: Known, first: Score, second: Score) -> None:
    if first != second:
        seen.unsteady.append(id_)
    if known.good:
        seen.good += 1
        seen.shapes.append(bool(first.checks) and all(check.kind == "shape" for check in first.checks))
        if first.value < 1:
            seen.good_low.append(id_)
    else:
        seen.bad += 1
        if first.value >= 1:
            seen.bad_high.append(id_)


def _together(parts: Sequence[_Seen]) -> _Seen:
    whole = _Seen(good=sum(part.good for part in parts), bad=sum(part.bad for part in parts))
    for part in parts:
        whole.good_low += part.good_low
        whole.bad_high += part.bad_high
        whole.unsteady += part.unsteady
        whole.guessed += part.guessed
        whole.trouble += part.trouble
        whole.shapes += part.shapes
    return whole


async def _scored(taskset: TaskSet, task: Task, known: Known, how: "_Means") -> Score:
    if task.scorer.type != "command":
        return await score(task.scorer, task, known.output)
    begins = {**workspace_files(taskset, task), **known.files}
    async with workspace(task, begins, environment=how.environment, sandbox=how.sandbox, hidden=how.hidden) as folder:
        return await score(
            task.scorer,
            task,
            known.output,
            workspace=folder,
            files=how.files,
            environment=how.environment,
            sandbox=how.sandbox,
            registered=how.registered,
        )


async def _takes_guesses(task: Task) -> bool:
    """Returns whether a list of guesses passes: the right answer after wrong ones of the same form."""
    if task.scorer.type not in ("officeqa_compat", "numeric_strict", "exact") or not task.expected:
        return False
    hedged = "; ".join([*(f"{number}{task.expected}" for number in range(1, _GUESSES)), task.expected])
    return (await score(task.scorer, task, _as_answer(task, hedged))).value >= 1


def _said(name: str, own: Sequence[Task], seen: _Seen) -> Iterator[Remark]:
    kind = own[0].scorer.type
    for id_, why in seen.trouble[:TRIED]:
        yield Remark(Level.REFUSE, "scorer-trouble", f"The scorer of task {id_} fails: {why}", tasks=(id_,))
    for rule, ids, text in (
        ("scorer-unsteady", seen.unsteady, "scores the same output twice in two ways for"),
        ("good-not-1", seen.good_low, "gives a known good answer less than 1 for"),
        ("bad-is-1", seen.bad_high, "gives a known bad answer 1 for"),
    ):
        unique = tuple(dict.fromkeys(ids))
        if unique:
            hint = "Mend the scorer or the expected answer: no difference it measures would mean anything."
            yield Remark(Level.REFUSE, rule, f"The scorer {kind} {text} {tasks(unique)}.", hint, unique)
    if not seen.trouble and not (seen.good and seen.bad):
        side = "good" if not seen.good else "bad"
        hint = (
            f'Give one of its tasks such an answer: "scorer": {{"type": "{kind}", "args": {{..., "{side}": ["..."]}}}}.'
        )
        yield Remark(Level.REFUSE, "no-known", f"No {side} answer is known for the scorer {name}.", hint)
    if seen.shapes and all(seen.shapes):
        text = f"All checks of the scorer {name} look at the shape of an answer, none at whether it is right."
        yield Remark(Level.WARN, "shape-only", text, "A program would learn the shape; add a check of the outcome.")
    elif kind == "regex" and len(own) > 1 and len({_pattern(task) for task in own}) == 1:
        text = f"The same pattern judges {len(own)} different tasks, so it looks at the shape of an answer alone."
        yield Remark(Level.WARN, "shape-only", text, "Give each task a pattern of its own answer.")
    if seen.guessed:
        text = f"A list of guesses with the right answer in it passes for {tasks(seen.guessed)}."
        yield Remark(Level.WARN, "guesses-pass", text, "numeric_strict takes one answer.", tuple(seen.guessed))


def _judged(own: Sequence[Task], judge: Judge | None) -> Iterator[Remark]:
    counts = {side: sum(len(_list(task.scorer.args.get(side))) for task in own) for side in ("good", "bad")}
    short = [side for side, count in counts.items() if count < LEAST_EACH]
    if short:
        text = f"The judge of {tasks([task.id for task in own])} cannot be calibrated: too few known answers."
        hint = f"Give its tasks at least {LEAST_EACH} each of good and bad answers, in the scorer's args."
        yield Remark(Level.REFUSE, "judge-uncalibrated", text, hint)
    elif judge is None:
        asked = {side: min(MOST_EACH, count) for side, count in counts.items()}
        text = (
            f"{tasks([task.id for task in own])} need a judge. Before a run spends anything else it is asked about"
            f" {asked['good']} good and {asked['bad']} bad answers that are known, and has to be right on"
            f" {LEAST_RIGHT:.0%} of each side; else the run is refused."
        )
        yield Remark(Level.NOTE, "judge", text[0].upper() + text[1:])


def _pattern(task: Task) -> str:
    return str(task.scorer.args.get("pattern", task.expected))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
