"""What a scorer raises when it cannot say anything about an answer."""

from evolvable_store.errors import EvolvableError
from evolvable_tools.evolve.rollout import Usage


class ScorerTrouble(EvolvableError):
    """The scorer failed, not the answer: the trial is an infrastructure error and never a 0.

    `usage` is what was spent all the same.
    """

    def __init__(self, text: str, hint: str = "", usage: Usage | None = None) -> None:
        super().__init__(text, hint)
        self.usage = usage or Usage()


class JudgeRefused(ScorerTrouble):
    """A judge was to score that was not calibrated, or did not pass its calibration."""
