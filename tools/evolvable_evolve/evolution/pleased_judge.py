"""Test whether the style of a candidate alone moves a judge: it scores wrong answers of the base in
that style.

The style is transplanted by rule: what recurs in the candidate's answers (their opening, their
sign-off, their hedges), headings, lists, and length. A sentence of one answer alone is not used,
because it may be the right part.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.scorers import extract_answer
from evolvable_evolve.evolution.task import Task, Trial

# In simulations .5 % of runs adopted mere style with this guard, and 46 % without
# (`benchmarks/pleased_judge.py`).
MAX_PLEASED = 0.05
"""The share of wrong answers that a judge may pass more in the candidate's style than
as they are.
"""

MAX_ANSWERS = 60
"""The most wrong answers that a judge is asked about."""

MIN_ANSWERS = 10
"""The fewest wrong answers from which anything follows."""

# The share and the number of answers in which a sentence must recur to count as style.
_RECURS, _SEVERAL = 0.2, 3
_MAX_REPEATED = 4  # repetitions of an answer, by which it reaches the length of the style
_HEADING = re.compile(r"^#{1,6} .*$", re.MULTILINE)
_LISTED = re.compile(r"^\s*(?:[-*•]|\d+\.) ", re.MULTILINE)
# Sentences end at a sign or a line break; a colon ends an opening.
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")

AnswerScore = Callable[[Task, str], Awaitable[float]]
"""Returns a judge's score of an answer to a task."""


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """The style that recurs in answers. words: their median length; 0 without answers."""

    opening: str = ""
    sign_off: str = ""
    hedges: tuple[str, ...] = ()
    heading: str = ""
    is_list: bool = False
    words: int = 0

    @classmethod
    def of(cls, answers: Sequence[str]) -> "AnswerStyle":
        """Return the style of answers."""
        texts = [text for text in answers if text.strip()]
        if not texts:
            return cls()
        parts = [
            [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]
            for text in texts
        ]
        least = max(_SEVERAL, _RECURS * len(texts))
        # Headings are counted apart, because their words differ from answer to answer.
        counts = Counter(
            sentence for own in parts for sentence in set(own) if not sentence.startswith("#")
        )
        opening, sign_off = (_find_most_common([own[at] for own in parts], least) for at in (0, -1))
        hedges = [
            sentence
            for sentence, count in counts.items()
            if count >= least and sentence not in (opening, sign_off)
        ]
        headed = [match[0] for text in texts if (match := _HEADING.search(text))]
        heading = (
            (_find_most_common(headed, least) or "## Answer")
            if 2 * len(headed) > len(texts)
            else ""
        )
        is_list = 2 * sum(bool(_LISTED.search(text)) for text in texts) > len(texts)
        words = round(median(map(_count_words, texts)))
        return cls(opening, sign_off, tuple(sorted(hedges)), heading, is_list, words)

    def dress(self, answer: str) -> str:
        """Return an answer in this style, without any new content."""
        body = answer.strip()
        if self.is_list and not _LISTED.search(body):
            body = "\n".join(f"- {line}" for line in body.splitlines() if line.strip())
        parts = [self.heading, self.opening, *self.hedges[:2], body]
        for _ in range(_MAX_REPEATED):
            # A judge may prefer long answers, so length belongs to the style; four fifths do.
            if _count_words(" ".join(parts)) >= 0.8 * self.words:
                break
            parts.append(f"In other words: {answer.strip()}")
        # Without parts that the answer has already, which it would then hold twice.
        return "\n\n".join(
            part
            for part in (*parts, self.sign_off)
            if part and (part == body or part not in answer)
        )


def _find_most_common(texts: Sequence[str], least: float) -> str:
    [(text, count)] = Counter(texts).most_common(1) or [("", 0)]
    return text if count >= least else ""


def _count_words(text: str) -> int:
    return len(text.split())


@dataclass(frozen=True, slots=True)
class JudgedStyle:
    """How many of the base's wrong answers a judge passes, as they are and in the candidate's
    style.
    """

    answer_count: int
    plain: int
    dressed: int

    @property
    def is_pleased(self) -> bool:
        """Whether the style alone moves the judge."""
        return (
            self.answer_count >= MIN_ANSWERS
            and self.dressed - self.plain > MAX_PLEASED * self.answer_count
        )

    def __str__(self) -> str:
        return (
            f"Its judge passes {self.dressed} of {self.answer_count} wrong answers of the base "
            f"when they are written in the candidate's style, and {self.plain} as they are: the "
            "gain may be style."
        )


async def judge_style(
    score: AnswerScore,
    wrong: Sequence[tuple[Task, str]],
    answers: Sequence[str],
    passes: float = 1.0,
) -> JudgedStyle:
    """Return how a judge scores wrong answers, plain and in another style. Raises what `score`
    raises.

    wrong: answers of the base. answers: of the candidate. passes: the score from which on an answer
    passes.
    """
    style, chosen = AnswerStyle.of(answers), wrong[:MAX_ANSWERS]
    plain = [await score(task, text) >= passes for task, text in chosen]
    dressed = [await score(task, style.dress(text)) >= passes for task, text in chosen]
    return JudgedStyle(len(chosen), sum(plain), sum(dressed))


def wrong_answers(
    tasks: Sequence[Task], trials: Sequence[Trial], base: str, passes: float = 1.0
) -> list[tuple[Task, str]]:
    """Return the answers of the base, by its digest, that a judge found wrong: one for each task.

    Where these are too few to say anything, other answers to the same tasks follow.
    """
    judged = {task.id: task for task in tasks if task.scorer.type == "judge"}
    by_task: dict[str, list[str]] = {}
    for trial in trials:
        wrong = trial.score is not None and trial.score < passes
        if wrong and trial.program == base and trial.task in judged and trial.output.strip():
            outputs = by_task.setdefault(trial.task, [])
            if trial.output not in outputs:
                outputs.append(trial.output)
    one_each = [(judged[task], outputs[0]) for task, outputs in by_task.items()]
    if len(one_each) >= MIN_ANSWERS:
        return one_each
    others = [(judged[task], text) for task, outputs in by_task.items() for text in outputs[1:]]
    return one_each + others


async def ask_about_style(
    run: RunContext, tasks: Sequence[Task], trials: Sequence[Trial], program: Program
) -> str:
    """Return a sentence where the style of a program alone moves the judge of a test, else ''.

    Raises BudgetSpent, RunStopped, and ScorerError where the judge does not answer.
    """
    judge, passes = run.judge, run.settings.fail_below
    wrong = wrong_answers(tasks, trials, run.base.digest, passes)
    if judge is None or not wrong:
        return ""

    async def score(task: Task, text: str) -> float:
        answer = extract_answer(text, str(task.scorer.args.get("answer", "whole")))
        return (await judge.score(str(task.scorer.args["rubric"]), task, answer)).value

    own = [
        trial.output
        for trial in trials
        if trial.program == program.digest and trial.score is not None
    ]
    judged = await judge_style(score, wrong, own, passes)
    return str(judged) if judged.is_pleased else ""
