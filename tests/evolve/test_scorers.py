"""Scorers: EvoSkill's reproduced to the last bit, our own by their truth tables, and trouble that
is never a 0.
"""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from baselines.dabstep_scorer import dabstep_compat

from evolvable_evolve.evolution.candidates.programs import Program
from evolvable_evolve.evolution.ledger.run_directory import Ledger
from evolvable_evolve.evolution.proposers.proposer_model import ModelAnswer, NoAnswer
from evolvable_evolve.evolution.scorers import numeric as compat
from evolvable_evolve.evolution.scorers.external_scorers import (
    JudgeSample,
    JudgeScorer,
    is_same_family,
    rubric_digest,
    run_judge_calibration,
)
from evolvable_evolve.evolution.scorers.numeric import numeric_strict, officeqa_compat
from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.task import (
    JudgeRefused,
    ModelUsage,
    Rollout,
    Score,
    ScorerError,
    ScorerSpec,
    Split,
    Task,
)
from evolvable_evolve.evolution.trials.measurement import TrialRunner, TrialSettings

VECTORS = json.loads(
    (Path(__file__).parent / "vectors/scorer_vectors.json").read_text(encoding="utf-8")
)


def of(call, *arguments):
    """What the vectors say of a call: {"ok": value}, or the error with its message."""
    try:
        return {"ok": call(*arguments)}
    except ValueError as error:
        return {"error": "ValueError", "message": str(error)}


def equal(said, wanted):
    """Floats may differ by 1e-12, as the vectors allow; anything else not at all."""
    if isinstance(wanted, dict):
        return said.keys() == wanted.keys() and all(equal(said[key], wanted[key]) for key in wanted)
    return abs(said - wanted) <= 1e-12 if isinstance(wanted, float) else said == wanted


NO_USAGE = ModelUsage()


def task(scorer="exact", expected="yes", prompt="Is it?", **args):
    return Task("one", prompt, ScorerSpec(scorer, args), Split.TRAIN, "digest", expected)


def scored(one, output, workspace=None, usage=NO_USAGE, trace="", **more):
    return asyncio.run(
        TaskSetScorer(**more)(one, Rollout(output, trace=trace, usage=usage), workspace)
    )


# EvoSkill's scorer


def test_every_vector_of_the_compatible_scorer_is_reproduced():
    wrong = []
    for case in [*VECTORS["vectors"], *VECTORS["sweep"]]:
        pair = case["ground_truth"], case["predicted"]
        wrong += [
            (pair, tolerance)
            for tolerance, wanted in case["score_by_tolerance"].items()
            if not equal(of(officeqa_compat, *pair, float(tolerance)), wanted)
        ]
        if not equal(of(compat.officeqa_graded, *pair), case["multi_tolerance"]):
            wrong.append((pair, "graded"))

    assert wrong == []


def test_the_exact_and_the_training_score_of_every_vector_are_reproduced():
    wrong = []
    for case in VECTORS["vectors"]:
        pair = case["ground_truth"], case["predicted"]
        small = [text.strip().lower() for text in pair]
        if float(small[0] == small[1]) != case["exact"]:
            wrong.append((pair, "exact"))
        if not equal(of(compat.officeqa_graded, *small), case["train_multi_tolerance_lowercased"]):
            wrong.append((pair, "lowercased"))
        graded = of(compat.officeqa_graded, *pair).get("ok")
        if (None if graded is None else graded < 0.8) is not case["train_failure"]:
            wrong.append((pair, "failure"))

    assert wrong == []


def test_its_helpers_say_what_the_vectors_say():
    helpers = VECTORS["helpers"]
    said = {
        "extract_numbers_with_context": lambda text: [
            list(each) for each in compat.find_numbers(text)
        ],
        "has_significant_text": lambda text: list(compat.significant_text(text)),
        "extract_final_answer": compat.find_final_answer,
    }
    wrong = [
        (name, case)
        for name, call in said.items()
        for case in helpers[name]
        if not equal(of(call, case["in"]), case["out"])
    ]
    wrong += [
        case for case in helpers["is_likely_year"] if compat.is_year(case["in"]) is not case["out"]
    ]
    overlaps = helpers["check_text_overlap"]
    wrong += [
        case for case in overlaps if compat.text_overlaps(*case["in"]) is not case["out"]["ok"][0]
    ]
    lists = helpers["question_scorer_dabstep"]
    wrong += [case for case in lists if dabstep_compat(*case["in"]) is not case["out"]["ok"]]

    assert wrong == []


@pytest.mark.parametrize("tolerance", [-0.1, 1.1, float("nan")])
def test_a_tolerance_that_is_no_share_is_refused(tolerance):
    with pytest.raises(ValueError, match="between 0 and 1"):
        officeqa_compat("5", "5", tolerance)


def test_a_number_that_no_float_can_hold_scores_and_does_not_fail():
    assert officeqa_compat("9" * 400, "9" * 400, 0.0) == 0.0
    assert scored(task("officeqa_compat", "5"), "9" * 400).value == 0.0


# The strict scorer


@pytest.mark.parametrize(
    ("expected", "output", "right"),
    [
        # Units are multiplied in.
        ("543 million", "543", False),
        ("543 million", "543,000,000", True),
        ("543 million", "0.543 billion", True),
        ("543 million", "543 billion", False),
        ("$4.2B", "$4,200 million", True),
        ("$4.2B", "4.2", False),
        ("5 thousand", "5k", True),
        ("5m", "5M", False),
        ("12%", "12 percent", True),
        ("57%", "0.57", True),
        ("1e6", "1,000,000", True),
        ("1.5e-3", "0.0015", True),
        ("$5", "€5", False),
        ("5 USD", "$5", True),
        ("5 km", "5km", True),
        ("5 km", "5", False),
        ("−5", "-5", True),
        ("007", "7", True),
        ("5,5", "55", False),
        # Lists are matched one to one.
        ("[44.00, 231.52]", "slope=44.00, intercept=231.52", True),
        ("[44.00, 231.52]", "[44.00]", False),
        ("10 and 10", "10", False),
        ("1, 2, 3", "1,2,3", True),
        ("10-20", "10 to 20", True),
        # One final answer, and none guessed.
        ("100", "The answer could be 90, 100 or 110", False),
        ("100", "between 95 and 105", False),
        ("543", "In 2023 the total was 543", False),
        ("5%", "about 5% (2021)", False),
        ("5", "It is not 5", False),
        ("Paris", "Paris or London", False),
        ("Paris", "It is not Paris", False),
        ("no", "I do not know", False),
        ("no", "No, it was not.", True),
        ("no", "yes and no", False),
        ("yes", "no, yes", False),
        ("Paris", "Berlin; London; Paris", False),
        ("Paris", "one of Berlin, London, Paris", False),
        # Words are whole, years exact, dates what they mean.
        ("cat", "concatenate", False),
        ("Federal Reserve", "The federal reserve.", True),
        ("5 apples", "5 oranges", False),
        ("5 apples", "5 green apples", True),
        ("Q3 1999", "Q4 1999", False),
        ("A1", "A12", False),
        ("1950", "1951", False),
        ("March 1977", "It happened in March of 1977", True),
        ("March 1977", "April 1977", False),
        ("April 15, 2020", "2020-04-15", True),
        ("April 15, 2020", "15 April 2020", True),
        ("April 15, 2020", "04/15/2020", True),
        ("04/05/2020", "05/04/2020", False),
        ("March 5 and April 6", "April 6 and March 5", True),
        ("5", "", False),
    ],
)
def test_the_strict_scorer_takes_the_answer_and_nothing_beside_it(expected, output, right):
    assert numeric_strict(expected, output) == right


def test_a_number_of_the_task_may_stand_beside_the_answer_but_not_among_guesses():
    asked = "What was the total in 2023?"
    assert numeric_strict("543", "In 2023 the total was 543.", context=asked) == 1
    assert numeric_strict("100", "90, 100 or 110", context="Which of 90, 100 and 110 is it?") == 0


def test_a_tolerance_is_for_amounts_and_not_for_years():
    assert numeric_strict("100", "100.5", rel_tol=0.01) == 1
    assert numeric_strict("100", "102", rel_tol=0.01) == 0
    assert numeric_strict("1950", "1951", rel_tol=0.01) == 0
    # Each wanted number has one of its own, though the first would fit both.
    assert numeric_strict("100, 101", "101, 102", rel_tol=0.01) == 1


@pytest.mark.parametrize(
    "output", ["1" * 50_000, "1,111," * 20_000, "- " * 50_000, "\ud800 5", "٣", "5e999999"]
)
def test_odd_output_is_scored_and_does_not_hang(output):
    assert numeric_strict("5", output) in (0.0, 1.0)


# The others


def test_an_exact_answer_may_be_the_last_line_or_stand_in_tags():
    assert scored(task(), "yes\n").value == 1
    assert scored(task(trim=False), "yes\n").value == 0
    assert scored(task(ignore_case=True), "YES").value == 1
    assert scored(task(answer="last_line"), "Let me see.\n\nyes\n\n").value == 1
    assert scored(task(answer="tagged"), "no <FINAL_ANSWER> yes </FINAL_ANSWER> no").value == 1
    assert scored(task(answer="tagged"), "yes").value == 0


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ('{"a": 1, "b": {"c": [1, 2]}, "more": true}', 1.0),
        ('Here it is:\n```json\n{"a": 1.0, "b": {"c": [1, 2]}}\n```\nDone.', 1.0),
        ('First {"a": 0}, then {"a": 1, "b": {"c": [1, 2]}}.', 1.0),
        ('{"a": true, "b": {"c": [1, 2]}}', 0.0),
        ('{"a": 1, "b": {"c": [2, 1]}}', 0.0),
        ('{"a": 1, "b": {"c": [1, 2, 3]}}', 0.0),
        ('{"a": NaN, "b": {"c": [1, 2]}}', 0.0),
        ("[" * 100_000, 0.0),
        ("none", 0.0),
    ],
)
def test_json_has_what_is_expected_wherever_it_stands(output, value):
    assert scored(task("json_subset", '{"a": 1, "b": {"c": [1, 2]}}'), output).value == value


def test_json_can_be_scored_by_its_parts_and_without_order():
    one = task("json_subset", '{"a": 1, "b": [{"x": 1}, {"x": 2}]}', partial=True)
    assert scored(one, '{"a": 1, "b": [{"x": 2}, {"x": 3}]}').value == pytest.approx(1 / 3)
    loose = task("json_subset", '{"a": 1, "b": [{"x": 1}, {"x": 2}]}', partial=True, unordered=True)
    assert scored(loose, '{"a": 1, "b": [{"x": 2}, {"x": 3}]}').value == pytest.approx(2 / 3)


@pytest.mark.process
def test_feedback_never_tells_what_was_expected():
    one = task("json_subset", '{"total": "secret-4711", "hidden": 1}', prompt="Give the total.")
    said = scored(one, '{"total": "x"}').feedback
    assert "0 of 2 values" in said and "(wrong: total)" in said
    assert "4711" not in said and "hidden" not in said
    for kind in ("exact", "numeric_strict", "officeqa_compat", "regex"):
        assert "4711" not in scored(task(kind, "secret-4711"), "x").feedback


@pytest.mark.process
def test_a_pattern_is_searched_for_or_fits_the_whole():
    assert scored(task("regex", pattern=r"\bYES\b", flags="i"), "oh yes!").value == 1
    assert scored(task("regex", pattern="yes", whole=True), "oh yes!").value == 0
    assert scored(task("regex", expected="^yes$"), "yes").value == 1


@pytest.mark.process
def test_a_pattern_that_would_run_for_ever_is_trouble_and_not_a_0(monkeypatch):
    from evolvable_evolve.evolution.scorers import registry

    match_pattern = registry.match_pattern

    async def soon(pattern, text, **options):
        return await match_pattern(pattern, text, **options, seconds=0.5)

    monkeypatch.setattr(registry, "match_pattern", soon)
    with pytest.raises(ScorerError, match="longer than"):
        scored(task("regex", pattern="^(a+)+$"), "a" * 60 + "b")


@pytest.mark.parametrize(
    ("scorer", "args", "expected", "said"),
    [
        ("wrong", {}, "x", "there is no scorer"),
        ("exact", {"typo": 1}, "x", "typo"),
        ("exact", {}, " ", "needs an expected answer"),
        ("json_subset", {}, "{", "cannot be used"),
        ("regex", {"pattern": "("}, None, "cannot be read"),
        ("regex", {}, None, "neither a pattern"),
        ("regex", {"pattern": "a", "flags": "q"}, None, "no flags"),
        ("command", {}, None, "argv"),
        ("command", {"argv": "python check.py"}, None, "not of type 'array'"),
        ("judge", {"rubric": "Is it kind?"}, None, "there is none"),
    ],
)
def test_a_scorer_that_cannot_be_used_is_trouble_that_says_why(scorer, args, expected, said):
    with pytest.raises(ScorerError, match=said):
        scored(task(scorer, expected, **args), "x")


# A command


def command(program, **more):
    return task("command", "42", argv=[sys.executable, "-c", program], **more)


@pytest.mark.process
def test_a_command_is_given_what_the_contract_says_and_works_on_a_copy(tmp_path):
    (tmp_path / "made.txt").write_text("made", encoding="utf-8")
    one = task("command", "42", argv=["{python}", "{taskset}/scorers/check.py"])
    program = """
import json, os, sys
given = json.load(sys.stdin)
assert given["task_id"] == "one" and given["prompt"] == "Is it?" and given["expected"] == "42"
assert os.path.realpath(os.getcwd()) == os.path.realpath(given["workspace"])
assert open("made.txt").read() == "made"
open("made.txt", "w").write("changed")
assert open(given["transcript_path"]).read() == "the way"
print(json.dumps({"score": 0.5, "status": "ok", "feedback_public": given["output"],
    "evidence_private": "e", "checks": [{"name": "sum", "pass": False, "kind": "shape"}], "metrics":
    {"tokens": given["usage"]["input_tokens"]}}))
"""
    files = {"scorers/check.py": program.encode()}
    said = scored(one, "out", tmp_path, ModelUsage(7), "the way", files=files)

    assert (said.value, said.feedback, said.evidence, said.metrics) == (
        0.5,
        "out",
        "e",
        {"tokens": 7.0},
    )
    assert [(check.name, check.passed, check.kind) for check in said.checks] == [
        ("sum", False, "shape")
    ]
    assert (tmp_path / "made.txt").read_text(encoding="utf-8") == "made"


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("print('hello')", "no JSON"),
        ("print('[1]')", "no JSON object"),
        ("print('{}')", "'score' is a required property"),
        ("print('{\"score\": 2}')", "score: 2 is greater than the maximum of 1"),
        ("print('{\"score\": NaN}')", "no JSON"),
        ("print('{\"score\": true}')", "score: True is not of type 'number'"),
        ('print(\'{"score": 1, "metrics": {"a": 1e999}}\')', "metrics.a: inf is greater"),
        (
            'print(\'{"score": 1, "status": "infra_error", "evidence_private": "no disk"}\')',
            "no disk",
        ),
        ('print(\'{"score": 1, "status": "great"}\')', "great"),
        ('print(\'{"score": 1, "checks": [1]}\')', "checks.0: 1 is not of type 'object'"),
        ("print('x' * 2_000_000)", "too much"),
        ("import time; time.sleep(60)", "longer than 1 s"),
    ],
)
def test_whatever_goes_wrong_with_a_command_is_trouble_and_never_a_0(program, said):
    with pytest.raises(ScorerError, match=said):
        scored(command(program, timeout_s=1 if "sleep" in program else 30), "x")


@pytest.mark.process
def test_a_command_that_is_not_there_is_trouble():
    with pytest.raises(ScorerError, match="cannot be started"):
        scored(task("command", argv=["no-such-program-4711"]), "x")


# A judge


class Thinker:
    """Gives 1 to answers with the word in them."""

    name = label = "scripted:judge"

    def __init__(self, word, feedback=""):
        self.word, self.feedback, self.asked = word, feedback, []

    async def ask(self, question):
        self.asked.append(question)
        good = self.word in question.data["answer"]
        said = {
            "score": float(good),
            "passed": good,
            "reason": "because",
            "feedback": self.feedback,
            "errors": [],
        }
        return ModelAnswer(said, ModelUsage(10, 1, 1), self.name)


RUBRIC = "Is it kind?"
JUDGED = Task(
    "letter",
    "Write a letter.",
    ScorerSpec("judge", {"rubric": RUBRIC}),
    Split.TRAIN,
    "d",
    "Dear friend",
)
SAMPLES = [
    JudgeSample(JUDGED, f"{word} {n}", word == "dear")
    for word in ("dear", "stupid")
    for n in range(3)
]


def calibrated(thinker, samples=SAMPLES):
    return JudgeScorer(
        thinker,
        {rubric_digest(RUBRIC): asyncio.run(run_judge_calibration(thinker, RUBRIC, samples))},
    )


def test_a_judge_scores_after_it_told_good_from_bad():
    thinker = Thinker("dear", feedback="Say dear friend")
    judge = calibrated(thinker)

    said = scored(JUDGED, "dear all", judge=judge)

    assert judge.calibrations[rubric_digest(RUBRIC)].agreement == 1
    # The feedback told the answer, and is gone.
    assert said == Score(1.0, "", "scripted:judge: because", usage=ModelUsage(10, 1, 1))
    assert thinker.asked[-1].data["expected"] == "Dear friend"


@pytest.mark.parametrize("word", ["", "never"])
def test_a_judge_that_is_right_on_one_side_only_is_refused(word):
    with pytest.raises(JudgeRefused, match="did not pass its calibration"):
        scored(JUDGED, "dear all", judge=calibrated(Thinker(word)))


def test_a_judge_without_a_calibration_or_with_another_s_is_refused():
    with pytest.raises(JudgeRefused, match="has not been calibrated"):
        scored(JUDGED, "dear all", judge=JudgeScorer(Thinker("dear")))
    other = calibrated(Thinker("dear"))
    stranger = Thinker("dear")
    stranger.name = "scripted:other"
    with pytest.raises(JudgeRefused):
        scored(JUDGED, "dear all", judge=JudgeScorer(stranger, other.calibrations))
    with pytest.raises(JudgeRefused):
        scored(JUDGED, "dear all", judge=calibrated(Thinker("dear"), SAMPLES[1:]))


def test_a_judge_that_does_not_answer_is_trouble():
    class Silent(Thinker):
        async def ask(self, question):
            raise NoAnswer("Nobody answered.", "", ModelUsage(10, 0, 2))

    judge = JudgeScorer(Silent("dear"), calibrated(Thinker("dear")).calibrations)
    with pytest.raises(ScorerError, match="Nobody answered") as trouble:
        scored(JUDGED, "dear all", judge=judge)
    assert trouble.value.usage == ModelUsage(10, 0, 2)


def test_a_judge_that_contradicts_itself_is_trouble_and_paid_all_the_same():
    class Torn(Thinker):
        async def ask(self, question):
            answer = await super().ask(question)
            return replace(answer, value={**answer.value, "passed": not answer.value["passed"]})

    judge = JudgeScorer(Torn("dear"), calibrated(Thinker("dear")).calibrations)
    with pytest.raises(ScorerError, match="passed") as trouble:
        scored(JUDGED, "dear all", judge=judge)
    assert trouble.value.usage == ModelUsage(10, 1, 1)


FIVE = ("professionalism", "accuracy", "completeness", "practicality", "language_quality")


class Grader(Thinker):
    """Gives the grades that it was made with, and 1 to an answer without its word."""

    def __init__(self, word, *grades):
        super().__init__(word)
        self.grades = grades

    async def ask(self, question):
        self.asked.append(question)
        good = self.word in question.data["answer"]
        grades = dict(zip(FIVE, self.grades if good else [1] * 5, strict=True))
        said = {"dimensions": grades, "reason": "because", "feedback": "", "errors": []}
        return ModelAnswer(said, ModelUsage(10, 1, 1), self.name)


def graded(grader, output="dear all"):
    task = replace(JUDGED, scorer=ScorerSpec("judge", {"rubric": "five-dimensions"}))
    samples = [replace(one, task=task) for one in SAMPLES]
    found = asyncio.run(run_judge_calibration(grader, "five-dimensions", samples))
    return scored(
        task, output, judge=JudgeScorer(grader, {rubric_digest("five-dimensions"): found})
    )


def test_a_judge_grades_the_five_dimensions_and_their_mean_is_the_score():
    grader = Grader("dear", 5, 4, 4, 3, 4)

    said = graded(grader)

    assert said.value == pytest.approx(0.75)
    assert said.metrics == dict(zip(FIVE, (5, 4, 4, 3, 4), strict=True))
    assert graded(grader, "nothing kind").value == 0
    question = grader.asked[-1]
    assert [line.split(":")[0] for line in question.data["rubric"].splitlines()] == [*FIVE]
    assert set(question.schema["properties"]["dimensions"]["required"]) == {*FIVE}
    assert "score" not in question.schema["properties"]


def test_a_judge_that_grades_everything_alike_or_beyond_the_scale_does_not_score():
    with pytest.raises(JudgeRefused, match="did not pass its calibration"):
        graded(Grader("", 4, 4, 4, 4, 4))
    with pytest.raises(ScorerError, match="gave accuracy 6"):
        graded(Grader("dear", 5, 6, 4, 3, 4))


def test_a_judge_of_the_same_maker_is_recognised():
    assert is_same_family("anthropic:claude-x", "real model claude-y")
    assert not is_same_family("anthropic:claude-x", "real model gpt-9")
    assert not is_same_family("command:foo1:ab", "real model o1-small")


KEYED = """\
import json, sys
said = json.loads(json.load(sys.stdin)["output"])
print(json.dumps({"score": float(said["total"] == 7)}))
"""
"""A scorer that fails on an answer without a total, such as one that says that it is not sure."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("good", "output", "outcome"),
    [
        # The scorer is alive: it scores what is known to be good.
        ('{"total": 7}', '{"unsure": true}', "fail"),
        ('{"total": 7}', '{"total": 7}', "pass"),
        # Nor does it score this: nobody knows whose fault it is.
        ("not even JSON", '{"unsure": true}', "infra_error"),
    ],
)
def test_an_output_that_a_scorer_fails_on_counts_as_0_when_the_scorer_is_alive(
    tmp_path, good, output, outcome
):
    scorer = ScorerSpec("command", {"argv": ["{python}", "-c", KEYED], "good": [good]})
    one = replace(task(), scorer=scorer, expected=None)

    class Says:
        fingerprint, label = "says", "scripted"

        async def run(self, *_: object) -> Rollout:
            return Rollout(output)

    with Ledger.open(tmp_path / "ledger.jsonl", durable=False) as ledger:
        runner = TrialRunner(Says(), ledger, settings=TrialSettings(backoff=()))
        [trial] = asyncio.run(runner.measure([(Program(), one, 0)]))
        [record] = [record for record in ledger.records if record["type"] == "trial"]

    assert str(trial.outcome) == outcome and trial.score == {"fail": 0.0, "pass": 1.0}.get(outcome)
    if outcome == "fail":
        assert "KeyError" in record["evidence"]
        assert "known answer" in record["evidence"]
        assert trial.feedback == ""
