"""The lookup of EvoAgent (arXiv 2604.20133), section 3.2, to the letter: for comparison, not the best we can do.

Triggers as substrings, then the cosine of task and description, then a model's choice. Each is asked only when those
before it found nothing. It is linear in the library, as there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind
from evolvable_store.search.analyzer import MAX_QUERY
from evolvable_store.search.index import Index, IndexEntry
from evolvable_tools.lookup.stage import Answer, Candidate, Query

NEAR = 0.6
"""The cosine from which on the nearest description answers."""

JUDGED = 0.7
"""The confidence in whatever the model chose."""

MOST_LISTED = 200
"""Resources put before the model; the paper's own list has no end."""

MOST_DESCRIPTION = 150
"""Characters of each description that are put before the model: with MOST_LISTED, a prompt of 50,000 or so."""

_PAGE = 1_000


class Nearest(Protocol):
    """What the embedder says of the descriptions alone: the best id and its cosine, None when there is none."""

    @property
    def best(self) -> tuple[int, float] | None: ...
    @property
    def said(self) -> str: ...
    @property
    def available(self) -> bool: ...


class Described(Protocol):
    """A task on its way through the embedder."""

    def described(self, kind: Kind, scopes: Sequence[str] | None) -> Nearest:
        """Returns the resource whose description has the highest cosine to the task; waits a bounded time."""
        ...


class Descriptions(Protocol):
    """The embedder as this lookup sees it."""

    def begin(self, task: str) -> Described:
        """Returns at once; never raises."""
        ...


Choose = Callable[[str, Sequence[IndexEntry]], tuple[IndexEntry | None, str]]
"""A model's choice for a task among all entries, and why; None when none fits. May raise an EvolvableError."""


def paper(
    index: Index, query: Query, neighbours: Descriptions | None = None, choose: Choose | None = None
) -> Mapping[str, Answer]:
    """Returns what each stage that was asked says, in order: "keyword", "embedding", "llm". Only the last may have a
    candidate, and never more than one.

    Iteration order is that of name, kind and scope. Of the task the first MAX_QUERY characters are read, as everywhere.
    Without an embedder or a model, or when one fails, its stage finds nothing and says why.
    """
    task = query.task[:MAX_QUERY]
    answers = {"keyword": _keyword(index, query, task.lower())}
    if not answers["keyword"].candidates:
        answers["embedding"] = _embedding(index, query, task, neighbours)
        if not answers["embedding"].candidates:
            answers["llm"] = _llm(index, query, task, choose)
    return answers


def _all(index: Index, query: Query) -> Iterator[IndexEntry]:
    """Yields every entry that is seen, page by page."""
    after = None
    while page := index.entries(kind=query.kind, scopes=query.scopes, limit=_PAGE, after=after):
        yield from page
        after = (page[-1].name, page[-1].kind.value, page[-1].scope)


def _keyword(index: Index, query: Query, task: str) -> Answer:
    for entry in _all(index, query):
        for trigger in entry.triggers:
            # An empty trigger would be part of every task.
            if trigger.strip() and trigger.lower() in task:
                return _one(entry, 1.0, f'trigger "{trigger}" is part of the task')
    return Answer((), "no trigger is part of the task")


def _embedding(index: Index, query: Query, task: str, neighbours: Descriptions | None) -> Answer:
    if neighbours is None:
        return Answer((), "skipped: no embedder is installed")
    nearest = neighbours.begin(task).described(query.kind, query.scopes)
    if not nearest.available:
        return Answer((), f"skipped: {nearest.said}")
    id_, cosine = nearest.best or (0, 0.0)
    if cosine <= 0:  # the paper's running best starts at 0
        return Answer((), f"no description has a cosine above 0 ({nearest.said})")
    if cosine < NEAR:
        return Answer((), f"the nearest description has cosine {cosine:.3f}, under {NEAR} ({nearest.said})")
    entry = next((entry for entry in _all(index, query) if entry.id == id_), None)
    if entry is None:
        return Answer((), "the nearest was removed meanwhile")
    return _one(entry, min(cosine, 1.0), f"cosine {cosine:.3f} between the task and its description")


def _llm(index: Index, query: Query, task: str, choose: Choose | None) -> Answer:
    if choose is None:
        return Answer((), "skipped: no model is configured")
    listed = list(islice(_all(index, query), MOST_LISTED + 1))
    whole = "" if len(listed) <= MOST_LISTED else f" (asked about the first {MOST_LISTED:,} of the library)"
    listed = listed[:MOST_LISTED]
    if not listed:
        return Answer((), "there is nothing to choose from")
    try:
        chosen, why = choose(task, listed)
    except EvolvableError as error:
        return Answer((), f"skipped: {error}")
    if chosen is None:
        return Answer((), f"none: {why}{whole}")
    entry = next((entry for entry in listed if entry.id == chosen.id), None)
    if entry is None:
        return Answer((), f"none: the answer is not in the list{whole}")
    return _one(entry, JUDGED, f"chosen by the model: {why}{whole}")


def _one(entry: IndexEntry, confidence: float, why: str) -> Answer:
    return Answer((Candidate(entry, confidence, why, sure=True),), f"{entry.ref}: {why}")
