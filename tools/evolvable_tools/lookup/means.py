"""What a lookup may use besides the index: an embedder, somebody who judges, and how sure it has to be."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a server answers before it looks anything up
    from evolvable_tools.lookup.stage import Neighbours
    from evolvable_tools.providers.thinker import Thinker

FITS = 0.38
"""Under this confidence nothing fits, unless a library's owner says otherwise."""


@dataclass(frozen=True, slots=True)
class Means:
    """neighbours: the embedder. thinker: who judges where the stages are unsure. caller_thinks: without one, the caller
    is asked to; client_thinks: before that a client that lends its model. fits: the confidence under which nothing
    fits.
    """

    neighbours: "Neighbours | None" = None
    thinker: "Thinker | None" = None
    caller_thinks: bool = False
    client_thinks: bool = False
    fits: float = FITS
