"""What a reader gets of a search, the same for an agent, a terminal and a script: one verdict, in
few bytes.

A text between the marks of another author stays between them. Texts are cut first, names last.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evolvable_tools.retrieval import Excerpts, Verdict, cut_at_words
from evolvable_tools.untrusted_text import split_marks
from evolvable_tools.verbs import CHOICES, NEAREST, FoundSkills, FurtherChoice

if TYPE_CHECKING:
    from evolvable_store.search import Match

SURE_BYTES, CHOICE_BYTES, FEW_BYTES, NONE_BYTES = 900, 3_000, 2_000, 300
"""Bytes of the answer with each verdict, as JSON in UTF-8; FEW_BYTES of a choice among at most FEW
described ones.
"""

FEW = 5  # choices that keep LEAST_ABOUT characters each

MOST_NAMES, ALSO = 28, 4
"""Further names of a choice, and other refs beside a sure match."""

ABOUT, CHOICE_ABOUT, LEAST_ABOUT = 400, 180, 100
"""Characters of the text about a sure match and about a choice, and those that each of the first
FEW choices keeps.
"""

NOTE = "Ordered by likelihood: open one with load_skill, or go on without."

_WHY = 120  # characters of the reason of a sure match
# Falling, as `first_fitting` needs it. Steps are smaller for the short texts of a choice.
_LENGTHS = (*range(ABOUT, CHOICE_ABOUT, -20), *range(CHOICE_ABOUT, LEAST_ABOUT, -10), LEAST_ABOUT)

Answer = dict[str, Any]


def found_answer(found: FoundSkills, *, detail: bool = False) -> Answer:
    """Return the answer of a search. detail: with every field of every match, in order."""
    answerers = {
        Verdict.SURE: _answer_sure,
        Verdict.CHOOSE: _answer_choice,
        Verdict.NONE: _answer_none,
    }
    answer = answerers[found.verdict](found)
    if not detail:
        return answer
    return answer | {
        "matches": [_list_fields(match) for match in found.matches],
        "stages": [asdict(stage) for stage in found.stages],
        "notice": found.notice,
        "fits": found.fits,
    }


_MATCH_FIELDS = (
    "ref",
    "version",
    "name",
    "description",
    "stage",
    "confidence",
    "why",
    "maturity",
    "author",
    "by",
    "reported",
    "verified",
    "marked",
)


def _list_fields(match: "Match") -> Answer:
    """Return every promised field of a match."""
    delegate = asdict(match.delegate) if match.delegate is not None else None
    return {name: getattr(match, name) for name in _MATCH_FIELDS} | {"delegate": delegate}


def answer_size(answer: Mapping[str, Any]) -> int:
    """Return the bytes of an answer."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "replace"))


def _begin_answer(found: FoundSkills) -> Answer:
    return {"search_id": found.search_id, "verdict": str(found.verdict)}


def _answer_sure(found: FoundSkills) -> Answer:
    first = found.matches[0]
    begin, text, end = split_marks(first.description)
    # Reasons quote the description: of a marked one they are left out.
    why = "" if begin else cut_at_words(first.why.partition('; "')[0], _WHY)
    delegate = first.delegate.ref if first.delegate is not None and first.delegate.available else ""
    also = [match.ref for match in found.matches[1:]] + [choice.ref for choice in found.further]

    def answer(length: int, others: int) -> Answer:
        about = cut_at_words(text, length)
        use = {"ref": first.ref} | given_fields(
            about=f"{begin}{about}{end}" if about else "", why=why, delegate=delegate
        )
        notice = found.notice if begin and about else ""
        fields = _begin_answer(found) | {
            "use": use | {"confidence": first.confidence},
            "also": also[:others],
        }
        return fields | given_fields(notice=notice)

    # A sure match may lose its whole text, but not its ref.
    lengths = (*_LENGTHS, *range(LEAST_ABOUT - 20, -1, -20))
    length = first_fitting(lengths, lambda length: answer_size(answer(length, ALSO)) <= SURE_BYTES)
    others = first_fitting(
        range(ALSO, -1, -1), lambda others: answer_size(answer(length, others)) <= SURE_BYTES
    )
    return answer(length, others)


def _answer_none(found: FoundSkills) -> Answer:
    nearest = [match.ref for match in found.matches[:NEAREST]]

    def answer(count: int) -> Answer:
        return _begin_answer(found) | {"nearest": nearest[:count]}

    numbers = range(NEAREST, -1, -1)
    return answer(first_fitting(numbers, lambda count: answer_size(answer(count)) <= NONE_BYTES))


def _answer_choice(found: FoundSkills) -> Answer:
    rest: list[Match | FurtherChoice] = [*found.matches, *found.further]
    # Where a match fits, what does not match at all is named and no more.
    described = (found.matches if found.fitting else rest)[: min(CHOICES, found.most)]
    texts = [split_marks(choice.description) for choice in described]
    excerpts = Excerpts([text for _, text, _ in texts])
    # Kind and mark cost bytes in each name, and every choice is a skill.
    names = [choice.ref.removeprefix("skill:") for choice in rest[len(described) :]][:MOST_NAMES]
    number = next((begin for begin, _, _ in texts if begin), "")
    end = next((end for _, _, end in texts if end), "")
    limit = CHOICE_BYTES if len(described) > FEW else FEW_BYTES

    def answer(length: int, later: int, count: int, some: int) -> Answer:
        own, theirs = list[Answer](), list[str]()
        for at, choice in enumerate(described[:count]):
            about = excerpts.excerpt(at, length if at < FEW else min(length, later))
            if texts[at][0]:
                theirs.append(f"{choice.ref}: {about}" if about else choice.ref)
            else:
                own.append({"ref": choice.ref} | given_fields(about=about))
        fields = (
            _begin_answer(found)
            | {"note": NOTE, "choices": own}
            | given_fields(also=", ".join(names[:some]))
        )
        if theirs:
            fields["others"] = {"notice": found.notice, "text": number + "\n".join(theirs) + end}
        return fields

    return _fit_answer(answer, len(described), len(names), limit)


def _fit_answer(
    answer: Callable[[int, int, int, int], Answer], choices: int, names: int, limit: int
) -> Answer:
    """Return the fullest answer within the limit: first texts get shorter, then names and at last
    choices are left out.

    answer: makes one of the length of the first texts, that of the later ones, and the numbers of
    choices and names.
    """

    def size(length: int, later: int, choices: int, names: int) -> int:
        return answer_size(answer(length, later, choices, names))

    lengths = [length for length in _LENGTHS if length <= CHOICE_ABOUT]
    length = first_fitting(
        lengths, lambda length: size(length, length // 2, choices, names) <= limit
    )
    later = first_fitting(
        range(length // 2, -1, -10), lambda later: size(length, later, choices, names) <= limit
    )
    some = first_fitting(
        range(names, -1, -1), lambda some: size(length, later, choices, some) <= limit
    )
    length = first_fitting(
        range(length, -1, -10), lambda length: size(length, later, choices, some) <= limit
    )
    count = first_fitting(
        range(choices, 0, -1), lambda count: size(length, later, count, some) <= limit
    )
    return answer(length, later, count, some)


def given_fields(**fields: str) -> Answer:
    """Return the fields that say something."""
    return {name: text for name, text in fields.items() if text}


def first_fitting(numbers: Sequence[int], fits: Callable[[int], bool]) -> int:
    """Return the first of falling numbers that fits, the last when none does.

    Those after one that fits do, too.
    """
    # Most answers fit at once, which saves the search.
    if not numbers or fits(numbers[0]):
        return numbers[0] if numbers else 0
    return numbers[min(bisect_left(numbers, True, key=fits), len(numbers) - 1)]
