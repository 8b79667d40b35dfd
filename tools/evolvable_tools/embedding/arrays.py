"""What the modules that work with vectors share: the types of arrays, and rows of length 1."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]


def unit(rows: Floats) -> Floats:
    """Returns the rows brought to length 1; a row of nothing but zeros, or of no numbers, becomes zeros."""
    rows = np.nan_to_num(rows.astype(np.float32, copy=False), nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)
