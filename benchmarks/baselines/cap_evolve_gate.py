"""cap-evolve's gate for comparison: a gain on validation above k standard errors, or one of its
simpler rules.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from baselines.repeats import standard_error
from evolvable_evolve.evolution.statistics.verdict import MIN_COVERAGE
from evolvable_store.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the candidate goes on, its gain and what it had to exceed; or that too little was
    measured.
    """

    accept: bool
    delta: float
    threshold: float
    indecisive: bool = False


def decide(
    current: float,
    candidate: float,
    mode: str,
    *,
    differences: Sequence[float] = (),
    k: float = 1.0,
    errors: tuple[float, float] = (0.0, 0.0),
    threshold: float = 0.0,
    sizes: tuple[int, int] = (0, 0),
    coverage: float = 1.0,
    least_coverage: float = MIN_COVERAGE,
) -> Decision:
    """Return the decision by `mode`: paired, significant, threshold, strict or
    simplicity_tiebreak.

    `errors` and `sizes` are those of the current program and of the candidate. Without
    `differences` the paired mode is the significant one. Raises InvalidArgument for another mode.
    """
    delta = candidate - current
    if coverage < least_coverage:
        return Decision(False, delta, 0.0, True)
    if mode == "paired" and differences:
        delta, limit = fmean(differences), k * standard_error(differences)
    elif mode in ("paired", "significant"):
        limit = k * math.hypot(*errors)
    elif mode in ("threshold", "strict", "simplicity_tiebreak"):
        limit = threshold if mode == "threshold" else 0.0
    else:
        raise InvalidArgument(f"There is no mode {mode}.")
    simpler = mode == "simplicity_tiebreak" and delta == 0 and sizes[1] < sizes[0]
    return Decision(delta > limit or simpler, delta, limit)
