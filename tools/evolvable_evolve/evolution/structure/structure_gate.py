"""The gate of restructuring: the one change of the agents that the evidence of a round supports.

By default it is none. The first rule that holds decides: add an agent, merge two, remove one, move
the boundary between two. Each rule is a predicate over the summary with thresholds that are
settings. A change that passes is only a candidate: the static gate, paired validation and the
sealed test decide.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from math import comb
from typing import Any

from evolvable_evolve.evolution.candidates import MAIN, EditOperation
from evolvable_evolve.evolution.statistics import alpha_for_look
from evolvable_evolve.evolution.structure.structure_evidence import (
    PairRow,
    StructureSummary,
    TypeRow,
)
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind

MAX_NAME = 40
"""Characters of the name of an agent that is added."""


class StructureAction(StrEnum):
    """The decision of the gate."""

    KEEP = "keep"
    ADD = "add"
    MERGE = "merge"
    REMOVE = "remove"
    MODIFY = "modify"


@dataclass(frozen=True, slots=True)
class StructureThresholds:
    """Limits from which on each rule holds.

    mass, failures: the share and the number of retained failures at one task type. gap: how far its
    agent is behind its other types. enough: traces on each side, where the intervals overlap.
    chance: the most chance of such a difference when there is none, over all types of the agent and
    all rounds together; 1 leaves the test out. overlap, difference: of two agents to be merged;
    traces: of each at the types that both did. idle: rounds without a trace. assignments: traces of
    one agent that another should have done. affinity: the share of a skill's uses that must be for
    the task types that move, or it stays: others would miss it.
    """

    mass: float = field(default=0.4, metadata={"range": (0, 1)})
    failures: int = field(default=4, metadata={"range": (1, 1000)})
    gap: float = field(default=0.15, metadata={"range": (0, 1)})
    enough: int = field(default=10, metadata={"range": (1, 1000)})
    # Only an addition is tested: it is the change that makes the program larger.
    chance: float = field(default=0.01, metadata={"range": (0, 1)})
    overlap: float = field(default=0.6, metadata={"range": (0.01, 1)})
    difference: float = field(default=0.05, metadata={"range": (0, 1)})
    traces: int = field(default=4, metadata={"range": (1, 1000)})
    idle: int = field(default=3, metadata={"range": (1, 1000)})
    assignments: int = field(default=3, metadata={"range": (1, 1000)})
    affinity: float = field(default=0.8, metadata={"range": (0.5, 1)})

    @classmethod
    def from_settings(cls, overrides: Mapping[str, Any]) -> "StructureThresholds":
        """Return the thresholds with those given in the place of the defaults.

        Raises InvalidArgument.
        """
        if not isinstance(overrides, Mapping):
            text = f"structure is {ascii(str(overrides)[:40])}."
            raise InvalidArgument(
                text, "It maps names of thresholds to numbers, such as mass to 0.5."
            )
        thresholds = {threshold.name: threshold for threshold in fields(cls)}
        for name, value in overrides.items():
            if name not in thresholds:
                text = f"{ascii(str(name)[:40])} is no threshold of the structure."
                raise InvalidArgument(text, f"They are {', '.join(thresholds)}.")
            low, high = thresholds[name].metadata["range"]
            whole = thresholds[name].type is int
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                kind = "a whole number" if whole else "a number"
                raise InvalidArgument(
                    f"structure.{name} is {ascii(str(value)[:40])}.", f"It is {kind}."
                )
            if not low <= value <= high:
                raise InvalidArgument(
                    f"structure.{name} is {value}.", f"It is {low:g} to {high:g}."
                )
        return cls(**overrides)


@dataclass(frozen=True, slots=True)
class Restructure:
    """One change of the structure, of at most two agents.

    agents: of add-agent the owner and the new one, of merge-agents the one that stays (or main) and
    the one that goes, of move-ownership the giver and the receiver. skills_moved: refs. boundary:
    the task types that it is about.
    """

    op: EditOperation
    agents: tuple[str, str]
    skills_moved: tuple[str, ...] = ()
    boundary: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key by which the same change is recognised, whatever skills move."""
        return f"{self.op} {' '.join(self.agents)} {', '.join(self.boundary)}".strip()

    def __str__(self) -> str:
        first, second = self.agents
        says = {
            EditOperation.ADD_AGENT: f"add-agent {second} from {first}",
            EditOperation.MERGE_AGENTS: f"merge-agents {second} into {first}",
            EditOperation.MOVE_OWNERSHIP: f"move-ownership from {first} to {second}",
        }[self.op]
        types = f" for {', '.join(self.boundary)}" if self.boundary else ""
        moved = f": {', '.join(self.skills_moved)}" if self.skills_moved else ""
        return says + types + moved

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Restructure":
        """Return the change that `to_json` wrote."""
        first, second = record["agents"]
        moved, boundary = tuple(record["skills_moved"]), tuple(record["boundary"])
        return cls(EditOperation(record["op"]), (first, second), moved, boundary)


@dataclass(frozen=True)
class StructureDecision:
    """Decision of the gate.

    why: in words. numbers: the figures that decided, empty for keep. edit: None for keep.
    """

    action: StructureAction
    why: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    edit: Restructure | None = None


Proposal = tuple[StructureAction, Restructure, str, dict[str, Any]]
"""What a rule yields: the action, its change, why in words, and the figures that decided."""

Rule = Callable[[StructureSummary, StructureThresholds], Iterator[Proposal]]


def decide_structure(
    summary: StructureSummary,
    thresholds: StructureThresholds = StructureThresholds(),
    tried: Collection[str] = (),
    frozen: Collection[str] = (),
) -> StructureDecision:
    """Return the one change that the evidence supports, by default none. Pure and deterministic.

    tried: keys of changes that were measured and not kept. frozen: agents that only a person
    changes.
    """
    # In this order: a missing agent costs failures, a superfluous one only its upkeep.
    rules: tuple[Rule, ...] = (
        _propose_additions,
        _propose_mergers,
        _propose_removals,
        _propose_moves,
    )
    passed_over = 0
    for rule in rules:
        for action, edit, why, numbers in rule(summary, thresholds):
            # A change that was measured and not kept would be proposed in every round.
            if edit.key in tried or any(agent in frozen for agent in edit.agents):
                passed_over += 1
                continue
            return StructureDecision(action, why, numbers, edit)
    before = f"; {passed_over} that hold were tried before, or are frozen" if passed_over else ""
    return StructureDecision(StructureAction.KEEP, f"no rule holds{before}")


def _propose_additions(summary: StructureSummary, least: StructureThresholds) -> Iterator[Proposal]:
    """Yield a specialist for each task type that fails often after a repair, worst first."""
    for row in sorted(summary.rows, key=lambda row: (-row.failures, row.agent, row.task_type)):
        gap, apart = row.gap, row.high < row.others_low
        fails_often = row.failures >= least.failures and row.share >= least.mass
        if gap is None or not row.repairs or not fails_often:
            continue
        # Bonferroni over the agent's types: with many of them one is behind by chance.
        types = sum(other.agent == row.agent for other in summary.rows)
        by_chance = min(1.0, types * chance_of_fewer(row))
        # All rounds together stay at `chance`.
        is_tested = least.chance < 1
        allowed = alpha_for_look(max(1, summary.round), least.chance) if is_tested else 1.0
        is_sure = apart or min(row.n, row.others_n) >= least.enough
        if gap < least.gap or not is_sure or by_chance > allowed:
            continue
        skills = summary.skills_for(row.agent, [row.task_type], least.affinity)
        name = _name_agent(row.task_type, summary.owned)
        edit = Restructure(EditOperation.ADD_AGENT, (row.agent, name), skills, (row.task_type,))
        why = (
            f"{row.task_type} has {row.failures} of {summary.failures} failures after "
            f"{', '.join(row.repairs)}, and {row.agent} reaches {row.q:.2f} there (n = {row.n}) "
            f"and {row.others:.2f} elsewhere (n = {row.others_n})"
        )
        tested = {"gap": gap, "apart": apart, "chance": by_chance, "allowed": allowed}
        yield StructureAction.ADD, edit, why, asdict(row) | tested


def chance_of_fewer(row: TypeRow) -> float:
    """Return the chance of at most the row's successes if the agent were as good as elsewhere.

    Exact: Fisher's one-sided test of both counts.
    """
    here, elsewhere = round(row.q * row.n), round(row.others * row.others_n)
    whole, successes = row.n + row.others_n, here + elsewhere
    counts = range(min(here, successes) + 1)
    ways = sum(comb(row.n, count) * comb(row.others_n, successes - count) for count in counts)
    return ways / comb(whole, successes)


def _propose_mergers(summary: StructureSummary, least: StructureThresholds) -> Iterator[Proposal]:
    """Yield a merge for each two agents with similar skills and utilities, most alike first."""
    agents_only = [pair for pair in summary.pairs if MAIN not in (pair.one, pair.other)]
    alike = [pair for pair in agents_only if _is_alike(pair, least)]
    for pair in sorted(alike, key=lambda pair: (-pair.overlap, pair.one, pair.other)):
        edit = Restructure(EditOperation.MERGE_AGENTS, (pair.one, pair.other))
        why = (
            f"{pair.one} and {pair.other} share {pair.overlap:.0%} of their skills, "
            f"{pair.difference:+.2f} apart"
        )
        yield StructureAction.MERGE, edit, why, asdict(pair)


def _is_alike(pair: PairRow, least: StructureThresholds) -> bool:
    if pair.difference is None or pair.n < least.traces:
        return False
    return pair.overlap >= least.overlap and abs(pair.difference) < least.difference


def _propose_removals(summary: StructureSummary, least: StructureThresholds) -> Iterator[Proposal]:
    """Yield a removal for each agent that had no trace for long, the longest first."""
    for agent, rounds in sorted(summary.idle.items(), key=lambda entry: (-entry[1], entry[0])):
        if rounds >= least.idle:
            edit = Restructure(EditOperation.MERGE_AGENTS, (MAIN, agent))
            why = f"{agent} had no trace in {rounds} rounds"
            yield StructureAction.REMOVE, edit, why, {"idle": rounds}


def _propose_moves(summary: StructureSummary, least: StructureThresholds) -> Iterator[Proposal]:
    """Yield a move for each agent that fails at another's work, the most frequent first."""
    for row in sorted(summary.assignments, key=lambda row: (-row.traces, row.agent, row.better)):
        if row.traces >= least.assignments:
            skills = summary.skills_for(row.agent, row.task_types, least.affinity)
            agents = (row.agent, row.better)
            edit = Restructure(EditOperation.MOVE_OWNERSHIP, agents, skills, row.task_types)
            why = f"{row.traces} failures of {row.agent} should have been done by {row.better}"
            yield StructureAction.MODIFY, edit, why, asdict(row)


def _name_agent(task_type: str, used_refs: Collection[str]) -> str:
    """Return a free ref for an agent of a task type.

    A name is read by models, so only plain letters stay.
    """
    letters = re.sub(r"[^a-z0-9]+", "-", task_type.lower()).strip("-")
    plain = letters[:MAX_NAME].strip("-") or "specialist"
    # One number more than there are refs in use, so that one is free.
    numbered = [f"{plain}-{number}" for number in range(2, len(used_refs) + 3)]
    refs = [f"{Kind.AGENT}:{name}" for name in (plain, *numbered)]
    return next(ref for ref in refs if ref not in used_refs)
