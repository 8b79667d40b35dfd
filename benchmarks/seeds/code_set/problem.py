"""What a problem of the code set is, and the mistakes that the stand-in makes in its first answer
to it.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Case = tuple[tuple[Any, ...], Any]
"""The arguments of `solve`, and what it gives for them."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake. old, new: what is replaced in the right code; both empty for a mistake of the
    answer as a whole.

    kind: the outcome that it has by itself. rule: a line of a prompt that keeps the stand-in from
    it, '' for none.
    """

    kind: str
    old: str = ""
    new: str = ""
    rule: str = ""


CE = Fault("CE", "):\n", ")\n", "format")
RPE = Fault("RpE", rule="format")
TO = Fault("TO")
TLE = Fault("TLE", "):\n", "):\n    while True:\n        pass\n", "limits")
MLE = Fault("MLE", "):\n", "):\n    table = [0] * 10**9\n", "limits")
RE = Fault("RE", "):\n", "):\n    seen = found_before\n")


def edge(old: str, new: str) -> Fault:
    """Return a wrong answer at the edge of the input, which a rule about edges keeps away."""
    return Fault("WA", old, new, "edges")


def logic(old: str, new: str) -> Fault:
    """Return a wrong answer that no rule keeps away."""
    return Fault("WA", old, new)


def slow(old: str, new: str) -> Fault:
    """Return a slower way, which a rule about limits keeps away."""
    return Fault("TLE", old, new, "limits")


def crash(old: str, new: str) -> Fault:
    """Return a change that raises, which a rule about edges keeps away."""
    return Fault("RE", old, new, "edges")


@dataclass(frozen=True)
class Problem:
    """One problem. code: the right answer. shown: cases of the prompt. hidden: arguments of the
    scorer's cases.

    faults: those of the first answer, in the order in which feedback names them.
    """

    name: str
    text: str
    code: str
    shown: list[Case]
    hidden: list[tuple[Any, ...]]
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", self.code.lstrip("\n"))

    def solve(self) -> Callable[..., Any]:
        """Return the right answer as a function."""
        space: dict[str, Any] = {}
        exec(self.code, space)  # our own text
        found: Callable[..., Any] = space["solve"]
        return found

    def hidden_cases(self) -> list[Case]:
        """Return the cases that no prompt shows."""
        solve = self.solve()
        return [(arguments, solve(*copy.deepcopy(arguments))) for arguments in self.hidden]
