"""How many usable tasks `evolvable evolve taskset from-sessions` finds in 100 labelled sessions,
and how precisely.

    python -m benchmarks.session_tasks [--json FILE]

The sessions are made (tests/support/session_cases.py), in the formats of Claude Code and Codex,
with their label: is a usable task in it? Every check is run for real, on the files before and after
the work. At the end stand two verdicts on 15 of the tasks, by the test of the narrower claim: of a
scripted executor that solves two in five tasks without a skill and four in five with it, and of one
that a skill does not change. Each solution is checked for real. Exit code 1: fewer than 20 usable
tasks, a precision under .8, a refused task set, or a wrong verdict.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from session_cases import WRITERS, SessionCase, labelled_cases
from transcripts import session_id

from evolvable_evolve.evolution.scorers.registry import TaskSetScorer, sample_list
from evolvable_evolve.evolution.statistics import DEFAULT_STAGES, decide_stage
from evolvable_evolve.evolution.statistics.narrow_claim import (
    NARROW_ALPHA,
    NARROW_REPEATS,
    permutation_result,
)
from evolvable_evolve.evolution.task import Task, TaskSet
from evolvable_evolve.evolution.tasks.diagnostics import check_taskset
from evolvable_evolve.evolution.tasks.reader import scorer_files
from evolvable_evolve.evolution.tasks.scorer_calibration import (
    IssueLevel,
    KnownAnswer,
    parse_known_answer,
    score_known_answer,
)
from evolvable_evolve.evolution.tasks.session_import import (
    SessionDraft,
    draft_from_sessions,
    try_checks,
)
from evolvable_evolve.evolution.tasks.similarity import count_effective
from evolvable_evolve.evolution.try_start import MIN_TASKS
from evolvable_tools.library import Library

MIN_USABLE, MIN_PRECISION = 20, 0.8
TASKS = 15
"""Tasks of a verdict."""

SETS = SESSIONS = 15
"""Drawn sets, and sessions in each."""

VERDICTS = {"lifted": "helps on these tasks", "the same": "cannot tell"}
"""What is said of a scripted executor that a skill lifts by 40 points, and of one that it does not
change.
"""


def figures(draft: SessionDraft, cases: list[SessionCase]) -> dict[str, Any]:
    """Return how many tasks were found, how many of them are usable, and which labels they miss."""
    by_id = {session_id(case.name): case for case in cases}
    found = [by_id[one.session] for one in draft.found]
    usable = sum(case.usable for case in found)
    wanted = sum(case.usable for case in cases)
    wrong = sorted(case.name for case in found if not case.usable)
    precision = round(usable / len(found), 3) if found else 0.0
    return {
        "found": len(found),
        "usable": usable,
        "of": wanted,
        "precision": precision,
        "wrong": wrong,
    }


async def solves(taskset: TaskSet, task: Task, solved: bool) -> float:
    """Return what the check says of a workspace in which an executor solved the task, or left it as
    it was.
    """
    answer = (
        parse_known_answer(sample_list(task.scorer.args["good"])[0], good=True)
        if solved
        else KnownAnswer("", {}, False)
    )
    return (
        await score_known_answer(taskset, task, answer, TaskSetScorer(files=scorer_files(taskset)))
    ).value


async def verdict(
    taskset: TaskSet, lifted: bool, known: dict[tuple[str, bool], float]
) -> dict[str, Any]:
    """Return the verdict on the first 15 tasks that a command checks. lifted: the skill helps the
    scripted executor.

    known: what checks said, by task and whether it was solved; a steady executor does the same each
    time.
    """
    tasks = [task for task in taskset.tasks if task.scorer.type == "command"][:TASKS]
    arms: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for place, task in enumerate(tasks):
        for arm, share in zip(arms, (2, 4 if lifted else 2), strict=True):
            done = task.id, place % 5 < share
            if done not in known:
                known[done] = await solves(taskset, task, done[1])
            arm[task.id] = [known[done]] * NARROW_REPEATS
    said = permutation_result(*arms, planned=NARROW_REPEATS * len(tasks))
    helps, harms = said.p <= NARROW_ALPHA / 2, said.p_worse <= NARROW_ALPHA / 2
    word = "helps on these tasks" if helps else "harms on these tasks" if harms else "cannot tell"
    counts = [sum(values[0] for values in arm.values()) for arm in arms]
    text = (
        f"with the skill {counts[1]:.0f} of {said.n}, without {counts[0]:.0f} of {said.n}: {word} "
        f"(p = {said.p:.2g})"
    )
    return {"verdict": word, "sentence": text, "label": "scripted"}


async def drawn_verdicts(
    draft: SessionDraft, cases: list[SessionCase], client: str
) -> dict[str, Any]:
    """Return what `try` says of 15 drawn sets of 15 sessions of a client, with a scripted executor
    of either kind.

    Without the skill it solves a task in two of five runs, and one that the skill lifts in four of
    five with it. Every solution is checked for real; the draws are by number.
    """
    mine = [session_id(case.name) for case in cases if case.client == client]
    tasks = {task.id: task for task in draft.taskset.tasks}
    by_session = {
        one.session: tasks[one.id] for one in draft.found if tasks[one.id].scorer.type == "command"
    }
    known: dict[tuple[str, bool], float] = {}
    said: dict[str, Counter[str]] = {"lifted": Counter(), "the same": Counter()}
    sizes = []
    for number in range(SETS):
        own = [
            by_session[one]
            for one in random.Random(number).sample(mine, SESSIONS)
            if one in by_session
        ]
        sizes.append(len(own))
        for kind, answers in said.items():
            answers[await _tried(draft.taskset, own, kind == "lifted", number, known)] += 1
    return {"tasks": sizes, **{kind: dict(answers) for kind, answers in said.items()}}


async def _tried(
    taskset: TaskSet,
    tasks: Sequence[Task],
    lifted: bool,
    number: int,
    known: dict[tuple[str, bool], float],
) -> str:
    """Return the answer of a trial, by the stages that `try` has."""
    if len(tasks) < MIN_TASKS:
        return "too few tasks"
    chance, arms = random.Random(f"{number} {lifted}"), ({}, {})
    for stage in range(1, DEFAULT_STAGES + 1):
        for task in tasks:
            for arm, share in zip(arms, (0.4, 0.8 if lifted else 0.4), strict=True):
                done = task.id, chance.random() < share
                if done not in known:
                    known[done] = await solves(taskset, task, done[1])
                arm.setdefault(task.id, []).append(known[done])
        decision = decide_stage(*arms, stage, DEFAULT_STAGES, len(tasks))
        if decision.answer is not None:
            return str(decision.answer)
    raise AssertionError("the last stage has an answer")


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cases = labelled_cases()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        paths = [case.write(home) for case in cases]
        with Library.open(home / "library", create=True) as library:
            began = time.perf_counter()
            draft = draft_from_sessions(library, paths)
            read = time.perf_counter() - began
            untried = figures(draft, cases)
            asyncio.run(try_checks(draft, TaskSetScorer()))
            tried = time.perf_counter() - began - read
            check = asyncio.run(check_taskset(draft.taskset))
            known: dict[tuple[str, bool], float] = {}
            drawn = {
                client: asyncio.run(drawn_verdicts(draft, cases, client)) for client in WRITERS
            }
            verdicts = {
                name: asyncio.run(verdict(draft.taskset, name == "lifted", known))
                for name in VERDICTS
            }
    said = {
        "sessions": len(cases),
        "before the checks are tried": untried,
        "after": figures(draft, cases),
        "refused": [one.text for one in check.remarks if one.level is IssueLevel.REFUSE],
        "seconds": {"reading": round(read, 1), "trying": round(tried, 1)},
        "effective n": [
            count_effective(task.group or task.id for task in draft.taskset.tasks),
            len(draft.found),
        ],
        "verdicts": verdicts,
        "15 drawn sets of 15 sessions": drawn,
        "left_out": dict(draft.left_out.most_common()),
    }
    print(json.dumps(said, indent=1))
    if given.json:
        given.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    after = said["after"]
    assert isinstance(after, dict)
    wrong = any(verdicts[name]["verdict"] != word for name, word in VERDICTS.items())
    return int(
        after["usable"] < MIN_USABLE
        or after["precision"] < MIN_PRECISION
        or not check.passes
        or wrong
    )


if __name__ == "__main__":
    sys.exit(main())
