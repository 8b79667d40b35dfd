"""The frontier of a run: at most k programs, each admitted for being better, none for there being room."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

CAPACITY = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A program with what it scored in validation: the mean, and the mean for each task.

    `name` is unique in a run, `program` the digest. `size` is in bytes and decides ties; so does `cost` per task, where
    it is known.
    """

    name: str
    program: str
    score: float
    size: int = 0
    cost: float | None = None
    scores: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class Admission(StrEnum):
    """Who enters: whoever beats its parent (default), or the paper's rule, whoever beats the worst or finds room."""

    BETTER_THAN_PARENT = "better-than-parent"
    BETTER_THAN_WORST = "better-than-worst"


class Entry(StrEnum):
    """What came of offering a program."""

    ADMITTED = "admitted"
    NOT_BETTER = "not_better"
    BEHIND = "behind"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Offer:
    """The frontier after an offer, whether the program entered, and who left for it."""

    frontier: "Frontier"
    entry: Entry
    evicted: Member | None = None

    @property
    def admitted(self) -> bool:
        """Whether the program is now in the frontier."""
        return self.entry is Entry.ADMITTED


@dataclass(frozen=True, slots=True)
class Frontier:
    """Members in the order of their admission."""

    members: tuple[Member, ...] = ()
    capacity: int = CAPACITY
    admission: Admission = Admission.BETTER_THAN_PARENT

    @property
    def best(self) -> Member | None:
        """The member with the highest score; of equals the smaller, then the one admitted first."""
        return min(self.members, key=lambda member: (-member.score, member.size), default=None)

    @property
    def worst(self) -> Member | None:
        """The member that would leave first: the lowest score; of equals the larger, then the one admitted first."""
        return min(self.members, key=lambda member: (member.score, -member.size), default=None)

    def offer(self, child: Member, *, gain: float = 0.0, parent: Member | None = None) -> Offer:
        """Returns what comes of offering `child`, whose mean paired gain over `parent` is `gain`.

        A program without a parent is the first of a run and enters. A child that beats its parent but would be the
        worst of a full frontier stays out as `behind`.
        """
        if any(member.program == child.program for member in self.members):
            return Offer(self, Entry.DUPLICATE)
        if parent is not None and not self._deserves(child, gain, parent):
            return Offer(self, Entry.NOT_BETTER)
        full = (*self.members, child)
        if len(full) <= self.capacity:
            return Offer(replace(self, members=full), Entry.ADMITTED)
        # The newcomer has to beat the worst outright: as good as it and no smaller does not push it out.
        worst = self.worst
        if worst is None or not (child.score, -child.size) > (worst.score, -worst.size):
            return Offer(self, Entry.BEHIND)
        kept = tuple(member for member in full if member is not worst)
        return Offer(replace(self, members=kept), Entry.ADMITTED, worst)

    def _deserves(self, child: Member, gain: float, parent: Member) -> bool:
        if self.admission is Admission.BETTER_THAN_WORST:
            return True
        return gain > 0 or (gain == 0 and cheaper(child, parent))


def cheaper(child: Member, parent: Member) -> bool:
    """Tells whether a tie goes to the child: strictly smaller, or as large and strictly cheaper."""
    if child.size != parent.size:
        return child.size < parent.size
    return child.cost is not None and parent.cost is not None and child.cost < parent.cost
