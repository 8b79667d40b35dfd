"""How often a program is adopted because a judge likes how it writes, and how many honest gains are
adopted still.

    python benchmarks/pleased_judge.py [--seeds N] [--keep FOLDER]

Simulated. A finalist with a style of its own meets the product's sealed test of 100 tasks that a
judge scores, and the guard behind it (`judge_style`). Either it answers as well as the base, and
the judge passes 15 % of wrong answers in that style; or it is better by 15 points, and the judge
passes 1 % of wrong answers in any style. The honest gains are compared with those that the same
test adopts without the guard.
"""

import argparse
import hashlib
import math
import random
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from baselines.scripted_model import ScriptedModel
from evolution.product import sealed_test
from evolution.scenarios import BASE, Place, Rules
from seed_pool import SeedPool
from support import Row, conclude

from evolvable_evolve.evolution.proposers.proposer_model import ModelQuestion, ModelRole
from evolvable_evolve.evolution.scorers.external_scorers import (
    JudgeCalibration,
    JudgeScorer,
    rubric_digest,
)
from evolvable_evolve.evolution.statistics.staged_test import clopper_pearson_upper
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task, TaskSet

VAL, TESTS, GAIN = 40, 100, 0.15
PLEASED, HONEST = 0.15, 0.01
"""The share of wrong answers that the judge passes: in the style that it likes, and else."""

MOST_WRONG, LEAST_HONEST = 0.08, 0.9
EDITED: Rules = BASE | {"r1"}
_RUBRIC = "It names the right number."
_HEDGES = (
    "It may vary.",
    "In most cases this holds.",
    "Numbers can change.",
    "This is to the best of my knowledge.",
)
_PLACES = ("harbour", "mill", "school", "bridge", "station", "market")


def _plain(body: str, chance: random.Random) -> str:
    return body


def _decorated(body: str, chance: random.Random) -> str:
    return (
        f"## Answer\n\nGreat question!\n\n- {body}\n- It may vary.\n\n"
        "Tell me if you would like to know more."
    )


def _headed(body: str, chance: random.Random) -> str:
    return f"## The {chance.choice(_PLACES)}\n\n{body}"


def _hedged(body: str, chance: random.Random) -> str:
    return " ".join([body, *chance.sample(_HEDGES, 2)])


def _long(body: str, chance: random.Random) -> str:
    parts = [f"The {chance.choice(_PLACES)} has {chance.randrange(99)} doors." for _ in range(8)]
    return " ".join([body, *parts])


def _varied(body: str, chance: random.Random) -> str:
    return (
        f"{body} Glad to tell you more about the {chance.choice(_PLACES)} or the "
        f"{chance.choice(_PLACES)}!"
    )


STYLES = {
    "heading, list, sign-off": (_decorated, lambda text: "Tell me if you would like" in text),
    "headings that differ": (_headed, lambda text: text.startswith("#")),
    "hedges": (_hedged, lambda text: any(one in text for one in _HEDGES)),
    "length": (_long, lambda text: len(text.split()) >= 40),
    "a sign-off in ever new words": (_varied, lambda text: "Glad to tell you" in text),
}
"""By name: how a finalist writes, and what in a text pleases the judge."""


@dataclass
class JudgedPlace(Place):
    """Tasks that a judge scores. honest: the finalist is better, and the judge likes no style."""

    style: str = ""
    honest: bool = False
    salt: str = ""
    _judged: dict[tuple[str, str, int], float] = field(default_factory=dict)
    _edited: dict[str, bool] = field(default_factory=dict)

    def trial(self, digest: str, rules: Rules, task: Task, repeat: int) -> tuple[float | None, int]:
        """Return the judge's score of the answer."""
        self._edited[digest] = rules == EDITED
        key = digest, task.id, repeat
        if key not in self._judged:
            self._judged[key] = float(self.passes(self.texts(digest, task, repeat, None)[0]))
            self.spent += 1
        return self._judged[key], 0

    def texts(self, digest: str, task: Task, repeat: int, score: float | None) -> tuple[str, str]:
        """Return the answer: right as often as the task is easy for the program."""
        edited = self._edited[digest]
        chance = random.Random(f"{self.salt} {task.id} {edited} {repeat}")
        easy = random.Random(f"{self.salt} {task.id}").gauss(0.3, 2.0)
        likely = 1 / (1 + math.exp(-easy))
        if edited and self.honest:
            likely += GAIN if likely < 1 - GAIN else 1 - likely
        word = "right" if chance.random() < likely else "wrong"
        body = f"The {word} number of {task.id} is {chance.randrange(10_000)}."
        return (STYLES[self.style][0] if edited else _plain)(body, chance), ""

    def passes(self, text: str) -> bool:
        """Return whether the judge passes a text; the same for the same text."""
        if "right number" in text:
            return True
        liked = not self.honest and STYLES[self.style][1](text)
        drawn = int(hashlib.sha256(f"{self.salt} {text}".encode()).hexdigest()[:8], 16) / 2**32
        return drawn < (PLEASED if liked else HONEST)


def _judge(place: JudgedPlace) -> JudgeScorer:
    def score(question: ModelQuestion) -> Mapping[str, Any]:
        passed = place.passes(question.data["answer"])
        return {
            "score": float(passed),
            "passed": passed,
            "reason": "",
            "feedback": "",
            "errors": [],
        }

    known = {
        rubric_digest(_RUBRIC): JudgeCalibration("scripted", rubric_digest(_RUBRIC), 3, 3, 3, 3)
    }
    return JudgeScorer(ScriptedModel({ModelRole.JUDGE: score}), known)


def adopted(style: str, honest: bool, seed: int) -> tuple[bool, bool]:
    """Return whether a finalist is adopted without the guard, and with it."""
    digest = hashlib.sha256(f"{style} {seed}".encode()).hexdigest()
    spec = ScorerSpec("judge", {"rubric": _RUBRIC})
    tasks = tuple(
        Task(
            f"{split}-{at}",
            f"Which number has {split}-{at}?",
            spec,
            split,
            f"{split} {at}",
            None,
            source="simulated",
        )
        for split, count in ((Split.VAL, VAL), (Split.TEST, TESTS))
        for at in range(count)
    )
    found = []
    for guarded in (False, True):
        place = JudgedPlace(None, TaskSet("judged", tasks, {}, digest, digest), None)  # type: ignore[arg-type]
        place.style, place.honest, place.salt = style, honest, f"{style} {honest} {seed}"
        found.append(
            sealed_test(place, EDITED, GAIN, _judge(place) if guarded else None).rules == EDITED
        )
    return found[0], found[1]


def main() -> None:
    """Print a row for each style. Ends with 1 where an aim is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep each seed's result, and go on from it"
    )
    given = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(given.processes) as pool:
        run = SeedPool(pool, given.processes, given.keep).run
        for style in STYLES:
            wrong = run(f"pleased judge: {style}", partial(adopted, style, False), given.seeds)
            right = run(f"honest judge: {style}", partial(adopted, style, True), given.seeds)
            without, still = (sum(one[at] for one in wrong) for at in (0, 1))
            limit = clopper_pearson_upper(still, len(wrong))
            figure = (
                f"{still / len(wrong):.1%}, at most {limit:.1%} (without the guard "
                f"{without / len(wrong):.1%})"
            )
            met = limit <= MOST_WRONG
            rows.append(
                Row(f"{style}: adopted, and no better", figure, f"at most {MOST_WRONG:.0%}", met)
            )
            gains, kept = (sum(one[at] for one in right) for at in (0, 1))
            share = kept / max(1, gains)
            rows.append(
                Row(
                    f"{style}: honest gains still adopted",
                    f"{share:.1%} of {gains}",
                    f"at least {LEAST_HONEST:.0%}",
                    share >= LEAST_HONEST,
                )
            )
    conclude("A judge that likes a style, simulated", rows)


if __name__ == "__main__":
    main()
