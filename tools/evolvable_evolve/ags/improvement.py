"""What the messages of a run say of changes of its own program: what was tried, what it came to,
what is in force.

A change lives in the run alone. What is in force when the run ends becomes a proposal, about which
a person decides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evolvable_tools.llm import printable_line

IMPROVER = "improver"
"""The name of the model that reflects and builds, as sender and receiver."""

MAX_IMPROVEMENTS = 3
"""Changes that one run tries."""


class ImprovementStep(StrEnum):
    """What a message of an improvement says."""

    BEGUN = "begun"
    ANSWER = "answer"
    """Of a model: of the proposer or of the builder."""

    TRIAL = "trial"
    DECIDED = "decided"


class TrialArm(StrEnum):
    """Which program an item was run under again."""

    BEFORE = "before"
    AFTER = "after"


@dataclass
class Improvement:
    """One change of the program that a run tried.

    round: after which it was tried. agent: the ref of the agent whose program it is. items: those
    that were run again. base: the digest of the program as it was. versions: of its parts in the
    library, by ref. answers: artefacts, by that of the question; unanswered: why there is none.
    trials: whether an item passed, None where nobody can say. dispatch_counts: how often each piece
    of work was begun. decided: the body of the last message, None before it.
    """

    number: int
    round: int
    agent: str
    items: tuple[str, ...]
    base: str
    versions: Mapping[str, int]
    answers: dict[str, str] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)
    trials: dict[tuple[str, str], bool | None] = field(default_factory=dict)
    dispatch_counts: dict[str, int] = field(default_factory=dict)
    decided: Mapping[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        """Whether its change is in force in the run."""
        return self.decided is not None and bool(self.decided["accepted"])

    @property
    def changed_refs(self) -> tuple[str, ...]:
        """The refs of the parts that it changed in the run, none where it was not accepted."""
        return tuple(self.decided["changed"]) if self.decided is not None and self.accepted else ()

    @property
    def line(self) -> str:
        """The result in one line."""
        if self.decided is None:
            return f"improvement {self.number} of {self.agent} is under way"
        decision, figures = self.decided, ""
        if decision["of"]:
            figures = (
                f"; {decision['after']} of {decision['of']} items pass with it, "
                f"{decision['before']} without"
            )
        if not decision["accepted"]:
            return printable_line(
                f"improvement {self.number} of {self.agent} was not kept: "
                f"{decision['why']}{figures}"
            )
        return printable_line(
            f"{', '.join(decision['changed'])} changed in this run: {decision['summary']}{figures}"
        )


@dataclass(frozen=True, slots=True)
class CommittedPart:
    """A part that a run changed for itself.

    version: of the library, which it changes. program: the digest with it.
    """

    version: int
    program: str


def take_improvement(found: list[Improvement], body: Mapping[str, Any], round: int) -> None:
    """Change the improvements of a run by one message of them; a dispatch has no step."""
    number = body["improve"]
    if body.get("step") == ImprovementStep.BEGUN:
        found.append(
            Improvement(
                number,
                round,
                body["agent"],
                tuple(body["items"]),
                body["base"],
                dict(body["versions"]),
            )
        )
        return
    improvement = found[number - 1]
    if "step" not in body:
        # A dispatch: counted by what it is for, so that a second one of the same gets another id.
        work = body["dispatch"].rpartition(".")[0]
        improvement.dispatch_counts[work] = improvement.dispatch_counts.get(work, 0) + 1
        return
    match body["step"]:
        case ImprovementStep.ANSWER if "text" in body:
            improvement.unanswered[body["question"]] = body["text"]
        case ImprovementStep.ANSWER:
            improvement.answers[body["question"]] = body["answer"]
        case ImprovementStep.TRIAL:
            improvement.trials[body["arm"], body["tried"]] = body["passed"]
        case ImprovementStep.DECIDED:
            improvement.decided = body


def committed_parts(found: Iterable[Improvement]) -> dict[str, CommittedPart]:
    """Return the parts that are in force in the run, by ref; of one part the newest change."""
    committed: dict[str, CommittedPart] = {}
    for improvement in found:
        if improvement.decided is not None:
            committed |= {
                ref: CommittedPart(improvement.versions[ref], improvement.decided["candidate"])
                for ref in improvement.changed_refs
            }
    return committed
