"""The changes of a run's own program by its messages: those tried, their results, those in force.

A change holds in the run alone. The changes in force at the end of the run become proposals, about
which a person decides.
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
    """The step that a message of an improvement records."""

    BEGUN = "begun"
    ANSWER = "answer"
    """Of a model: of the proposer or of the builder."""

    TRIAL = "trial"
    DECIDED = "decided"


class TrialArm(StrEnum):
    """The program under which an item was run again."""

    BEFORE = "before"
    AFTER = "after"


@dataclass
class Improvement:
    """One change of the program that a run tried.

    round: after which it was tried. agent: the ref of the agent whose program it is. items: those
    that were run again. base: the digest of the program before. versions: of its parts in the
    library, by ref. answers: the artefact of each answer, by that of the question. unanswered: why
    a question has no answer. trials: whether an item passed, None where that is unknown.
    dispatch_counts: the number of dispatches of each piece of work. decided: the body of the last
    message, None before it.
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
            passed, before = f"{decision['after']} of {decision['of']}", decision["before"]
            figures = f"; {passed} items pass with it, {before} without"
        if decision["accepted"]:
            changed = ", ".join(decision["changed"])
            text = f"{changed} changed in this run: {decision['summary']}{figures}"
        else:
            name = f"improvement {self.number} of {self.agent}"
            text = f"{name} was not kept: {decision['why']}{figures}"
        return printable_line(text)


@dataclass(frozen=True, slots=True)
class CommittedPart:
    """A part that a run changed for itself.

    version: of the library, from which the change was made. program: the digest of the changed one.
    """

    version: int
    program: str


def take_improvement(improvements: list[Improvement], body: Mapping[str, Any], round: int) -> None:
    """Change the improvements of a run by one message of them; a dispatch has no step."""
    number = body["improve"]
    if body.get("step") == ImprovementStep.BEGUN:
        agent, items, versions = body["agent"], tuple(body["items"]), dict(body["versions"])
        improvements.append(Improvement(number, round, agent, items, body["base"], versions))
        return
    improvement = improvements[number - 1]
    if "step" not in body:
        # A dispatch: counted by its work, so that a second one of the same work has another id.
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


def committed_parts(improvements: Iterable[Improvement]) -> dict[str, CommittedPart]:
    """Return the changed parts in force in the run, by ref; of one part the newest change."""
    committed: dict[str, CommittedPart] = {}
    for improvement in improvements:
        if improvement.decided is None:
            continue
        candidate = improvement.decided["candidate"]
        for ref in improvement.changed_refs:
            committed[ref] = CommittedPart(improvement.versions[ref], candidate)
    return committed
