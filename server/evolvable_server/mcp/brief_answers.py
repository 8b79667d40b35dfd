"""What an agent reads of a search and of a listing: the fields that help it to choose, within a number of bytes.

The command line's `--json`, and a call with `detail`, have every field. Descriptions are cut as far as the answer's
size asks for. A text between the marks of another author stays between them.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from evolvable_server.mcp.results import as_json
from evolvable_tools.retrieval import ChooseBetween
from evolvable_tools.verbs.search import FoundMatch, FoundSkills, ListedResource, Listing

MATCH_BYTES = 300
"""Of one match: five have 1.5 KB together."""

LISTED_BYTES = 240
"""Of one resource of a listing: a page of the usual length has 6 KB."""

CHOICE_BYTES = 4_000
"""Of an answer with a list to choose from."""

_BARE = -1  # without what does not identify a match: some names are long
_LENGTHS = (*range(600, 200, -50), *range(200, 40, -15), *range(40, 0, -8), 0, _BARE)
_TELLING_LENGTHS = tuple(length for length in _LENGTHS if length >= 50)  # shorter ones tell no choice from the next
_LONGEST_WHY = 70
_BEGINNER = "Budding"  # the maturity of what was not used yet
_MARKED = re.compile(r"\[(?P<number>[0-9a-f]{16})\] (?P<text>.*) \[/(?P=number)\]", re.DOTALL)

Answer = dict[str, Any]


def found_answer(found: FoundSkills, *, limit: int, detail: bool) -> Answer:
    """Return the answer of a search.

    `none_fits` says that nothing in the library is for the task. `unsure` stands in its place where the caller has to
    choose: among the matches, or among the choices of `choose_between`. With `detail` both stand there.
    """
    asked = found.choose_between
    unsure = asked is not None or not (found.fitting or found.none_fits)
    if detail:
        return asdict(found) | ({"unsure": True} if unsure else {})
    if asked is not None and not found.fitting:
        return _choice_answer(found, asked)
    if found.none_fits:
        return {"search_id": found.search_id, "none_fits": True, "matches": []}
    others = _others(found, asked) if asked is not None else {}
    verdict = {"unsure": True} | others if unsure else {"none_fits": False}

    def answer(length: int) -> Answer:
        shown = [_match(match, length) for match in found.matches]
        return {"search_id": found.search_id, **verdict, "matches": shown} | _given(notice=found.notice)

    return _within(limit * MATCH_BYTES + _size(others), answer)


def _others(found: FoundSkills, asked: ChooseBetween) -> Answer:
    """Return the choices that are not among the matches, of which fewer were asked for."""
    shown = {match.ref for match in found.matches}
    others = [{"ref": one.ref} for one in asked.choices if one.ref not in shown]
    return {"choose_between": {"choices": others}} if others else {}


def _choice_answer(found: FoundSkills, asked: ChooseBetween) -> Answer:
    """Return a list to choose from: as many choices as fit, the likely ones first.

    All have their descriptions where these can say something; otherwise the likely ones alone.
    """

    def answer(length: int, most: int, described: int) -> Answer:
        shown = [
            {"ref": one.ref} | _given(description=_cut(one.description, length) if at < described else "")
            for at, one in enumerate(asked.choices[:most])
        ]
        choice = {"question": asked.question, "how_to_answer": asked.how_to_answer, "choices": shown}
        marks = _given(notice=found.notice if any("[/" in str(one) for one in shown) else "")
        return {"search_id": found.search_id, "unsure": True, "matches": [], "choose_between": choice} | marks

    most = _first(range(len(asked.choices), 0, -1), lambda some: _size(answer(0, some, 0)) <= CHOICE_BYTES)
    length = _first(_TELLING_LENGTHS, lambda length: _size(answer(length, most, most)) <= CHOICE_BYTES)
    described = _first(range(most, -1, -1), lambda some: _size(answer(length, most, some)) <= CHOICE_BYTES)
    return answer(length, most, described)


def listing_answer(listing: Listing, *, limit: int, detail: bool) -> Answer:
    """Return the answer of a listing."""
    if detail:
        return asdict(listing)

    def answer(length: int) -> Answer:
        shown = [_listed(resource, length) for resource in listing.resources]
        return {"resources": shown} | _given(next_cursor=listing.next_cursor or "", notice=listing.notice)

    return _within(limit * LISTED_BYTES, answer)


def _match(match: FoundMatch, length: int) -> Answer:
    """Return one match. One whose description stands between marks has no reasons: they quote it."""
    named = match.delegate
    delegate = {"ref": named.ref, "version": named.version, "available": named.available} if named is not None else None
    known: Answer = {"ref": match.ref, "version": match.version}
    told: Answer = {"confidence": match.confidence, "stage": match.stage, "author": str(match.author)}
    if length == _BARE:
        return known | told
    why = "" if match.marked else _cut(match.why.partition('; "')[0], min(length, _LONGEST_WHY))
    described = known | {"description": _cut(match.description, length)} | told
    named_agent = {"delegate": delegate} if delegate is not None else {}
    return described | named_agent | _given(why=why, maturity=_grown(match.maturity))


def _listed(resource: ListedResource, length: int) -> Answer:
    used = {"uses": resource.uses, "success": resource.success} if resource.uses else {}
    return {
        "ref": resource.ref,
        "version": resource.version,
        "description": _cut(resource.description, length),
        "author": str(resource.author),
    } | (_given(maturity=_grown(resource.maturity)) | used)


def _grown(maturity: str) -> str:
    return "" if maturity == _BEGINNER else maturity


def _given(**fields: str) -> Answer:
    """Return the fields that say something."""
    return {name: text for name, text in fields.items() if text}


def _cut(text: str, length: int) -> str:
    """Return a text of at most so many bytes of UTF-8 on one line; marks around it stay and do not count."""
    begin, line, end = _line(text)
    kept = line
    if len(line) > length:
        kept = line[: max(0, length - 3)].decode("utf-8", "ignore").rstrip().encode()
        kept += "…".encode() if kept else b""
    return f"{begin}{kept.decode()}{end}" if kept else ""


@lru_cache(maxsize=128)  # the descriptions of one answer, each cut to several lengths
def _line(text: str) -> tuple[str, bytes, str]:
    """Return the mark before a text, the text on one line as UTF-8, and the mark after it."""
    marked = _MARKED.fullmatch(text)
    begin, end = (f"[{marked['number']}] ", f" [/{marked['number']}]") if marked is not None else ("", "")
    line = " ".join((marked["text"] if marked is not None else text).split())
    return begin, line.encode("utf-8", "replace"), end


def _within(most: int, answer: Callable[[int], Answer]) -> Answer:
    """Return the answer with the longest descriptions that has at most so many bytes, else the shortest one."""
    return answer(_first(_LENGTHS, lambda length: _size(answer(length)) <= most))


def _first(numbers: Sequence[int], fits: Callable[[int], bool]) -> int:
    """Return the first of falling numbers that fits, the last when none does; those after one that fits do, too."""
    return numbers[min(bisect_left(numbers, True, key=fits), len(numbers) - 1)]


def _size(answer: Mapping[str, Any] | Sequence[Any]) -> int:
    return len(as_json(answer).encode("utf-8", "replace"))
