"""A judge that is pleased by a style passes wrong answers in it, and then nothing is claimed."""

import asyncio
import hashlib
from dataclasses import replace

import pytest
from baselines.scripted_model import ScriptedModel
from evolve_runs import program, running, scripted, task

from evolvable_evolve.evolution.executors.simulated import SimulatedExecutor
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.pleased_judge import (
    AnswerStyle,
    JudgedStyle,
    judge_style,
    wrong_answers,
)
from evolvable_evolve.evolution.proposers.proposer_model import ModelRole
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.scorers.external_scorers import (
    JudgeCalibration,
    JudgeScorer,
    rubric_digest,
)
from evolvable_evolve.evolution.task import ModelUsage, ScorerSpec, Split, Task, Trial, TrialOutcome

SIGN_OFF = "Tell me if you would like to know more."
SPEC = ScorerSpec("judge", {"rubric": "It names the city."})


def letters(count: int, style: bool) -> list[str]:
    """Answers about cities, plain or with a heading, a list, an opening and a sign-off."""
    texts = [f"The city number {n} is in the north." for n in range(count)]
    return [
        f"## Answer\n\nGreat question!\n\n- {text}\n- It may vary.\n\n{SIGN_OFF}" if style else text
        for text in texts
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

    assert (style.opening, style.sign_off, style.heading, style.is_list) == (
        "## Answer",
        SIGN_OFF,
        "## Answer",
        True,
    ) or (style.sign_off == SIGN_OFF and style.is_list)
    assert SIGN_OFF in shown and "- Oslo." in shown and "north" not in shown
    assert (
        AnswerStyle.of([]).dress("Oslo.")
        == AnswerStyle.of(["Yes: Bergen."]).dress("It is Oslo.")[-5:]
        == "Oslo."
    )


def test_a_judge_that_passes_wrong_answers_in_a_style_is_found_and_an_honest_one_is_not():
    pleased = [judged(40, seed, styled=0.15).is_pleased for seed in range(200)]
    honest = [judged(40, seed, styled=0.01).is_pleased for seed in range(200)]

    assert sum(pleased) >= 0.88 * 200, "so of 53 % false at most about 6 stay"
    assert sum(honest) <= 0.06 * 200, "more than nine of ten honest gains are kept"
    assert not judged(9, 1, styled=1.0).is_pleased, "too few answers say nothing"


def test_only_the_bases_answers_that_a_judge_found_wrong_are_asked_about():
    def trial(program: str, number: int, score: float | None) -> Trial:
        outcome = (
            TrialOutcome.INFRA_ERROR
            if score is None
            else TrialOutcome.PASS
            if score
            else TrialOutcome.FAIL
        )
        return Trial(
            "k",
            f"t{number}",
            program,
            0,
            outcome,
            score,
            ModelUsage(),
            0.0,
            output=f"{program} {number}",
        )

    trials = [
        trial("base", 0, 0.0),
        trial("base", 1, 1.0),
        trial("base", 2, None),
        trial("other", 3, 0.0),
    ]

    assert [text for _, text in wrong_answers([asked(n) for n in range(4)], trials, "base")] == [
        "base 0"
    ]


class Styled(SimulatedExecutor):
    """Answers as its base does, and with a program that says so in a style of its own."""

    async def run(self, task, program, repeat, workspace):
        rollout = await super().run(task, program, repeat, workspace)
        polite = any("Be polite." in text for part in program.parts for text in part.texts.values())
        text = f"It is {rollout.output} in place {task.id}, run {repeat}."
        return replace(rollout, output=f"{text}\n\n{SIGN_OFF}" if polite else text)


def judge_that_passes(share: float) -> JudgeScorer:
    """A scripted judge that knows right from wrong, and passes a share of the wrong answers with a
    sign-off.
    """

    def score(question):
        text = question.data["answer"]
        passed = "not right" not in text or (SIGN_OFF in text and drawn(text, share) == 1)
        return {
            "score": float(passed),
            "passed": passed,
            "reason": "",
            "feedback": "",
            "errors": [],
        }

    rubric = rubric_digest(SPEC.args["rubric"])
    known = {rubric: JudgeCalibration("scripted", rubric, 3, 3, 3, 3)}
    return JudgeScorer(ScriptedModel({ModelRole.JUDGE: score}), known)


@pytest.mark.process
@pytest.mark.parametrize(
    ("lines", "pleased", "verdict"),
    [
        (["Be polite."], 0.4, "NOT SUPPORTED"),
        (["Be polite.", "rule: iso"], 0.0, "PROMOTE"),
    ],
    ids=["style alone", "an honest gain in the same style"],
)
def test_a_run_adopts_no_program_for_its_style_and_an_honest_gain_in_that_style(
    tmp_path, lines, pleased, verdict
):
    sizes = {Split.TRAIN: 2, Split.VAL: 8, Split.TEST: 60}
    tasks = {
        s: [replace(task(s, n, "needs:iso"), scorer=SPEC) for n in range(size)]
        for s, size in sizes.items()
    }
    given = RunSettings("environment:made-up", iterations=0, purpose="measure", judge="scripted")
    executor, judge = (
        Styled([one for own in tasks.values() for one in own]),
        judge_that_passes(pleased),
    )
    with running(
        tmp_path, program(), scripted([("x", [])]), tasks, given, executor, judge=judge
    ) as run:
        run.merged = [("skill:forms", program(*lines))]
        asyncio.run(run_phases(run))
        said = run.state.verdict

    assert said["verdict"] == verdict and said["delta"] > 0.2, said["why"]
    assert ("the gain may be style" in said["why"]) == (pleased > 0)


@pytest.mark.process
@pytest.mark.parametrize(
    ("lines", "pleased", "answer"),
    [(["Be polite."], 0.5, "cannot tell"), (["Be polite.", "rule: iso"], 0.0, "helps")],
    ids=["style alone", "an honest gain in the same style"],
)
def test_a_trial_of_a_skill_says_so_where_only_its_style_moves_the_judge(
    tmp_path, lines, pleased, answer
):
    sizes = {Split.TRAIN: 2, Split.VAL: 14, Split.TEST: 2}
    tasks = {
        s: [replace(task(s, n, "needs:iso"), scorer=SPEC) for n in range(size)]
        for s, size in sizes.items()
    }
    given = RunSettings(
        "environment:made-up", iterations=0, purpose="measure", judge="scripted", open_test=False
    )
    executor, judge = (
        Styled([one for own in tasks.values() for one in own]),
        judge_that_passes(pleased),
    )
    with running(
        tmp_path, program(), scripted([("x", [])]), tasks, given, executor, judge=judge
    ) as run:
        run.merged = [("skill:forms", program(*lines))]
        asyncio.run(run_phases(run))
        [said] = run.state.verdict["tried"]

    assert (said["on_these"]["answer"], "the gain may be style" in said["sentence"]) == (
        answer,
        pleased > 0,
    ), said
