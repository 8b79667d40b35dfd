"""Near duplicates: two resources that answer the same questions, so that no task can distinguish
them.
"""

import bisect
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_

from evolvable_store.resource import USER_SCOPE
from evolvable_store.search import FUNCTION_WORDS, Index, IndexEntry, Match, tokenize

ALIKE = 0.68
"""Likeness from which two resources are reported.

Chosen on 10,000 real skills by reading the reports: nine pairs of ten are copies or paraphrases.
Two of one family that do different things mostly lie under 0.6.
"""

EACH = 50
"""Resources up to which each is searched for.

Of more, only those that share enough words with another are.
"""

MOST_SEARCHED = 2_000
"""Resources searched for in one call.

Each costs a search, and up to two more with a likely duplicate.
"""

_OVERLAP = 0.45
"""Weight of the shared words, as a share of the heavier text's, from which a resource of many is
searched for.

Of 10,000 real skills 231 pairs are reported when each is searched for; all 231 share .457 or more.
"""

_UNITS = 31  # of the heaviest word's weight, in which shared words are added up
# Holders of a word up to which they are stored as a list, which takes less room than a bitmap.
_RARE = 32
# A weight of exactly n units must not become n + 1 by a rounding error.
_ROUNDING = 1e-9

# Matches of each search that are looked at. Each of them has to be explained, which costs as much
# as the search.
_NEIGHBOURS = 20
_CHECKED = 2  # neighbours of each whose own words are asked as well
_LIKELY = 0.5  # likeness one way from which the other way is looked at
# Share of its name that the other must say of itself: without, they only share a form letter.
_NAMED = 0.3
# Likeness from which two of one family are reported, each of which has a word of its own in its
# name.
_SIBLINGS = 0.85
_SHOWN = 4  # shared words that a hint names
_OF_ITSELF = frozenset({"name", "description", "triggers"})
# Shorter quotes are symbols, longer ones sentences.
_QUOTED = re.compile(r'"([^"\n]{3,80})"|“([^”“\n]{3,80})”|`([^`\n]{3,80})`')


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """Two refs that answer the same questions, the newcomer first.

    `shared`: triggers and quoted phrases that both claim, else the words that weigh most.
    `likeness`: 0 to 1.
    """

    newcomer: str
    other: str
    shared: tuple[str, ...]
    likeness: float

    @property
    def line(self) -> str:
        """One line for a person."""
        likeness = f"{self.likeness:.0%} alike: {_list_shared(self)}"
        return f"{self.newcomer} and {self.other} answer the same questions ({likeness})"


@dataclass(frozen=True, slots=True)
class NearDuplicateReport:
    """Pairs, the most alike first, and one line: how many there are, and how many resources were
    not compared.
    """

    pairs: tuple[NearDuplicate, ...]
    summary: str


SeenScopes = Callable[[str], Sequence[str]]
"""Returns the scopes that are read together with one scope, itself first."""


def own_and_user(scope: str) -> Sequence[str]:
    """Return a scope, and the user's behind it."""
    return tuple(dict.fromkeys((scope, USER_SCOPE)))


def find_near_duplicates(
    index: Index,
    newcomers: Sequence[IndexEntry],
    *,
    seen: SeenScopes = own_and_user,
    limit: int = 10,
    others: Sequence[IndexEntry] = (),
    progress: Callable[[int, int], None] | None = None,
) -> NearDuplicateReport:
    """Return the `limit` most alike pairs of these resources and others that are visible beside
    them.

    The name, description and triggers of each are a query. Another resource that scores nearly as
    high as the resource itself, and the reverse, answers the same questions. So does one with the
    same trigger. Only the same kind counts, in the scopes that are `seen` together with the
    resource's own. others: the other entries of the library, which more than EACH newcomers are
    compared with before any is searched for. progress: called with the resources compared, and all
    of them, then with those searched for.
    """
    searches: dict[int, dict[int, Match]] = {}
    by_refs: dict[frozenset[str], NearDuplicate] = {}
    around = cache(seen)
    likely = (
        newcomers
        if len(newcomers) <= EACH
        else _find_overlapping(newcomers, others, around, progress)
    )
    for entry in _with_progress(likely[:MOST_SEARCHED], progress):
        # A pair is by_refs from both of its sides, and reported once.
        for pair in _find_pairs(index, entry, around(entry.scope), searches):
            by_refs.setdefault(frozenset((pair.newcomer, pair.other)), pair)
    ordered = sorted(by_refs.values(), key=lambda pair: (-pair.likeness, pair.newcomer, pair.other))
    pairs = tuple(ordered[:limit])
    summary = _summarize(len(by_refs), len(pairs), len(likely) - MOST_SEARCHED)
    return NearDuplicateReport(pairs, summary)


def _with_progress(
    entries: Sequence[IndexEntry], progress: Callable[[int, int], None] | None
) -> Iterator[IndexEntry]:
    """Yield the entries; before each, report how many were yielded."""
    for number, entry in enumerate(entries):
        if progress is not None:
            progress(number, len(entries))
        yield entry


def _find_overlapping(
    newcomers: Sequence[IndexEntry],
    others: Sequence[IndexEntry],
    seen: SeenScopes,
    progress: Callable[[int, int], None] | None,
) -> list[IndexEntry]:
    """Return the newcomers that share a trigger, or enough of their words by weight, with another
    visible resource.
    """
    entries_by_id = {entry.id: entry for entry in (*newcomers, *others)}
    claims = Counter(
        (entry.kind, " ".join(tokenize(text)))
        for entry in entries_by_id.values()
        for text in entry.triggers
    )
    shared = _SharedWords(list(entries_by_id.values()))
    return [
        entry
        for entry in _with_progress(newcomers, progress)
        if any(claims[entry.kind, " ".join(tokenize(text))] > 1 for text in entry.triggers)
        or shared.overlaps(entry, seen(entry.scope))
    ]


class _SharedWords:
    """The words of many entries as bitmaps, one bit for each entry, in order of their weight.

    The weight that one entry shares with every other one is added up at once. A sum is kept in bit
    planes, as a counter in hardware is (bit-sliced arithmetic). Without them each entry would be
    compared with every other one, word by word.
    """

    def __init__(self, entries: Sequence[IndexEntry]) -> None:
        words = {entry.id: frozenset(tokenize(_make_query(entry))) for entry in entries}
        count = Counter(word for text in words.values() for word in text)
        self._weight = {word: math.log(1 + len(entries) / number) for word, number in count.items()}
        mass = {id_: sum(self._weight[word] for word in text) for id_, text in words.items()}
        self._entries = sorted(entries, key=lambda entry: mass[entry.id])
        self._masses = [mass[entry.id] for entry in self._entries]
        self._words = [words[entry.id] for entry in self._entries]
        self._place = {entry.id: place for place, entry in enumerate(self._entries)}
        self._unit = max(self._weight.values(), default=1.0) / _UNITS
        holders: dict[str, list[int]] = defaultdict(list)
        of_kind: dict[object, list[int]] = defaultdict(list)
        of_scope: dict[str, list[int]] = defaultdict(list)
        for place, entry in enumerate(self._entries):
            of_kind[entry.kind].append(place)
            of_scope[entry.scope].append(place)
            for word in self._words[place]:
                holders[word].append(place)
        self._rare = {word: places for word, places in holders.items() if 1 < len(places) <= _RARE}
        self._common = {
            word: _make_bitmap(places) for word, places in holders.items() if len(places) > _RARE
        }
        self._of_kind = {kind: _make_bitmap(places) for kind, places in of_kind.items()}
        self._of_scope = {scope: _make_bitmap(places) for scope, places in of_scope.items()}

    def overlaps(self, entry: IndexEntry, scopes: Sequence[str]) -> bool:
        """Return whether an entry of these scopes shares enough of the heavier one's words by
        weight.
        """
        place = self._place[entry.id]
        mass, text = self._masses[place], self._words[place]
        if not text:
            return False
        # An entry lighter or heavier than by the factor _OVERLAP cannot share enough: the share is
        # of the heavier text.
        lightest = bisect.bisect_left(self._masses, _OVERLAP * mass)
        heaviest = bisect.bisect_right(self._masses, mass / _OVERLAP)
        in_scopes = reduce(or_, (self._of_scope.get(scope, 0) for scope in scopes), 0)
        beside = self._of_kind[entry.kind] & in_scopes
        # Entries are in order of their mass, so those in between are one run of bits.
        beside &= (1 << heaviest) - (1 << lightest)
        beside &= ~(1 << place)
        sharing = self._find_sharing(text, _OVERLAP * mass) & beside
        # The bitmap has a few that share a little less, because units are rounded up. So each is
        # weighed exactly.
        return any(self._shares_enough(place, other) for other in _list_places(sharing))

    def _find_sharing(self, text: Set[str], least: float) -> int:
        """Return which entries share words of this weight, and a few that share a little less.

        A weight counts in whole units, rounded up, so that none is left out.
        """
        planes = [0] * (_UNITS * len(text)).bit_length()
        for word in text:
            holders = self._common.get(word) or _make_bitmap(self._rare.get(word, ()))
            units = math.ceil(self._weight[word] / self._unit - _ROUNDING)
            for low in range(units.bit_length()):
                carry, at = holders if units >> low & 1 else 0, low
                while carry:
                    planes[at], carry = planes[at] ^ carry, planes[at] & carry
                    at += 1
        return _find_at_least(planes, math.ceil(least / self._unit - _ROUNDING))

    def _shares_enough(self, first: int, second: int) -> bool:
        shared = sum(self._weight[word] for word in self._words[first] & self._words[second])
        return shared >= _OVERLAP * max(self._masses[first], self._masses[second])


def _make_bitmap(places: Sequence[int]) -> int:
    if not places:
        return 0
    # Setting bits of an int one by one would copy it each time.
    data = bytearray(max(places) // 8 + 1)
    for place in places:
        data[place // 8] |= 1 << place % 8
    return int.from_bytes(data, "little")


def _list_places(bitmap: int) -> Iterator[int]:
    while bitmap:
        # Of a number and its negative only the lowest bit that is set is the same.
        lowest = bitmap & -bitmap
        yield lowest.bit_length() - 1
        bitmap ^= lowest


def _find_at_least(planes: Sequence[int], number: int) -> int:
    """Return which sums are not less than a number. planes: of the sums, the lowest bit first."""
    # From the highest bit down: `more` are sums already above the number, `same` those still equal
    # to it.
    more, same = 0, -1
    for at in reversed(range(max(len(planes), number.bit_length()))):
        plane = planes[at] if at < len(planes) else 0
        if number >> at & 1:
            same &= plane
        else:
            more |= same & plane
            same &= ~plane
    return more | same


def _summarize(pair_count: int, listed: int, left: int) -> str:
    answers = "pair answers" if pair_count == 1 else "pairs answer"
    parts = [f"{pair_count} {answers} the same questions" if pair_count else "none found"]
    if listed < pair_count:
        parts.append(f"the {listed} most alike are listed")
    if left > 0:
        parts.append(f"{left:,} more share most of their words with another and were not compared")
    return "; ".join(parts)


def _find_pairs(
    index: Index, entry: IndexEntry, scopes: Sequence[str], searches: dict[int, dict[int, Match]]
) -> Iterator[NearDuplicate]:
    """Yield the near duplicates of one resource.

    `searches`: earlier searches of this call, by resource.
    """
    matches = _search_once(index, entry, scopes, searches)
    own = matches.get(entry.id)
    claimed = _find_claimants(index, entry, scopes)
    for other in _choose_checked(entry, own, matches.values()) if own else ():
        back = _search_once(index, other.entry, scopes, searches)
        # Both ways, because a long text answers the questions of a short one that does not answer
        # its own.
        there = _measure_share(other, own)
        likeness = (there + _measure_share(back.get(entry.id), back.get(other.entry.id))) / 2
        # Removed from `claimed`, so that the loop below does not yield it again.
        _, triggers = claimed.pop(other.entry.id, (other.entry, set[str]()))
        siblings = _are_siblings(entry, other, back.get(entry.id))
        if likeness >= (_SIBLINGS if siblings else ALIKE) or triggers:
            yield _make_pair(entry, other.entry, triggers, other, likeness)
    # A shared trigger alone is confusable, however different the texts are.
    for other_entry, triggers in list(claimed.values())[:_CHECKED]:
        match = matches.get(other_entry.id)
        yield _make_pair(entry, other_entry, triggers, match, _measure_share(match, own))


def _choose_checked(entry: IndexEntry, own: Match, matches: Iterable[Match]) -> list[Match]:
    """Return the neighbours whose own words are asked as well, the likeliest first.

    own: the match of the resource itself.
    """
    others = (match for match in matches if match.entry.id != entry.id)
    likely = (match for match in others if _measure_share(match, own) >= _LIKELY)
    named = (match for match in likely if _measure_named_share(entry, own, match) >= _NAMED)
    return list(itertools.islice(named, _CHECKED))


def _search_once(
    index: Index, entry: IndexEntry, scopes: Sequence[str], searches: dict[int, dict[int, Match]]
) -> dict[int, Match]:
    """Return the matches of a resource's own text. A search is the cost here, so none is repeated
    in a call.
    """
    if not searches.get(entry.id):
        searches[entry.id] = _search(index, entry, scopes)
    return searches[entry.id]


def _search(index: Index, entry: IndexEntry, scopes: Sequence[str]) -> dict[int, Match]:
    ranking = index.search(_make_query(entry), kind=entry.kind, scopes=scopes, limit=_NEIGHBOURS)
    ranking.explain(ranking.scored)
    return {scored.entry.id: scored for scored in ranking.scored}


def _make_query(entry: IndexEntry) -> str:
    return "\n".join((entry.name, entry.description, *entry.triggers))


def _measure_share(other: Match | None, own: Match | None) -> float:
    """Return the other's score as a share of the resource's own on the same words, 0 to 1."""
    return min(1.0, other.score / own.score) if other and own and own.score > 0 else 0.0


def _measure_named_share(entry: IndexEntry, own: Match, other: Match) -> float:
    """Return the share of the name's weight in the other's own words, 0 to 1."""
    name = _name_words(entry)
    weights: dict[str, float] = defaultdict(float)
    for part in own.parts:
        if part.word in name:
            weights[part.word] += part.score
    own_words = _list_own_words(other)
    shared = sum(weight for word, weight in weights.items() if word in own_words)
    return shared / (sum(weights.values()) or 1.0)


def _are_siblings(entry: IndexEntry, other: Match, back: Match | None) -> bool:
    """Return whether the names have a word in common, and each has one that the other's own words
    lack.
    """
    ours, theirs = _name_words(entry), _name_words(other.entry)
    return bool(
        ours & theirs and ours - _list_own_words(other) and back and theirs - _list_own_words(back)
    )


def _name_words(entry: IndexEntry) -> set[str]:
    # The number of a copy, as in `slides-2`, says nothing of its own.
    return {word for word in tokenize(entry.name) if not word.isdigit()} - FUNCTION_WORDS


def _list_own_words(scored: Match) -> set[str]:
    return {part.word for part in scored.parts if part.field in _OF_ITSELF}


def _find_claimants(
    index: Index, entry: IndexEntry, scopes: Sequence[str]
) -> dict[int, tuple[IndexEntry, set[str]]]:
    """Return the other resources with one of its triggers, each with those triggers, as words."""
    triggers = {" ".join(tokenize(trigger)) for trigger in entry.triggers} - {""}
    claimed: dict[int, tuple[IndexEntry, set[str]]] = {}
    for trigger in sorted(triggers):
        for phrase in index.phrases(trigger.split(" "), kind=entry.kind, scopes=scopes):
            is_trigger = phrase.source == "trigger" and phrase.text == trigger
            if is_trigger and phrase.entry.id != entry.id:
                claimed.setdefault(phrase.entry.id, (phrase.entry, set()))[1].add(trigger)
    return claimed


def _make_pair(
    entry: IndexEntry, other: IndexEntry, triggers: Set[str], scored: Match | None, likeness: float
) -> NearDuplicate:
    quoted = _find_quoted(entry.description) & _find_quoted(other.description)
    shared = tuple((sorted(triggers | quoted) or _find_heaviest(scored))[:_SHOWN])
    return NearDuplicate(str(entry.ref), str(other.ref), shared, round(likeness, 3))


def _find_quoted(description: str) -> set[str]:
    """Return the quoted phrases, as words between single spaces."""
    quotes = (next(filter(None, match.groups())) for match in _QUOTED.finditer(description))
    return {" ".join(tokenize(quote)) for quote in quotes} - {""}


def _find_heaviest(scored: Match | None) -> list[str]:
    weights: dict[str, float] = defaultdict(float)
    for part in scored.parts if scored else ():
        if part.field in _OF_ITSELF and part.word not in FUNCTION_WORDS:
            weights[part.word] += part.score
    return sorted(weights, key=lambda word: -weights[word])


def _list_shared(pair: NearDuplicate) -> str:
    shared = (f'"{text}"' if " " in text else text for text in pair.shared)
    return ", ".join(shared) or "nearly the same text"
