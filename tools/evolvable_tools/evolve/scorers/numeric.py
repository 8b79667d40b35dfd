"""The strict scorer of numbers, dates and short texts: one final answer, and nothing guessed."""

import re
from collections.abc import Sequence
from decimal import Decimal

from evolvable_tools.evolve.scorers.quantities import Quantity, Said, said

_HEDGES = frozenset(
    ["or", "either", "between", "maybe", "perhaps", "possibly", "alternatively", "roughly", "approximately", "about"]
)
_NEGATIONS = frozenset(
    [
        "not",
        "no",
        "never",
        "nor",
        "neither",
        "cannot",
        "isn't",
        "wasn't",
        "aren't",
        "don't",
        "doesn't",
        "isn’t",
        "wasn’t",
    ]
)
_NO = frozenset(["no", "false"])
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
_LISTED = re.compile(r"[;|]|\s/\s|\bone of\b|\bany of\b")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def numeric_strict(expected: str, output: str, *, rel_tol: float = 0.0, context: str = "") -> float:
    """Returns 1.0 where the output gives the expected answer and no other, else 0.0.

    Units and percentages are multiplied in (0.543 billion is 543 million), lists are matched one to one in any order,
    dates by what they mean, years exactly, everything else within `rel_tol`. Words of the expected answer must stand
    in the output as whole words. Any further number or date must stand in `context` (the task) as well, and then no
    word of doubt may stand beside it. Raises ValueError for an empty expected answer or a tolerance outside [0, 1].
    """
    if not expected.strip():
        raise ValueError("The expected answer is empty.")
    if not 0 <= rel_tol <= 1:
        raise ValueError(f"rel_tol must be from 0 to 1, not {rel_tol}.")
    wanted, given = said(expected), said(output)
    if not (wanted.quantities or wanted.dates):
        return float(_same_text(expected, wanted, output, given))
    if not set(wanted.words) <= set(given.words):
        return 0.0
    dates = _beyond(wanted.dates, given.dates)
    quantities = _unmatched(wanted.quantities, given.quantities, Decimal(str(rel_tol)))
    if dates is None or quantities is None:
        return 0.0
    if not dates and not quantities:
        return float(not _new(_NEGATIONS, expected, output))
    known = said(context)
    stated = set(dates) <= set(known.dates) and all(
        any(each.value == other.value for other in known.quantities) for each in quantities
    )
    return float(stated and not _new(_HEDGES | _NEGATIONS, expected, output))


def _same_text(expected: str, wanted: Said, output: str, given: Said) -> bool:
    """Compares answers without numbers: all words of the expected one in a row, and no doubt or list about them."""
    asked = _words(expected)
    doubts = _HEDGES | {_OPPOSITES[word] for word in asked & _OPPOSITES.keys()}
    if _new(doubts if asked & _NO else doubts | _NEGATIONS, expected, output):
        return False
    if _LISTED.search(output.casefold()) and not _LISTED.search(expected.casefold()):
        return False
    if not wanted.words:  # punctuation or fillers alone
        return expected.split() == output.split()
    length = len(wanted.words)
    rows = (given.words[start : start + length] for start in range(len(given.words) - length + 1))
    return wanted.words in rows


def _new(words: frozenset[str], expected: str, output: str) -> bool:
    """Returns whether the output has any of these words that the expected answer has not."""
    return bool((words & _words(output)) - _words(expected))


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _beyond(wanted: Sequence[object], given: Sequence[object]) -> list[object] | None:
    """Returns what is given beyond what is wanted, each wanted one taken once; None when one is missing."""
    left = list(given)
    for each in wanted:
        if each not in left:
            return None
        left.remove(each)
    return left


def _unmatched(wanted: Sequence[Quantity], given: Sequence[Quantity], rel_tol: Decimal) -> list[Quantity] | None:
    """Returns the quantities given beyond those wanted; None unless each wanted one has one of its own."""
    if len(given) < len(wanted):
        return None
    taken: dict[int, int] = {}  # index given -> index wanted
    for index in range(len(wanted)):
        if not _place(index, wanted, given, rel_tol, taken, set()):
            return None
    return [each for at, each in enumerate(given) if at not in taken]


def _place(
    index: int,
    wanted: Sequence[Quantity],
    given: Sequence[Quantity],
    rel_tol: Decimal,
    taken: dict[int, int],
    seen: set[int],
) -> bool:
    """Finds a quantity of its own for a wanted one, moving others where that helps (bipartite matching)."""
    for at, candidate in enumerate(given):
        if at in seen or not _near(wanted[index], candidate, rel_tol):
            continue
        seen.add(at)
        if at not in taken or _place(taken[at], wanted, given, rel_tol, taken, seen):
            taken[at] = index
            return True
    return False


def _near(wanted: Quantity, given: Quantity, rel_tol: Decimal) -> bool:
    if wanted.currency and given.currency and wanted.currency != given.currency:
        return False
    if wanted.value == given.value:
        return True
    return not wanted.is_year and abs(wanted.value - given.value) <= rel_tol * abs(wanted.value)
