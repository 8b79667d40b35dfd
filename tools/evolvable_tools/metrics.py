"""Metrics of counts and outcomes, as pure functions: Wilson's interval, EvoAgent's maturity,
SkillMAS's utility.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from evolvable_store.storage import (
    ITEM_SESSIONS,
    Attempt,
    Execution,
    Grade,
    Outcome,
    VerifiedEnd,
    one_of_each_connection,
)

Z = 1.959963984540054
"""Standard deviations on each side of a 95 % interval: the 0.975 quantile of the normal
distribution.
"""

Z_ONE_SIDED = 1.6448536269514722
"""Standard deviations up to a bound that holds in 95 %: the 0.95 quantile of the normal
distribution.
"""

ENOUGH = 5
"""Ends below which no percentage is given, nothing is said to help or to harm, and nothing is
compared with.
"""


def format_success(success: float | None, rated: int) -> str:
    """Return a share of rated uses in words: a percentage where they are enough, else the counts;
    '' without any.
    """
    if success is None or not rated:
        return ""
    if rated < ENOUGH:
        return f"{round(success * rated)} of {rated}"
    return f"{success:.0%} of {rated}"


def wilson_interval(successes: int, ends: int, z: float = Z) -> tuple[float, float]:
    """Return both ends of Wilson's interval for the share of successes; (0, 1) without any ends.

    z: standard deviations on each side, by default those of 95 %. Source: E. B. Wilson, 1927. One
    success of one is (0.21, 1), nine of ten (0.60, 0.98).
    """
    if not ends:
        return 0.0, 1.0
    share = successes / ends
    middle = share + z * z / (2 * ends)
    spread = z * math.sqrt(share * (1 - share) / ends + z * z / (4 * ends * ends))
    whole = 1 + z * z / ends
    # At the ends of the scale rounding would leave a tiny difference from 0 and 1.
    low = 0.0 if successes == 0 else max(0.0, (middle - spread) / whole)
    return low, (1.0 if successes == ends else min(1.0, (middle + spread) / whole))


def wilson_upper_bound(successes: int, ends: int) -> float:
    """Return what the share of successes is below in 95 % of cases (one-sided); 1
    without any ends.
    """
    return wilson_interval(successes, ends, Z_ONE_SIDED)[1]


def wilson_lower_bound(successes: int, ends: int) -> float:
    """Return the lower end of the interval; 0 without any ends."""
    return wilson_interval(successes, ends)[0]


def maturity(uses: int, success: float) -> str:
    """Return the maturity of a resource with so many uses whose end is known, and this share of
    successes.

    Source: EvoAgent, maturity table: Proficient from 10 uses at .85, Mature from 4 at .70, Growing
    from 1.
    """
    if uses >= 10 and success >= 0.85:
        return "Proficient"
    if uses >= 4 and success >= 0.70:
        return "Mature"
    return "Growing" if uses >= 1 else "Budding"


def maturity_of(successes: int, ends: int) -> str:
    """Return the maturity for so many successes among so many ends."""
    return maturity(ends, successes / ends if ends else 0.0)


def earned_maturity(verified_successes: int, verified: int, ends: int) -> str:
    """Return the maturity by the verified ends.

    Ends that were only reported make a resource Growing and no more.
    """
    # Without a verified end one imaginary failure keeps the maturity at Growing.
    return maturity_of(verified_successes, verified) if verified or not ends else maturity_of(0, 1)


REWARDS = {Outcome.SUCCEEDED: 1.0, Outcome.PARTIAL: 0.0, Outcome.FAILED: 0.0}
"""The verified outcome as SkillMAS has it, 0 or 1: what was done in part has not succeeded."""


@dataclass(frozen=True, slots=True)
class Utility:
    """A value of Q after n updates. `value` means nothing while n is 0."""

    value: float = 0.0
    n: int = 0

    def with_reward(self, reward: float) -> "Utility":
        """Return the utility after one more episode: Q + α(R - Q) with α = 1/(1+n).

        Source: SkillMAS, utility learning. The first update has α = 1, so Q is the running mean of
        the rewards.
        """
        return Utility(self.value + (1 / (1 + self.n)) * (reward - self.value), self.n + 1)


def plain_task_type(words: str) -> str:
    """Return the words of a task type as they are compared: in small letters, without spaces around
    them.
    """
    return words.strip().lower()


MAIN_AGENT = "main"
"""The agent of what a session did itself."""


@dataclass(frozen=True, slots=True)
class AgentEpisode:
    """What one agent did of one session: the slice of its trace that ended so."""

    agent: str
    task_type: str
    outcome: Outcome
    key: str
    at: str


def agent_episodes(
    ends: Iterable[VerifiedEnd], executions: Iterable[Execution] = ()
) -> list[AgentEpisode]:
    """Return the episodes of verified sessions, cut by agent: of each connection and agent the last
    one.

    The main agent's end is that of the session. An item of a run of agents has no main agent. An
    agent of the library has an episode of its own, with the end of its execution, where that is
    verified; other sub-agents have none.
    """
    ended = [end for end in ends if end.outcome in REWARDS]
    kinds = {end.session: end.task_type or "" for end in ended}
    own = (end for end in ended if not end.session.startswith(ITEM_SESSIONS))
    last = {
        (end.link or end.session, MAIN_AGENT): (end.session, end.outcome, end.at) for end in own
    }
    for execution in executions:
        if execution.agent is None or execution.grade is not Grade.VERIFIED:
            continue
        if execution.outcome in REWARDS and execution.session in kinds:
            key = execution.link or execution.session, execution.executor
            last[key] = execution.session, execution.outcome, execution.at
    return [
        AgentEpisode(agent, kinds[session], outcome, session, at)
        for (_, agent), (session, outcome, at) in last.items()
        if outcome is not None
    ]


def agent_utilities(episodes: Iterable[AgentEpisode]) -> dict[tuple[str, str], Utility]:
    """Return Q by agent and task type: one update for each episode, replayed by time
    and session.
    """
    learned: dict[tuple[str, str], Utility] = {}
    for episode in sorted(episodes, key=lambda item: (item.at, item.key, item.agent)):
        key = (episode.agent, episode.task_type)
        learned[key] = learned.get(key, Utility()).with_reward(REWARDS[episode.outcome])
    return learned


def verified_utilities(attempts: Iterable[Attempt]) -> dict[tuple[int, str], Utility]:
    """Return Q by resource and task type of the verified attempts alone, of each connection and
    resource one.
    """
    by_resource: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.used and attempt.outcome in REWARDS:
            by_resource.setdefault(attempt.resource, []).append(attempt)
    return utilities(
        attempt for some in by_resource.values() for attempt in one_of_each_connection(some)
    )


def utilities(attempts: Iterable[Attempt]) -> dict[tuple[int, str], Utility]:
    """Return Q by resource and task type ('' without one) after these attempts, one of each
    episode.

    Only what was used and ended in a way that is known counts. The order in which the attempts
    come, or were stored, changes nothing: they are replayed by their time and key.
    """
    learned: dict[tuple[int, str], Utility] = {}
    for attempt in sorted(attempts, key=lambda item: (item.at, item.key, item.resource)):
        if attempt.used and attempt.outcome in REWARDS:
            key = (attempt.resource, attempt.task_type or "")
            learned[key] = learned.get(key, Utility()).with_reward(REWARDS[attempt.outcome])
    return learned
