"""The loops of a search over postings: compiled where the installation found a compiler, else in Python.

Both give the same numbers to the last bit.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evolvable_store.plain_sums import Sums, weights_at
else:
    try:
        from evolvable_store._sums import Sums, weights_at
    except ImportError:
        from evolvable_store.plain_sums import Sums, weights_at

COMPILED = Sums.__module__.endswith("._sums")
"""Whether they are compiled."""

__all__ = ["COMPILED", "Sums", "weights_at"]
