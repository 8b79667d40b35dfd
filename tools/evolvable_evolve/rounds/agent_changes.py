"""The change of agents of a round: read the evidence of sessions, have the gate decide, and propose
the change.

Nothing changes here. A person puts the proposal on trial (`evolvable evolve pool start`); the arms
of the pool and the verified ends of their sessions keep the change or take it back.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evolvable_evolve.evolution import AgentCard, EditOperation, new_agent, with_delegate
from evolvable_evolve.rounds.executor_evidence import (
    ExecutorEvidence,
    ExecutorSession,
    RoutedChange,
    TriedRepair,
    decide_change,
    executor_sessions,
)
from evolvable_evolve.rounds.pool import AGENTS_KEY, BY_PERSON
from evolvable_evolve.rounds.round_state import RoundState
from evolvable_store import File, Files, Head, parse_document, summarize
from evolvable_store.errors import AlreadyExists, EvolvableError, TryAgain
from evolvable_store.resource import USER_SCOPE, Kind, Ref, main_file
from evolvable_store.storage import (
    APPROVED,
    OPEN,
    REJECTED,
    Draft,
    PooledVersion,
    PoolState,
    Proposal,
)
from evolvable_tools import (
    MAIN_AGENT,
    Caller,
    Library,
    agent_skills,
    check_change,
    delegate_in_force,
    delegate_of,
    dump_scan,
)
from evolvable_tools.verbs import remove_resource

# Bounds the part of a question that lists agents to about 15,000 characters.
MAX_AGENTS, MAX_DESCRIPTION = 50, 300
"""Agents that a model is told of, and characters of the description of one."""


@dataclass(frozen=True, slots=True)
class RosterChange:
    """What a round did about agents.

    action: keep, add, merge, remove or modify. ref: the skill whose delegate changes, or the agent
    that is removed. edit, key: the edit and the key by which it is known again. proposal_id: what
    waits. agent_proposal_id: the proposal of the agent that is added, which goes with it. numbers:
    those that decided. looked: whether the gate had repairs to look at.
    """

    action: str
    why: str
    ref: str = ""
    edit: dict[str, Any] | None = None
    key: str = ""
    proposal_id: int | None = None
    agent_proposal_id: int | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    looked: bool = False


def change_agents(library: Library, caller: Caller, state: RoundState) -> RosterChange:
    """Propose the one change of agents that the sessions carry; by default none.

    Once: a round that was killed finds its own proposal. One change at a time: while one waits or
    is on trial, the gate does not look.
    """
    if state.source != "sessions":
        return RosterChange("keep", "the round is not over sessions")
    if not state.sessions:
        return RosterChange("keep", "there is no new session")
    # Of a process that died after it proposed: the steps below then find that proposal.
    mine = _find_proposal(library, state.number)
    earlier = [
        _find_fate(library, record)
        for record in state.agent_changes
        if record["number"] != state.number
    ]
    running = [fate for fate in earlier if fate.running]
    if mine is None and running:
        return RosterChange("keep", f"{running[0].why}, and one change is tried at a time")
    evidence = collect_evidence(library, state, earlier)
    routed = decide_change(evidence)
    looked = bool(evidence.repairs)
    if routed.edit is None:
        return RosterChange("keep", routed.decision.why, looked=looked)
    return _propose(library, caller, state.number, routed, looked)


@dataclass(frozen=True, slots=True)
class _Fate:
    """What became of a change that was proposed.

    running: whether it waits or is on trial; why: which of both. kept_at: when it became live, ''
    where it did not. tried: whether it may not be proposed again. gone: the agent that a merge
    emptied. looks: the looks of the gate when it was proposed.
    """

    key: str
    running: bool = False
    kept_at: str = ""
    tried: bool = True
    why: str = ""
    gone: str = ""
    looks: int = 0


def _find_fate(library: Library, record: Mapping[str, Any]) -> _Fate:
    """Return what became of the change that a round proposed."""
    key, looks = record["key"], int(record["looks"])
    proposal = library.store.backend.proposals.get(record["proposal"])
    if proposal.state == OPEN:
        return _Fate(key, running=True, why=f"proposal {proposal.id} waits")
    if proposal.state == REJECTED:
        return _Fate(key)
    # Nobody decided on it, so the change may be proposed again.
    if proposal.state != APPROVED or proposal.operation is None:
        return _Fate(key, tried=False)
    gone = record["agents"][1] if record["op"] == EditOperation.MERGE_AGENTS else ""
    trial = _find_trial(library, proposal)
    if trial is None:
        approved_at = library.store.operation(proposal.operation).intent.at
        return _Fate(key, kept_at=approved_at, gone=gone, looks=looks)
    if trial.state is PoolState.TRIAL:
        return _Fate(key, running=True, why=f"trial {trial.id} runs")
    if trial.state is PoolState.PROMOTED:
        return _Fate(key, kept_at=trial.ended or trial.at, gone=gone, looks=looks)
    return _Fate(key, tried=_is_decided(trial))


def _is_decided(trial: PooledVersion) -> bool:
    """Return whether a look or a person retired a trial, so that the same is not tried again."""
    by_look = any(look["decision"] == "retire" for look in trial.looks)
    return by_look or (trial.why or "").startswith(BY_PERSON)


def _find_trial(library: Library, proposal: Proposal) -> PooledVersion | None:
    """Return the trial that began with the approval of a proposal, None where it became live at
    once.
    """
    head = library.store.head_or_none(proposal.ref)
    if head is None:
        return None
    for trial in library.store.backend.pool.all():
        if trial.resource != head.id:
            continue
        if library.store.version(head, trial.version).operation == proposal.operation:
            return trial
    return None


def collect_evidence(
    library: Library, state: RoundState, earlier: Iterable[_Fate]
) -> ExecutorEvidence:
    """Return what the gate decides on: the verified sessions, who owns which skill, and the repairs
    that ended.
    """
    observations, changes = library.store.backend.observations, list(earlier)
    skills = {
        head.id: head
        for head in library.store.heads(Kind.SKILL, USER_SCOPE)
        if head.version is not None
    }
    refs = {resource: str(head.ref) for resource, head in skills.items()}
    sessions = executor_sessions(observations.verified_ends(), observations.executions(), refs)
    agents = _list_trusted_agents(library)
    used = {ref for session in sessions for ref in session.skills}.union(
        *(_list_skills(library, head) for head in agents.values())
    )
    chosen = {str(head.ref): head for head in skills.values() if str(head.ref) in used}
    delegates = _find_delegates(library, chosen, agents)
    untrusted = library.store.backend.authorship.untrusted_resources(
        [head.id for head in chosen.values()]
    )
    # A skill that is on trial keeps its delegate, so that the trial compares one difference.
    on_trial = {trial.resource for trial in library.store.backend.pool.on_trial()}
    fixed = {
        head.id for head in chosen.values() if head.frozen or _has_several_agents(library, head)
    }
    excluded = {*untrusted, *on_trial, *fixed}
    movable = frozenset(ref for ref, head in chosen.items() if head.id not in excluded)
    better = {
        handoff["trace"]: handoff["better"] for handoff in state.handoffs if handoff.get("better")
    }
    kept_at = max((change.kept_at for change in changes), default="")
    return ExecutorEvidence(
        sessions,
        _group_by_owner(library, chosen, agents, delegates),
        delegates,
        movable,
        _list_repairs(library, state),
        better,
        kept_at,
        state.agent_looks + 1,
        frozenset(change.key for change in changes if change.tried),
        frozenset(ref for ref, head in agents.items() if head.frozen),
        _count_idle_looks(state, sessions, delegates, changes),
    )


def _list_trusted_agents(library: Library) -> dict[str, Head]:
    """Return the agents of the person's own scope that the person trusts, by ref."""
    heads = [
        head for head in library.store.heads(Kind.AGENT, USER_SCOPE) if head.version is not None
    ]
    untrusted = library.store.backend.authorship.untrusted_resources([head.id for head in heads])
    return {str(head.ref): head for head in heads if head.id not in untrusted}


def list_agents(library: Library) -> dict[str, str]:
    """Return the agents that work can be given, each with its description.

    A model may name one of them.
    """
    descriptions = {}
    for ref, head in sorted(_list_trusted_agents(library).items())[:MAX_AGENTS]:
        summary = summarize(parse_document(_read_document(library, head)))
        descriptions[ref] = summary.description[:MAX_DESCRIPTION]
    return {MAIN_AGENT: "the session itself", **descriptions} if descriptions else {}


def _read_document(library: Library, head: Head) -> bytes:
    """Return the main file of a resource, b'' where it cannot be read."""
    try:
        return library.store.file(head, main_file(head.kind, head.name)).data
    except TryAgain:
        raise
    except EvolvableError:
        return b""


def _list_skills(library: Library, agent: Head) -> list[str]:
    """Return the skills that an agent's file names as its own."""
    names = agent_skills(parse_document(_read_document(library, agent)).fields)
    return [str(Ref(Kind.SKILL, name)) for name in names]


def _find_delegates(
    library: Library, skills: Mapping[str, Head], agents: Mapping[str, Head]
) -> dict[str, str]:
    """Return the agent that each skill delegates to: one of `agents`, and in force."""
    delegates = {}
    for ref, head in skills.items():
        delegate = delegate_of(library, head, head.latest)
        agent = str(delegate.agent.at(None)) if delegate is not None else ""
        if agent in agents and delegate_in_force(library, head, head.latest):
            delegates[ref] = agent
    return delegates


def _has_several_agents(library: Library, skill: Head) -> bool:
    """Return whether a skill names several agents.

    Their verified ends choose already which of them is given its work.
    """
    delegate = delegate_of(library, skill, skill.latest)
    return delegate is not None and bool(delegate.others)


def _group_by_owner(
    library: Library,
    skills: Mapping[str, Head],
    agents: Mapping[str, Head],
    delegates: Mapping[str, str],
) -> dict[str, frozenset[str]]:
    """Return the skills of each agent.

    The delegate of a skill owns it, else the agents that list it, else `main`.
    """
    owned: dict[str, set[str]] = {agent: set() for agent in agents}
    for skill, agent in delegates.items():
        owned[agent].add(skill)
    for agent, head in agents.items():
        owned[agent].update(
            skill
            for skill in _list_skills(library, head)
            if skill in skills and skill not in delegates
        )
    main = set(skills).difference(*owned.values())
    return {agent: frozenset(refs) for agent, refs in {**owned, MAIN_AGENT: main}.items()}


def _list_repairs(library: Library, state: RoundState) -> list[TriedRepair]:
    """Return the repairs of rounds that sessions measured, or that a person approved."""
    repairs = []
    for record in state.repairs:
        name = f"round {record['number']}'s change of {record['ref']}"
        task_types = tuple(record["task_types"])
        if record["trial"] is not None:
            trial = library.store.backend.pool.get(record["trial"])
            admitted = trial.state is PoolState.PROMOTED
            if trial.ended is not None and (admitted or _is_decided(trial)):
                repairs.append(TriedRepair(name, record["ref"], task_types, admitted, trial.ended))
            continue
        proposal = library.store.backend.proposals.get(record["proposal"])
        if proposal.state == APPROVED and proposal.operation is not None:
            at = library.store.operation(proposal.operation).intent.at
            repairs.append(TriedRepair(name, record["ref"], task_types, admitted=True, ended=at))
    return repairs


def _count_idle_looks(
    state: RoundState,
    sessions: Iterable[ExecutorSession],
    delegates: Mapping[str, str],
    changes: Iterable[_Fate],
) -> dict[str, int]:
    """Return the looks since a merge emptied an agent, of each such agent; 0 where it had a session
    since.
    """
    idle_looks = {}
    for change in changes:
        if change.gone and change.kept_at and change.gone not in delegates.values():
            used = any(
                session.agent == change.gone and session.at > change.kept_at for session in sessions
            )
            idle_looks[change.gone] = 0 if used else state.agent_looks + 1 - change.looks
    return idle_looks


# Proposals


def _read_agent_grounds(proposal: Proposal) -> dict[str, Any]:
    agent_grounds = json.loads(proposal.grounds or "{}").get(AGENTS_KEY)
    return agent_grounds if isinstance(agent_grounds, dict) else {}


def _find_proposal(library: Library, number: int, kind: Kind | None = None) -> Proposal | None:
    """Return an open proposal of this round's change of agents; kind: of that kind alone."""
    for proposal in library.store.backend.proposals.in_state(OPEN, 10_000):
        is_own = _read_agent_grounds(proposal).get("round") == number
        if is_own and kind in (None, proposal.kind):
            return proposal
    return None


def _propose(
    library: Library, caller: Caller, number: int, routed: RoutedChange, looked: bool
) -> RosterChange:
    """Propose a change, once in a round."""
    edit, decision = routed.edit, routed.decision
    assert edit is not None
    about: dict[str, Any] = {
        "edit": edit.to_json(),
        "key": edit.key,
        "numbers": dict(decision.numbers),
        "looked": looked,
    }
    action, why = decision.action.value, decision.why
    if not routed.skill:
        ref = Ref.parse(routed.agent)
        removal = remove_resource(library, caller, ref, f"agents: {why}", propose=True)
        return RosterChange(action, why, routed.agent, proposal_id=removal.proposal_id, **about)
    try:
        agent = None
        if edit.op is EditOperation.ADD_AGENT:
            # The agent first: the skill's proposal names the number of the agent's.
            _check_free(library, Ref.parse(routed.agent))
            data = _make_agent_file(library, routed)
            agent = _propose_file(library, caller, number, Ref.parse(routed.agent), data, why, {})
        data = _add_delegate(library, routed)
        marks = {"agent_proposal": agent}
        skill = _propose_file(library, caller, number, Ref.parse(routed.skill), data, why, marks)
    except TryAgain:
        raise
    except EvolvableError as error:
        return RosterChange("keep", f"{edit} cannot be proposed: {error.text}", looked=looked)
    return RosterChange(
        action, why, routed.skill, proposal_id=skill, agent_proposal_id=agent, **about
    )


def _propose_file(
    library: Library,
    caller: Caller,
    number: int,
    ref: Ref,
    data: bytes,
    why: str,
    marks: Mapping[str, Any],
) -> int:
    """Propose a main file; return the proposal's id. Raises Unsafe where the scan refuses it."""
    # Once in a round: a process that died after this step finds its proposal.
    if (waiting := _find_proposal(library, number, ref.kind)) is not None:
        return waiting.id
    scoped = ref.within(USER_SCOPE)
    head = library.store.head_or_none(scoped)
    before: Files = library.store.files(head) if head is not None and head.version else {}
    files = {**before, main_file(ref.kind, ref.name): File(data)}
    scan = check_change(scoped, before, files, caller.actor)
    grounds = {
        "what": "change of agents",
        "evidence": [],
        "near": [],
        "expected_signal": (
            "the sessions that get it end better than those that do not: `evolvable evolve "
            "pool start`"
        ),
        AGENTS_KEY: {"round": number, **marks},
    }
    base = (head.version if head is not None else None) or 0
    draft = Draft(
        scoped, base, files, f"agents: {why}", grounds=json.dumps(grounds), findings=dump_scan(scan)
    )
    return library.store.backend.proposals.add(
        library.store.now(), caller.actor, caller.session, draft
    )


def _check_free(library: Library, ref: Ref) -> None:
    """Raise AlreadyExists where an agent of the person's scope has the name."""
    head = library.store.head_or_none(ref.within(USER_SCOPE))
    if head is not None and head.version is not None:
        raise AlreadyExists(f"{ref} is there already.", "Trust it, or remove it.")


def _add_delegate(library: Library, routed: RoutedChange) -> bytes:
    """Return the skill's main file with the delegate that the change gives it."""
    head = library.store.head(Ref.parse(routed.skill).within(USER_SCOPE))
    agent = "" if routed.agent == MAIN_AGENT else routed.agent
    return with_delegate(library.store.file(head, main_file(head.kind, head.name)).data, agent)


def _make_agent_file(library: Library, routed: RoutedChange) -> bytes:
    """Return the file of the agent that is added.

    It is written here and not by a model: the type is a word of the vocabulary, and the skills say
    how the work is done.
    """
    edit = routed.edit
    assert edit is not None
    owner = edit.agents[0]
    types, skills = " and ".join(edit.boundary), ", ".join(edit.skills_moved)
    card = AgentCard(
        f"Does tasks of the type {types}.",
        f"You do one task of the type {types}. Work by {skills}, and report what you did and what "
        "you could not do.",
        (f"The task is of the type {types}.",),
        ("The task is of another type.",),
        {owner: routed.decision.why},
        "It is given the task and the paths of the files, and hands back a summary.",
    )
    data = None
    if owner != MAIN_AGENT:
        data = _read_document(library, library.store.head(Ref.parse(owner).within(USER_SCOPE)))
    return new_agent(routed.agent.partition(":")[2], data, card, edit.skills_moved)
