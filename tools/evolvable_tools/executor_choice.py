"""Which of several agents is given the work of a skill: the one of which the most is to be expected.

Each agent's verified ends of work by this skill give an interval, and the agent with the highest upper end is chosen.
So one that is hardly known is tried, and one that does worse is left alone once that is clear. Source: SkillMAS,
executor utility; the optimistic choice is that of bandits (upper confidence bounds).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evolvable_store import Head
from evolvable_store.resource import Ref
from evolvable_store.storage import Execution, Grade
from evolvable_tools.caller import JudgedLibrary
from evolvable_tools.delegates import NamedDelegate, visible_agent
from evolvable_tools.metrics import REWARDS, wilson_interval


def choose_delegate(library: JudgedLibrary, scopes: Sequence[str], named: NamedDelegate, skill: Head) -> NamedDelegate:
    """Return the delegate with the agent that is given the work first, of those that these scopes see.

    As it is where a skill names one agent, or where none of several is seen.
    """
    if not named.others:
        return named
    known: dict[Ref, int] = {}
    for ref in (named.agent, *named.others):
        agent, why = visible_agent(library, scopes, ref)
        if agent is not None and not why:
            known[ref] = agent.id
    if not known:
        return named
    ends = verified_work(library.store.backend.observations.executions(), skill.id)
    chosen = best_executor({ref: ends.get(agent, (0, 0)) for ref, agent in known.items()})
    rest = tuple(ref for ref in (named.agent, *named.others) if ref != chosen)
    return replace(named, agent=chosen, others=rest)


def best_executor(ends: Mapping[Ref, tuple[int, int]]) -> Ref:
    """Return the executor with the highest upper end of Wilson's interval, of equal ones the first.

    ends: successes and verified ends of each, in the order in which they are named.
    """
    order = list(ends)
    return max(order, key=lambda ref: (wilson_interval(*ends[ref])[1], -order.index(ref)))


def verified_work(executions: Iterable[Execution], skill: int) -> dict[int, tuple[int, int]]:
    """Return by agent the successes and the verified ends of its work by a skill, of each connection the last one."""
    last: dict[tuple[str, int], float] = {}
    for one in executions:
        used = any(use.resource == skill and use.used for use in one.uses)
        if used and one.agent is not None and one.grade is Grade.VERIFIED and one.outcome in REWARDS:
            last[one.link or one.session, one.agent] = REWARDS[one.outcome]
    found: dict[int, tuple[int, int]] = {}
    for (_, agent), reward in last.items():
        good, n = found.get(agent, (0, 0))
        found[agent] = (good + int(reward), n + 1)
    return found
