"""The scorer of structured answers: everything that is expected stands in the answer; more may stand there."""

from collections.abc import Iterator
from typing import Any


def json_subset(expected: Any, given: Any, *, rel_tol: float = 0.0, unordered: bool = False) -> tuple[int, int]:
    """Returns how many of the expected leaves the given value has, and how many there are.

    Objects may hold more keys than expected; arrays must have the same length, and the same order unless `unordered`.
    1 and 1.0 are equal, 1 and true are not. An empty object or array is a leaf of its own.
    """
    if isinstance(expected, dict) and expected:
        parts = [
            json_subset(value, given[key], rel_tol=rel_tol, unordered=unordered)
            if isinstance(given, dict) and key in given
            else (0, leaves(value))
            for key, value in expected.items()
        ]
        return sum(right for right, _ in parts), sum(all_ for _, all_ in parts)
    if isinstance(expected, list) and expected:
        if not isinstance(given, list) or len(given) != len(expected):
            return 0, leaves(expected)
        pairs = _matched(expected, given, rel_tol) if unordered else zip(expected, given, strict=True)
        parts = [json_subset(one, other, rel_tol=rel_tol, unordered=unordered) for one, other in pairs]
        return sum(right for right, _ in parts), sum(all_ for _, all_ in parts)
    return int(_same(expected, given, rel_tol)), 1


def leaves(value: Any) -> int:
    """Returns how many leaves a JSON value has: what is neither a filled object nor a filled array."""
    if isinstance(value, dict) and value:
        return sum(map(leaves, value.values()))
    return sum(map(leaves, value)) if isinstance(value, list) and value else 1


def _matched(expected: list[Any], given: list[Any], rel_tol: float) -> Iterator[tuple[Any, Any]]:
    """Yields each expected element with one of its own: a whole match where there is one, else what is left over."""
    left = list(given)
    missed = []
    for one in expected:
        for at, other in enumerate(left):
            right, all_ = json_subset(one, other, rel_tol=rel_tol, unordered=True)
            if right == all_:
                yield one, left.pop(at)
                break
        else:
            missed.append(one)
    yield from zip(missed, left, strict=True)


def _same(expected: Any, given: Any, rel_tol: float) -> bool:
    if isinstance(expected, bool) or isinstance(given, bool):
        return expected is given
    if isinstance(expected, int | float) and isinstance(given, int | float):
        try:
            return expected == given or abs(expected - given) <= rel_tol * abs(expected)
        except OverflowError:  # a whole number beyond any float, beside a float
            return False
    return type(expected) is type(given) and bool(expected == given)
