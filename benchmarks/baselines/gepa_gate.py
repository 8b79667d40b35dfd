"""GEPA's first gate for comparison: more points than the parent on a few training tasks earn a
whole validation.
"""

import math
from collections.abc import Sequence


def worth_validating(parent: Sequence[float], child: Sequence[float]) -> bool:
    """Tell whether the child has the greater sum on the same minibatch."""
    return math.fsum(child) > math.fsum(parent)
