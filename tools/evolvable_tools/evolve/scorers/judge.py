"""A model as a scorer: asked only after it has told known good answers from known bad ones."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolvable_tools.evolve.brains.brain import Brain, NoAnswer
from evolvable_tools.evolve.roles import judge as role
from evolvable_tools.evolve.rollout import Score, Usage
from evolvable_tools.evolve.scorers.trouble import JudgeRefused, ScorerTrouble
from evolvable_tools.evolve.task import Task

LEAST_EACH = 3
"""Known good and known bad answers that a calibration needs, of each."""

MOST_EACH = 10
"""Known good and known bad answers that it is asked about at most, of each, for one rubric."""

LEAST_RIGHT = 0.9
"""Share of each side that a judge must get right."""

_PASSES = 0.5
_MAX_FIELD = 60_000  # characters of an output that a judge reads
_FAMILIES = (("claude", "anthropic"), ("gpt", "openai", "codex", "o1", "o3", "o4"), ("gemini", "google"), ("llama",))


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer to a task of which a person knows whether it is good."""

    task: Task
    output: str
    good: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """How often a judge was right about known answers, by one rubric. `wrong` names the tasks where it was not."""

    judge: str
    rubric: str
    good: int
    good_right: int
    bad: int
    bad_right: int
    wrong: tuple[str, ...] = ()

    @property
    def agreement(self) -> float:
        """The share of all known answers that it got right; 0 without any."""
        known = self.good + self.bad
        return (self.good_right + self.bad_right) / known if known else 0.0

    @property
    def passes(self) -> bool:
        """Whether there were enough answers of each side and it was right on both."""
        return (
            min(self.good, self.bad) >= LEAST_EACH
            and self.good_right >= LEAST_RIGHT * self.good
            and self.bad_right >= LEAST_RIGHT * self.bad
        )


@dataclass(frozen=True, slots=True)
class Judge:
    """Somebody who may score, with the calibration for each rubric (by the rubric's digest).

    It can be pickled when the brain can.
    """

    brain: Brain
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)

    async def score(self, rubric: str, task: Task, output: str) -> Score:
        """Returns the judge's score. Raises JudgeRefused unless it is calibrated for the rubric, and ScorerTrouble."""
        calibration = self.calibrations.get(rubric_digest(rubric))
        if calibration is None or calibration.judge != self.brain.name:
            raise JudgeRefused(
                f"{self.brain.name} has not been calibrated for the rubric of task {task.id}.",
                "Give its task known answers (good and bad in the scorer's args) and calibrate it first.",
            )
        check_passed(calibration)
        return await _asked(self.brain, rubric, task, output)


def check_passed(calibration: Calibration) -> None:
    """Raises JudgeRefused for a calibration that did not pass."""
    if calibration.passes:
        return
    wrong = ", ".join(dict.fromkeys(calibration.wrong[:5]))
    raise JudgeRefused(
        f"{calibration.judge} did not pass its calibration: right on {calibration.good_right} of"
        f" {calibration.good} good and {calibration.bad_right} of {calibration.bad} bad answers"
        + (f" (wrong on those of {wrong})." if wrong else "."),
        f"It needs {LEAST_EACH} of each, and {LEAST_RIGHT:.0%} right on both sides: sharpen the rubric, or name another"
        " judge.",
    )


async def calibrate(
    brain: Brain,
    rubric: str,
    samples: Sequence[Sample],
    *,
    before: Callable[[], object] = lambda: None,
    paid: Callable[[Usage], object] = lambda usage: None,
) -> Calibration:
    """Returns how somebody does on known answers; each is asked about once. Raises ScorerTrouble.

    before: called before each question, and may raise. paid: told after each what it took.
    """
    right = {True: 0, False: 0}
    wrong = []
    for sample in samples:
        before()
        try:
            score = await _asked(brain, rubric, sample.task, sample.output)
        except ScorerTrouble as error:
            paid(error.usage)
            raise
        paid(score.usage)
        if (score.value >= _PASSES) == sample.good:
            right[sample.good] += 1
        else:
            wrong.append(sample.task.id)
    good = sum(sample.good for sample in samples)
    counts = good, right[True], len(samples) - good, right[False]
    return Calibration(brain.name, rubric_digest(rubric), *counts, tuple(wrong))


def rubric_digest(rubric: str) -> str:
    """Returns the name of a rubric: the sha256 of its text."""
    return hashlib.sha256(rubric.encode("utf-8", "replace")).hexdigest()


def same_family(one: str, other: str) -> bool:
    """Returns whether two names are of models of one maker, as far as the names tell; such a judge is flagged."""
    return bool(_families(one) & _families(other))


def _families(name: str) -> set[int]:
    parts = re.findall(r"[a-z]+\d*", name.lower())
    return {at for at, words in enumerate(_FAMILIES) if any(part.startswith(words) for part in parts)}


async def _asked(brain: Brain, rubric: str, task: Task, output: str) -> Score:
    question = role.question(task.prompt, output[:_MAX_FIELD], expected=task.expected, rubric=rubric)
    try:
        answer = await brain.ask(question)
    except NoAnswer as error:
        text = f"The judge gave no score for task {task.id}: {error}"
        raise ScorerTrouble(text, error.hint, error.usage) from None
    try:
        said = role.score_of(answer.value)
    except ValueError as error:
        text = f"The judge gave no score for task {task.id}: {error}."
        raise ScorerTrouble(text, "Choose a better judge.", answer.usage) from None
    # What would tell the answer is not for a proposer.
    telling = task.expected and _bare(task.expected) in _bare(said.feedback)
    feedback = "" if telling else said.feedback
    return replace(said, feedback=feedback, evidence=f"{answer.by}: {said.evidence}", usage=answer.usage)


def _bare(text: str) -> str:
    return " ".join(text.casefold().split())
