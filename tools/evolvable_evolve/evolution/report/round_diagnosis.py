"""Findings of an optimizer on the trials of a round: critiques by variable, or signals by task."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolvable_evolve.evolution.ledger import LedgerRecord, RunDirectory, RunState, mean


@dataclass(frozen=True)
class RoundDiagnosis:
    """The diagnosis of one iteration.

    said: its summary. lines: shown below it. details: texts of models or numbers, which the page
    unfolds.
    """

    iteration: int
    said: str
    lines: list[str]
    details: list[str]


def collect_diagnosis(folder: RunDirectory, state: RunState) -> list[RoundDiagnosis]:
    """Return the diagnoses of a run, oldest first; none for an optimizer that records none."""
    rounds: dict[int, list[LedgerRecord]] = {}
    for record in state.gradients:
        rounds.setdefault(record["iteration"], []).append(record)
    # Gradients and signals are of different optimizers, so one of the two lists is empty.
    return [
        *(_describe_critiques(folder, number, records) for number, records in rounds.items()),
        *map(_describe_signals, state.signals),
    ]


def _describe_critiques(
    folder: RunDirectory, number: int, records: Sequence[LedgerRecord]
) -> RoundDiagnosis:
    changes = sum(bool(record["change"]) for record in records)
    summary = f"{len(records)} trials criticised, {changes} asked for a change"
    # A dropped critique was never used.
    if dropped := sum(bool(record["dropped"]) for record in records):
        summary += f", {dropped} dropped as they repeat words of tasks"
    counts = Counter(name for record in records for name in record["to"])
    lines = [
        f"{name}: {count} critique{'s' if count > 1 else ''}" for name, count in counts.items()
    ]
    texts = {
        record["task"]: folder.read_json(record["artifact"])
        for record in records
        if record["artifact"]
    }
    details = [f"{task}: {text}" for task, text in texts.items()]
    return RoundDiagnosis(number, summary, lines, details)


def _describe_signals(record: LedgerRecord) -> RoundDiagnosis:
    rollouts = [rollout for group in record["groups"] for rollout in _list_rollouts(group)]
    contrasts = record["contrasts"]
    text = (
        f"{len(record['groups'])} tasks, {len(rollouts)} rollouts, {contrasts} with a pass "
        "beside a failure"
    )
    for name, words in (
        ("reward", "reward"),
        ("ratio", "similarity to the answer before"),
        ("objective", "objective"),
    ):
        average = mean(rollout[name] for rollout in rollouts)
        if average is not None:
            text += f"{';' if name == 'reward' else ','} mean {words} {average:.2f}"
    details = [
        f"{rollout['task']}: reward {rollout['reward']:.2f}, advantage "
        f"{rollout['advantage']:+.2f}, similarity {rollout['ratio']:.2f}, objective "
        f"{rollout['objective']:+.2f}"
        for rollout in rollouts
    ]
    return RoundDiagnosis(record["iteration"], text, [], details)


def _list_rollouts(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rollouts of one task, each with its signals."""
    # Reinforce++ records one answer for each task, GRPO lists.
    if "rewards" not in group:
        return [group]
    names = {
        "reward": "rewards",
        "advantage": "advantages",
        "ratio": "ratios",
        "objective": "objectives",
    }
    columns = [group[plural] for plural in names.values()]
    return [
        {"task": group["task"], **dict(zip(names, row, strict=True))}
        for row in zip(*columns, strict=True)
    ]
