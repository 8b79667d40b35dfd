"""What became of each resource in the trials: how often it was read, and what a trial that read it took."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Outcome
from evolvable_tools.evolve.run_state import Record


@dataclass(frozen=True)
class Resource:
    """One resource under one candidate. trials: those that counted with it installed. read: the share that read it.

    score_read, score_unread: mean scores of those that did and did not; tokens_read: a trial's, where any were told.
    bytes: of all its files.
    """

    ref: str
    candidate: str
    bytes: int
    trials: int
    read: float
    score_read: float | None
    score_unread: float | None
    tokens_read: float | None


def resources(records: Iterable[Record], programs: Mapping[str, Program], names: Mapping[str, str]) -> list[Resource]:
    """Returns every resource of every candidate that was run, in the order of the candidates."""
    trials: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record["type"] == "trial" and Outcome(record["trial"]["outcome"]).counts:
            trials[record["trial"]["program"]].append(record["trial"])
    found = []
    for digest, program in programs.items():
        for part in program.parts:
            its = trials[digest]
            if its:
                size = sum(len(data) for data in part.files.values())
                found.append(_resource(part.ref, names.get(digest, digest[:12]), size, its))
    return found


def _resource(ref: str, candidate: str, size: int, trials: list[Record]) -> Resource:
    read = [trial for trial in trials if ref in trial["read"]]
    unread = [trial for trial in trials if ref not in trial["read"]]
    tokens = [trial["usage"]["input_tokens"] + trial["usage"]["output_tokens"] for trial in read]
    return Resource(
        ref,
        candidate,
        size,
        len(trials),
        len(read) / len(trials),
        _mean([trial["score"] for trial in read if trial["score"] is not None]),
        _mean([trial["score"] for trial in unread if trial["score"] is not None]),
        _mean([float(number) for number in tokens]) if any(tokens) else None,
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
