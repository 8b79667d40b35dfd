"""Which of several agents is given the work of a skill: the one of which the most is to be
expected.

Each agent's verified ends of work by this skill give an interval, and the agent with the highest
upper end is chosen. So one that is hardly known is tried, and one that does worse is left alone
once that is clear. Where the task type is known, an agent's ends at that type have an interval of
their own. It weighs as much as it is probable that the type makes a difference, and that of all
ends weighs the rest: a type with few ends borrows from the others. Source: SkillMAS, executor
utility. The optimistic choice is that of bandits (upper confidence bounds).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from evolvable_store import Head
from evolvable_store.resource import Ref
from evolvable_store.storage import Execution, Grade
from evolvable_tools.delegates import NamedDelegate, visible_agent
from evolvable_tools.library import Library
from evolvable_tools.metrics import REWARDS, plain_task_type, wilson_interval


@dataclass(frozen=True, slots=True)
class VerifiedWork:
    """Verified ends of an agent's work by a skill: good of n at the task type in question, and at
    all others.
    """

    good: int = 0
    n: int = 0
    other_good: int = 0
    other_n: int = 0

    def with_ends(self, good: int, n: int, *, here: bool) -> "VerifiedWork":
        """Return the work with more ends, good of n, at the task type in question or at another."""
        if here:
            return replace(self, good=self.good + good, n=self.n + n)
        return replace(self, other_good=self.other_good + good, other_n=self.other_n + n)


def choose_delegate(
    library: Library,
    scopes: Sequence[str],
    delegate: NamedDelegate,
    skill: Head,
    task_type: str = "",
) -> NamedDelegate:
    """Return the delegate with the agent first that is given the work, of those that these scopes
    see.

    A delegate with one agent, or with none that is seen, stays as it is. task_type: of the work, ''
    where it is not known.
    """
    if not delegate.others:
        return delegate
    agent_ids: dict[Ref, int] = {}
    # In the order in which the skill names them, which decides between equals.
    for ref in (delegate.agent, *delegate.others):
        agent, why = visible_agent(library, scopes, ref)
        if agent is not None and not why:
            agent_ids[ref] = agent.id
    # No agent can be given the work; the status of the first one says why.
    if not agent_ids:
        return delegate
    work = work_at_type(work_by_type(library, skill.id), task_type)
    chosen = best_executor(
        {ref: work.get(agent, VerifiedWork()) for ref, agent in agent_ids.items()}
    )
    rest = tuple(ref for ref in (delegate.agent, *delegate.others) if ref != chosen)
    return replace(delegate, agent=chosen, others=rest)


def best_executor(work: Mapping[Ref, VerifiedWork]) -> Ref:
    """Return the executor with the highest upper bound, of equal ones the first.

    work: of each, in the order in which they are named. The bound is the average of two upper ends
    of Wilson's interval: of the ends at the task type, and of all ends. The weight of the first is
    the probability that the type makes a difference.
    """
    order, differs = list(work), type_probability(work.values())

    def upper_bound(ref: Ref) -> float:
        mine = work[ref]
        here = wilson_interval(mine.good, mine.n)[1]
        everywhere = wilson_interval(mine.good + mine.other_good, mine.n + mine.other_n)[1]
        return differs * here + (1 - differs) * everywhere

    return max(order, key=lambda ref: (upper_bound(ref), -order.index(ref)))


def type_probability(work: Iterable[VerifiedWork]) -> float:
    """Return how probable it is that executors succeed at a task type otherwise than at the others;
    .5 without ends.

    By Bayes' factor, with even odds before: each executor has one rate of success, or one at the
    type and one elsewhere; before the ends every rate is equally probable.
    """
    factor = 0.0
    for each in work:
        here = _log_evidence(each.good, each.n)
        elsewhere = _log_evidence(each.other_good, each.other_n)
        together = _log_evidence(each.good + each.other_good, each.n + each.other_n)
        factor += here + elsewhere - together
    return 1 / (1 + math.exp(-min(factor, MAX_LOG))) if factor > -MAX_LOG else 0.0


MAX_LOG = 700.0
"""The largest logarithm whose exponential is a float."""


def _log_evidence(good: int, n: int) -> float:
    """Return the logarithm of the probability of such ends, one after the other, where every rate
    is as probable.
    """
    # The integral of the likelihood over all rates: Euler's beta function at good + 1 and n - good
    # + 1.
    return math.lgamma(1 + good) + math.lgamma(1 + n - good) - math.lgamma(2 + n)


def work_by_type(library: Library, skill: int) -> dict[tuple[int, str], tuple[int, int]]:
    """Return by agent and task type the successes and the verified ends of the work by a skill.

    The task type of a session is the word that was reported with the skill's outcome, else the
    session's label.
    """
    types = {
        attempt.key: attempt.task_type or "" for attempt in library.evidence.list_attempts([skill])
    }
    return verified_work(library.store.backend.observations.executions(), skill, types)


def verified_work(
    executions: Iterable[Execution], skill: int, types: Mapping[str, str]
) -> dict[tuple[int, str], tuple[int, int]]:
    """Return what `work_by_type` does: of each connection and agent the last end.

    types: those of the sessions.
    """
    # A connection counts once for each agent, or one long session would outweigh all others.
    last: dict[tuple[str, int], tuple[str, float]] = {}
    for execution in executions:
        if execution.agent is None or execution.grade is not Grade.VERIFIED:
            continue
        if execution.outcome is None or execution.outcome not in REWARDS:
            continue
        if any(use.resource == skill and use.used for use in execution.uses):
            end = types.get(execution.session, ""), REWARDS[execution.outcome]
            last[execution.link or execution.session, execution.agent] = end
    counts: dict[tuple[int, str], tuple[int, int]] = {}
    for (_, agent), (kind, reward) in last.items():
        good, n = counts.get((agent, kind), (0, 0))
        counts[agent, kind] = (good + int(reward), n + 1)
    return counts


def work_at_type(
    work: Mapping[tuple[int, str], tuple[int, int]], task_type: str
) -> dict[int, VerifiedWork]:
    """Return by agent its work at a task type and at the others.

    Without a type all of it is of the type.
    """
    wanted_type, by_agent = plain_task_type(task_type), dict[int, VerifiedWork]()
    for (agent, kind), (good, n) in work.items():
        before = by_agent.get(agent, VerifiedWork())
        by_agent[agent] = before.with_ends(good, n, here=not wanted_type or kind == wanted_type)
    return by_agent
