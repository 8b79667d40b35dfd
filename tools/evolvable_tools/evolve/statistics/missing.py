"""Trials without a result, by arm: whether they could explain a gain."""

from dataclasses import dataclass

from evolvable_tools.evolve.statistics.staged_test import missing_p_value

MANY_MISSING = 0.02
"""The share of an arm's trials above which missing ones may matter, however they are spread."""

SUSPICIOUS = 0.1
"""The p-value of more missing in one arm, under which they may matter."""


@dataclass(frozen=True, slots=True)
class MissingTrials:
    """Trials of each arm that came to no result, of `each` that were to be run."""

    base: int
    finalist: int
    each: int

    @property
    def any(self) -> bool:
        """Whether any is missing."""
        return self.base + self.finalist > 0

    @property
    def many(self) -> bool:
        """Whether more than the usual share of an arm is missing."""
        return max(self.base, self.finalist) > MANY_MISSING * self.each

    @property
    def p(self) -> float:
        """The one-sided exact p-value of one arm missing more than the other, for the worse arm."""
        more, fewer = max(self.base, self.finalist), min(self.base, self.finalist)
        return missing_p_value(fewer, more, self.each)

    @property
    def matters(self) -> bool:
        """Whether the claim has to hold with every missing trial counted as failed, too."""
        return self.any and (self.many or self.p < SUSPICIOUS)

    def __str__(self) -> str:
        return (
            f"Missing: {self.base} of {self.each} trials of the base, {self.finalist} of {self.each} of the finalist."
        )
