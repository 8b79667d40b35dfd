"""Figures of the structure of agents from traces: failures by task type, utilities, overlap,
assignments.

Pure: the same input gives the same summary, on real sessions and on the trials of a run. Source:
SkillMAS, the summary F of a round.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from evolvable_tools import Utility, wilson_interval


@dataclass(frozen=True, slots=True)
class AgentTrace:
    """The trace of one agent in one verified episode.

    agent: `main` or an agent's ref. passed: the verified outcome. skills: refs that were used.
    round: its number, from 1 on. better: the agent that should have done the task, where a unique
    diagnosis names one.
    """

    task: str
    task_type: str
    agent: str
    passed: bool
    skills: tuple[str, ...] = ()
    round: int = 1
    better: str = ""


@dataclass(frozen=True, slots=True)
class LocalRepair:
    """A change of skills that was measured.

    candidate: its id. task_types: of the tasks that it was for. skills: refs that it changed.
    """

    candidate: str
    task_types: tuple[str, ...]
    admitted: bool
    skills: tuple[str, ...] = ()


@dataclass(frozen=True)
class StructureInput:
    """All input of a summary.

    owned: which skills each agent owns, `main` included. traces: the newest of each episode,
    failures as they were retained. utilities: Q by agent and task type; by default those of the
    traces. validated: skills that may change owner. last_seen: the round of each agent's last
    trace; by default by the traces. round: the present one.
    """

    owned: Mapping[str, frozenset[str]]
    traces: Sequence[AgentTrace]
    validated: frozenset[str] = frozenset()
    repairs: Sequence[LocalRepair] = ()
    round: int = 1
    utilities: Mapping[tuple[str, str], Utility] | None = None
    last_seen: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class TypeRow:
    """One agent at one task type.

    failures, share: retained failures, and their share of all. q, n, low, high: the utility with
    its 95 % interval. others, others_n, others_low, others_high: the same of the agent's other
    types together. repairs: candidates.
    """

    agent: str
    task_type: str
    failures: int
    share: float
    q: float
    n: int
    low: float
    high: float
    others: float
    others_n: int
    others_low: float
    others_high: float
    repairs: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """The agent's utility at its other types, less that at this one; None without others."""
        return self.others - self.q if self.others_n and self.n else None


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two agents. overlap: Jaccard of owned skills, 0 where neither owns one.

    difference: of their utilities at the task types that both did, None without one; n: the fewer
    of their traces.
    """

    one: str
    other: str
    overlap: float
    difference: float | None
    n: int


@dataclass(frozen=True, slots=True)
class Misassignment:
    """Traces of `agent` that `better` should have done.

    task_types: those of the traces.
    """

    agent: str
    better: str
    traces: int
    task_types: tuple[str, ...]


@dataclass(frozen=True)
class StructureSummary:
    """The summary of a round. failures: all that were retained. idle: rounds without a trace, by
    agent.

    uses: in how many traces each skill was used, by task type. repaired: the task types that edits
    of a skill were for. movable: skills that may change owner.
    """

    round: int
    failures: int
    rows: tuple[TypeRow, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    assignments: tuple[Misassignment, ...] = ()
    idle: Mapping[str, int] = field(default_factory=dict)
    owned: Mapping[str, frozenset[str]] = field(default_factory=dict)
    uses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    repaired: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    movable: frozenset[str] = frozenset()

    def skills_for(self, agent: str, task_types: Iterable[str], least: float) -> tuple[str, ...]:
        """Return the movable skills of an agent with at least this share of uses at these types.

        For a skill in no trace, as where a client loads it with its agent, the edits decide.
        """
        type_set = set(task_types)
        skills = []
        for skill in sorted(self.owned.get(agent, frozenset()) & self.movable):
            uses, repaired = self.uses.get(skill, {}), self.repaired.get(skill, ())
            here = sum(count for task_type, count in uses.items() if task_type in type_set)
            by_edits = not uses and bool(repaired) and type_set.issuperset(repaired)
            if by_edits or (uses and here >= least * sum(uses.values())):
                skills.append(skill)
        return tuple(skills)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values: lists in their order, sets sorted."""
        plain = asdict(self)
        plain["rows"] = [asdict(row) | {"gap": row.gap} for row in self.rows]
        plain["owned"] = {agent: sorted(skills) for agent, skills in sorted(self.owned.items())}
        return plain | {"movable": sorted(self.movable)}


def agent_utilities(traces: Iterable[AgentTrace]) -> dict[tuple[str, str], Utility]:
    """Return Q by agent and task type after these traces, each of which is one update."""
    utilities: dict[tuple[str, str], Utility] = {}
    for trace in traces:
        key = (trace.agent, trace.task_type)
        utilities[key] = utilities.get(key, Utility()).with_reward(float(trace.passed))
    return utilities


def summarise_structure(round_input: StructureInput) -> StructureSummary:
    """Return the summary of a round. Pure: runs no code, calls no model, deterministic."""
    failed = [trace for trace in round_input.traces if not trace.passed]
    learned = round_input.utilities
    if learned is None:
        learned = agent_utilities(round_input.traces)
    by_agent = _group_by_agent(learned, round_input.owned)
    failures = Counter((trace.agent, trace.task_type) for trace in failed)
    rows = []
    for agent, utilities in sorted(by_agent.items()):
        for task_type in sorted(utilities):
            counts = failures[agent, task_type], len(failed)
            rows.append(_make_type_row(agent, task_type, utilities, counts, round_input.repairs))
    pairs = [
        _make_pair_row(first, second, round_input.owned, by_agent)
        for first, second in combinations(sorted(round_input.owned), 2)
    ]
    uses: dict[str, Counter[str]] = {}
    for trace in round_input.traces:
        # A skill that is used twice in a trace counts once.
        for skill in dict.fromkeys(trace.skills):
            uses.setdefault(skill, Counter())[trace.task_type] += 1
    repaired: dict[str, set[str]] = {}
    for repair in round_input.repairs:
        for skill in repair.skills:
            repaired.setdefault(skill, set()).update(repair.task_types)
    return StructureSummary(
        round_input.round,
        len(failed),
        tuple(rows),
        tuple(pairs),
        tuple(_find_misassignments(failed, round_input.owned)),
        _count_idle_rounds(round_input),
        dict(round_input.owned),
        {skill: dict(sorted(counts.items())) for skill, counts in sorted(uses.items())},
        {skill: tuple(sorted(types)) for skill, types in sorted(repaired.items())},
        frozenset(round_input.validated),
    )


def _group_by_agent(
    learned: Mapping[tuple[str, str], Utility], owned: Mapping[str, frozenset[str]]
) -> dict[str, dict[str, Utility]]:
    by_agent: dict[str, dict[str, Utility]] = {}
    for (agent, task_type), utility in learned.items():
        # A utility without an update is a default and no evidence.
        if utility.n and agent in owned:
            by_agent.setdefault(agent, {})[task_type] = utility
    return by_agent


def _pool_utilities(utilities: Iterable[Utility]) -> tuple[float, int, float, float]:
    """Return the mean, the number and the interval of these utilities together."""
    each = list(utilities)
    n = sum(utility.n for utility in each)
    successes = sum(utility.value * utility.n for utility in each)
    low, high = wilson_interval(round(successes), n)
    return (successes / n if n else 0.0), n, low, high


def _make_type_row(
    agent: str,
    task_type: str,
    utilities: Mapping[str, Utility],
    counts: tuple[int, int],
    repairs: Sequence[LocalRepair],
) -> TypeRow:
    """Return the row of an agent at a type. counts: its failures there, and all failures."""
    failures, total = counts
    share = failures / total if total else 0.0
    here = _pool_utilities([utilities[task_type]])
    others = _pool_utilities(utility for name, utility in utilities.items() if name != task_type)
    tried = tuple(repair.candidate for repair in repairs if task_type in repair.task_types)
    return TypeRow(agent, task_type, failures, share, *here, *others, tried)


def _make_pair_row(
    first_agent: str,
    second_agent: str,
    owned: Mapping[str, frozenset[str]],
    utilities: Mapping[str, Mapping[str, Utility]],
) -> PairRow:
    first, second = utilities.get(first_agent, {}), utilities.get(second_agent, {})
    shared = sorted(first.keys() & second.keys())
    pooled = [_pool_utilities(each[task_type] for task_type in shared) for each in (first, second)]
    difference = pooled[0][0] - pooled[1][0] if shared else None
    shared_skills = overlap(owned[first_agent], owned[second_agent])
    fewer = min(pooled[0][1], pooled[1][1])
    return PairRow(first_agent, second_agent, shared_skills, difference, fewer)


def overlap(first: frozenset[str], second: frozenset[str]) -> float:
    """Return the Jaccard index of two sets; 0 where both are empty, as nothing is shared then."""
    return len(first & second) / len(first | second) if first | second else 0.0


def _find_misassignments(
    failed: Iterable[AgentTrace], owned: Mapping[str, frozenset[str]]
) -> Iterable[Misassignment]:
    by_pair: dict[tuple[str, str], list[AgentTrace]] = {}
    for trace in failed:
        # Work cannot be handed to an agent that does not exist.
        if trace.better in owned and trace.better != trace.agent:
            by_pair.setdefault((trace.agent, trace.better), []).append(trace)
    for (agent, better), traces in sorted(by_pair.items()):
        task_types = tuple(sorted({trace.task_type for trace in traces}))
        yield Misassignment(agent, better, len(traces), task_types)


def _count_idle_rounds(round_input: StructureInput) -> dict[str, int]:
    """Return the rounds in a row, this one included, in which each agent but main had no trace."""
    # Traces are kept for a while only, so older rounds come from `last_seen`.
    last = dict(round_input.last_seen or {})
    for trace in round_input.traces:
        last[trace.agent] = max(last.get(trace.agent, 0), trace.round)
    return {
        agent: max(0, round_input.round - last.get(agent, 0))
        for agent in sorted(round_input.owned)
        if agent != "main"
    }
