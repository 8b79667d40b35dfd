"""Find templates among texts: groups of texts that are alike except for short gaps.

A template is a form with short gaps, such as `Send # kg to #`. A frame is the beginning or the end
that most texts of a set share, around contents that differ; texts in one frame are no template. So
two texts are alike if the whole texts are alike, and if their contents outside of the frame are
alike, or too short to differ. Numbers, dates, quoted names, paths and identifiers are masked. Gaps
of other words are found by comparison.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MASK = "0"
"""The token that replaces a number, date, quoted name, path or identifier."""

# `tests/evolve/test_templates.py` has the templates and frames that these figures have to separate.
MAX_GAP = 3
"""The most words of a gap of a template; a longer one holds a content of its own."""

_FRAME = 0.5  # of the texts: triples that so many have in common are the frame of their set
MIN_TEXTS = 8
"""The fewest texts of a set that can have a frame."""

_CONTENT = 8  # triples outside of the frame from which on they tell what a text asks
_DIFFERENT = 0.5  # share of these triples, below which two contents differ
_SAME = 0.8  # share of all triples from which on two texts are alike
# Texts that differ in masks alone are a kind of their own, and no gap of a larger template.
_MANY = 3
_WHOLE = 0.8  # share of the texts in one frame: a template of so many of them is no frame
_MAX_TOKENS = 160  # of texts whose gaps are compared, because the comparison is quadratic
# Earlier texts that a text is compared with, those with most words in common first.
_MAX_LEADERS = 40
_LOWEST = 8  # triples of a text by which near ones are looked for

_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_NUMBER_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
million
"""
# Words that texts of any kind share, in several languages.
_COMMON = """
a an and are as at be but by can did do does for from had has have how i if in is it its me my no
not of on or our please so that the their them then there these they this those to up was we were
what when where which who whom whose why will with would you your der die das und ist ein eine zu in
von mit le la les un une de du des et el los las en y
"""
_NUMBERS, _STOP = frozenset(_NUMBER_WORDS.split()), frozenset(_COMMON.split())
# In this order: addresses of the web and of mail, quoted names, paths, dates, numbers, identifiers;
# names in camel case; single characters of Chinese, Japanese and Korean; words.
_TOKEN = re.compile(
    rf"""
    (?P<masked>
        https?://\S+ | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
      | (?<!\w)["“«„][^"”»“\n]{{1,40}}["”»“] | (?<!\w)'[^'\n]{{1,40}}'(?!\w) | `[^`\n]{{1,60}}`
      | (?:~|\.{{1,2}})?/(?:[\w.@+-]+/)*[\w.@+-]+ | [\w.@+-]+(?:/[\w.@+-]+){{2,}}/?
      | [\w@+-]+/[\w.@+-]*\.\w+
      | \d{{1,4}}[-./:]\d{{1,2}}(?:[-./:]\d{{1,4}})?(?:t[\d:.]+z?)?
      | (?:\d{{1,2}}(?:st|nd|rd|th)?\s+)?\b(?:{_MONTHS})[a-z]{{0,6}}\.?\s+
        \d{{1,4}}(?:st|nd|rd|th)?(?:,?\s*\d{{4}})?\b
      | [$€£¥\#]?\s?\d[\d.,]*\b\s?%?
      | \w+(?:[.-]\w+)*\d\w*(?:[.-]\w+)* | [^\W\d_]+(?:[.-]\w+)*[.-]\w*\d\w*
      | \w+(?:\.\w+)+ | \w*[^\W_]_\w+
    )
  | (?P<camel>\b[^\W\d_]*(?-i:[a-z][A-Z])[^\W\d_]*\b)
  | (?P<sign>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])
  | (?P<word>[^\W\d_]+(?:['’][^\W\d_]+)?)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_QUOTES = frozenset("\"'`“«„")
_MAX_NAME = 4  # words of a quoted name; a longer quotation is a text


def structure(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, with one `MASK` for each run of masked tokens."""
    words: list[str] = []
    for match in _TOKEN.finditer(text):
        # A long quotation is read as text, without its quotes.
        if match["masked"] and match[0][0] in _QUOTES and len(match[0].split()) > _MAX_NAME:
            tokens = structure(match[0][1:-1].translate(dict.fromkeys(map(ord, _QUOTES), " ")))
        elif match["masked"] or match["camel"]:
            tokens = (MASK,)
        else:
            word = match[0].casefold()
            tokens = (MASK if word in _NUMBERS else word,)
        for token in tokens:
            if token != MASK or words[-1:] != [MASK]:
                words.append(token)
    return tuple(words)


def triples(tokens: Sequence[str]) -> frozenset[tuple[str, ...]]:
    """Return the triples of words that follow each other; all words of a shorter text as one."""
    return frozenset(tuple(tokens[at : at + 3]) for at in range(max(1, len(tokens) - 2)))


@dataclass(frozen=True, slots=True)
class Form:
    """A text in the form in which it is compared.

    group: the number of its group of alike texts. tokens: with a `MASK` for each gap. content: the
    triples of `tokens` outside of the frame; all triples where these are too few.
    """

    group: int
    tokens: tuple[str, ...]
    content: frozenset[tuple[str, ...]]


def find_forms(texts: Sequence[str], apart: Sequence[object] = ()) -> list[Form]:
    """Return the form of each text of a set, in order.

    A group's number is that of its first text. apart: for each text a value; texts with different
    values are never alike.
    """
    tokens = [structure(text) for text in texts]
    frame = _find_frame(tokens)
    first: dict[object, int] = {}
    leader = list(range(len(texts)))
    # Texts with the same tokens are one before anything is compared.
    for at, own_tokens in enumerate(tokens):
        leader[at] = first.setdefault((own_tokens, apart[at] if apart else None), at)
    templates = _Templates(tokens, frame, apart)
    leader = templates.join_near(leader)
    leader = templates.join_gaps(leader)
    members: dict[int, list[int]] = defaultdict(list)
    for at, head in enumerate(leader):
        members[head].append(at)
    forms: dict[int, Form] = {}
    for group, own in members.items():
        counts = Counter(word for at in own for word in set(tokens[at]))
        # A word of most members belongs to the template, and any other is in a gap.
        frequent = {word for word, count in counts.items() if 2 * count > len(own)} | {MASK}
        for at in own:
            masked = _collapse(word if word in frequent else MASK for word in tokens[at])
            content = triples(masked) - frame
            # With too little outside of the frame, the whole text is compared.
            if len(content) < _CONTENT:
                content = triples(masked)
            forms[at] = Form(group, masked, content)
    return [forms[at] for at in range(len(texts))]


def _collapse(words: Iterable[str]) -> tuple[str, ...]:
    collapsed: list[str] = []
    for word in words:
        if word != MASK or collapsed[-1:] != [MASK]:
            collapsed.append(word)
    return tuple(collapsed)


def _find_frame(tokens: Sequence[tuple[str, ...]]) -> frozenset[tuple[str, ...]]:
    if len(tokens) < MIN_TEXTS:
        return frozenset()
    counts = Counter(triple for own in tokens for triple in triples(own))
    return frozenset(triple for triple, count in counts.items() if count >= _FRAME * len(tokens))


def _share(first: frozenset[tuple[str, ...]], second: frozenset[tuple[str, ...]]) -> float:
    return len(first & second) / len(first | second) if first or second else 1.0


class _Templates:
    """The texts of a set, and which of them are alike."""

    def __init__(
        self,
        tokens: Sequence[tuple[str, ...]],
        frame: frozenset[tuple[str, ...]],
        apart: Sequence[object],
    ) -> None:
        self._tokens, self._frame, self._apart = tokens, frame, apart
        self._all = [triples(own) for own in tokens]
        self._content = [own - frame for own in self._all]

    def _may_join(self, first: int, second: int) -> bool:
        return not self._apart or self._apart[first] == self._apart[second]

    def join_near(self, leader: Sequence[int]) -> list[int]:
        """Return the groups after joining texts with most triples and the content in common."""
        leaders = list(leader)

        # Union-find; the path is halved on the way, so that long chains stay cheap.
        def find(number: int) -> int:
            while leaders[number] != number:
                leaders[number] = leaders[leaders[number]]
                number = leaders[number]
            return number

        buckets: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at in sorted(set(leader)):
            own = self._content[at] or self._all[at]
            ordered = sorted(own, key=lambda words: hash_text(" ".join(words)))
            # Alike texts almost certainly share one of the lowest triples in a fixed order.
            for triple in ordered[:_LOWEST]:
                buckets[triple].append(at)
        for numbers in buckets.values():
            for place, at in enumerate(numbers[1:], 1):
                # The last twenty of a bucket bound the time; alike texts meet in other buckets too.
                for earlier in numbers[max(0, place - 20) : place]:
                    if find(at) != find(earlier) and self._is_near(at, earlier):
                        low, high = sorted((find(at), find(earlier)))
                        leaders[high] = low
        return [find(at) for at in leaders]

    def _is_near(self, first: int, second: int) -> bool:
        if not self._may_join(first, second):
            return False
        mine, theirs = self._content[first], self._content[second]
        # A common frame around different contents.
        if min(len(mine), len(theirs)) >= _CONTENT and _share(mine, theirs) < _DIFFERENT:
            return False
        mine, theirs = self._all[first], self._all[second]
        # In short texts most triples may be common by chance.
        return min(len(mine), len(theirs)) > 5 and _share(mine, theirs) >= _SAME

    def join_gaps(self, leader: Sequence[int]) -> list[int]:
        """Return the groups after joining those that differ in short gaps alone.

        Groups with several members stay kinds of their own where they are most of such a template.
        """
        sizes = Counter(leader)
        heads = [at for at in sorted(sizes) if 3 <= len(self._tokens[at]) <= _MAX_TOKENS]
        joined: dict[int, int] = {}
        # First templates that make up most of a frame, and then those outside of any frame.
        for strict in (False, True):
            left = [at for at in heads if at not in joined]
            for first, own in self._cluster(left, strict=strict).items():
                number = sum(sizes[at] for at in own)
                if len(own) < 2 or number >= _MANY * len(own):
                    continue
                if not strict and not self._is_whole(own, sizes):
                    continue
                joined.update(dict.fromkeys(own, first))
        return [joined.get(head, head) for head in leader]

    def _is_whole(self, own: Sequence[int], sizes: Counter[int]) -> bool:
        """Return whether a template has most texts of its frame, which then belongs to it."""
        frame = self._all[own[0]] & self._frame
        if not frame:
            return False
        around = sum(
            size for at, size in sizes.items() if 2 * len(frame & self._all[at]) >= len(frame)
        )
        return sum(sizes[at] for at in own) >= _WHOLE * around

    def _cluster(self, heads: Sequence[int], *, strict: bool) -> dict[int, list[int]]:
        """Return texts by the first one from which they differ in short gaps alone."""
        clusters: dict[int, list[int]] = {}
        # The first texts of clusters by their words.
        by_word: dict[str, list[int]] = defaultdict(list)
        for at in heads:
            distinct = dict.fromkeys(self._tokens[at])
            words = [word for word in distinct if word not in _STOP and word != MASK]
            common = Counter(leader for word in words for leader in by_word[word])
            near = (leader for leader, _ in common.most_common(_MAX_LEADERS))
            same = (leader for leader in near if self._differ_in_gaps(leader, at, strict=strict))
            first = next(same, None)
            if first is None:
                clusters[at] = [at]
                for word in words:
                    by_word[word].append(at)
            else:
                clusters[first].append(at)
        return clusters

    def _differ_in_gaps(self, first: int, second: int, *, strict: bool) -> bool:
        """Return whether two texts have the same words but for short gaps.

        strict: the frame does not count.
        """
        mine, theirs = self._tokens[first], self._tokens[second]
        # Cheap tests first, because the comparison below is quadratic.
        if not self._may_join(first, second):
            return False
        if abs(len(mine) - len(theirs)) > min(len(mine), len(theirs)) / 2 + MAX_GAP:
            return False
        if 2 * len(set(mine) & set(theirs)) < len(set(mine)):
            return False
        framed = self._find_frame_places(first) if strict else frozenset()
        gaps, weight, ends = 0, 0.0, (0, 0)
        for a, b, size in SequenceMatcher(None, mine, theirs, autojunk=False).get_matching_blocks():
            words = mine[a : a + size]
            if max(a - ends[0], b - ends[1]) > MAX_GAP:
                return False
            gaps += (a, b) != ends
            # A single word between two gaps may be common by chance.
            if size > 1:
                weight += sum(_weight(word) for at, word in enumerate(words, a) if at not in framed)
            ends = a + size, b + size
        # Fewer than two words of weight a gap are no template.
        return gaps > 0 and weight >= 2 * gaps

    def _find_frame_places(self, at: int) -> frozenset[int]:
        """Return the places of the words that belong to the frame."""
        own = self._tokens[at]
        return frozenset(
            place + step
            for place in range(max(1, len(own) - 2))
            if tuple(own[place : place + 3]) in self._frame
            for step in range(3)
        )


def _weight(word: str) -> float:
    """Return the weight of a common word in a template."""
    return 0.0 if word == MASK else 0.5 if word in _STOP else 1.0


def hash_text(text: str) -> int:
    """Return a number for an order of texts that does not depend on their words."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest()
    return int.from_bytes(digest, "big")
