"""Dealing tasks out to train, val and test: by a stable hash, every category in its share."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

from evolvable_store.errors import InvalidArgument
from evolvable_tools.evolve.task import Split

RARE = "_rare"
"""Where categories of a single task are put together for dealing."""

SYNTHETIC = "synthetic"


@dataclass(frozen=True, slots=True)
class Ratios:
    """The shares of train and val; what is left is the test."""

    train: float = 0.25
    val: float = 0.25

    def __post_init__(self) -> None:
        """Raises InvalidArgument when they leave nothing, or are none."""
        if not (0 <= self.train <= 1 and 0 <= self.val <= 1 and self.train + self.val <= 1):
            raise InvalidArgument(
                f"{self.train:g} for train and {self.val:g} for val are no shares of one whole.",
                "Each is from 0 to 1, and together at most 1; the test is what is left.",
            )


@dataclass(frozen=True, slots=True)
class Dealt:
    """A task as dealing sees it: `group` is equal for tasks that must not be parted, `split` None where it is open."""

    id: str
    category: str
    group: str
    split: Split | None
    source: str


def deal(tasks: Sequence[Dealt], ratios: Ratios) -> dict[str, Split]:
    """Returns the split of every task by its id.

    Splits that are given stay, and count. Of all tasks the floor of each share goes to train and to val, over the
    categories by largest remainder, at least one of each category of two or more; the rest is the test. Categories of
    one task are dealt as one category, and a last single one goes to train. Within a category the order is that of
    a hash of the id, train from one end and test from the other, so a task that is added later moves few others. What
    a model made up goes to train alone. Equal tasks stay together.
    """
    splits = {task.id: task.split for task in tasks if task.split is not None}
    placed = {task.group: task.split for task in tasks if task.split is not None}
    members = _members(tasks)
    sizes = {name: len(own) for name, own in members.items()}
    left = {}
    for split, ratio in ((Split.TRAIN, ratios.train), (Split.VAL, ratios.val)):
        given = {name: sum(task.split is split for task in own) for name, own in members.items()}
        left[split] = {name: share - given[name] for name, share in _shares(sizes, ratio, given).items()}
    for name, own in members.items():
        _deal_one([task for task in own if task.split is None], {split: left[split][name] for split in left}, placed)
    return splits | {task.id: placed[task.group] for task in tasks if task.split is None}


def _members(tasks: Sequence[Dealt]) -> dict[str, list[Dealt]]:
    """Returns the tasks of each category in the order of their hashes, open single ones put together."""
    by_category: dict[str, list[Dealt]] = defaultdict(list)
    for task in tasks:
        by_category[task.category].append(task)
    for name in [name for name, own in by_category.items() if len(own) == 1 and own[0].split is None]:
        by_category[RARE] += by_category.pop(name)
    return {name: sorted(own, key=_rank) for name, own in sorted(by_category.items())}


def _rank(task: Dealt) -> str:
    return hashlib.sha256(task.id.encode()).hexdigest()


def _shares(sizes: Mapping[str, int], ratio: float, given: Mapping[str, int]) -> dict[str, int]:
    """Returns how many of each category go to a split, those already given counted in."""
    if ratio == 0:
        return dict(given)
    target = floor(sum(sizes.values()) * ratio + 1e-9)
    exact = {name: size * ratio for name, size in sizes.items()}
    least = {name: max(given[name], int(size >= 2)) for name, size in sizes.items()}
    shares = {name: max(floor(exact[name] + 1e-9), least[name]) for name in sizes}
    for name in sorted(sizes, key=lambda name: (shares[name] - exact[name], name)):
        if sum(shares.values()) < target and shares[name] < sizes[name]:
            shares[name] += 1
    while sum(shares.values()) > target:
        # What the smallest categories get beyond their share is paid by those that have most beyond theirs.
        payers = [name for name in sizes if shares[name] > least[name]]
        if not payers:
            break
        shares[max(payers, key=lambda name: (shares[name] - exact[name], name))] -= 1
    return shares


def _deal_one(tasks: Sequence[Dealt], left: dict[Split, int], placed: dict[str, Split]) -> None:
    """Deals the open tasks of one category by noting the split of each group; a group follows its first task."""
    only = len(tasks) == 1 and not any(left.values())
    for task in sorted(tasks, key=lambda task: task.source != SYNTHETIC):
        if task.group not in placed:
            if task.source == SYNTHETIC or only or left[Split.TRAIN] > 0:
                placed[task.group] = Split.TRAIN
            else:
                placed[task.group] = Split.VAL if left[Split.VAL] > 0 else Split.TEST
        split = placed[task.group]
        if split in left:
            left[split] -= 1
