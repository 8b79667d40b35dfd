"""Arrays of vectors, one row for a text or a token: brought to one length, stored as bytes, and
compared.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
TokenVectors: TypeAlias = NDArray[np.int8]
"""One row for each token, scaled so that its largest number is 127."""

KEPT_TOKENS = 64
"""Tokens of a text whose vectors are stored, one byte for each number: 24 KB of a text with
MiniLM's 384 numbers.
"""


def normalize_rows(rows: Floats) -> Floats:
    """Return the rows brought to length 1; a row of nothing but zeros, or of no numbers, becomes
    zeros.
    """
    # A broken model may return NaN or infinity, which would spread to every sum with it.
    rows = rows.astype(np.float32, copy=False)
    rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    # The bound keeps a row of zeros from a division by zero.
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)


def unpack_vector(vector: bytes) -> Floats:
    """Return the numbers of a stored vector."""
    return np.frombuffer(vector, "<f2").astype(np.float32)


def quantize_tokens(states: Floats) -> TokenVectors:
    """Return vectors of tokens as bytes; only their directions matter.

    Rows of no numbers become zeros.
    """
    states = np.nan_to_num(states[:KEPT_TOKENS], nan=0.0, posinf=0.0, neginf=0.0)
    largest = np.maximum(np.abs(states).max(axis=1, keepdims=True, initial=0.0), 1e-12)
    return np.asarray(np.rint(states * (127 / largest)), dtype=np.int8)


def late_interaction(task: Floats, text: TokenVectors) -> float:
    """Return the mean over the task's tokens of the best cosine with a token of the text; 0 where
    either has none.

    task: rows of length 1.
    """
    if not len(task) or not len(text):
        return 0.0
    # Only the text's rows: bytes lose their length, and the task's rows have it.
    return float((task @ normalize_rows(text.astype(np.float32)).T).max(axis=1).mean())
