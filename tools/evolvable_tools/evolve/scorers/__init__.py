"""Scorers: what says how good an answer is. A scorer that cannot say raises ScorerTrouble and never returns 0."""

from evolvable_tools.evolve.scorers.numeric import numeric_strict
from evolvable_tools.evolve.scorers.officeqa import officeqa_compat
from evolvable_tools.evolve.scorers.scoring import SCORERS, argument_problem, score
from evolvable_tools.evolve.scorers.trouble import JudgeRefused, ScorerTrouble

__all__ = [
    "SCORERS",
    "JudgeRefused",
    "ScorerTrouble",
    "argument_problem",
    "numeric_strict",
    "officeqa_compat",
    "score",
]
