"""Finding: stages in a row, from the cheapest, and what they say together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from evolvable_store.errors import InvalidArgument
from evolvable_store.index import Entry, Index
from evolvable_store.resource import Kind, parse_kind
from evolvable_tools.lookup.keyword import keyword
from evolvable_tools.lookup.stage import Answer, Candidate, Query, Stage
from evolvable_tools.lookup.text import FITS, text

STAGES: Mapping[str, Stage] = {"keyword": keyword, "text": text}

MODES: Mapping[str, tuple[str, ...]] = {"auto": ("keyword", "text"), "keyword": ("keyword",), "text": ("text",)}
"""Which stages each mode runs, in order."""

MAX_LIMIT = 100

_AT_LEAST = 10  # that each stage is asked for, so that the order of the first few knows of the others


@dataclass(frozen=True, slots=True)
class Match:
    """One resource that may fit. `stage` found it; `confidence` is how likely it fits (0 to 1), `why` says from what.

    `resource` is its id in the library.
    """

    ref: str
    version: int
    name: str
    description: str
    stage: str
    confidence: float
    why: str
    resource: int


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage that ran, and what it said."""

    stage: str
    said: str


@dataclass(frozen=True, slots=True)
class Found:
    """Matches, best first. `none_fits`: the library holds nothing for this task; the matches are only the nearest."""

    matches: tuple[Match, ...]
    none_fits: bool
    stages: tuple[StageReport, ...]


def find(
    index: Index,
    task: str,
    *,
    kind: Kind | str = Kind.SKILL,
    scopes: Sequence[str] | None = None,
    limit: int = 5,
    mode: str = "auto",
) -> Found:
    """Returns the resources of one kind that fit a task, best first.

    scopes: those that are seen, nearest first; a resource hides those of its name further away. None: all.
    mode: a key of MODES. Raises InvalidArgument for an empty task, a limit out of 1 to MAX_LIMIT or another mode;
    InvalidRef for another kind.
    """
    _check(task, limit, mode)
    query = Query(task, parse_kind(kind), scopes, max(limit, _AT_LEAST))
    answers = {stage: STAGES[stage](index, query) for stage in MODES[mode]}
    matches = _merge(answers)
    fits = any(sure or match.confidence >= FITS for sure, match in matches)
    reports = tuple(StageReport(stage, answer.said) for stage, answer in answers.items())
    return Found(tuple(match for _, match in matches[:limit]), not fits, reports)


def _check(task: str, limit: int, mode: str) -> None:
    if not isinstance(task, str) or not task.strip():
        raise InvalidArgument("The task is empty.", "Say in a sentence what is to be done.")
    if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
        raise InvalidArgument(f"limit is {str(limit)[:40]!r}.", f"It may be a whole number from 1 to {MAX_LIMIT}.")
    if mode not in MODES:
        raise InvalidArgument(f"There is no mode {str(mode)[:40]!r}.", f"The modes are {', '.join(MODES)}.")


def _merge(answers: Mapping[str, Answer]) -> list[tuple[bool, Match]]:
    """Returns one match for each resource with whether a stage is sure of it, in the order of confidence.

    Stages are taken as independent witnesses: both are wrong only if each is. What one stage puts in an order stays in
    it where nothing else speaks.
    """
    merged: dict[int, tuple[Candidate, str]] = {}
    for stage in reversed(list(answers)):
        for candidate in answers[stage].candidates:
            known = merged.get(candidate.entry.id)
            merged[candidate.entry.id] = _joined(candidate, stage, *known) if known else (candidate, stage)
    ordered = sorted(merged.values(), key=lambda found: (not found[0].sure, -found[0].confidence))
    return [(candidate.sure, _match(candidate, stage)) for candidate, stage in ordered]


def _joined(one: Candidate, stage: str, other: Candidate, other_stage: str) -> tuple[Candidate, str]:
    confidence = 1 - (1 - one.confidence) * (1 - other.confidence)
    joined = replace(one, confidence=confidence, why=f"{one.why}; {other.why}", sure=one.sure or other.sure)
    return joined, stage if one.sure or one.confidence >= other.confidence else other_stage


def _match(candidate: Candidate, stage: str) -> Match:
    entry: Entry = candidate.entry
    confidence = round(candidate.confidence, 3)
    return Match(
        str(entry.ref), entry.version, entry.name, entry.description, stage, confidence, candidate.why, entry.id
    )
