"""What the shared embedder answers. Light, for every server imports it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Similar:
    """How near resources are to a task, by their ids.

    cosines: of name and description, for the ids asked that have vectors and for the nearest. nearest: ids, best
    first. said: one line on the model, or on why nothing is known. available: whether anything is known.
    """

    cosines: Mapping[int, float] = field(default_factory=dict)
    nearest: tuple[int, ...] = ()
    said: str = ""
    available: bool = False


@dataclass(frozen=True, slots=True)
class Described:
    """The resource whose description alone is nearest to a task, as id and cosine; None when no cosine is above 0."""

    best: tuple[int, float] | None = None
    said: str = ""
    available: bool = False
