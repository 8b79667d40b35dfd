"""Scorers: what says how good an answer is. A scorer that cannot say raises ScorerTrouble and never returns 0."""

from evolvable_tools.evolve.scorers.numeric import numeric_strict, officeqa_compat
from evolvable_tools.evolve.scorers.registry import SCORERS, argument_problem, score_output
from evolvable_tools.evolve.task import JudgeRefused, ScorerError

__all__ = [
    "SCORERS",
    "JudgeRefused",
    "ScorerError",
    "argument_problem",
    "numeric_strict",
    "officeqa_compat",
    "score_output",
]
