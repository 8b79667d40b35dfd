"""SkillMAS's utility Q(resource, task type): learned from outcomes, one update for each episode."""

from collections.abc import Iterable
from dataclasses import dataclass

from evolvable_store.storage.evidence import Attempt, Outcome

REWARDS = {Outcome.SUCCEEDED: 1.0, Outcome.PARTIAL: 0.0, Outcome.FAILED: 0.0}
"""The verified outcome as SkillMAS has it, 0 or 1: what was done in part has not succeeded."""


@dataclass(frozen=True, slots=True)
class Utility:
    """A value of Q after n updates. `value` means nothing while n is 0."""

    value: float = 0.0
    n: int = 0

    def updated(self, reward: float) -> "Utility":
        """Returns the utility after one more episode: Q + α(R - Q) with α = 1/(1+n).

        Source: SkillMAS, utility learning. The first update has α = 1, so Q is the running mean of the rewards.
        """
        alpha = 1 / (1 + self.n)
        return Utility(self.value + alpha * (reward - self.value), self.n + 1)


def utilities(attempts: Iterable[Attempt]) -> dict[tuple[int, str], Utility]:
    """Returns Q by resource and task type ('' where none was told) after these attempts, one of each episode.

    Only what was used and ended in a way that is known counts. The order in which the attempts come, or were stored,
    changes nothing: they are replayed by their time and key.
    """
    learned: dict[tuple[int, str], Utility] = {}
    for attempt in sorted(attempts, key=lambda one: (one.at, one.key, one.resource)):
        if attempt.used and attempt.outcome in REWARDS:
            key = (attempt.resource, attempt.task_type or "")
            learned[key] = learned.get(key, Utility()).updated(REWARDS[attempt.outcome])
    return learned
