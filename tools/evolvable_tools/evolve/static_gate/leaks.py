"""Words of tasks that a resource repeats: five in a row, or an answer. What stood there before is not news."""

import base64
import binascii
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evolvable_tools.evolve.task import Split, Task

N = 5
"""Words in a row that two texts share by more than chance."""

COMMON = 0.5
"""Share of the tasks in which a run of words stands that belongs to the task set and to no task."""

MANY = 8
"""Tasks from which there is such a share."""

MAX_TOLD = 5
"""Leaks of one text that are told."""

_WORD = re.compile(r"\w+")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,4000}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){4,2000}\b")
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+%?")


@dataclass(frozen=True, slots=True)
class Leak:
    """What a text repeats. source: prompt (of a training task), val, expected or judge; task: '' where it is hidden.

    words: what is repeated. Only a training prompt's are told on: whoever proposes learns of this text.
    """

    source: str
    task: str
    words: str

    def __str__(self) -> str:
        if self.source == "prompt":
            return f"it repeats words of task {self.task}: {self.words}"
        whose = {"val": "a task of validation", "expected": "an expected answer", "judge": "what a judge looks for"}
        return f"it repeats words of {whose[self.source]}"


class Corpus:
    """What no resource may repeat: prompts, expected answers and judges' texts of the tasks that are open."""

    def __init__(self, tasks: Sequence[Task], judge_texts: Iterable[str] = (), n: int = N) -> None:
        """Raises ValueError for a sealed task: nobody may look into it, this included."""
        sealed = [task.id for task in tasks if task.split is Split.TEST]
        if sealed:
            raise ValueError(f"{len(sealed)} sealed tasks were given, such as {sealed[0]}")
        self._n = n
        self._runs: dict[tuple[str, ...], tuple[str, str]] = {}
        self._answers: set[tuple[str, ...]] = set()
        shared = self._shared(tasks)
        for source, task, text in _texts(tasks, judge_texts):
            words = words_of(text)
            for run in _runs(words, n):
                if not (source in ("prompt", "val") and run in shared):
                    self._runs.setdefault(run, (source, task))
            if source == "expected" and _telling(text, words) and len(words) < n:
                self._answers.add(tuple(words))
        self._lengths = sorted({len(words) for words in self._answers})

    def leaks(self, text: str, before: str = "") -> list[Leak]:
        """Returns what a text repeats and `before` did not, the first few, each task and source once."""
        found: dict[tuple[str, str], Leak] = {}
        old = set(self._hits(before)) if before else set()
        for source, task, run in self._hits(text):
            if (source, task, run) not in old:
                found.setdefault((source, task), Leak(source, task, " ".join(run)))
        return list(found.values())[:MAX_TOLD]

    def _hits(self, text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        for view in _views(text):
            words = words_of(view)
            for run in _runs(words, self._n):
                if run in self._runs:
                    yield *self._runs[run], run
            for length in self._lengths:
                for run in _runs(words, length):
                    if run in self._answers:
                        yield "expected", "", run

    def _shared(self, tasks: Sequence[Task]) -> set[tuple[str, ...]]:
        """Returns the runs of words that stand in more than half of the prompts: the set's own wording."""
        if len(tasks) < MANY:
            return set()
        counts: Counter[tuple[str, ...]] = Counter()
        for task in tasks:
            counts.update(set(_runs(words_of(task.prompt), self._n)))
        return {run for run, count in counts.items() if count > COMMON * len(tasks)}


def words_of(text: str) -> list[str]:
    """Returns the words of a text as they are compared: without case, invisible signs and forms of letters."""
    return _WORD.findall(_UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold())


def _texts(tasks: Sequence[Task], judge_texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    for task in tasks:
        if task.split is Split.TRAIN:
            yield "prompt", task.id, task.prompt
        else:
            yield "val", "", task.prompt
        if task.expected:
            yield "expected", "", task.expected
        yield from (("judge", "", text) for text in _strings(_nameless(task.scorer.args)))
    yield from (("judge", "", text) for text in judge_texts)


def _nameless(args: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of a scorer without the name of a registered one, which tells no answer."""
    return {key: value for key, value in args.items() if key != "name"}


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)


def _runs(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def _telling(text: str, words: Sequence[str]) -> bool:
    """Returns whether a short answer standing in a resource is more than chance: no `yes`, no year, no 1000."""
    bare = text.strip()
    if _NUMBER.fullmatch(bare):
        digits = re.sub(r"\D", "", bare)
        year = re.fullmatch(r"(?:19|20)\d\d", bare) is not None
        return len(digits.strip("0")) >= 3 and len(digits) >= 4 and not year
    return sum(map(len, words)) >= 6


def _views(text: str) -> Iterator[str]:
    """Yields a text, and what is written in it in base64 or as hexadecimal digits."""
    yield text
    for found in _BASE64.finditer(text):
        plain = found[0].rstrip("=").replace("-", "+").replace("_", "/")
        yield from _decoded(lambda raw: base64.b64decode(raw + "=" * (-len(raw) % 4), validate=True), plain)
    for found in _HEX.finditer(text):
        yield from _decoded(bytes.fromhex, found[0])


def _decoded(decode: Callable[[str], bytes], raw: str) -> Iterator[str]:
    try:
        plain = decode(raw).decode("utf-8")
    except (ValueError, binascii.Error):
        return
    if plain.isprintable() or "\n" in plain:
        yield plain
