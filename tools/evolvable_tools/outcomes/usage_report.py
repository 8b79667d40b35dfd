"""The report of the library's evidence: which resources are used, which help, harm or are dead, and
what to review.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations
from operator import attrgetter
from typing import TypeVar

from evolvable_store import Head, format_time
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import (
    Attempt,
    ImpressionCount,
    Outcome,
    SuccessCounts,
    Tally,
    one_of_each_connection,
)
from evolvable_tools.caller import Caller
from evolvable_tools.executor_choice import work_by_type
from evolvable_tools.library import Library
from evolvable_tools.metrics import (
    ENOUGH,
    Utility,
    agent_episodes,
    agent_utilities,
    earned_maturity,
    utilities,
    verified_utilities,
    wilson_interval,
)

OFTEN = 5
"""Times that something was shown without being opened, from which it is called dead."""

MAX_DAYS = 3650  # ten years, the longest report

_Key = TypeVar("_Key", bound=Hashable)

# Outcomes that count; an unknown one says nothing about the resource.
_RATED = (Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Share:
    """Successes among n rated uses, with Wilson's 95 % interval, which is (0, 1) without any."""

    successes: int
    n: int
    low: float
    high: float

    @property
    def is_enough(self) -> bool:
        """Whether there are enough uses for a percentage or a bar.

        Below that only the counts are shown.
        """
        return self.n >= ENOUGH

    def __str__(self) -> str:
        counts = f"{self.successes} of {self.n}"
        return f"{counts} ({self.low:.0%} to {self.high:.0%})" if self.is_enough else counts


@dataclass(frozen=True, slots=True)
class VersionShare:
    """The ends of one version under one model. model: None where no transcript says it."""

    version: int
    model: str | None
    share: Share


@dataclass(frozen=True, slots=True)
class TaskUtility:
    """Q for one task type, '' without one; its share of successes is the same number with its
    interval.

    q and share are of all rated uses; verified: of the verified ones alone, by which a search and a
    round go.
    """

    task_type: str
    q: float
    share: Share
    verified: Share


@dataclass(frozen=True, slots=True)
class AgentUtility:
    """Q of an agent for one task type, '' without one: how the verified sessions ended in which it
    worked.
    """

    agent: str
    task_type: str
    q: float
    share: Share


@dataclass(frozen=True, slots=True)
class ResourceStats:
    """One resource. shown: times; loaded, used: attempts; helped: the share of good ends among
    attempts that used it.

    verified: the share among verified ends, one of each connection; reported: the share among the
    others. maturity: by `verified`. not_counted: ends that are stored as history and do not count.

    verdict: helps, harms, dead, or open while the evidence does not tell; why: the numbers behind
    it, or what is missing. Times are ISO 8601 in UTC, None for never.
    """

    ref: str
    maturity: str
    verdict: str
    shown: int
    loaded: int
    used: int
    helped: Share
    last_shown: str | None
    last_loaded: str | None
    versions: list[VersionShare]
    task_types: list[TaskUtility]
    why: str
    reported: Share
    verified: Share
    not_counted: int


@dataclass(frozen=True, slots=True)
class Base:
    """The sessions or resources that a resource is compared with.

    of: `sessions without any`, or `other resources` where those are too few.
    """

    of: str
    share: Share


@dataclass(frozen=True, slots=True)
class Opportunity:
    """A reason for a review to look at a resource.

    reason: a code; numbers: the numbers behind it, in words.
    """

    ref: str
    reason: str
    numbers: str


@dataclass(frozen=True)
class Stats:
    """The evidence on the resources that were asked for, the most used first. days: how far back
    `dead` looks.

    agents: Q of the agents by task type. For one skill it is of their verified work with it, for
    one agent its own. One resource of another kind has none.
    """

    days: int
    resources: list[ResourceStats]
    opportunities: list[Opportunity]
    base: Base | None
    agents: list[AgentUtility] = field(default_factory=list)


def share_of(proof: SuccessCounts) -> Share:
    """Return a proof with its interval."""
    return Share(proof.successes, proof.ends, *wilson_interval(proof.successes, proof.ends))


def verdict_words(verdict: str) -> str:
    """Return a verdict of the evidence as a person reads it."""
    return "not clear" if verdict == "open" else verdict


def stats(library: Library, caller: Caller, ref: Ref | None = None, *, days: int = 30) -> Stats:
    """Return the statistics of one resource, or of all that the caller sees.

    Raises NoSuchResource, InvalidArgument.
    """
    if not 1 <= days <= MAX_DAYS:
        raise InvalidArgument(f"days is {days}.", f"It may be 1 to {MAX_DAYS}.")
    # What was shown in this process is stored first, so that it counts.
    library.impressions.flush()
    store = library.store
    since = format_time(store.clock() - timedelta(days=days))
    impressions = store.backend.evidence.count_impressions(since)
    whole = store.backend.evidence.list_attempts()
    if ref is not None:
        heads = [store.head(ref, caller.scopes)]
    else:
        heads = [head for scope in caller.scopes for head in store.heads(scope=scope)]
    nobody = store.backend.evidence.baseline_successes()
    ids, of = [head.id for head in heads], attrgetter("resource")
    by_version = _group(store.backend.evidence.list_attempts(ids, versions=True), of)
    by_resource, total = _group(whole, of), _count_successes(whole)
    tallies = library.evidence.tallies(ids)
    lines, opportunities = [], []
    for head in heads:
        attempts, versions = by_resource.get(head.id, []), by_version.get(head.id, [])
        against = _choose_base(nobody, total, _count_successes(attempts))
        history = tallies.get(head.id, Tally()).not_counted
        impression = impressions.get(head.id)
        line = _make_line(head, attempts, versions, impression, since, days, against, history)
        # A list leaves out resources of which nothing was ever recorded.
        if ref is not None or line.shown or attempts or history:
            lines.append(line)
            opportunities += _find_opportunities(line, head)
    lines.sort(key=lambda line: (-line.used, -line.loaded, -line.shown, line.ref))
    only = heads[0] if ref is not None else None
    own = _count_successes(by_resource.get(only.id, [])) if only is not None else None
    base = _choose_base(nobody, total, own)
    return Stats(days, lines, opportunities, base, _list_agents(library, only))


def _list_agents(library: Library, head: Head | None) -> list[AgentUtility]:
    if head is not None and head.kind is Kind.SKILL:
        return _list_agents_of_skill(library, head)
    if head is not None and head.kind is not Kind.AGENT:
        return []
    log = library.store.backend.observations
    learned = agent_utilities(agent_episodes(log.verified_ends(), log.executions()))
    return [
        AgentUtility(agent, kind, q.value, share_of_utility(q))
        for (agent, kind), q in sorted(learned.items())
        if head is None or agent == str(head.ref)
    ]


def _list_agents_of_skill(library: Library, skill: Head) -> list[AgentUtility]:
    work = work_by_type(library, skill.id)
    agents = library.store.backend.heads_by_id({agent for agent, _ in work})
    rows = [
        AgentUtility(str(agents[agent].ref), kind, good / n, share_of(SuccessCounts(n, good)))
        for (agent, kind), (good, n) in work.items()
    ]
    return sorted(rows, key=lambda row: (row.agent, row.task_type))


def share_of_utility(utility: Utility) -> Share:
    """Return a utility as the share that it is, with its interval."""
    return share_of(SuccessCounts(utility.n, round(utility.value * utility.n)))


def _group(
    attempts: Iterable[Attempt], key: Callable[[Attempt], _Key]
) -> dict[_Key, list[Attempt]]:
    grouped: dict[_Key, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        grouped[key(attempt)].append(attempt)
    return grouped


def _rated_attempts(some: Iterable[Attempt]) -> list[Attempt]:
    return [attempt for attempt in some if attempt.used and attempt.outcome in _RATED]


def _count_successes(some: Iterable[Attempt]) -> SuccessCounts:
    ends = [attempt.outcome for attempt in _rated_attempts(some)]
    return SuccessCounts(len(ends), ends.count(Outcome.SUCCEEDED))


def _choose_base(
    nobody: SuccessCounts, whole: SuccessCounts, but: SuccessCounts | None
) -> Base | None:
    """Return what a resource with the proof `but` is compared with; None while too little is known
    of anything else.
    """
    # Sessions without any resource are the better comparison, as soon as there are enough of them.
    if nobody.ends >= ENOUGH:
        return Base("sessions without any", share_of(nobody))
    if but is None:
        return None
    # Without its own uses: a resource that is used most would be compared with itself.
    others = SuccessCounts(whole.ends - but.ends, whole.successes - but.successes)
    return Base("other resources", share_of(others)) if others.ends >= ENOUGH else None


def _make_line(
    head: Head,
    attempts: list[Attempt],
    versions: list[Attempt],
    impressions: ImpressionCount | None,
    since: str,
    days: int,
    base: Base | None,
    not_counted: int,
) -> ResourceStats:
    verified_attempts = one_of_each_connection(_rated_attempts(attempts))
    helped = share_of(_count_successes(attempts))
    verified = share_of(_count_successes(verified_attempts))
    loaded = sum(attempt.loaded for attempt in attempts)
    used = sum(attempt.used for attempt in attempts)
    last = max((attempt.at for attempt in attempts if attempt.loaded or attempt.used), default=None)
    dead = ""
    # `last < since`: opened before these days counts as dead in them.
    if impressions and impressions.since >= OFTEN and (last is None or last < since):
        dead = f"shown {impressions.since} times in {days} days, never opened in them"
    verdict, why = _judge(helped, base, used, dead)
    return ResourceStats(
        *(str(head.ref), earned_maturity(verified.successes, verified.n, helped.n), verdict),
        shown=impressions.times if impressions is not None else 0,
        loaded=loaded,
        used=used,
        helped=helped,
        last_shown=impressions.last if impressions is not None else None,
        last_loaded=last,
        versions=_share_versions(versions),
        task_types=_share_task_types(attempts),
        why=why,
        reported=share_of(
            SuccessCounts(helped.n - verified.n, helped.successes - verified.successes)
        ),
        verified=verified,
        not_counted=not_counted,
    )


def _judge(helped: Share, base: Base | None, used: int, dead: str) -> tuple[str, str]:
    """Return the verdict, and why it is that. dead: why it is dead, '' when it is not."""
    if base is not None and helped.n >= ENOUGH:
        compared = base.share.successes / base.share.n
        against = (
            f"{helped.successes / helped.n:.0%} of its ends are good, {compared:.0%} with {base.of}"
        )
        # Only a whole interval on one side of the comparison tells a difference.
        if helped.high < compared:
            return "harms", against
        if helped.low > compared:
            return "helps", against
        if not dead:
            return "open", f"{against}: no clear difference"
    if dead:
        return "dead", dead
    if not used:
        return "open", "never used"
    if helped.n < ENOUGH:
        return "open", f"{helped.n} rated {'use' if helped.n == 1 else 'uses'}, {ENOUGH} are needed"
    return "open", f"nothing to compare with: {ENOUGH} rated uses of anything else are needed"


def _share_versions(versions: list[Attempt]) -> list[VersionShare]:
    groups = _group(versions, lambda attempt: (attempt.version or 0, attempt.model or ""))
    return [
        VersionShare(version, model or None, share_of(_count_successes(some)))
        for (version, model), some in sorted(
            groups.items(), key=lambda item: (-item[0][0], item[0][1])
        )
    ]


def _share_task_types(attempts: list[Attempt]) -> list[TaskUtility]:
    by_type = _group(attempts, lambda attempt: attempt.task_type or "")
    verified = {kind: utility for (_, kind), utility in verified_utilities(attempts).items()}
    return [
        TaskUtility(
            kind,
            q.value,
            share_of(_count_successes(by_type[kind])),
            share_of_utility(verified.get(kind, Utility())),
        )
        for (_, kind), q in sorted(utilities(attempts).items())
    ]


def _find_opportunities(line: ResourceStats, head: Head) -> list[Opportunity]:
    """Return why a review may look at a resource: each with the numbers that say so."""
    exposure = f"shown {line.shown} times, opened last: {line.last_loaded or 'never'}"
    codes = (
        (line.verdict == "dead", "shown-not-loaded", exposure),
        (
            line.loaded >= 3 and not line.used,
            "loaded-not-used",
            f"loaded in {line.loaded} attempts, used in none",
        ),
        (
            line.used >= 3 and not line.shown,
            "used-not-shown",
            f"used in {line.used} attempts, shown by no search",
        ),
        (line.verdict == "harms", "harms", str(line.helped)),
    )
    reasons = [(reason, numbers) for holds, reason, numbers in codes if holds]
    reasons += _compare_versions(line, head)
    return [Opportunity(line.ref, reason, numbers) for reason, numbers in reasons]


def _compare_versions(line: ResourceStats, head: Head) -> list[tuple[str, str]]:
    """Return where versions differ from each other, and models on the newest version, with the
    numbers.

    Two differ where their intervals do not meet.
    """
    reasons = []
    totals: dict[int, SuccessCounts] = {}
    for part in line.versions:
        was = totals.get(part.version, SuccessCounts())
        totals[part.version] = SuccessCounts(
            was.ends + part.share.n, was.successes + part.share.successes
        )
    shares = {version: share_of(proof) for version, proof in totals.items() if proof.ends >= ENOUGH}
    now = shares.get(head.latest)
    for version, share in sorted(shares.items()):
        # Intervals that meet may differ by chance alone.
        if now is not None and version < head.latest and now.high < share.low:
            reasons.append(("newer-is-worse", f"@{head.latest} {now}; @{version} {share}"))
    parts = [
        part
        for part in line.versions
        if part.version == head.latest and part.model and part.share.n >= ENOUGH
    ]
    for worse, better in permutations(parts, 2):
        if worse.share.high < better.share.low:
            numbers = f"{worse.model} {worse.share}; {better.model} {better.share}"
            reasons.append(("model-differs", numbers))
    return reasons
