"""The loops of others, with their own gates: what they keep is what they would have the user run.

SkillOpt (bdfdc30) and cap-evolve (d94fb33) score the base and the best program once on a test and
print both means. `own_test` keeps what that test shows to be better. `tested` puts our sealed test
behind a loop, so that a search can be compared with ours at the same verdict. The code of EvoSkill
and GEPA ends with the best validation.
"""

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from baselines import cap_evolve_gate, evoskill_loop, gepa_gate, skillopt_gate

from evolution.product import sealed_test
from evolution.scenarios import BASE, Found, Place, Rules, mean
from evolvable_evolve.evolution import search_operators
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.search import EXPECTED_TEST
from evolvable_evolve.evolution.task import Split, Task

_MINIBATCH, _MOST_PROPOSALS = 3, 200


def evoskill(place: Place, proposals: int) -> Found:
    """EvoSkill: whatever beats the last of three, or finds room, stays; the highest validation is
    returned.
    """
    val = place.of(Split.VAL)
    pools: dict[str, list] = {}
    for task in place.of(Split.TRAIN):
        pools.setdefault(task.category, []).append(task)

    def propose(parent: Rules, failed: Sequence[str], iteration: int):
        return evoskill_loop.Proposed(place.proposal(parent, iteration), "", ""), 0.0

    agents = evoskill_loop.Agents(
        run=lambda rules, category, number: (
            mean(place.measure(rules, [pools[category][number]])),
            0.0,
        ),
        propose=propose,
        validate=lambda rules: (mean(place.measure(rules, val)), 0.0),
        skills=lambda rules: sorted(rules),
    )
    settings = evoskill_loop.Settings(iterations=proposals)
    done = evoskill_loop.run(
        BASE, agents, {name: len(pool) for name, pool in pools.items()}, settings
    )
    name, score = done.best
    return Found(done.programs[name], score - mean(place.measure(BASE, val)))


def gepa_minibatch(place: Place, proposals: int) -> Found:
    """GEPA: more points than the parent on three training tasks earn validation; parents come from
    the Pareto front.
    """
    val, train = place.of(Split.VAL), place.of(Split.TRAIN)
    chance = random.Random(0)
    programs = [BASE]
    rows = [place.measure(BASE, val)]
    for iteration in range(1, proposals + 1):
        scores = [list(row.values()) for row in rows]
        parent = programs[
            search_operators.sample_front(
                search_operators.pareto_front(scores), [mean(row) for row in rows], chance
            )
        ]
        batch = search_operators.sample_batch(
            train, iteration, categories=_MINIBATCH, per_category=1
        )
        before = list(place.measure(parent, batch).values())
        if min(before) == 1.0:
            continue
        child = place.proposal(parent, iteration)
        if gepa_gate.worth_validating(before, list(place.measure(child, batch).values())):
            programs.append(child)
            rows.append(place.measure(child, val))
    best = max(range(len(rows)), key=lambda number: mean(rows[number]))
    return Found(programs[best], mean(rows[best]) - mean(rows[0]))


def gepa_reflection(place: Place, proposals: int) -> Found:
    """GEPA in a world of critiques: as `gepa_minibatch`, and the proposer reads the minibatch.

    It goes on, whatever the number of proposals, until the trials are spent that our search plans
    for here: what a minibatch turns down costs it six.
    """
    tests = len(place.of(Split.TEST))
    limit = (
        RunSettings("simulated", executor={}, iterations=proposals).planned_trials(tests)
        - EXPECTED_TEST * tests
    )
    val, train, chance = place.of(Split.VAL), place.of(Split.TRAIN), random.Random(0)
    programs, rows = [BASE], [place.measure(BASE, val)]
    history: list[dict[str, str]] = []
    for iteration in range(1, _MOST_PROPOSALS + 1):
        if place.spent >= limit:
            break
        scores, means = [list(row.values()) for row in rows], [mean(row) for row in rows]
        front = search_operators.pareto_front(scores)
        parent = programs[search_operators.sample_front(front, means, chance)]
        batch = search_operators.sample_batch(
            train, iteration, categories=_MINIBATCH, per_category=1
        )
        before = place.measure(parent, batch)
        if min(before.values()) == 1.0:
            continue
        question = SimpleNamespace(
            data={"evidence": _traces(place, parent, batch, before), "history": history}
        )
        rule = place.propose(question, iteration)
        history.append({"summary": rule})
        child = parent | {rule}
        after = place.measure(child, batch)
        if child not in programs and gepa_gate.worth_validating(
            list(before.values()), list(after.values())
        ):
            programs.append(child)
            rows.append(place.measure(child, val))
    best = max(range(len(rows)), key=lambda number: mean(rows[number]))
    return Found(programs[best], mean(rows[best]) - mean(rows[0]))


def _traces(
    place: Place, rules: Rules, tasks: Sequence[Task], scores: Mapping[str, float]
) -> list[dict[str, str]]:
    """Return what a proposer reads of the trials of a program."""
    digest = place.digest(rules)
    return [
        {
            "task": task.id,
            "result": "passed" if scores[task.id] == 1.0 else "failed",
            "trace": place.texts(digest, task, 0, scores[task.id])[1],
        }
        for task in tasks
    ]


def skillopt_strict(place: Place, proposals: int) -> Found:
    """SkillOpt: a higher validation than the current document's is accepted; the best
    is returned.
    """
    val = place.of(Split.VAL)
    current = best = BASE
    at = top = first = mean(place.measure(BASE, val))
    for iteration in range(1, proposals + 1):
        child = place.proposal(current, iteration)
        score = skillopt_gate.score(mean(place.measure(child, val)), 0.0)
        action = skillopt_gate.decide(score, at, top)
        if action is not skillopt_gate.Action.REJECT:
            current, at = child, score
        if action is skillopt_gate.Action.ACCEPT_NEW_BEST:
            best, top = child, score
    return Found(best, top - first)


def k_se(k: float):
    """Return the loop of cap-evolve: a mean paired gain above `k` standard errors on validation is
    accepted.
    """

    def loop(place: Place, proposals: int) -> Found:
        val = place.of(Split.VAL)
        current, first = BASE, mean(place.measure(BASE, val))
        for iteration in range(1, proposals + 1):
            child = place.proposal(current, iteration)
            before, after = place.measure(current, val), place.measure(child, val)
            differences = [after[task] - before[task] for task in before]
            if cap_evolve_gate.decide(
                mean(before), mean(after), "paired", differences=differences, k=k
            ).accept:
                current = child
        return Found(current, mean(place.measure(current, val)) - first)

    return loop


def own_test(loop):
    """Return a loop with the test of SkillOpt and cap-evolve behind it: one run of each task, the
    higher mean stays.
    """

    def run(place: Place, proposals: int) -> Found:
        found = loop(place, proposals)
        if found.rules == BASE:
            return found
        before, after = (
            mean(place.measure(rules, place.of(Split.TEST))) for rules in (BASE, found.rules)
        )
        return Found(found.rules, after - before) if after > before else Found(BASE)

    return run


def tested(loop):
    """Return a loop with our sealed test and its vetoes behind it: what does not pass is not run,
    the base stays.
    """

    def run(place: Place, proposals: int) -> Found:
        found = loop(place, proposals)
        return found if found.rules == BASE else sealed_test(place, found.rules, found.claimed)

    return run
