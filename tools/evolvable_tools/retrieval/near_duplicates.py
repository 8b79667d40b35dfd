"""Near duplicates: two resources that answer the same questions, so that no task can distinguish them."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from evolvable_store.resource import USER_SCOPE
from evolvable_store.search.analyzer import FUNCTION_WORDS, tokenize
from evolvable_store.search.index import Index, IndexEntry, SearchHit
from evolvable_store.search.index_file import IndexSnapshot

Searched = Index | IndexSnapshot

ALIKE = 0.68
"""Likeness from which two resources are reported.

Chosen on 10,000 real skills by reading the reports: nine pairs of ten are copies or paraphrases. Two of one family that
do different things mostly lie under 0.6.
"""

EACH = 50
"""Up to so many resources, each is searched for. Of more, only those that share enough words with another."""

MOST_SEARCHED = 2_000
"""Resources searched for in one call. Each costs a search, and up to two more with a likely duplicate."""

_OVERLAP = 0.45
"""Weight of the shared words, as a share of the heavier text's, from which a resource of many is searched for.

Of 10,000 real skills 231 pairs are reported when each is searched for; all 231 share .457 or more.
"""

_COMPARED = 50  # other resources, those that share most rare words, that one is compared with by its words

_NEIGHBOURS = 20
_CHECKED = 2  # neighbours of each whose own words are asked as well
_LIKELY = 0.5  # likeness one way from which the other way is looked at
_NAMED = 0.3  # share of its name that the other must say of itself: without, they only share a form letter
_SIBLINGS = 0.85  # likeness from which two of one family are reported, each of which has a word of its own in its name
_SHOWN = 4
_OF_ITSELF = frozenset({"name", "description", "triggers"})
_QUOTED = re.compile(r'"([^"\n]{3,80})"|“([^”“\n]{3,80})”|`([^`\n]{3,80})`')


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """Two refs that answer the same questions, the newcomer first.

    `shared`: triggers and quoted phrases that both claim, else the words that weigh most. `likeness`: 0 to 1.
    """

    one: str
    other: str
    shared: tuple[str, ...]
    likeness: float

    @property
    def said(self) -> str:
        """One line for a person."""
        return f"{self.one} and {self.other} answer the same questions ({self.likeness:.0%} alike: {_listed(self)})"


@dataclass(frozen=True, slots=True)
class NearDuplicateReport:
    """Pairs, the most alike first, and one line: how many there are, and how many resources were not compared."""

    pairs: tuple[NearDuplicate, ...]
    said: str


def find_near_duplicates(
    index: Searched,
    newcomers: Sequence[IndexEntry],
    *,
    limit: int = 10,
    others: Sequence[IndexEntry] = (),
    progress: Callable[[int, int], None] | None = None,
) -> NearDuplicateReport:
    """Return the `limit` most alike pairs of these resources and others that are visible beside them.

    The name, description and triggers of each are a query. Another resource that scores nearly as high as the resource
    itself, and the reverse, answers the same questions. So does one with the same trigger. Only the same kind counts,
    in the resource's own scope and the user's. others: the other entries of the library, which more than EACH newcomers
    are compared with before any is searched for. progress: called with the resources compared, and all of them, then
    with those searched for.
    """
    asked: dict[int, dict[int, SearchHit]] = {}
    found: dict[frozenset[str], NearDuplicate] = {}
    likely = newcomers if len(newcomers) <= EACH else _overlapping(newcomers, others, progress)
    for entry in _counted(likely[:MOST_SEARCHED], progress):
        for pair in _pairs(index, entry, asked):
            found.setdefault(frozenset((pair.one, pair.other)), pair)
    pairs = sorted(found.values(), key=lambda pair: (-pair.likeness, pair.one, pair.other))[:limit]
    return NearDuplicateReport(tuple(pairs), _said(len(found), len(pairs), len(likely) - MOST_SEARCHED))


def _counted(entries: Sequence[IndexEntry], progress: Callable[[int, int], None] | None) -> Iterator[IndexEntry]:
    """Yield the entries; before each, report how many were yielded."""
    for number, entry in enumerate(entries):
        if progress is not None:
            progress(number, len(entries))
        yield entry


def _overlapping(
    newcomers: Sequence[IndexEntry], others: Sequence[IndexEntry], progress: Callable[[int, int], None] | None
) -> list[IndexEntry]:
    """Return the newcomers that share a trigger, or enough of their words by weight, with another visible resource.

    Prefix filter of all-pairs similarity search (Bayardo, Ma and Srikant, 2007): two texts that share so much share one
    of the rarest words of either, so only the holders of those words are compared.
    """
    known = {entry.id: entry for entry in (*newcomers, *others)}
    words = {id_: frozenset(tokenize(_query(entry))) for id_, entry in known.items()}
    count = Counter(word for text in words.values() for word in text)
    weight = {word: math.log(1 + len(known) / number) for word, number in count.items()}
    mass = {id_: sum(weight[word] for word in text) for id_, text in words.items()}
    rarest = {id_: _rarest(text, weight, mass[id_]) for id_, text in words.items()}
    holders: dict[str, list[int]] = defaultdict(list)
    for id_, text in rarest.items():
        for word in text:
            holders[word].append(id_)
    claims = Counter((entry.kind, " ".join(tokenize(text))) for entry in known.values() for text in entry.triggers)

    def overlaps(entry: IndexEntry) -> bool:
        if any(claims[entry.kind, " ".join(tokenize(text))] > 1 for text in entry.triggers):
            return True
        text = words[entry.id]
        near = Counter(id_ for word in rarest[entry.id] for id_ in holders[word] if _beside(entry, known[id_]))
        return any(
            sum(weight[word] for word in text & words[id_]) >= _OVERLAP * max(mass[entry.id], mass[id_])
            for id_, _ in near.most_common(_COMPARED)
        )

    return [entry for entry in _counted(newcomers, progress) if overlaps(entry)]


def _rarest(text: Set[str], weight: Mapping[str, float], mass: float) -> list[str]:
    """Return the heaviest words, up to those without which the rest weighs less than the overlap that is asked for."""
    kept, rest = list[str](), mass
    for word in sorted(text, key=lambda word: (-weight[word], word)):
        if rest < _OVERLAP * mass:
            break
        kept.append(word)
        rest -= weight[word]
    return kept


def _beside(entry: IndexEntry, other: IndexEntry) -> bool:
    return entry.id != other.id and entry.kind is other.kind and other.scope in (entry.scope, USER_SCOPE)


def _said(found: int, shown: int, left: int) -> str:
    pairs = f"{found} {'pair answers' if found == 1 else 'pairs answer'} the same questions" if found else "none found"
    parts = [pairs]
    if shown < found:
        parts.append(f"the {shown} most alike are listed")
    if left > 0:
        parts.append(f"{left:,} more share most of their words with another and were not compared")
    return "; ".join(parts)


def _pairs(index: Searched, entry: IndexEntry, asked: dict[int, dict[int, SearchHit]]) -> Iterator[NearDuplicate]:
    """Yield the near duplicates of one resource. `asked`: earlier searches of this call, by resource."""
    scopes = tuple(dict.fromkeys((entry.scope, USER_SCOPE)))
    found = asked.get(entry.id) or asked.setdefault(entry.id, _search(index, entry, scopes))
    own = found.get(entry.id)
    claimed = _claimed(index, entry, scopes)
    likely = [s for s in found.values() if own and s.entry.id != entry.id and _share(s, own) >= _LIKELY]
    checked = [s for s in likely if own and _named(entry, own, s) >= _NAMED][:_CHECKED]
    if isinstance(index, IndexSnapshot) and checked:
        index.prepare(_query(other.entry) for other in checked)
    for other in checked:
        back = asked.get(other.entry.id) or asked.setdefault(other.entry.id, _search(index, other.entry, scopes))
        likeness = (_share(other, own) + _share(back.get(entry.id), back.get(other.entry.id))) / 2
        triggers = claimed.pop(other.entry.id, (other.entry, set[str]()))[1]
        siblings = _siblings(entry, other, back.get(entry.id))
        if likeness >= (_SIBLINGS if siblings else ALIKE) or triggers:
            yield _confusable(entry, other.entry, triggers, other, likeness)
    for one, triggers in list(claimed.values())[:_CHECKED]:
        yield _confusable(entry, one, triggers, found.get(one.id), _share(found.get(one.id), own))


def _search(index: Searched, entry: IndexEntry, scopes: Sequence[str]) -> dict[int, SearchHit]:
    ranking = index.search(_query(entry), kind=entry.kind, scopes=scopes, limit=_NEIGHBOURS)
    ranking.explain(ranking.scored)
    return {scored.entry.id: scored for scored in ranking.scored}


def _query(entry: IndexEntry) -> str:
    return "\n".join((entry.name, entry.description, *entry.triggers))


def _share(other: SearchHit | None, own: SearchHit | None) -> float:
    """Return the other's score as a share of the resource's own on the same words, 0 to 1."""
    return min(1.0, other.score / own.score) if other and own and own.score > 0 else 0.0


def _named(entry: IndexEntry, own: SearchHit, other: SearchHit) -> float:
    """Return the share of the name's weight in the other's own words, 0 to 1."""
    name = _name(entry)
    weights: dict[str, float] = defaultdict(float)
    for part in own.parts:
        if part.word in name:
            weights[part.word] += part.score
    said = _of_itself(other)
    return sum(weight for word, weight in weights.items() if word in said) / (sum(weights.values()) or 1.0)


def _siblings(entry: IndexEntry, other: SearchHit, back: SearchHit | None) -> bool:
    """Return whether the names have a word in common, and each has one that the other's own words lack."""
    ours, theirs = _name(entry), _name(other.entry)
    return bool(ours & theirs and ours - _of_itself(other) and back and theirs - _of_itself(back))


def _name(entry: IndexEntry) -> set[str]:
    return {word for word in tokenize(entry.name) if not word.isdigit()} - FUNCTION_WORDS


def _of_itself(scored: SearchHit) -> set[str]:
    return {part.word for part in scored.parts if part.field in _OF_ITSELF}


def _claimed(index: Searched, entry: IndexEntry, scopes: Sequence[str]) -> dict[int, tuple[IndexEntry, set[str]]]:
    """Return the other resources with one of its triggers, each with those triggers, as words."""
    triggers = {" ".join(tokenize(trigger)) for trigger in entry.triggers} - {""}
    claimed: dict[int, tuple[IndexEntry, set[str]]] = {}
    for trigger in sorted(triggers):
        for phrase in index.phrases(trigger.split(" "), kind=entry.kind, scopes=scopes):
            if phrase.source == "trigger" and phrase.text == trigger and phrase.entry.id != entry.id:
                claimed.setdefault(phrase.entry.id, (phrase.entry, set()))[1].add(trigger)
    return claimed


def _confusable(
    entry: IndexEntry, other: IndexEntry, triggers: Set[str], scored: SearchHit | None, likeness: float
) -> NearDuplicate:
    phrases = sorted(triggers | (_quoted(entry.description) & _quoted(other.description)))
    shared = phrases or _heaviest(scored)
    return NearDuplicate(str(entry.ref), str(other.ref), tuple(shared[:_SHOWN]), round(likeness, 3))


def _quoted(description: str) -> set[str]:
    """Return the quoted phrases, as words between single spaces."""
    return {" ".join(tokenize(next(filter(None, m.groups())))) for m in _QUOTED.finditer(description)} - {""}


def _heaviest(scored: SearchHit | None) -> list[str]:
    weights: dict[str, float] = defaultdict(float)
    for part in scored.parts if scored else ():
        if part.field in _OF_ITSELF and part.word not in FUNCTION_WORDS:
            weights[part.word] += part.score
    return sorted(weights, key=lambda word: -weights[word])


def _listed(pair: NearDuplicate) -> str:
    return ", ".join(f'"{text}"' if " " in text else text for text in pair.shared) or "nearly the same text"
