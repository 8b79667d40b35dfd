"""The keyword stage: names and triggers that occur in the task, word for word.

The index looks up each two neighbouring words among the beginnings of all names and triggers. The
cost grows with the task and not with the library, and both the words read and the phrases found are
bounded.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evolvable_store.resource import Kind
from evolvable_store.search import MAX_QUERY, Match, TriggerPhrase, terms, tokenize
from evolvable_tools.retrieval.search_types import StageResult

SURE = 0.8
"""From this confidence on, a keyword ranks before any text match."""

MOST_WORDS = 256
"""Words of a task that are searched for phrases. Quotes and refs count in the whole text."""

LONGEST_PHRASE = 32
"""Words of a name or trigger, pairs of characters in Han, Kana and Hangul; longer phrases never
match.
"""

_READ = 12 * MOST_WORDS  # characters that hold so many words of any but the longest kind
# In a short task a quoted name is a call. A long one may contain code, where names and single words
# occur by chance.
_SHORT_TASK = 12  # words
_LONG_TASK = 60  # words
# Bounds the work for a word that a task repeats.
_MOST_PLACES = 16  # of one phrase
_OPEN = "«“"  # no quote goes on over a second opening mark: reading stays linear
# At most 200 characters, so that a mark without its partner costs bounded time. An apostrophe
# within a word opens no quote.
_QUOTED = re.compile(
    rf'"([^"]{{1,200}})"|`([^`]{{1,200}})`|“([^”{_OPEN}]{{1,200}})”|«([^»{_OPEN}]{{1,200}})»'
    r"|(?<!\w)'([^']{1,200})'(?!\w)"
)
# `kind:name` or `kind:scope/name`; names have at most 64 characters.
_REF = re.compile(rf"(?<![\w-])(?:{'|'.join(Kind)}):(?:[\w-]{{1,64}}/)?[\w-]{{1,64}}(?![\w-])")
_KINDS = frozenset(kind.value for kind in Kind)
# How clients call a skill: `/name` in Claude Code, `$name` in Codex.
_COMMAND = re.compile(r"\s*[/$]([\w-]{1,64})(?![\w-])")


@dataclass(frozen=True, slots=True)
class _Place:
    """A phrase found in the task, from word `start` up to `end`."""

    phrase: TriggerPhrase
    start: int
    end: int
    exact: bool
    """Whether each word occurs as it is written, and not in another form."""

    @property
    def is_own_name(self) -> bool:
        """Whether it is the resource's own name, and not only the name in its file."""
        return self.phrase.source == "name" and self.phrase.text == " ".join(
            tokenize(self.phrase.entry.name)
        )


@dataclass(frozen=True, slots=True)
class TaskWords:
    """The words of a task, its quotes, and the resources that it names."""

    words: Sequence[str]
    """The first MOST_WORDS."""
    quoted: frozenset[str]
    """The quoted texts, as words between single spaces."""
    called: frozenset[str]
    """Every ref, and the name after a slash or a dollar at the start."""

    @classmethod
    def of(cls, task: str) -> "TaskWords":
        """Return the words of this text."""
        text = task[:MAX_QUERY].casefold()
        quotes = (
            " ".join(tokenize(next(filter(None, match.groups()))))
            for match in _QUOTED.finditer(text)
        )
        command = _COMMAND.match(text)
        called = {*_REF.findall(text), *([command[1]] if command else ())}
        words = tokenize(text[:_READ])[:MOST_WORDS]
        return cls(words, frozenset(quotes), frozenset(called))

    @property
    def names(self) -> set[str]:
        """The words that may be a name by themselves: quoted, alone, called, or
        followed by a kind.
        """
        before_kinds = {word for word, after in pairwise(self.words) if after in _KINDS}
        quoted = {text for text in self.quoted if " " not in text}
        alone = self.words if len(self.words) == 1 else ()
        return before_kinds.union(quoted, alone, *map(tokenize, self.called))


def match_exact(task: TaskWords, phrases: Collection[TriggerPhrase], limit: int) -> StageResult:
    """Return the resources whose name or trigger is in the task; the longest of several phrases
    comes first.

    phrases: those of the index whose words are side by side in the task.
    """
    places = _keep_longest(list(_find_places(phrases, task.words)), task)
    best: dict[int, Match] = {}
    for place, claims in zip(places, _count_claims(places), strict=True):
        candidate = _make_match(place, task, claims)
        earlier = best.get(candidate.entry.id)
        # A name of one word that only occurs has the confidence 0 and is no match.
        if candidate.confidence > (earlier.confidence if earlier else 0):
            best[candidate.entry.id] = candidate
    ordered = sorted(best.values(), key=lambda match: (-match.confidence, match.entry.name))
    candidates = tuple(ordered[:limit])
    if not candidates:
        return StageResult((), "no name and no trigger stands in the task")
    return StageResult(candidates, f"{candidates[0].entry.ref}: {candidates[0].why}")


def _find_places(phrases: Collection[TriggerPhrase], task: Sequence[str]) -> Iterator[_Place]:
    """Yield the places of the phrases in the task. A name has to match exactly as it is written."""
    if not phrases:
        return
    task_terms = terms(task)
    runs: dict[int, dict[str, list[int]]] = {}
    for phrase in phrases:
        phrase_words = phrase.text.split(" ")
        length = len(phrase_words)
        if length > min(LONGEST_PHRASE, len(task)):
            continue
        # The runs of a length are made once, for all phrases of that length.
        starts = runs.get(length) or runs.setdefault(length, _find_runs(task_terms, length))
        for start in starts.get(" ".join(terms(phrase_words)), ())[:_MOST_PLACES]:
            exact = list(task[start : start + length]) == phrase_words
            if exact or phrase.source != "name":
                yield _Place(phrase, start, start + length, exact)


def _find_runs(task_terms: Sequence[str], length: int) -> dict[str, list[int]]:
    """Return every run of that many words, and where in the task it begins."""
    starts: dict[str, list[int]] = {}
    for at in range(len(task_terms) - length + 1):
        run = " ".join(task_terms[at : at + length])
        starts.setdefault(run, []).append(at)
    return starts


def _count_claims(places: Sequence[_Place]) -> list[int]:
    """Return for each place how many resources claim its phrase; resources of exactly that name
    take precedence.
    """
    claimants: dict[str, set[int]] = {}
    namesakes: dict[str, set[int]] = {}
    for place in places:
        claimants.setdefault(place.phrase.text, set()).add(place.phrase.entry.id)
        if place.is_own_name:
            namesakes.setdefault(place.phrase.text, set()).add(place.phrase.entry.id)
    return [
        len((namesakes if place.is_own_name else claimants)[place.phrase.text]) for place in places
    ]


def _keep_longest(places: list[_Place], task: TaskWords) -> list[_Place]:
    """Return the places that do not lie inside a longer one.

    A name that is not called hides no trigger.
    """
    chosen: list[_Place] = []
    reach: dict[int, int] = {}
    spans: set[tuple[int, int]] = set()
    # The longest first, so that what covers a place is known before what lies inside of it.
    for place in sorted(places, key=lambda place: (place.start - place.end, place.start)):
        span = (place.start, place.end)
        # Phrases of the same span stay together: several resources may claim the same words.
        if span not in spans and reach.get(place.start, 0) >= place.end:
            continue
        chosen.append(place)
        hides = place.phrase.source != "name" or _judge_place(place, task)[0] >= SURE
        if span not in spans and hides:
            spans.add(span)
            for at in range(*span):
                reach[at] = max(reach.get(at, 0), place.end)
    return chosen


def _make_match(place: _Place, task: TaskWords, claims: int) -> Match:
    entry, source = place.phrase.entry, place.phrase.source
    text = entry.name if source == "name" else place.phrase.text
    confidence, how = _judge_place(place, task)
    # A phrase of several resources distinguishes them less.
    confidence /= claims
    why = f'{source} "{text}" {how}'
    return Match(entry, confidence=confidence, why=why, sure=confidence >= SURE)


def _judge_place(place: _Place, task: TaskWords) -> tuple[float, str]:
    """Return how likely the phrase calls for its resource, and how it occurs in the task.

    Of real tasks that call a skill by its name, 97 % meant it. A name that only occurs, even
    quoted, adds little to the text stage. In a long task, which may contain code, it adds nothing.
    The weight of a trigger is an estimate: the measured tasks are for skills without triggers.
    """
    length = place.end - place.start
    is_short, is_long = len(task.words) <= _SHORT_TASK, len(task.words) > _LONG_TASK
    is_quoted = place.phrase.text in task.quoted
    if not place.exact:
        how = "stands in the task in other forms"
        if is_long:
            return 0.1, how
        # Another form of the words is weaker evidence, and a single word in another form only a
        # hint.
        return (_weigh_trigger(length) - 0.04 if length > 1 else 0.4), how
    if length == len(task.words):
        return 1.0, "is the task"
    if place.phrase.source == "name":
        if _is_called(place, task):
            return 0.97, "is called by name"
        if is_short and is_quoted:
            return 0.97, "stands quoted in the task"
        return (0.1 if length > 1 else 0.0), "stands in the task"
    # One quoted word of a long task may be part of code.
    if is_quoted and (length > 1 or not is_long):
        return 0.97, "stands quoted in the task"
    if length > 1:
        return (0.4 if is_long else _weigh_trigger(length)), "stands in the task"
    return (0.5 if is_short else 0.1), "stands in the task"


def _weigh_trigger(length: int) -> float:
    """Return the confidence of a trigger of several words: longer ones rank higher."""
    # From .85 for two words to .93 for six: always above SURE, and below a name that is called.
    return 0.85 + 0.02 * min(length - 2, 4)


def _is_called(place: _Place, task: TaskWords) -> bool:
    """Return whether the task names it as such: `skill:pdf`, `/pdf` or `$pdf` at its start, "the
    pdf skill".
    """
    entry = place.phrase.entry
    name, kind = entry.name.casefold(), entry.kind.value
    after = task.words[place.end] if place.end < len(task.words) else ""
    calls = {name, f"{kind}:{name}", f"{kind}:{entry.scope}/{name}"}
    return after == kind or not calls.isdisjoint(task.called)
