"""What is seen of a run while its events are read: the words, the steps, what was spent, and how it ended."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.rollout import Outcome
from evolvable_tools.llm import parse_json, printable_line

MAX_STEP = 4_000
"""Characters of one step of a trace."""

MAX_TRACE = 200_000
"""Characters of a trace; what is too much is left out in its middle."""

_BUSY = re.compile(r"\b(?:429|529|503)\b|overloaded|rate.?limit|too many requests|usage limit|quota", re.IGNORECASE)
_NOT_OURS = re.compile(
    r"API Error|\b(?:401|403|408|5\d\d)\b|authenticat|unauthorized|invalid.{0,9}(?:api|x-api).?key|credit balance"
    r"|log.?in"
    r"|connection|network|disconnect|timed? ?out|reconnect|ECONN|ENOTFOUND|stream (?:closed|error)|unexpected status",
    re.IGNORECASE,
)
_WAIT = re.compile(r"(?:retry|try again)[^0-9]{0,20}(\d+(?:\.\d+)?)\s*(ms|s\b|sec|m\b|min)?", re.IGNORECASE)


@dataclass(slots=True)
class Seen:
    """A run as its events tell it. progress: the model has said or done something.

    failure: what the client says of a run that failed, status: the HTTP status in it. trouble: why the client asks the
    provider again, as long as nothing has come of it. ended: the run came to its end, well or not. limit: it was ended
    for its own length.
    """

    output: str = ""
    steps: list[str] = field(default_factory=list)
    read: dict[str, None] = field(default_factory=dict)
    given: int = 0
    got: int = 0
    calls: int = 0
    cost: float | None = None
    progress: bool = False
    ended: bool = False
    failure: str = ""
    status: int | None = None
    trouble: str = ""
    limit: bool = False

    def moves(self) -> None:
        """Notes that the model has said or done something."""
        self.progress, self.trouble = True, ""

    def step(self, who: str, what: object) -> None:
        """Adds one step to the trace."""
        text = what if isinstance(what, str) else json.dumps(what, ensure_ascii=False, default=str)
        middle = f"{text[: MAX_STEP // 2]} […] {text[-MAX_STEP // 2 :]}" if len(text) > MAX_STEP else text
        self.steps.append(f"{who}: {middle}")

    def reads(self, text: str, places: Mapping[str, Path]) -> None:
        """Notes the parts whose files a path or a command names."""
        for ref, place in places.items():
            # A folder of skills may be written by its place in the configuration alone.
            if str(place) in text or f"/{place.parent.name}/{place.name}/" in text:
                self.read.setdefault(ref)

    @property
    def trace(self) -> str:
        """All steps in one text."""
        text = "\n".join(self.steps)
        half = MAX_TRACE // 2
        return text if len(text) <= MAX_TRACE else f"{text[:half]}\n[…]\n{text[-half:]}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run counts: by its score where there is no outcome. wait: see Rollout.retry_after."""

    outcome: Outcome | None = None
    detail: str = ""
    wait: float | None = None


def ending(seen: Seen, *, timed_out: bool, code: int | None, last_words: str) -> Ending:
    """Returns how a run counts. What is no verdict on the program is an infrastructure error."""
    if timed_out and seen.trouble:
        return Ending(
            Outcome.INFRA_ERROR, f"nothing came back in time: {printable_line(seen.trouble)}", _wait(seen.trouble)
        )
    if timed_out and seen.progress:
        return Ending(Outcome.AGENT_TIMEOUT, "it was not done in time")
    if timed_out:
        return Ending(Outcome.INFRA_ERROR, "nothing came back in time")
    if seen.limit:
        return Ending(Outcome.AGENT_TIMEOUT, printable_line(seen.failure) or "it took too many turns")
    if seen.failure:
        return _failed(seen)
    if not seen.ended or not seen.progress:
        why = f"it ended with exit code {code} before its answer"
        return Ending(
            Outcome.INFRA_ERROR,
            f"{why}: {printable_line(last_words)}" if last_words.strip() else why,
            _wait(last_words),
        )
    return Ending()


def _failed(seen: Seen) -> Ending:
    wait = _wait(seen.failure)
    if wait is None and seen.status in (429, 529, 503):
        wait = 0.0
    foreign = seen.status is not None and (seen.status in (401, 403, 408, 429) or seen.status >= 500)
    if foreign or wait is not None or _NOT_OURS.search(seen.failure) or not seen.progress:
        return Ending(Outcome.INFRA_ERROR, printable_line(seen.failure), wait)
    return Ending(None, printable_line(seen.failure))


def _wait(text: str) -> float | None:
    """Returns the seconds that a provider asks for, 0 where it is only busy, None where it is not."""
    if not _BUSY.search(text):
        return None
    said = _WAIT.search(text)
    if said is None:
        return 0.0
    unit = (said[2] or "s").lower()
    return float(said[1]) * (0.001 if unit == "ms" else 60.0 if unit.startswith("m") else 1.0)


def events(out: bytes) -> Iterator[Mapping[str, Any]]:
    """Yields the JSON objects in the lines of an output; a line that is none, or is half, is passed over."""
    for line in out.split(b"\n"):
        found = parse_json(line.decode("utf-8", "replace")) if line.startswith(b"{") else None
        if isinstance(found, dict):
            yield found
