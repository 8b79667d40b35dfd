"""Rounds and the pool on simulated sessions of which the truth is known.

    python benchmarks/round_simulation.py [--quick] [--libraries N]

A library has 40 skills. A fifth of them harm: a session that uses one succeeds 25 points less often
than one without a skill (which succeeds in half of the cases); the others help by 15 points. Each
of 20 rounds has 60 sessions, nine of ten use a skill. The sessions are transcripts that the product
takes in, each over a connection of its own; outcomes are drawn by the skill that was served. A
model behind HTTP, scripted, diagnoses failures and proposes edits, all without an effect; a
scripted person approves what waits. The looks alone are measured on more trials. All figures are
simulated: they say how often a decision is right, and nothing about a model.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from model_api import asking
from round_sessions import RoundModel, Sessions, guard
from transcripts import Run, User

from evolvable_evolve.evolution.statistics.staged_test import clopper_pearson_upper
from evolvable_evolve.rounds.pool import list_pool
from evolvable_evolve.rounds.pool_looks import LOOKS, AssignedEnd, PoolDecision, judge_trial
from evolvable_evolve.rounds.service import run_round
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.review.review_config import ReviewBudget
from evolvable_tools.verbs import edit, proposal_inbox

PERSON = Caller(Actor.HUMAN, None, principal=Principal.PERSON, via="terminal")
BASE, HARM, HELP = 0.5, -0.25, 0.15
WORDS = [
    "amber",
    "barley",
    "cedar",
    "daisy",
    "ember",
    "fennel",
    "garnet",
    "hazel",
    "indigo",
    "jasper",
    "kelp",
    "lilac",
    "maple",
    "nettle",
    "olive",
    "pepper",
    "quartz",
    "rowan",
    "saffron",
    "tansy",
    "umber",
    "violet",
    "walnut",
    "yarrow",
    "zinnia",
    "alder",
    "birch",
    "clover",
    "dill",
    "elder",
    "fern",
    "gorse",
    "heath",
    "iris",
    "juniper",
    "larch",
    "mallow",
    "nutmeg",
    "oat",
    "poppy",
]


@dataclass
class World:
    """One simulated library.

    names: of its skills; harmful: those whose use harms; rng: draws the sessions.
    """

    sessions: Sessions
    names: list[str]
    harmful: frozenset[str]
    rng: random.Random
    start: datetime
    count: int = 0
    removed: set[str] = field(default_factory=set)
    used: Counter[str] = field(default_factory=Counter)

    def effect(self, name: str) -> float:
        """Return by how much the use of a skill changes the chance of success; edits change
        nothing.
        """
        return HARM if name in self.harmful else HELP

    def session(self, library: Library) -> None:
        """Play one session: it is served a skill, or none, and ends as chance and the truth have
        it.
        """
        self.count += 1
        name = self.rng.choice(self.names)
        skill = name if self.rng.random() < 0.9 and name not in self.removed else ""
        works = self.rng.random() < BASE + (self.effect(name) if skill else 0.0)
        self.used[name] += bool(skill)
        check = f"pytest -q tests/{name}"
        why = (
            f"that is wrong: look at the {name} before the {WORDS[self.rng.randrange(40)]} "
            "is written"
        )
        work = (
            [Run(check, "1 failed", code=1), Run(check, "1 passed")]
            if works
            else [
                *(Run(check, "1 passed"), Run(check, "1 failed", code=1)),
            ]
        )
        said = [User("it works")] if works else [User(why)]
        at = self.start + timedelta(minutes=self.count)
        self.sessions.run(
            f"s{self.count}", skill, f"Work on the {name}", [*work, *said], start=at, search=False
        )


def make(home: Path, machine: Path, seed: int, skills: int = 40) -> tuple[Library, World]:
    """Return a library of skills, a fifth of them harmful."""
    library = Library(Store.open(home, create=True))
    for name in WORDS[:skills]:
        lines = [f"{n}. Look at the {name}, part {n}, and go on." for n in range(1, 9)]
        text = (
            f"---\nname: {name}\ndescription: Works on {name}.\n---\n\n" + "\n".join(lines) + "\n"
        )
        edit.update_resource(
            library, PERSON, Ref.parse(name), "made", files={"SKILL.md": text}, create=True
        )
    rng = random.Random(seed)
    harmful = frozenset(rng.sample(WORDS[:skills], skills // 5))
    return library, World(
        Sessions(library, machine), WORDS[:skills], harmful, rng, datetime(2026, 1, 1, tzinfo=UTC)
    )


def answers(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scripted model's answer: a guard without an effect, in words of the session."""
    name = document["cluster"].partition(":")[2]
    typed = next(
        (one["text"] for one in document["evidence"] if one["text"].startswith("that is wrong")), ""
    )
    words = typed.partition(": ")[2]
    if document["reward"] or not words or name not in WORDS:
        return {"diagnoses": [], "candidates": []}
    old = f"1. Look at the {name}, part 1, and go on."
    return guard(document, words, old, words.capitalize() + ".", f"{words.capitalize()}.")


def decide(library: Library, world: World, asked: Counter[str]) -> None:
    """Approve what waits, as the scripted person does."""
    for one in proposal_inbox.list_waiting(library, 1_000):
        proposal_inbox.approve_together(library, PERSON, [one.proposal_id], "yes")
        asked["removed" if one.removes else "changed"] += 1
        if one.removes:
            world.removed.add(one.ref.partition(":")[2])


def play(seed: int, rounds: int = 20, sessions: int = 60, skills: int = 40) -> dict[str, Any]:
    """Return what became of one simulated library."""
    with tempfile.TemporaryDirectory() as folder:
        library, world = make(Path(folder) / "home", Path(folder) / "machine", seed, skills)
        asked: Counter[str] = Counter()
        with RoundModel(answers) as api, asking(api) as model:
            settings = world.sessions.settings(
                reviewer_model=model, budget=ReviewBudget(calls=10**6, tokens=10**12)
            )
            for _ in range(rounds):
                for _ in range(sessions):
                    world.session(library)
                run_round(library, PERSON, settings)
                decide(library, world, asked)
        trials = Counter(one.state for one in list_pool(library, ended=True).trials)
        good = set(WORDS[:skills]) - world.harmful
        library.close()
        return {
            "harmful": len(world.harmful),
            "harmful_gone": len(world.harmful & world.removed),
            "good": len(good),
            "good_gone": len(good & world.removed),
            "trials": sum(trials.values()),
            "promoted": trials["promoted"],
            "retired": trials["retired"],
            "questions": len(api.asked),
        }


def look_rates(base: float, gain: float, trials: int, seed: int = 0) -> tuple[int, int, float]:
    """Return of so many trials those that are promoted and retired before the last look, and
    sessions of each arm.
    """
    promoted = retired = used = 0
    now = datetime(2026, 2, 1, tzinfo=UTC)
    for number in range(trials):
        rng = random.Random(f"{seed} {base} {gain} {number}")
        ends: list[AssignedEnd] = []
        looks: list[dict[str, Any]] = []
        for n in range(48):
            for arm in (True, False):
                works = rng.random() < base + (gain if arm else 0.0)
                ends.append(
                    AssignedEnd(arm, f"{n:04}", Outcome.SUCCEEDED if works else Outcome.FAILED)
                )
            look = judge_trial(ends, 1, looks, now) if n + 1 in LOOKS else None
            if look is None:
                continue
            looks.append(look.as_row())
            if look.decision is not PoolDecision.WAIT:
                promoted += look.decision is PoolDecision.PROMOTE
                retired += look.decision is PoolDecision.RETIRE and look.look < 4
                used += n + 1
                break
    return promoted, retired, used / trials


def main() -> int:
    """Run the simulation, print its tables, and return 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--libraries", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    libraries, trials = given.libraries or (1 if given.quick else 8), 500 if given.quick else 4_000
    print("The looks alone (simulated): share promoted, retired early, sessions of each arm")
    for base in (0.5, 0.8):
        for gain in (0.0, 0.15, 0.25, 0.4, -0.25):
            if base + gain <= 1:
                promoted, retired, used = look_rates(base, gain, trials)
                print(
                    f"  base {base}, effect {gain:+.2f}: {promoted / trials:.3f} "
                    f"{retired / trials:.3f} {used:.1f}"
                )
    worst = max(look_rates(base, 0.0, trials)[0] for base in (0.3, 0.5, 0.8))
    totals: Counter[str] = Counter()
    for seed in range(given.first, given.first + libraries):
        found = play(seed)
        print(json.dumps(found), flush=True)
        totals.update(found)
    gone, lost = totals["harmful_gone"] / totals["harmful"], totals["good_gone"] / totals["good"]
    upper = clopper_pearson_upper(totals["promoted"], totals["trials"])
    alone = clopper_pearson_upper(worst, trials)
    print(f"harmful skills retired: {gone:.1%} (target at least 80 %)")
    print(f"good skills retired: {lost:.1%} (target at most 5 %)")
    print(
        f"edits without an effect promoted: {totals['promoted']} of {totals['trials']}, upper "
        f"bound {upper:.1%}"
    )
    print(
        f"looks alone, worst base: {worst} of {trials}, upper bound {alone:.1%} (target "
        "at most 5 %)"
    )
    missed = gone < 0.8 or lost > 0.05 or alone > 0.05 or (upper > 0.05 and not given.quick)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
