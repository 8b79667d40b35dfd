"""The pool: put a version on trial for a share of the sessions, look at it, and promote or retire
it.

A trial version is a version of its resource. It is stored and the incumbent's content restored in
one operation, so the head, the folders and the hosts keep what they had. A promotion is one
operation more, which undo takes back.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from evolvable_evolve.rounds.pool_looks import (
    LOOKS,
    AssignedEnd,
    PoolDecision,
    PoolLook,
    judge_trial,
)
from evolvable_evolve.trial_arms import is_stale
from evolvable_store import Actor, Files, Head, make_manifest, parse_document
from evolvable_store.errors import (
    EvolvableError,
    InvalidArgument,
    Refused,
    TryAgain,
    VersionConflict,
)
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_store.storage import (
    APPROVED,
    OPEN,
    Outcome,
    PooledVersion,
    PoolState,
    Proposal,
    check_share,
)
from evolvable_tools import (
    REWARDS,
    Caller,
    Library,
    change_waits,
    check_change,
    delegate_in,
    delegate_of,
    finding_messages,
    verbs,
)
from evolvable_tools.verbs import rebase

SHARE = 0.5
"""Share of the sessions that are served a trial version: equal arms reach a look with the fewest
sessions.
"""

AGENTS_KEY = "agents"
"""The key by which a proposal names the change of agents that it belongs to."""

BY_PERSON = "retired by a person"
"""Beginning of the reason of a trial that a person retired: the same change is not tried again."""

# Sessions are shared out over the trials of the skills that they use: more trials at once would
# each wait longer.
MAX_TRIALS = 20
"""Trials at once in one library."""


_STALE = "its resource was changed, removed or frozen, or is not trusted"
"""Why a trial ends whose resource is no longer as it was when the trial began."""


class TooManyTrials(Refused):
    """Another version of the skill, or as many as there may be at once, is on trial."""


@dataclass(frozen=True, slots=True)
class PoolArm:
    """One arm of a trial: sessions assigned to it, and of those with a verified end how many went
    well.
    """

    assigned: int
    verified: int
    successes: int


@dataclass(frozen=True, slots=True)
class PoolEntry:
    """One version that is or was on trial, as it is shown.

    next_look: verified sessions that each arm must have, None where no look follows.
    """

    id: int
    ref: str
    version: int
    incumbent: int
    state: str
    share: float
    since_round: int
    at: str
    approved: bool
    reason: str
    trial: PoolArm
    control: PoolArm
    next_look: int | None
    looks: list[Mapping[str, Any]]
    ended: str | None = None
    why: str | None = None
    operation: int | None = None
    diff: str | None = None


@dataclass(frozen=True)
class PoolPage:
    """The trials that run, and with `all` those that ended, newest first."""

    trials: list[PoolEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PoolEnded:
    """What became of a trial.

    operation: the one that promoted it. proposal_id: the one with which a promotion waits for a
    person.
    """

    id: int
    ref: str
    state: str
    why: str
    version: int | None = None
    operation: int | None = None
    proposal_id: int | None = None
    warnings: list[str] = field(default_factory=list)


def head_of(library: Library, trial: PooledVersion) -> Head:
    """Return the head of a trial's resource, removed or not."""
    return library.store.backend.heads_by_id([trial.resource])[trial.resource]


def check_may_try(library: Library, ref: Ref) -> Head:
    """Return the head of a resource that may have a trial.

    Raises InvalidArgument, Refused, NoSuchResource.
    """
    head = library.store.head(ref)
    if head.kind is not Kind.SKILL:
        raise InvalidArgument(
            f"{ref} is no skill; only skills are tried.", "Approve the change, or reject it."
        )
    if head.frozen:
        raise Refused(f"{ref} is frozen, so no version of it is tried.", "A person changes it.")
    if head.id in library.store.backend.authorship.untrusted_resources([head.id]):
        raise Refused(
            f"{ref} came with a repository that no person trusts.", "`evolvable trust` first."
        )
    running = library.store.backend.pool.on_trial()
    if any(trial.resource == head.id for trial in running):
        raise TooManyTrials(
            f"Another version of {ref} is on trial.",
            "`evolvable evolve pool stop` ends that trial.",
        )
    if len(running) >= MAX_TRIALS:
        raise TooManyTrials(
            f"{MAX_TRIALS} versions are on trial already.",
            "Wait, or stop one: `evolvable evolve pool list`.",
        )
    return head


def put_on_trial(
    library: Library,
    caller: Caller,
    ref: Ref,
    files: Files,
    reason: str,
    *,
    share: float = SHARE,
    since_round: int = 0,
    proposal: int | None = None,
    added: Proposal | None = None,
) -> PooledVersion:
    """Put a version of a skill on trial; the head keeps its content.

    proposal: the one that a person approves for trial with this. Without it the caller is an agent
    and the policy decides: Refused where the change would wait for a person, or the skill
    delegates. added: the proposal of an agent that the version delegates to; it is approved with
    it, in the same operation. Raises as `check_may_try`.
    """
    check_share(share)
    # What a person saved in a folder becomes the head first: the trial is compared with that.
    library.take_in([ref])
    head = check_may_try(library, ref)
    before = library.store.files(head)
    if make_manifest(files).tree == head.tree:
        raise InvalidArgument(f"{ref} holds that already.", "Nothing was changed.")
    if proposal is None and (
        why := why_it_waits(library, caller, head, before, files) or _loses_delegate(files)
    ):
        raise Refused(
            f"A trial of {ref} waits for a person: {why}.", "A person approves it for trial."
        )
    earlier = [trial for trial in library.store.backend.pool.all() if trial.resource == head.id]
    version, incumbent = _store_version(library, caller, head, files, reason, proposal, added)
    # After the commit: folders show the head, which has its old content again.
    library.checkout([head.ref])
    if added is not None:
        library.checkout([added.ref], created=True)
    new = PooledVersion(
        0,
        head.id,
        version,
        incumbent,
        PoolState.TRIAL,
        since_round,
        library.store.now(),
        share,
        # Trials that ended count too: each later one of a skill gets a smaller part of alpha.
        number=len(earlier) + 1,
        described=_description(before) != _description(files),
        approved=proposal is not None,
        reason=reason,
    )
    return library.store.backend.pool.add(new)


def _store_version(
    library: Library,
    caller: Caller,
    head: Head,
    files: Files,
    reason: str,
    proposal: int | None,
    added: Proposal | None,
) -> tuple[int, int]:
    """Store the version to try and restore the head. Return the numbers of both new versions."""
    evidence = [f"proposal {proposal} approved for trial"] if proposal is not None else []
    with library.transaction(
        caller, f"on trial: {reason}", evidence=evidence, sign=proposal is not None
    ) as tx:
        # Both in one transaction: nobody is served the trial version as the head, not even if the
        # process dies in between.
        tx.put(head.ref, files, expected_version=head.version)
        tx.restore(head.ref, head.latest)
        if added is not None:
            tx.put(added.ref, library.store.files_of(added.manifest))
            tx.approve(added.id, "for the trial of the skill that delegates to it")
        if proposal is not None:
            tx.approve(proposal, "on trial for a share of the sessions")
            tx.decision = "start trial"
    tried, back = tx.written[:2]
    assert tried.version is not None and back.version is not None
    return tried.version, back.version


def why_it_waits(
    library: Library, caller: Caller, head: Head | None, before: Files, after: Files
) -> str:
    """Return why a change by this caller would wait for a person, '' where it may be made at once.

    Raises Unsafe for what a scan refuses.
    """
    ref = head.ref if head else Ref(Kind.SKILL, "new")
    scan = check_change(ref, before, after, caller.actor)
    if change_waits(library, caller, head):
        return "the policy asks a person for each change"
    messages = finding_messages(scan, quoted=caller.actor is not Actor.HUMAN)
    return messages[0] if scan.asks else ""


def _loses_delegate(files: Files) -> str:
    """Return why a version that no person approved may not be tried, '' where it may.

    Of a version that names a delegate, only the arm of the incumbent would delegate.
    """
    main = files.get(main_file(Kind.SKILL, ""))
    if main is None or delegate_in(main.data.decode("utf-8", "replace")) is None:
        return ""
    return "it names a delegate, and a version that no person approved delegates nothing"


def _description(files: Files) -> str:
    main = files.get(main_file(Kind.SKILL, ""))
    fields = parse_document(main.data).fields if main is not None else {}
    return f"{fields.get('description', '')}"


def start_trial(
    library: Library, caller: Caller, proposal_id: int, *, share: float = SHARE
) -> PoolEntry:
    """Put the change of a proposal on trial: a person's decision.

    Raises NotFound, Refused, InvalidArgument, Conflict where it no longer fits the head.
    """
    library.authorise(caller, "Putting a change on trial")
    proposal = library.store.backend.proposals.get(proposal_id)
    if proposal.state != "open" or verbs.is_expired(library, proposal):
        raise InvalidArgument(
            f"Proposal {proposal_id} is decided already.",
            "`evolvable inbox` lists those that wait.",
        )
    # A trial has two arms, so there must be an incumbent and a version to compare it with.
    if proposal.removes or not proposal.base:
        raise InvalidArgument(
            f"Proposal {proposal_id} "
            f"{'removes a resource' if proposal.removes else 'makes a new one'}.",
            "Only a change of a skill can be tried: approve it, or reject it.",
        )
    head = check_may_try(library, proposal.ref)
    files = rebase(library, proposal, head, library.store.files(head), {}).files
    trial = put_on_trial(
        library,
        caller,
        proposal.ref,
        files,
        proposal.reason,
        share=share,
        proposal=proposal_id,
        added=_find_added_agent(library, proposal),
    )
    return describe_trial(library, trial)


def _find_added_agent(library: Library, proposal: Proposal) -> Proposal | None:
    """Return the proposal of the agent that a skill's proposal delegates to, None where the agent
    is approved already or none is added.

    Raises InvalidArgument where it was turned down: the trial would compare the skill with itself.
    """
    agent_grounds = json.loads(proposal.grounds or "{}").get(AGENTS_KEY) or {}
    identity = agent_grounds.get("agent_proposal")
    if identity is None:
        return None
    added = library.store.backend.proposals.get(identity)
    if added.state == APPROVED:
        return None
    if added.state != OPEN or verbs.is_expired(library, added):
        raise InvalidArgument(
            f"Proposal {identity} of {added.ref} was turned down, and {proposal.ref} would "
            "delegate to it.",
            f"Reject proposal {proposal.id} too.",
        )
    return added


def assigned_ends(library: Library, trial: PooledVersion) -> list[AssignedEnd]:
    """Return the sessions of a trial in the order of their assignment, of each connection the first
    alone.

    The end of a session is the verified end of its use of the resource, else that of the session as
    its transcript shows it, where the server saw the session before. Whether it loaded anything
    does not matter.
    """
    attempts = library.evidence.list_attempts([trial.resource])
    # What a person or a check says of the use itself counts before what the transcript shows of the
    # whole session.
    of_use = {
        attempt.key: attempt.outcome
        for attempt in attempts
        if attempt.verified and attempt.outcome in REWARDS
    }
    of_session = {
        end.session: end.outcome for end in library.store.backend.observations.verified_ends()
    }
    ends, connections = list[AssignedEnd](), set[str]()
    for unit in library.store.backend.pool.units(trial.id):
        connection = unit.connection or unit.unit
        # Sessions of one connection are not independent, and a test over all of them would count
        # one client many times.
        if connection in connections:
            continue
        connections.add(connection)
        session = unit.session or ""
        outcome: Outcome | None = of_use.get(session) or of_session.get(session)
        ends.append(AssignedEnd(unit.trial, unit.at, outcome if outcome in REWARDS else None))
    return ends


def look_at_trials(
    library: Library, caller: Caller
) -> Iterator[tuple[PooledVersion, PoolLook | None, PoolEnded | None]]:
    """Look at every trial that is due, and promote or retire what the look decides.

    Yields each trial with its look, None where it ended by itself, and what became of it, None
    where it goes on.
    """
    for trial in library.store.backend.pool.on_trial():
        head = head_of(library, trial)
        if is_stale(library, head, trial):
            tree = library.store.version(head, trial.version).tree
            # A person may have made the same content live by hand, which is no failure of the
            # version.
            won = head.version is not None and head.tree == tree
            state = PoolState.PROMOTED if won else PoolState.RETIRED
            why = "its content became the head" if won else _STALE
            yield trial, None, end_trial(library, caller, trial, state, why)
            continue
        # In a loop: many sessions may have ended since the last round, and a look at 12 comes only
        # after that at 6.
        earlier, goes_on = list(trial.looks), True
        while goes_on:
            look = judge_trial(
                assigned_ends(library, trial), trial.number, earlier, library.store.clock()
            )
            if look is None:
                break
            # The look is stored before it is acted on: a process that dies in between has spent the
            # alpha, and no look is taken twice.
            library.store.backend.pool.add_look(trial.id, look.as_row())
            earlier.append(look.as_row())
            ended = None
            if look.decision is PoolDecision.PROMOTE:
                ended = promote_trial(library, caller, trial, look.why)
            elif look.decision is PoolDecision.RETIRE:
                ended = end_trial(library, caller, trial, PoolState.RETIRED, look.why)
            yield trial, look, ended
            goes_on = ended is None


def _take_agent_back(library: Library, caller: Caller, trial: PooledVersion, why: str) -> None:
    """Remove the agent that was added in the operation that began a trial, if it is as it was then
    and has no skill.
    """
    head = head_of(library, trial)
    began = library.store.version(head, trial.version).operation
    for proposal in library.store.backend.proposals.in_state(APPROVED, 10_000):
        if proposal.operation != began or proposal.kind is not Kind.AGENT or proposal.base:
            continue
        agent = library.store.head_or_none(proposal.ref)
        if agent is None or not _is_as_added(library, agent, began):
            continue
        # Another skill may delegate to the agent by now.
        if any(delegate == proposal.ref.at(None) for delegate in _living_delegates(library)):
            continue
        with library.transaction(caller, f"its trial {trial.id} ended: {why}") as tx:
            tx.remove(agent.ref, expected_version=agent.version)
        library.checkout([agent.ref])


def _is_as_added(library: Library, agent: Head, operation: int) -> bool:
    """Return whether an agent is live, not frozen, and as this operation added it."""
    if agent.version is None or agent.frozen:
        return False
    return library.store.version(agent, agent.latest).operation == operation


def _living_delegates(library: Library) -> Iterator[Ref]:
    """Yield the agents that the live skills name."""
    for head in library.store.heads(Kind.SKILL):
        delegate = delegate_of(library, head, head.version) if head.version is not None else None
        for agent in delegate.agents if delegate is not None else ():
            yield agent.within(agent.scope or head.scope).at(None)


def end_trial(
    library: Library,
    caller: Caller,
    trial: PooledVersion,
    state: PoolState,
    why: str,
    operation: int | None = None,
) -> PoolEnded:
    """End a trial; the head stays as it is.

    An agent that was added for a trial that is retired goes with it.
    """
    if state is PoolState.RETIRED:
        # Before the trial is ended: a process that dies in between finds it running, and ends it
        # again.
        _take_agent_back(library, caller, trial, why)
    library.store.backend.pool.end(trial.id, state, library.store.now(), why, operation)
    return PoolEnded(
        trial.id, str(head_of(library, trial).ref), state.value, why, operation=operation
    )


def promote_trial(library: Library, caller: Caller, trial: PooledVersion, why: str) -> PoolEnded:
    """Make a trial version the head in one operation, and end the trial.

    An agent's promotion of what no person approved waits in the inbox where the policy would hold
    the change.
    """
    head = head_of(library, trial)
    before = library.store.files(head)
    files = library.store.files(head, trial.version)
    if caller.actor is not Actor.HUMAN and not trial.approved:
        try:
            waits = why_it_waits(library, caller, head, before, files)
        except TryAgain:  # it says nothing about the version
            raise
        except EvolvableError as error:
            return end_trial(
                library, caller, trial, PoolState.RETIRED, f"the scan refuses it now: {error.text}"
            )
        if waits:
            # The policy has become stricter since the trial began, or a rule of the scan is new.
            proposed = verbs.propose(
                library, caller, head.ref, head.version or 0, files, f"won its trial: {why}"
            )
            waiting = f"it won, and proposal {proposed} waits: {waits}"
            ended = end_trial(library, caller, trial, PoolState.RETIRED, waiting)
            return PoolEnded(ended.id, ended.ref, ended.state, ended.why, proposal_id=proposed)
    evidence = [f"trial {trial.id} of version {trial.version}", why]
    try:
        with library.transaction(
            caller, f"promoted after its trial: {trial.reason}", evidence=evidence
        ) as tx:
            # Against the incumbent and not the head: a head that was changed meanwhile was not the
            # one that was beaten.
            tx.restore(head.ref, trial.version, expected_version=trial.incumbent)
    except VersionConflict:
        return end_trial(library, caller, trial, PoolState.RETIRED, _STALE)
    operation = tx.operation.id if tx.operation else None
    warnings = library.checkout([head.ref])
    # After the commit: in between, the next look sees a head with the content of the trial, and
    # ends it as promoted.
    library.store.backend.pool.end(
        trial.id, PoolState.PROMOTED, library.store.now(), why, operation
    )
    version = tx.written[0].version
    return PoolEnded(
        trial.id,
        str(head.ref),
        PoolState.PROMOTED.value,
        why,
        version,
        operation,
        warnings=warnings,
    )


def decide_trial(
    library: Library, caller: Caller, identity: int, action: str, reason: str
) -> PoolEnded:
    """Stop, promote or retire a trial: a person's decision.

    Raises NotFound, Refused, InvalidArgument.
    """
    library.authorise(caller, "Ending a trial")
    trial = library.store.backend.pool.get(identity)
    if trial.state is not PoolState.TRIAL:
        raise InvalidArgument(
            f"Trial {identity} ended already: it is {trial.state}.", "`evolvable evolve pool list`"
        )
    why = library.redact(reason) or "no reason given"
    # Recorded before it is done, so that the history names who decided also where the action fails.
    library.record(caller, f"{action} trial", f"{head_of(library, trial).ref} (trial {identity})")
    if action == "promote":
        if is_stale(library, head_of(library, trial), trial):
            raise Refused(f"Trial {identity} is over: {_STALE}.", "Restore the version by hand.")
        return promote_trial(library, caller, trial, why)
    how = BY_PERSON if action == "retire" else "stopped"
    return end_trial(library, caller, trial, PoolState.RETIRED, f"{how}: {why}")


def list_pool(library: Library, *, ended: bool = False) -> PoolPage:
    """Return the trials that run; ended: those that ended too, newest first."""
    pool = library.store.backend.pool
    trials = pool.all() if ended else pool.on_trial()
    return PoolPage([describe_trial(library, trial) for trial in trials])


def show_trial(library: Library, identity: int) -> PoolEntry:
    """Return one trial with the difference to its incumbent. Raises NotFound."""
    return describe_trial(library, library.store.backend.pool.get(identity), with_diff=True)


def describe_trial(library: Library, trial: PooledVersion, *, with_diff: bool = False) -> PoolEntry:
    """Return a trial as it is shown."""
    head, ends = head_of(library, trial), assigned_ends(library, trial)
    diff = None
    if with_diff:
        old, new = (
            library.store.manifest(head, number) for number in (trial.incumbent, trial.version)
        )
        diff = verbs.diff(library, old, new, (str(trial.incumbent), str(trial.version)))
    following = len(trial.looks)
    due = LOOKS[following] if trial.state is PoolState.TRIAL and following < len(LOOKS) else None
    return PoolEntry(
        trial.id,
        str(head.ref),
        trial.version,
        trial.incumbent,
        trial.state.value,
        trial.share,
        trial.since_round,
        trial.at,
        trial.approved,
        trial.reason,
        _count_arm(ends, True),
        _count_arm(ends, False),
        due,
        list(trial.looks),
        trial.ended,
        trial.why,
        trial.operation,
        diff,
    )


def _count_arm(ends: list[AssignedEnd], trial: bool) -> PoolArm:
    mine = [end for end in ends if end.trial is trial]
    outcomes = [end.outcome for end in mine if end.outcome is not None]
    return PoolArm(len(mine), len(outcomes), outcomes.count(Outcome.SUCCEEDED))
