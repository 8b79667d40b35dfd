"""A judge as the check of an item: the criterion, the known answers, and the judge's answers.

The planner writes the good and the bad known answers. A judge that does not distinguish them is no
check.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

JUDGE = "judge"
"""The name of the judge as sender and receiver, and as the check of an item in a status."""

# Each known answer is a question of its own to the judge, so there are few of them.
MAX_CRITERION, MAX_KNOWN, MAX_KNOWN_ANSWER = 2_000, 3, 4_000
"""Characters of a criterion, known answers of each side, and characters of one of them."""


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """A question to the judge about the result of an item.

    good, bad: answers whose verdict the planner knows.
    """

    criterion: str
    good: tuple[str, ...]
    bad: tuple[str, ...]

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "JudgeCheck":
        """Return the check of a plan's item, which fits the schema of the planner's answers."""
        return cls(fields["criterion"], tuple(fields["good"]), tuple(fields["bad"]))

    def to_json(self) -> dict[str, Any]:
        """Return the check as plan.md and the bus have it."""
        return {"criterion": self.criterion, "good": list(self.good), "bad": list(self.bad)}

    @property
    def problem(self) -> str:
        """Why it cannot be used, '' where it can."""
        if not self.criterion.strip() or len(self.criterion) > MAX_CRITERION:
            return (
                f"its criterion has {len(self.criterion):,} characters, not 1 to {MAX_CRITERION:,}"
            )
        for side, answers in (("good", self.good), ("bad", self.bad)):
            if not 1 <= len(answers) <= MAX_KNOWN:
                return f"it has {len(answers)} known {side} answers, not 1 to {MAX_KNOWN}"
            if any(len(answer) > MAX_KNOWN_ANSWER for answer in answers):
                return f"a known {side} answer has more than {MAX_KNOWN_ANSWER:,} characters"
        if not all(answer.strip() for answer in self.good):
            return "a known good answer is empty"
        good, bad = (
            {" ".join(answer.split()) for answer in answers} for answers in (self.good, self.bad)
        )
        return "one known answer is both good and bad" if good & bad else ""


@dataclass
class JudgeAnswers:
    """The answers of a run's judge so far.

    answers: the artefact of each answer, by that of the question. unanswered: why a question has no
    answer, by item and question. dispatch_counts: the number of questions about an item. waiting:
    the message of each item that ended and is not judged yet.
    """

    answers: dict[str, str] = field(default_factory=dict)
    unanswered: dict[tuple[str, str], str] = field(default_factory=dict)
    dispatch_counts: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, body: Mapping[str, Any]) -> None:
        """Change them by one message about the judge."""
        item = body["judge"]
        if body.get("unjudged"):
            self.waiting[item] = body
        elif "text" in body:
            self.unanswered[item, body["question"]] = body["text"]
        elif "answer" in body:
            self.answers[body["question"]] = body["answer"]
        else:
            self.dispatch_counts[item] = self.dispatch_counts.get(item, 0) + 1


def judging_text(body: Mapping[str, Any]) -> str:
    """Return a message about the judge in one line for a person."""
    item = body["judge"]
    if body.get("unjudged"):
        return f"{item} ended; its result goes to the judge"
    if "text" in body:
        return f"the judge gave no answer about {item}"
    if "answer" in body:
        return f"the judge answered about {item}"
    return f"the judge is asked about {item}"
