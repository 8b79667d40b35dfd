"""Unfriendly worlds: tasks, and edits whose true effect on them is known, where a gate may be
wrong.

A task passes with a chance that follows from its difficulty and from the effect that each edit has
on it, both on the logistic scale. True gains are means over a fixed sample of the same population.
A program counts as better when it gains more than a quarter of a point.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist

from evolution.scenarios import BASE, Place, Rules, Scenario
from evolution.texts import FRAMES, found_groups, framed_texts, hidden_texts
from evolvable_evolve.evolution.task import (
    ScorerSpec,
    Split,
    SplitRatios,
    SplitRequest,
    Task,
    TaskSet,
    assign_splits,
)

HAIR = 0.0025
"""A gain up to which a program is no better."""

POPULATION = 1500
_MEAN, _SPREAD = 0.3, 2.0
_CATEGORIES = ("amber", "basalt", "cedar", "delta")
_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of edit: its mean gain, how its effect spreads over tasks, or shares of tasks with
    effects of their own.

    fixes: a share of tasks that then always passes, while others pass half as often as before.
    loses: a share that then always fails, while all others gain a little. Both leave the mean where
    it was.
    """

    chance: float
    gain: float = 0.0
    spread: float = 0.0
    fixes: float = 0.0
    loses: float = 0.0


@dataclass(frozen=True, slots=True)
class World:
    """A mix of edits and what is unfriendly about measuring them.

    cluster: tasks that share difficulty and effects. graded: scores between 0 and 1. missing: the
    share of an edited program's failures that come to no result. drift: what the chance gains from
    the first to the last trial, logistic. tokens: the spread of the logarithm of a trial's tokens.
    memorises: an edit fixes the training tasks it was shown.

    shared: how far the effect on a task is that on its cluster, as a correlation. labelled: the set
    says which tasks are a cluster; else only their texts show it. blind: by the rule before 29
    November 2026, which took a number for a word. templates: of the whole set, in all splits alike.
    copies: of each task, dealt as other tasks are. infra: the share of trials of the base and of an
    edited program that come to no result, whatever they would be. paired: the world with which this
    one shares tasks, edits and draws.
    """

    name: str
    mix: Sequence[Kind]
    cluster: int = 1
    graded: bool = False
    missing: float = 0.0
    drift: float = 0.0
    tokens: float = 0.0
    memorises: bool = False
    shared: float = 1.0
    labelled: bool = True
    blind: bool = False
    templates: int = 0
    copies: int = 1
    infra: tuple[float, float] = (0.0, 0.0)
    paired: str = ""


FREQUENT = (Kind(0.5), Kind(0.2, -0.05), Kind(0.2, 0.05), Kind(0.1, 0.10))
_NULL = (Kind(1.0),)
_RANDOM = (Kind(0.5), Kind(0.5, 0.0, 1.2))

WORLDS = (
    World(
        "heterogeneous, useful is frequent", tuple(Kind(k.chance, k.gain, 0.8) for k in FREQUENT)
    ),
    World("heterogeneous, nothing helps", (Kind(0.5), Kind(0.5, 0.0, 1.2))),
    World(
        "clusters of 5, useful is frequent",
        tuple(Kind(k.chance, k.gain, 0.8) for k in FREQUENT),
        cluster=5,
    ),
    World("clusters of 5, nothing helps", (Kind(0.5), Kind(0.5, 0.0, 1.2)), cluster=5),
    World("mixed: fixes 6 %, halves others", (Kind(1.0, fixes=0.06),)),
    World("many small gains, rare large losses", (Kind(1.0, loses=0.05),)),
    World("the same, graded", (Kind(1.0, loses=0.02),), graded=True),
    World("failures of edits missing, nothing helps", _NULL, missing=0.8),
    World("drift, nothing helps", _NULL, drift=1.0),
    World("drift, useful is frequent", FREQUENT, drift=1.0),
    World("heavy tokens, useful is frequent", FREQUENT, tokens=0.8),
    World("edits fit the training tasks shown", _NULL, memorises=True),
)


def hidden_worlds(mix: Sequence[Kind], *, blind: bool = False) -> tuple[World, ...]:
    """Return worlds whose clusters nobody labels.

    blind: grouped by the rule before, which does not see them.
    """
    shapes = [("clusters of 5", {"cluster": 5}), ("clusters of 10", {"cluster": 10})]
    shapes += [("3 templates", {"templates": 3}), ("4 templates", {"templates": 4})]
    more = " (rule before)" if blind else ""
    return tuple(
        World(
            f"hidden {name}, {word}{more}", mix, shared=shared, labelled=False, blind=blind, **shape
        )
        for name, shape in shapes
        for word, shared in (("strong", 1.0), ("mild", 0.7))
    )


def copied_world(*, blind: bool = False) -> World:
    """Return a world with near copies of its tasks, and edits of no use that fit the training tasks
    they were shown.
    """
    more = " (rule before)" if blind else ""
    return World(
        f"near copies across splits{more}",
        _NULL,
        memorises=True,
        labelled=False,
        blind=blind,
        copies=4,
    )


def _unlabelled(world: World) -> World:
    """Return a labelled world where only the texts tell the clusters, on the same seeds."""
    return replace(world, name=f"hidden {world.name}", labelled=False, paired=world.name)


HIDDEN = (
    *map(_unlabelled, WORLDS[2:4]),
    *(one for blind in (True, False) for one in hidden_worlds(_RANDOM, blind=blind)[::2]),
    *(copied_world(blind=blind) for blind in (True, False)),
)
"""The worlds of the whole loop whose clusters nobody labels, each with the rule before and with
that of today.
"""


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value > -30 else 0.0


@lru_cache(maxsize=1)
def _difficulties() -> tuple[float, ...]:
    chance = random.Random("population")
    return tuple(chance.gauss(_MEAN, _SPREAD) for _ in range(POPULATION))


_NORMALS = tuple(NormalDist().inv_cdf((at + 0.5) / 24) for at in range(24))


@lru_cache(maxsize=4096)
def _mean_chance(shift: float, spread: float) -> float:
    """Return the mean chance to pass over the population, where the effect has this mean and
    spread.
    """
    own = [spread * one + shift for one in _NORMALS] if spread else [shift]
    return sum(_sigmoid(one + more) for one in _difficulties() for more in own) / (
        POPULATION * len(own)
    )


@lru_cache(maxsize=64)
def _shift(gain: float, spread: float) -> float:
    """Return the mean effect, on the logistic scale, of an edit with this mean gain and spread."""
    if not gain and not spread:
        return 0.0
    low, high, wanted = -8.0, 8.0, _mean_chance(0.0, 0.0) + gain
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean_chance(middle, spread) < wanted else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class _Edit:
    rule: str
    kind: Kind

    def apply(self, passes: float, where: float, own: float) -> float:
        """Return the chance of a task under the edit.

        where: the task's place in 0 to 1; own: a standard normal.
        """
        kind = self.kind
        if kind.gain or kind.spread:
            logit = math.log(max(1e-9, passes) / max(1e-9, 1 - passes))
            return _sigmoid(logit + _shift(kind.gain, kind.spread) + kind.spread * own)
        if where < kind.fixes:
            return 1.0
        if where < kind.fixes + _halved(kind):
            return passes / 2
        if kind.loses:
            return 0.0 if where < kind.loses else passes + (1 - passes) * _lift(kind)
        return passes

    def expect(self, passes: float) -> float:
        """Return the same on average over all tasks of a mean chance; only for edits without a
        spread.
        """
        kind = self.kind
        if kind.loses:
            return (1 - kind.loses) * (passes + (1 - passes) * _lift(kind))
        halved = _halved(kind)
        return kind.fixes + halved * passes / 2 + (1 - kind.fixes - halved) * passes


def _halved(kind: Kind) -> float:
    """Return the share of tasks whose chance is halved, so that the mean stays."""
    mean = _mean_chance(0.0, 0.0)
    return 2 * kind.fixes * (1 - mean) / mean


def _lift(kind: Kind) -> float:
    """Return what the other tasks gain of what they lack, so that the mean stays."""
    mean = _mean_chance(0.0, 0.0)
    return kind.loses * mean / ((1 - kind.loses) * (1 - mean))


@dataclass(frozen=True)
class WorldLaw:
    """The truth of one seed: its edits in the order of proposals, and what each does to
    any task.
    """

    effects: tuple[_Edit, ...]
    seed: str
    shared: float = 1.0
    _draws: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict, compare=False)

    def chance(self, difficulty: float, rules: Rules, key: str) -> float:
        """Return the chance to pass of the task with this key."""
        passes = _sigmoid(difficulty)
        for edit in self.effects:
            if edit.rule in rules:
                passes = edit.apply(passes, *self._draw(edit.rule, key))
        return passes

    def _draw(self, rule: str, key: str) -> tuple[float, float]:
        """Return where a task stands for an edit, and what the edit has of its own on it; programs
        share both.
        """
        if (rule, key) not in self._draws:
            draw = random.Random(f"{self.seed} {rule} {key}")
            self._draws[rule, key] = draw.random(), draw.gauss(0, 1)
        where, own = self._draws[rule, key]
        if self.shared < 1 and " " in key:  # the group before the task
            group = self._draw(rule, key.partition(" ")[0])
            return where, self.shared * group[1] + math.sqrt(1 - self.shared**2) * own
        return where, own

    def score(self, rules: Rules) -> float:
        """Return the true score of a program, over the population."""
        held = [edit for edit in self.effects if edit.rule in rules]
        shifts = [(_shift(edit.kind.gain, edit.kind.spread), edit.kind.spread) for edit in held]
        spread = math.sqrt(sum(one * one for _, one in shifts))
        score = _mean_chance(round(sum(shift for shift, _ in shifts), 9), round(spread, 9))
        for edit in held:
            score = edit.expect(score) if edit.kind.fixes or edit.kind.loses else score
        return score

    def best(self) -> float:
        """Return the true score with every edit that helps."""
        return self.score(frozenset(edit.rule for edit in self.effects if edit.kind.gain > 0))


@dataclass
class UnfriendlyPlace(Place):
    """One seed of a world."""

    world: World = WORLDS[0]
    difficulties: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    shown: dict[str, set[str]] = field(default_factory=dict)
    _chances: dict[tuple[str, str], float] = field(default_factory=dict)
    _results: dict[tuple[str, str, int], tuple[float | None, int]] = field(default_factory=dict)

    def was_shown(self, rule: str, tasks: Sequence[str]) -> None:
        if self.world.memorises:
            self.shown[rule] = {self.difficulties[task][1] for task in tasks}

    def drawn(self, digest: str, rules: Rules, task: Task, repeat: int) -> float:
        return self.trial(digest, rules, task, repeat)[0] or 0.0

    def trial(self, digest: str, rules: Rules, task: Task, repeat: int) -> tuple[float | None, int]:
        """Return the score of a trial, None where it is missing, and its tokens."""
        key = digest, task.id, repeat
        if key not in self._results:
            self._results[key] = self._draw(digest, rules, task, repeat)
            self.spent += 1
        return self._results[key]

    def _draw(self, digest: str, rules: Rules, task: Task, repeat: int) -> tuple[float | None, int]:
        world, (difficulty, key) = self.world, self.difficulties[task.id]
        if (digest, task.id) not in self._chances:
            self._chances[digest, task.id] = self.law.chance(difficulty, rules, key)
        passes = self._chances[digest, task.id]
        if any(key in self.shown.get(rule, ()) for rule in rules):
            passes = 1.0
        if world.drift:
            logit = math.log(max(1e-9, passes) / max(1e-9, 1 - passes))
            passes = _sigmoid(logit + world.drift * min(1.0, self.spent / 1000))
        chance = random.Random(f"{self.law.seed} {digest} {task.id} {repeat}")
        if world.graded:
            score = (
                round(min(1.0, max(0.0, passes + chance.gauss(0, 0.01))), 3) if passes > 0 else 0.0
            )
        else:
            score = float(chance.random() < passes)
        if any(world.infra) and chance.random() < world.infra[len(rules) > len(BASE)]:
            return None, 0
        tokens = int(_TOKENS * math.exp(chance.gauss(0, world.tokens))) if world.tokens else 0
        if (
            world.missing
            and len(rules) > len(BASE)
            and score == 0
            and chance.random() < world.missing
        ):
            return None, tokens
        return score, tokens


def unfriendly_place(
    world: World, seed: int, sizes: tuple[int, int, int], proposals: int
) -> UnfriendlyPlace:
    """Return a fresh place of a world; equal arguments give equal ones."""
    # Both rules meet the same tasks.
    salt = f"{world.paired or world.name.removesuffix(' (rule before)')} {seed}"
    chance = random.Random(salt)
    kinds = chance.choices(world.mix, [kind.chance for kind in world.mix], k=proposals)
    law = WorldLaw(
        tuple(_Edit(f"r{at + 1}", kind) for at, kind in enumerate(kinds)), salt, world.shared
    )
    splits = [split for split, count in zip(Split, sizes, strict=True) for _ in range(count)]
    clusters = _clusters(world, splits)
    shared: dict[str, float] = {}
    groups, prompts = _groups(world, clusters)
    tasks: list[Task] = []
    difficulties: dict[str, tuple[float, str]] = {}
    counts: Counter[Split] = Counter()
    for split, cluster, group, prompt in zip(splits, clusters, groups, prompts, strict=True):
        name = f"{split}-{counts[split]:03}"
        counts[split] += 1
        if cluster not in shared:
            shared[cluster] = chance.gauss(_MEAN, _SPREAD)
        alone = not (world.cluster > 1 or world.templates or world.copies > 1)
        key = name if alone else f"{cluster} {name}" if world.shared < 1 else cluster
        difficulties[name] = shared[cluster], key
        category = _CATEGORIES[len(shared) % 4] if world.copies > 1 else chance.choice(_CATEGORIES)
        digest = hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
        spec = ScorerSpec("exact")
        tasks.append(
            Task(name, prompt, spec, split, digest, None, category, source="simulated", group=group)
        )
    if world.copies > 1:
        tasks = _dealt(tasks, sizes)
    digest = hashlib.sha256(salt.encode()).hexdigest()
    place = UnfriendlyPlace(law, TaskSet(world.name, tuple(tasks), {}, digest, digest), None)  # type: ignore[arg-type]
    place.world, place.difficulties = world, difficulties
    return place


@dataclass(frozen=True, slots=True)
class FramedTexts:
    """A world whose tasks have texts of independent tasks in a frame, and are grouped by them."""

    world: Scenario | World

    @property
    def name(self) -> str:
        """The name of the world, and that its tasks have texts."""
        return f"{self.world.name}, texts in a frame"

    def write_texts(self, place: Place, seed: int) -> Place:
        """Return the place with these texts and the groups that the product finds in them; nothing
        else changes.
        """
        tasks = place.tasks.tasks
        texts = framed_texts(FRAMES[seed % len(FRAMES)], len(tasks))
        named = zip(tasks, texts, found_groups(texts), strict=True)
        place.tasks = replace(
            place.tasks,
            tasks=tuple(replace(t, prompt=text, group=group) for t, text, group in named),
        )
        return place


def _clusters(world: World, splits: Sequence[Split]) -> list[str]:
    """Return the cluster of each task; templates and copies are in all splits alike."""
    counts: Counter[Split] = Counter()
    found = []
    for number, split in enumerate(splits):
        at = counts[split]
        counts[split] += 1
        if world.templates:
            found.append(f"template-{at % world.templates}")
        elif world.copies > 1:
            found.append(f"task-{number // world.copies}")
        else:
            found.append(f"{split}-group-{at // world.cluster}")
    return found


def _groups(world: World, clusters: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the group and the prompt of each task."""
    plain = [f"Simulated task {number}." for number in range(len(clusters))]
    if world.labelled or world.blind:
        return [
            cluster if world.labelled and world.cluster > 1 else "" for cluster in clusters
        ], plain
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    texts, groups = hidden_texts(tuple(numbers[cluster] for cluster in clusters))
    return groups, texts


def _dealt(tasks: Sequence[Task], sizes: tuple[int, int, int]) -> list[Task]:
    """Return the tasks in the splits to which the product deals them."""
    ratios = SplitRatios(sizes[0] / sum(sizes), sizes[1] / sum(sizes))
    splits = assign_splits(
        [SplitRequest(t.id, t.category, t.group or t.id, None, "human") for t in tasks], ratios
    )
    return [replace(task, split=splits[task.id]) for task in tasks]
