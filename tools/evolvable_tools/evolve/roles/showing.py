"""How evidence is shown: redacted, without the answers that were expected, and cut to what a model can hold."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from evolvable_tools.evolve.program import Part
from evolvable_tools.evolve.rollout import Trial
from evolvable_tools.evolve.task import Split, Task

MASK = "[expected answer]"
"""What stands where an answer that was expected stood."""

_TELLING = 3  # characters from which a piece of a structured answer is masked by itself


@dataclass(frozen=True, slots=True)
class Evidence:
    """One trial on a training task, as a reason for a change. passed: by the run's own bar. why: why it was kept."""

    task: Task
    trial: Trial
    passed: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """How much is shown: characters at the head and the tail of a trace, lines of history, trials that failed."""

    head: int
    tail: int
    history: int
    failures: int


LADDER = (Cut(60_000, 60_000, 1_000, 1_000), Cut(20_000, 10_000, 20, 3), Cut(5_000, 2_000, 5, 2), Cut(2_000, 500, 3, 1))
"""From all to the least. The first whose question is not too long is taken."""

MAX_QUESTION = 240_000
"""Characters of the data of one question."""


def shown(evidence: Evidence, cut: Cut) -> dict[str, Any]:
    """Returns what a brain may see of one trial. Raises ValueError for a task that is not for training."""
    task, trial = evidence.task, evidence.trial
    if task.split is not Split.TRAIN:
        raise ValueError(f"task {task.id} belongs to {task.split}, nobody may learn from it")
    hide = masker(task.expected, task.prompt)
    said = {
        "task": task.id,
        "category": task.category,
        "prompt": shortened(task.prompt, cut.head, cut.tail),
        "result": "passed" if evidence.passed else "failed",
        "why_shown": evidence.why,
        "outcome": str(trial.outcome),
        "score": trial.score,
        "answer": shortened(hide(trial.output), cut.head, cut.tail),
        "trace": shortened(hide(trial.trace), cut.head, cut.tail),
        "feedback": hide(trial.feedback),
        "resources_read": list(trial.read),
    }
    return {key: value for key, value in said.items() if value not in ("", [], None)}


def chosen(evidence: Sequence[Evidence], cut: Cut) -> list[Evidence]:
    """Returns the trials that are shown: failures first, as many as the cut allows, and as many successes."""
    failed = [one for one in evidence if not one.passed]
    passed = [one for one in evidence if one.passed]
    shortest = sorted(failed, key=lambda one: len(one.trial.trace)) if len(failed) > cut.failures else failed
    kept = shortest[: cut.failures]
    return [one for one in evidence if one in kept] + passed[: cut.failures]


def resources(parts: Sequence[Part], most: int = 40_000) -> list[dict[str, Any]]:
    """Returns the texts of a program; what is no text, or longer than `most` characters, is only named."""
    return [
        {"ref": part.ref, "files": [_file(path, part.files[path], most) for path in sorted(part.files)]}
        for part in parts
    ]


def masker(expected: str | None, prompt: str = "") -> "Masker":
    """Returns what hides an expected answer in a text, whole or its telling pieces; not what the prompt says too."""
    pieces = dict.fromkeys(piece for piece in _pieces(expected or "") if piece and not _stands_in(piece, prompt))
    return Masker(tuple(sorted(pieces, key=len, reverse=True)))


@dataclass(frozen=True, slots=True)
class Masker:
    """Hides texts in other texts."""

    pieces: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Returns the text with MASK in the place of each piece; case and the width of spaces do not matter."""
        for piece in self.pieces:
            text = _pattern(piece).sub(MASK, text)
        return text


def shortened(text: str, head: int, tail: int) -> str:
    """Returns a text with its middle left out, where it is longer than head and tail together."""
    left_out = len(text) - head - tail
    return text if left_out <= 0 else f"{text[:head]}\n[{left_out:,} characters left out]\n{text[-tail:]}"


def _pieces(expected: str) -> Iterator[str]:
    """Yields an expected answer, and where it is JSON its values."""
    yield expected.strip()
    try:
        value = json.loads(expected)
    except (ValueError, RecursionError):
        return
    for leaf in _leaves(value):
        if isinstance(value, Mapping | list) and len(leaf) < _TELLING:
            continue
        yield leaf
        with suppress(ValueError):
            yield f"{int(leaf):,}"


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str):
        yield value.strip()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


def _pattern(piece: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in piece.split())
    before = r"(?<!\w)(?<!\d[.,])" if piece[:1].isalnum() else ""
    after = r"(?!\w)(?![.,]\d)" if piece[-1:].isalnum() else ""
    # The choice "A" is not every "a".
    return re.compile(f"{before}{words}{after}", re.IGNORECASE if len(piece) >= _TELLING else 0)


def _stands_in(piece: str, prompt: str) -> bool:
    return _pattern(piece).search(prompt) is not None


def _file(path: str, data: bytes, most: int) -> dict[str, Any]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"path": path, "bytes": len(data), "text": None}
    if len(text) > most or "\0" in text:
        return {"path": path, "bytes": len(data), "text": None}
    return {"path": path, "text": text}
