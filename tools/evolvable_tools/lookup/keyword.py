"""The keyword stage: names and triggers that stand in the task, word for word.

Each two neighbouring words of the task are looked up among the beginnings of all names and triggers, so the cost
grows with the task and not with the library.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evolvable_store.index import Index, Phrase
from evolvable_store.resource import Kind
from evolvable_store.words import MAX_QUERY, words
from evolvable_tools.lookup.stage import Answer, Candidate, Query

SURE = 0.8
"""From this confidence on a keyword wins over any text."""

_SHORT_TASK = 12  # words
_LONG_TASK = 60
_QUOTED = re.compile(r'"([^"]{1,200})"|`([^`]{1,200})`|“([^”]{1,200})”|«([^»]{1,200})»|(?<!\w)\'([^\']{1,200})\'(?!\w)')
_REF = re.compile(rf"(?<![\w-])(?:{'|'.join(Kind)}):(?:[\w-]{{1,64}}/)?[\w-]{{1,64}}(?![\w-])")
_COMMAND = re.compile(r"\s*[/$]([\w-]{1,64})(?![\w-])")


@dataclass(frozen=True, slots=True)
class _Place:
    """A phrase found in the task, from word `start` up to `end`."""

    phrase: Phrase
    start: int
    end: int

    @property
    def is_own_name(self) -> bool:
        """Whether it is the resource's own name, and not only what its file calls itself."""
        return self.phrase.source == "name" and self.phrase.text == " ".join(words(self.phrase.entry.name))


@dataclass(frozen=True, slots=True)
class _Task:
    words: Sequence[str]
    quoted: frozenset[str]
    """What stands in quotes, as words between single spaces."""
    called: frozenset[str]
    """Every ref, and the name after a slash or a dollar at the start."""

    @classmethod
    def of(cls, task: str) -> "_Task":
        text = task[:MAX_QUERY].casefold()
        quotes = (" ".join(words(next(filter(None, match.groups())))) for match in _QUOTED.finditer(text))
        command = _COMMAND.match(text)
        called = {*_REF.findall(text), *([command[1]] if command else ())}
        return cls(words(text), frozenset(quotes), frozenset(called))


def keyword(index: Index, query: Query) -> Answer:
    """Returns the resources whose name or trigger stands in the task; the longest phrase of several wins."""
    task = _Task.of(query.task)
    heads = {*task.words, *(f"{first} {second}" for first, second in pairwise(task.words))}
    phrases = index.phrases(sorted(heads), kind=query.kind, scopes=query.scopes)
    places = _longest(list(_places(phrases, task.words)))
    best: dict[int, Candidate] = {}
    for place, claims in zip(places, _claims(places), strict=True):
        candidate = _candidate(place, task, claims)
        known = best.get(candidate.entry.id)
        if candidate.confidence > (known.confidence if known else 0):
            best[candidate.entry.id] = candidate
    candidates = sorted(best.values(), key=lambda c: (-c.confidence, c.entry.name))[: query.limit]
    if not candidates:
        return Answer((), "no name and no trigger stands in the task")
    return Answer(tuple(candidates), f"{candidates[0].entry.ref}: {candidates[0].why}")


def _places(phrases: Sequence[Phrase], task: Sequence[str]) -> Iterator[_Place]:
    """Yields every place in the task where one of the phrases stands."""
    starts: dict[str, list[int]] = {}
    for at, word in enumerate(task):
        starts.setdefault(word, []).append(at)
    for phrase in phrases:
        its = phrase.text.split(" ")
        for start in starts.get(its[0], ()):
            if list(task[start : start + len(its)]) == its:
                yield _Place(phrase, start, start + len(its))


def _claims(places: Sequence[_Place]) -> list[int]:
    """Returns for each place how many resources claim its phrase; what is called exactly so comes before the rest."""
    everybody: dict[str, set[int]] = {}
    namesakes: dict[str, set[int]] = {}
    for place in places:
        everybody.setdefault(place.phrase.text, set()).add(place.phrase.entry.id)
        if place.is_own_name:
            namesakes.setdefault(place.phrase.text, set()).add(place.phrase.entry.id)
    return [len((namesakes if place.is_own_name else everybody)[place.phrase.text]) for place in places]


def _longest(places: list[_Place]) -> list[_Place]:
    """Returns the places that do not lie inside a longer one."""
    kept: list[_Place] = []
    taken: dict[int, tuple[int, int]] = {}
    for place in sorted(places, key=lambda p: (p.start - p.end, p.start)):
        around = taken.get(place.start)
        whole = (place.start, place.end)
        if around is None or around == whole or place.end > around[1]:
            kept.append(place)
            for at in range(place.start, place.end):
                taken.setdefault(at, whole)
    return kept


def _candidate(place: _Place, task: _Task, claims: int) -> Candidate:
    entry = place.phrase.entry
    said = f'{place.phrase.source} "{entry.name if place.phrase.source == "name" else place.phrase.text}"'
    confidence, how = _confidence(place, task)
    # What several resources claim tells them apart less.
    confidence /= claims
    return Candidate(entry, confidence, f"{said} {how}", confidence >= SURE)


def _confidence(place: _Place, task: _Task) -> tuple[float, str]:
    """Returns how likely the phrase calls for its resource, and how it stands in the task.

    Of real tasks that call a skill by its name, 97 % meant it. A name that only stands there, even quoted, says little
    that the text stage does not know, and in a long task, which may have code in it, nothing. A trigger is the author's
    word; how much it counts is a guess, since the tasks that were measured are for skills without triggers.
    """
    length = place.end - place.start
    if length == len(task.words):
        return 1.0, "is the task"
    short = len(task.words) <= _SHORT_TASK
    if place.phrase.source == "name":
        if _is_called(place, task):
            return 0.97, "is called by name"
        if short and place.phrase.text in task.quoted:
            return 0.97, "stands quoted in the task"
        return (0.1 if length > 1 else 0.0), "stands in the task"
    if place.phrase.text in task.quoted and (short or length > 1):
        return 0.97, "stands quoted in the task"
    if length > 1:
        return (0.85 if len(task.words) <= _LONG_TASK else 0.4), "stands in the task"
    return (0.5 if short else 0.1), "stands in the task"


def _is_called(place: _Place, task: _Task) -> bool:
    """Returns whether the task names it as such: `skill:pdf`, `/pdf` or `$pdf` at its start, "the pdf skill"."""
    entry = place.phrase.entry
    name, kind = entry.name.casefold(), entry.kind.value
    after = task.words[place.end] if place.end < len(task.words) else ""
    return after == kind or bool(task.called & {name, f"{kind}:{name}", f"{kind}:{entry.scope}/{name}"})
