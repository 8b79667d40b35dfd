"""What an agent reads of a listing: the fields that help it to choose, within a number of bytes.

The command line's `--json`, and a call with `detail`, have every field. Descriptions are cut as far
as the answer's size asks for. A text between the marks of another author stays between them.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache

from evolvable_tools import Answer, answer_size, first_fitting, given_fields, split_marks
from evolvable_tools.verbs import ListedResource, Listing

LISTED_BYTES = 240
"""Bytes for one resource of a listing: a page of the usual length has 6 KB."""

# From long to short, in smaller steps towards the end: the first that fits is taken.
_LENGTHS = (*range(600, 200, -50), *range(200, 40, -15), *range(40, 0, -8), 0)
_BEGINNER = "Budding"  # the maturity of what was not used yet


def listing_answer(listing: Listing, *, limit: int, detail: bool) -> Answer:
    """Return the answer of a listing."""
    # A program that asks for `detail` reads every field, at any length.
    if detail:
        return asdict(listing)

    def answer(length: int) -> Answer:
        resources = [_list_fields(resource, length) for resource in listing.resources]
        return {"resources": resources} | given_fields(
            next_cursor=listing.next_cursor or "", notice=listing.notice
        )

    return _fit_answer(limit * LISTED_BYTES, answer)


def _list_fields(resource: ListedResource, length: int) -> Answer:
    used = {"uses": resource.uses, "success": resource.success} if resource.uses else {}
    maturity = "" if resource.maturity == _BEGINNER else resource.maturity
    return {
        "ref": resource.ref,
        "version": resource.version,
        "description": _cut(resource.description, length),
        "author": str(resource.author),
    } | (given_fields(maturity=maturity) | used)


def _cut(text: str, length: int) -> str:
    """Return a text on one line of at most `length` bytes of UTF-8.

    Marks around the text stay and do not count.
    """
    begin, line, end = _split_line(text)
    shortened = line
    if len(line) > length:
        # The ellipsis takes three bytes. A cut may fall into a character of several bytes, whose
        # rest is dropped.
        shortened = line[: max(0, length - 3)].decode("utf-8", "ignore").rstrip().encode()
        shortened += "…".encode() if shortened else b""
    return f"{begin}{shortened.decode()}{end}" if shortened else ""


@lru_cache(maxsize=128)  # the descriptions of one answer, each cut to several lengths
def _split_line(text: str) -> tuple[str, bytes, str]:
    """Return the mark before a text, the text on one line as UTF-8, and the mark after it."""
    begin, inner, end = split_marks(text)
    return begin, " ".join(inner.split()).encode("utf-8", "replace"), end


def _fit_answer(most: int, answer: Callable[[int], Answer]) -> Answer:
    """Return the answer with the longest descriptions that has at most `most` bytes.

    Return the shortest answer where none is so short.
    """
    return answer(first_fitting(_LENGTHS, lambda length: answer_size(answer(length)) <= most))
