"""Near-duplicate tasks by their text: sketches that can be compared, and groups that must not be parted."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from evolvable_evolve.evolution.task import Task, task_fixtures

NEAR_DUPLICATE = 0.8
"""The share of common word triples from which on two texts are near-duplicates."""

WITHIN = 0.9
"""The share of the shorter text's word triples from which on it stands in the longer one."""

MIN_WORDS = 8
"""A shorter text is only a duplicate of one with the same words, those of courtesy aside."""

_COURTESY = """
please pls plz kindly hi hello hey dear thanks thank can could would will you me us now just the a an bitte danke svp
favor favore merci gracias grazie obrigado obrigada пожалуйста спасибо
"""
_COURTESY_WORDS = frozenset(_COURTESY.split())
_SKETCH = 96  # hashes kept of a text's triples; enough to tell .8 from .6
_NEIGHBOURS = 20
_MAX_FILE_TEXT = 20_000  # characters of the files of one task that are compared
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TextSketch:
    """A sketch of a prompt: a hash of its words, and the lowest hashes of its word triples.

    The text cannot be read from it, but somebody who guesses a text can tell that it is the one.
    """

    words: str
    triples: tuple[int, ...]
    asked: str = ""
    """A hash of the words but those of courtesy; '' where that is `words`, and in records of earlier versions."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the sketch of a text. Case, spaces and punctuation make no difference."""
        words = _WORD.findall(text.casefold())
        whole, asked = _hash_words(words), _hash_words([one for one in words if one not in _COURTESY_WORDS] or words)
        asked = asked if asked != whole else ""
        if len(words) < MIN_WORDS:
            return cls(whole, (), asked)
        hashes = {
            int.from_bytes(
                hashlib.blake2b(" ".join(words[at : at + 3]).encode("utf-8", "replace"), digest_size=6).digest(), "big"
            )
            for at in range(len(words) - 2)
        }
        return cls(whole, tuple(sorted(hashes)[:_SKETCH]), asked)

    @classmethod
    def from_json(cls, said: Any) -> Self:
        """Return the sketch that `to_json` gave. Raises ValueError, TypeError, KeyError for anything else."""
        words, triples, asked = said["words"], said["triples"], said.get("asked", "")
        if not isinstance(words, str) or not isinstance(asked, str) or not all(isinstance(n, int) for n in triples):
            raise ValueError("no sketch of a text")
        return cls(words, tuple(triples), asked)

    def to_json(self) -> dict[str, Any]:
        """Return the sketch as a JSON value."""
        return {"words": self.words, "triples": list(self.triples)} | ({"asked": self.asked} if self.asked else {})

    @property
    def names(self) -> set[str]:
        """The hashes by which texts with the same words are found: two that share one are near-duplicates."""
        return {self.words, self.asked or self.words}

    @cached_property
    def _set(self) -> frozenset[int]:
        return frozenset(self.triples)

    def is_near(self, other: "TextSketch") -> bool:
        """Return whether two texts are near-duplicates."""
        if self.names & other.names:
            return True
        if not self.triples or not other.triples:
            return False
        if len(self._set | other._set) <= _SKETCH:
            return len(self._set & other._set) / len(self._set | other._set) >= NEAR_DUPLICATE
        lowest = sorted(self._set | other._set)[:_SKETCH]
        common = sum(1 for one in lowest if one in self._set and one in other._set)
        return common / len(lowest) >= NEAR_DUPLICATE

    def is_within(self, other: "TextSketch") -> bool:
        """Return whether all but little of the shorter of two texts stands in the longer one.

        Both sketches know all hashes up to the highest of a sketch that is cut off; only those are compared.
        """
        cut = [one.triples[-1] for one in (self, other) if len(one.triples) == _SKETCH]
        mine, theirs = self._set, other._set
        if cut:
            mine, theirs = (frozenset(one for one in known if one <= min(cut)) for known in (mine, theirs))
        fewer = min(len(mine), len(theirs))
        return fewer >= MIN_WORDS - 2 and len(mine & theirs) / fewer >= WITHIN


def _hash_words(words: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(words).encode("utf-8", "replace")).hexdigest()[:32]


def _buckets(sketches: Sequence[TextSketch]) -> Iterator[list[int]]:
    """Yield numbers of sketches that share a hash, so that not every pair has to be compared."""
    found: dict[object, list[int]] = defaultdict(list)
    for number, sketch in enumerate(sketches):
        for name in sketch.names:
            found[name].append(number)
        # Of near-duplicates one of the lowest hashes is all but surely common.
        for one in sketch.triples[:8]:
            found[one].append(number)
    yield from (numbers for numbers in found.values() if len(numbers) > 1)


def find_groups(texts: Mapping[str, str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the group of every task by its id: near-duplicates, and those to which a person gave one name, together.

    A group is named by the first of its ids. A person's names can only join what was detected, and not part it.

    Args:
        texts: the prompt of each task.
        given: the group that a person named, by task; '' for none.
    """
    ids = sorted(texts)
    leader = dict(zip(ids, ids, strict=True))

    def find(one: str) -> str:
        while leader[one] != one:
            leader[one] = leader[leader[one]]
            one = leader[one]
        return one

    def join(one: str, other: str) -> None:
        first, second = sorted((find(one), find(other)))
        leader[second] = first

    sketches = [TextSketch.of(texts[one]) for one in ids]
    for numbers in _buckets(sketches):
        # Those with the most in common stand beside each other; all pairs would be too many for a large template.
        order = sorted(numbers, key=lambda number: (sketches[number].triples, number))
        for at, number in enumerate(order[1:], 1):
            for earlier in order[max(0, at - _NEIGHBOURS) : at]:
                if find(ids[number]) != find(ids[earlier]) and sketches[number].is_near(sketches[earlier]):
                    join(ids[number], ids[earlier])
    named: dict[str, str] = {}
    for one, name in sorted((given or {}).items()):
        if name and one in leader:
            join(named.setdefault(name, one), one)
    return {one: find(one) for one in ids}


def group_tasks(tasks: Iterable[Task], files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the group of every task by its id. files: of the task set, compared as far as workspaces hold them."""
    tasks = list(tasks)
    return find_groups({task.id: task_text(task, files) for task in tasks}, {task.id: task.group for task in tasks})


def task_text(task: Task, files: Mapping[str, bytes]) -> str:
    """Return what a program is given of a task, as one text."""
    fixtures = task_fixtures(task, files)
    shown = "\n".join(f"{path}\n{data.decode('utf-8', 'replace')}" for path, data in sorted(fixtures.items()))
    return f"{task.prompt}\n{shown[:_MAX_FILE_TEXT]}"


def sketch_tasks(tasks: Iterable[Task], files: Mapping[str, bytes]) -> list[TextSketch]:
    """Return the sketches of these tasks, in order."""
    return [TextSketch.of(task_text(task, files)) for task in tasks]
