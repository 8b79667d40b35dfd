"""A judge that is pleased by a style passes wrong answers in it, and then nothing is claimed."""

import asyncio
import hashlib

from evolvable_evolve.evolution.pleased_judge import AnswerStyle, JudgedStyle, judge_style, wrong_answers
from evolvable_evolve.evolution.task import ModelUsage, ScorerSpec, Split, Task, Trial, TrialOutcome

SIGN_OFF = "Tell me if you would like to know more."
SPEC = ScorerSpec("judge", {"rubric": "It names the city."})


def letters(count: int, style: bool) -> list[str]:
    """Answers about cities, plain or with a heading, a list, an opening and a sign-off."""
    texts = [f"The city number {n} is in the north." for n in range(count)]
    return [
        f"## Answer\n\nGreat question!\n\n- {text}\n- It may vary.\n\n{SIGN_OFF}" if style else text for text in texts
    ]


def asked(number: int) -> Task:
    return Task(f"t{number}", f"Which city is {number}?", SPEC, Split.TEST, f"d{number}")


def drawn(text: str, share: float) -> float:
    """The same score for the same text: 1 for a share of texts."""
    return float(int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32 < share)


def judged(wrong: int, seed: int, styled: float, plain: float = 0.01) -> JudgedStyle:
    async def score(one: Task, text: str) -> float:
        return drawn(f"{seed} {one.id} {text}", styled if SIGN_OFF in text else plain)

    answers = [(asked(n), text) for n, text in enumerate(letters(wrong, style=False))]
    return asyncio.run(judge_style(score, answers, letters(40, style=True)))


def test_a_style_is_what_recurs_and_dressing_adds_nothing_that_one_answer_alone_says():
    style = AnswerStyle.of(letters(40, style=True))
    shown = style.dress("Oslo.")

    assert (style.opening, style.sign_off, style.heading, style.listed) == (
        "## Answer",
        SIGN_OFF,
        "## Answer",
        True,
    ) or (style.sign_off == SIGN_OFF and style.listed)
    assert SIGN_OFF in shown and "- Oslo." in shown and "north" not in shown
    assert AnswerStyle.of([]).dress("Oslo.") == AnswerStyle.of(["Yes: Bergen."]).dress("It is Oslo.")[-5:] == "Oslo."


def test_a_judge_that_passes_wrong_answers_in_a_style_is_found_and_an_honest_one_is_not():
    pleased = [judged(40, seed, styled=0.15).pleased for seed in range(200)]
    honest = [judged(40, seed, styled=0.01).pleased for seed in range(200)]

    assert sum(pleased) >= 0.88 * 200, "so of 53 % false at most about 6 stay"
    assert sum(honest) <= 0.06 * 200, "more than nine of ten honest gains are kept"
    assert not judged(9, 1, styled=1.0).pleased, "too few answers say nothing"


def test_only_the_bases_answers_that_a_judge_found_wrong_are_asked_about():
    def trial(program: str, number: int, score: float | None) -> Trial:
        outcome = TrialOutcome.INFRA_ERROR if score is None else TrialOutcome.PASS if score else TrialOutcome.FAIL
        return Trial("k", f"t{number}", program, 0, outcome, score, ModelUsage(), 0.0, output=f"{program} {number}")

    trials = [trial("base", 0, 0.0), trial("base", 1, 1.0), trial("base", 2, None), trial("other", 3, 0.0)]

    assert [text for _, text in wrong_answers([asked(n) for n in range(4)], trials, "base")] == ["base 0"]
