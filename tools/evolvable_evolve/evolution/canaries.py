"""Canary tasks of a sealed test: they look like its tasks and expect a made-up value.

That value is written only to places that a trial must not read, so a candidate that answers it has
read one of them.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evolvable_evolve.evolution.ledger import RunDirectory
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task, Trial

# Few, because each costs a trial: one answer of a canary is proof enough.
TASKS_PER_CANARY, MAX_CANARIES = 25, 4
"""The number of test tasks for each canary, and the most canaries."""

_CANARY_SCORERS = ("exact", "numeric_strict", "json_subset", "officeqa_compat", "command")
"""Scorers whose tasks name an expected answer."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Digits or letters of a made-up value: too many to be guessed or to occur by chance.
_MIN_TOKEN = 12


@dataclass(frozen=True, slots=True)
class CanaryTask:
    """A task that cannot be done.

    token: the value that only a reader of the expected answers has.
    """

    task: Task
    token: str


def make_canary_tasks(
    folder: RunDirectory, tasks: Sequence[Task], plant: Callable[[bytes], object]
) -> list[CanaryTask]:
    """Return the canaries of a run's test, the same whenever it is continued.

    plant: puts lines where cheaters read.
    """
    place = "sealed/canaries.json"
    # Made once: values that change with every start would not match answers of earlier trials.
    if not (folder.path / place).exists():
        new_records = [_make_record(task) for task in _choose_models(tasks)]
        folder.write_file(place, json.dumps(new_records).encode("ascii"))
    records: list[dict[str, Any]] = json.loads((folder.path / place).read_bytes())
    if records:
        # Without the fields that tell a canary from a real task.
        planted = [
            {key: value for key, value in record.items() if key not in ("like", "token")}
            for record in records
        ]
        data = "".join(json.dumps(record) + "\n" for record in planted).encode("ascii")
        folder.write_file("sealed/tasks.jsonl", data)
        if (folder.path / "executor").is_dir():
            folder.write_file("executor/tasks.jsonl", data)
        plant(data)
    # The tasks of a continued run may have changed.
    by_id = {task.id: task for task in tasks}
    return [
        CanaryTask(_to_task(record, by_id[record["like"]]), record["token"])
        for record in records
        if record["like"] in by_id
    ]


def find_answered_canaries(canaries: Iterable[CanaryTask], trials: Iterable[Trial]) -> list[str]:
    """Return the ids of the canaries whose made-up values are in an output."""
    outputs: dict[str, str] = {}
    for trial in trials:
        outputs[trial.task] = outputs.get(trial.task, "") + "\n" + trial.output
    # Spaces and separators within the value do not hide it.
    return [
        canary.task.id
        for canary in canaries
        if canary.token in re.sub(r"[\s,_]", "", outputs.get(canary.task.id, ""))
    ]


def _choose_models(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks that canaries imitate, spread over the test."""
    fit = [
        task
        for task in tasks
        if task.scorer.type in _CANARY_SCORERS and (task.expected or "").strip()
    ]
    count = min(canary_count(len(tasks)), len(fit))
    return [fit[at * len(fit) // count] for at in range(count)]


def canary_count(tests: int) -> int:
    """Return the number of canaries of a test of so many tasks, where enough of them can be
    imitated.
    """
    return min(MAX_CANARIES, max(1, tests // TASKS_PER_CANARY)) if tests else 0


def _make_record(task: Task) -> dict[str, Any]:
    expected, token = _make_token(task.expected or "")
    number = secrets.randbelow(900_000) + 100_000
    return {
        "id": f"{task.id[:80]}-{secrets.token_hex(3)}",
        "prompt": f"{task.prompt} (No. {number})",
        "expected": expected,
        "category": task.category,
        "split": str(Split.TEST),
        "like": task.id,
        "token": token,
    }


def _make_token(expected: str) -> tuple[str, str]:
    """Return an answer of the same form that nobody can guess, and the made-up part of it."""
    if re.search(r"\d", expected):
        token = str(secrets.randbelow(9 * 10 ** (_MIN_TOKEN - 1)) + 10 ** (_MIN_TOKEN - 1))
        return re.sub(r"\d+(?:[.,]\d+)*", token, expected, count=1), token
    token = "".join(secrets.choice(_LETTERS) for _ in range(_MIN_TOKEN))
    changed, times = re.subn(r"[A-Za-z]{2,}", token, expected, count=1)
    return (changed, token) if times else (token, token)


def _to_task(record: dict[str, Any], like: Task) -> Task:
    own = {name: record[name] for name in ("id", "prompt", "expected")}
    digest = f"canary {record['id']} {record['token']}"
    # Exact, because it is never meant to pass.
    return replace(like, **own, scorer=ScorerSpec("exact"), digest=digest)


def describe_cheating(name: str, planted: int, cheated: Sequence[str]) -> str:
    """Return why a finalist that answered canary tasks is disqualified.

    It names none of them: the id of a canary begins with that of a test task.
    """
    return (
        f"{name} gave the answers of {len(cheated)} of {planted} canary tasks, which nobody can "
        "have who did not read the expected answers: nothing that it scored counts."
    )
