"""Changes of agents by sessions, where the truth is known: what is kept, what is taken back, what
it is worth.

    python -m benchmarks.session_transplant [--seeds N] [--transplants N] [--quick]

Every figure is simulated: an end of a session is drawn, and no answer is made. What decides is the
product's: the gate of rounds over sessions, the arms of the pool and its looks. A scripted person
approves a rewriting of a skill that fails, and puts each change of agents on trial. A round has 60
sessions, each over a connection of its own.

A session passes with the chance of its task type where its executor has the rules that the task
needs, else seldom; and for each line of its executor's skills beyond ROOM less often, which is
worse for long tasks (interference).

`transplant`: a specialist helps; then skills and agents as they evolved are measured apart (after
SkillMAS, table 2). `harmful`: one type is hard for everybody, and a specialist lacks what all types
need. `no effect`: a specialist changes nothing there. `nothing wrong`: all types pass equally
often.
"""

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from transplant import ARMS, parse_options, print_means, share_text

from evolvable_evolve.rounds.executor_evidence import (
    ExecutorEvidence,
    ExecutorSession,
    TriedRepair,
    decide_change,
)
from evolvable_evolve.rounds.pool_looks import AssignedEnd, PoolDecision, judge_trial
from evolvable_evolve.trial_arms import draw_arm
from evolvable_store import format_time
from evolvable_store.storage import Outcome, PooledVersion, PoolState

ROOM, PER_ROUND, ROUNDS = 6, 60, 8
TYPES = ("alpha", "beta", "gamma", "delta")
FORMS = "skill:delta-forms"
START = datetime(2026, 11, 29, tzinfo=UTC)


@dataclass(frozen=True)
class Skill:
    """A skill: the rules that it carries, and how many lines it has."""

    rules: frozenset[str]
    lines: int


Library = Mapping[str, Skill]
Agents = Mapping[str, frozenset[str]]
"""The skills of each specialist, by the task type that it does; main has the rest."""


@dataclass(frozen=True)
class World:
    """Types of tasks and the skills for them.

    skills: at the beginning. needs: rules by type. chances: with all rules and without. pressure:
    what a line beyond ROOM takes. rewritten: what the person approves for the skill that fails,
    None where the repair is retired.
    """

    name: str
    skills: Library
    needs: Mapping[str, tuple[tuple[float, frozenset[str]], ...]]
    chances: Mapping[str, tuple[float, float]]
    pressure: Mapping[str, float] = field(default_factory=dict)
    rewritten: Skill | None = None

    def chance(
        self, skills: Library, agents: Agents, task_type: str, needs: frozenset[str]
    ) -> float:
        """Return the chance of a session to pass."""
        given = {ref for some in agents.values() for ref in some}
        own = agents.get(task_type, frozenset(skills) - given)
        rules = frozenset[str]().union(*(skills[ref].rules for ref in own))
        best, without = self.chances[task_type]
        over = max(0, sum(skills[ref].lines for ref in own) - ROOM)
        return max(
            0.0, (best if needs <= rules else without) - self.pressure.get(task_type, 0.0) * over
        )

    def mean(self, skills: Library, agents: Agents) -> float:
        """Return the true share of sessions that pass; types come equally often, and delta as often
        as two of them.
        """
        means = {
            kind: sum(
                share * self.chance(skills, agents, kind, needs)
                for share, needs in self.needs[kind]
            )
            for kind in TYPES
        }
        return (sum(means.values()) + means["delta"]) / (len(TYPES) + 1)


def needing(*parts: tuple[float, str]) -> tuple[tuple[float, frozenset[str]], ...]:
    """Return shares of a type's tasks with the rules that they need."""
    return tuple((share, frozenset(rules.split())) for share, rules in parts)


def transplant_world() -> World:
    """Return a world in which main has too much, and the rewriting of a skill makes it more."""
    skills = {
        "skill:basics": Skill(frozenset(TYPES[:3]), 10),
        FORMS: Skill(frozenset({"delta"}), 4),
    }
    needs = {kind: needing((1.0, kind)) for kind in TYPES} | {
        "delta": needing((0.75, "delta"), (0.25, "delta more"))
    }
    pressure = dict.fromkeys(TYPES, 0.03) | {"delta": 0.08}
    more = Skill(frozenset({"delta", "more"}), 6)
    return World("transplant", skills, needs, dict.fromkeys(TYPES, (0.95, 0.0)), pressure, more)


def hard_world(without: float) -> World:
    """Return a world in which delta is hard, and a specialist lacks the skill that all
    types need.
    """
    skills = {"skill:basics": Skill(frozenset({"all"}), 3), FORMS: Skill(frozenset({"delta"}), 3)}
    needs = dict.fromkeys(TYPES, needing((1.0, "all")))
    return World(
        "hard", skills, needs, dict.fromkeys(TYPES, (0.85, without)) | {"delta": (0.35, without)}
    )


def calm_world(chance: float) -> World:
    """Return a world in which all types pass equally often."""
    return replace(hard_world(0.0), name="calm", chances=dict.fromkeys(TYPES, (chance, 0.0)))


@dataclass
class Course:
    """One library through its rounds."""

    world: World
    seed: int
    skills: dict[str, Skill] = field(default_factory=dict)
    agents: dict[str, frozenset[str]] = field(default_factory=dict)
    sessions: list[ExecutorSession] = field(default_factory=list)
    proposed: int = 0
    kept: int = 0
    trials: int = 0

    def __post_init__(self) -> None:
        self.skills, self.drawn = (
            dict(self.world.skills),
            random.Random(f"{self.world.name} {self.seed}"),
        )
        self.repairs: list[TriedRepair] = []
        self.trial: PooledVersion | None = None
        self.edit: tuple[str, frozenset[str], str] | None = None
        self.ends: list[AssignedEnd] = []
        self.looks: list[dict[str, object]] = []
        self.tried, self.since = set[str](), ""

    @property
    def now(self) -> datetime:
        return START + timedelta(minutes=len(self.sessions))

    def run(self, rounds: int = ROUNDS) -> "Course":
        """Live through the rounds, and until the last trial has ended."""
        for number in range(rounds):
            for _ in range(PER_ROUND):
                self.session()
            if not number:
                self.repair()
            self.look()
            if self.trial is None:
                self.gate(number)
        while self.trial is not None:
            self.session()
            self.look()
        return self

    def session(self) -> None:
        """Draw one session. One that is given the skill on trial is in an arm of its own."""
        kind = self.drawn.choice((*TYPES, "delta"))
        shares = self.world.needs[kind]
        needs = self.drawn.choices([needs for _, needs in shares], [share for share, _ in shares])[
            0
        ]
        name, at = f"s{len(self.sessions)}", format_time(self.now)
        served = kind == "delta" and self.trial is not None and draw_arm(self.trial, name)
        agents = self.agents
        if served and self.edit is not None:
            agents = {**agents, self.edit[0]: self.edit[1]}
        passed = self.drawn.random() < self.world.chance(self.skills, agents, kind, needs)
        if self.trial is not None and kind == "delta":
            self.ends.append(
                AssignedEnd(served, at, Outcome.SUCCEEDED if passed else Outcome.FAILED)
            )
        agent = f"agent:{kind}" if kind in agents else "main"
        used = FORMS if kind == "delta" else "skill:basics"
        self.sessions.append(ExecutorSession(name, at, kind, agent, passed, (used,)))

    def repair(self) -> None:
        """Repair the skill of the type that fails: what a person approves, or what was tried
        without success.
        """
        admitted = self.world.rewritten is not None
        if self.world.rewritten is not None:
            self.skills[FORMS] = self.world.rewritten
        self.repairs.append(TriedRepair("a repair", FORMS, TYPES, admitted, format_time(self.now)))

    def gate(self, number: int) -> None:
        """Have the gate look, and put what it proposes on trial."""
        given = {ref for some in self.agents.values() for ref in some}
        owned = {"main": frozenset(self.skills) - given}
        owned |= {f"agent:{kind}": some for kind, some in self.agents.items()}
        delegates = {ref: f"agent:{kind}" for kind, some in self.agents.items() for ref in some}
        found = decide_change(
            ExecutorEvidence(
                self.sessions,
                owned,
                delegates,
                frozenset(self.skills),
                self.repairs,
                since=self.since,
                look=number + 1,
                tried=frozenset(self.tried),
            )
        )
        if found.edit is None:
            return
        self.proposed += 1
        self.trials += 1
        self.edit = (found.edit.boundary[0], frozenset(found.edit.skills_moved), found.edit.key)
        salt = self.drawn.randbytes(32)
        about = (
            self.trials,
            1,
            2,
            3,
            PoolState.TRIAL,
            0,
            format_time(self.now),
            0.5,
            self.trials,
            False,
            True,
            "",
        )
        self.trial, self.ends, self.looks = PooledVersion(*about, salt=salt), [], []

    def look(self) -> None:
        """Look at the trial as often as it is due; keep the change of agents or take it back."""
        while self.trial is not None and self.edit is not None:
            look = judge_trial(self.ends, self.trial.number, self.looks, self.now)
            if look is None:
                return
            self.looks.append(look.as_row())
            if look.decision is PoolDecision.WAIT:
                continue
            kind, moved, key = self.edit
            self.tried.add(key)
            if look.decision is PoolDecision.PROMOTE:
                self.agents[kind], self.since = moved, format_time(self.now)
                self.kept += 1
            self.trial = self.edit = None


def transplant(seed: int) -> dict[str, float]:
    """Return the true mean of each arm after one library's rounds."""
    world = transplant_world()
    course = Course(world, seed).run()
    pairs = (
        (course.skills, course.agents),
        (world.skills, {}),
        (course.skills, {}),
        (world.skills, course.agents),
    )
    return {
        arm: world.mean(skills, agents) for arm, (skills, agents) in zip(ARMS, pairs, strict=True)
    }


def main() -> None:
    """Print the figures; the exit code says whether they are those that are promised."""
    options = parse_options(__doc__)
    print("simulated")
    found = [transplant(seed) for seed in range(options.transplants)]
    means = print_means(found)
    ordered = sum(one["full"] > one["seed"] > one["library only"] for one in found)
    print(f"full > seed > library only: {share_text(ordered, len(found))}")
    good = [means["full"] > means["seed"] > means["library only"]]
    for name, without in (("harmful", 0.05), ("slightly harmful", 0.25), ("no effect", 0.35)):
        tried = [Course(hard_world(without), seed).run() for seed in range(options.seeds)]
        proposed = [one for one in tried if one.proposed]
        refused = sum(not one.kept for one in proposed)
        share = share_text(refused, len(proposed))
        print(
            f"{name}: proposed {share_text(len(proposed), len(tried))}, of these not kept {share}"
        )
        good.append(bool(proposed) and refused >= 0.95 * len(proposed))
    for chance in (0.5, 0.8):
        calm = [Course(calm_world(chance), seed).run() for seed in range(options.seeds)]
        still = sum(not one.proposed for one in calm)
        print(f"nothing wrong, chance {chance}: agents as they were {share_text(still, len(calm))}")
        good.append(still >= 0.99 * options.seeds)
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
