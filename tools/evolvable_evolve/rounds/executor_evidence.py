"""The evidence of sessions about executors, and the one change of agents that it supports.

The module calls no model and no library. The gate is that of restructuring in a run. Its traces
here are sessions with a verified end, of each connection one. A session cannot be given to another
agent, so a change sets the delegate of one skill: the agent that does the work of the skill.
Source: SkillMAS, the summary F and the gate G of a round.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolvable_evolve.evolution import (
    AgentTrace,
    EditOperation,
    LocalRepair,
    Restructure,
    StructureAction,
    StructureDecision,
    StructureInput,
    StructureSummary,
    StructureThresholds,
    decide_structure,
    summarise_structure,
)
from evolvable_store.storage import ITEM_SESSIONS, Execution, Grade, VerifiedEnd
from evolvable_tools import MAIN_AGENT, REWARDS

DEFAULTS = StructureThresholds()
"""The thresholds from which each rule of the gate holds."""


@dataclass(frozen=True, slots=True)
class ExecutorSession:
    """One session with a verified end.

    agent: who did its work, MAIN_AGENT or the ref of an agent. skills: refs of those used in it.
    """

    session: str
    at: str
    task_type: str
    agent: str
    passed: bool
    skills: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TriedRepair:
    """A change of a skill that sessions measured, or that a person approved.

    task_types: those that it was for. ended: when its trial ended or a person approved it.
    """

    name: str
    skill: str
    task_types: tuple[str, ...]
    admitted: bool
    ended: str


@dataclass(frozen=True)
class ExecutorEvidence:
    """The evidence that the gate decides on.

    owned: the skills of each agent, `main` included. delegates: the agent that each skill names, of
    those that name one. movable: skills whose delegate may change. better: by session the agent
    that should have done it, as its diagnosis says. since: only later sessions count, because a
    change that was kept is not judged by those before it. look: how often the gate looked, this
    time included. tried: keys of changes that were tried before. frozen: agents that may not be
    removed. idle: looks without a session, of agents that a change emptied.
    """

    sessions: Sequence[ExecutorSession]
    owned: Mapping[str, frozenset[str]]
    delegates: Mapping[str, str] = field(default_factory=dict)
    movable: frozenset[str] = frozenset()
    repairs: Sequence[TriedRepair] = ()
    better: Mapping[str, str] = field(default_factory=dict)
    since: str = ""
    look: int = 1
    tried: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()
    idle: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RoutedChange:
    """The decision of the gate, with the skill that gives sessions to the agent.

    edit: None for keep. skill: whose delegate changes, '' where an agent is removed. agent: the new
    delegate, or the agent that is removed.
    """

    decision: StructureDecision
    summary: StructureSummary
    edit: Restructure | None = None
    skill: str = ""
    agent: str = ""


def executor_sessions(
    ends: Iterable[VerifiedEnd], executions: Iterable[Execution], refs: Mapping[int, str]
) -> list[ExecutorSession]:
    """Return the sessions with a verified end in the order of their time, of each connection the
    last one alone.

    refs: of skills by the id of their resource; other resources do not count. A session belongs to
    its first agent, with the end of that agent's part. Where that end is not verified the session
    counts for nobody. Items of plans are left out: a planner chooses their agent, and no skill.
    """
    parts: dict[str, list[Execution]] = {}
    for execution in executions:
        parts.setdefault(execution.session, []).append(execution)
    by_connection: dict[str, ExecutorSession | None] = {}
    for end in sorted(ends, key=lambda end: (end.at, end.session)):
        # Sorted by time, so the last session of a connection replaces the earlier ones: they are
        # not independent.
        if end.outcome in REWARDS and not end.session.startswith(ITEM_SESSIONS):
            session = _make_session(end, parts.get(end.session, ()), refs)
            by_connection[end.link or end.session] = session
    sessions = [session for session in by_connection.values() if session is not None]
    return sorted(sessions, key=lambda session: (session.at, session.session))


def _make_session(
    end: VerifiedEnd, parts: Sequence[Execution], refs: Mapping[int, str]
) -> ExecutorSession | None:
    """Return the session of an end, None where the end of its first agent is not verified."""
    agents = sorted(
        (part for part in parts if part.agent is not None),
        key=lambda part: (part.at, part.executor),
    )
    agent, outcome = MAIN_AGENT, end.outcome
    if agents:
        agent, outcome = agents[0].executor, agents[0].outcome
        if agents[0].grade is not Grade.VERIFIED or outcome not in REWARDS:
            return None
    used = dict.fromkeys(
        refs[use.resource]
        for part in parts
        for use in part.uses
        if use.used and use.resource in refs
    )
    passed = outcome is not None and REWARDS[outcome] == 1.0
    return ExecutorSession(
        end.session, end.at, end.task_type or "other", agent, passed, tuple(used)
    )


def decide_change(
    evidence: ExecutorEvidence, thresholds: StructureThresholds = DEFAULTS
) -> RoutedChange:
    """Return the one change of agents that the sessions support, by default none.

    The function is pure and deterministic. A rule that holds is passed over where no skill gives
    sessions to the agent of its change.
    """
    summary = summarise_structure(_make_input(evidence))
    # The gate names one change at a time: it is asked again without those that no skill leads to.
    passed_over = set(evidence.tried)
    while True:
        decision = decide_structure(summary, thresholds, passed_over, evidence.frozen)
        if decision.edit is None:
            return RoutedChange(decision, summary)
        routed = _route_change(decision, summary, evidence, thresholds)
        if routed is not None:
            return routed
        passed_over.add(decision.edit.key)


def _make_input(evidence: ExecutorEvidence) -> StructureInput:
    """Return the input of the gate, in the form that a run of evolution gives it.

    Sessions before a repair that was kept are left out: they used other skills than there are now.
    """
    mended: dict[str, str] = {}
    for repair in evidence.repairs:
        for task_type in repair.task_types if repair.admitted else ():
            # Times are text of one format, in which the order of the text is the order of time.
            mended[task_type] = max(mended.get(task_type, ""), repair.ended)
    traces = [
        AgentTrace(
            session.session,
            session.task_type,
            session.agent,
            session.passed,
            session.skills,
            1,
            evidence.better.get(session.session, ""),
        )
        for session in evidence.sessions
        if session.at > evidence.since
        and session.at > mended.get(session.task_type, "")
        and session.agent in evidence.owned
    ]
    repairs = [
        LocalRepair(repair.name, repair.task_types, repair.admitted, (repair.skill,))
        for repair in evidence.repairs
    ]
    last_seen = {agent: evidence.look - evidence.idle.get(agent, 0) for agent in evidence.owned}
    return StructureInput(
        evidence.owned, traces, evidence.movable, repairs, evidence.look, last_seen=last_seen
    )


def _route_change(
    decision: StructureDecision,
    summary: StructureSummary,
    evidence: ExecutorEvidence,
    thresholds: StructureThresholds,
) -> RoutedChange | None:
    """Return a change with the skill that leads to it, None where no skill does."""
    edit = decision.edit
    assert edit is not None
    first, second = edit.agents
    if decision.action is StructureAction.REMOVE:
        return RoutedChange(decision, summary, edit, "", second)
    if edit.op is EditOperation.MERGE_AGENTS:
        giver, agent = second, first
        moved: Collection[str] = [
            skill for skill, owner in evidence.delegates.items() if owner == giver
        ]
    else:
        giver, agent, moved = first, second, edit.skills_moved
    # A frozen or untrusted skill does not change its delegate.
    able = [
        skill
        for skill in moved
        if skill in evidence.movable and evidence.delegates.get(skill, MAIN_AGENT) != agent
    ]
    if not able:
        return None
    boundary = set(edit.boundary)

    def count_uses(skill: str) -> int:
        counts = summary.uses.get(skill, {})
        return sum(n for task_type, n in counts.items() if not boundary or task_type in boundary)

    # The skill that is used most in these task types gives most sessions to the agent. The name
    # decides between equal ones, so that the choice is deterministic.
    lead = min(able, key=lambda skill: (-count_uses(skill), skill))
    moved_edit = replace(edit, skills_moved=tuple(sorted(able)))
    return RoutedChange(decision, summary, moved_edit, lead, agent)
