"""Scorers outside of this process: a command, and a judge model that is calibrated on known answers
first.
"""

import asyncio
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from evolvable_evolve.evolution import executors
from evolvable_evolve.evolution.proposers import ModelQuestion, ModelRole, NoAnswer, ProposerModel
from evolvable_evolve.evolution.scorers import rubrics
from evolvable_evolve.evolution.task import (
    CodeOutcome,
    JudgeRefused,
    Rollout,
    Score,
    ScoreCheck,
    ScorerError,
    Task,
    named_files,
)
from evolvable_tools.llm import ProcessResult, printable_line, schema_problem

COMMAND_SCORER_SECONDS = 60.0
"""Seconds that a scorer may take, where its argument `timeout_s` is missing."""

MAX_SCORER_TEXT = 4_000
"""Characters that are kept of the feedback, and of the evidence."""


async def command_score(
    argv: Sequence[str],
    task: Task,
    rollout: Rollout,
    workspace: Path | None,
    *,
    files: Mapping[str, bytes],
    seconds: float = COMMAND_SCORER_SECONDS,
    host: executors.CommandHost = executors.UNCONFINED,
) -> Score:
    """Run the scorer and return its score. Raises ScorerError.

    It runs in a copy of the workspace, and `files` are written to a fresh folder for it. In `argv`
    {taskset} and {python} are replaced by that folder and by the Python that runs it. host: runs
    the command.
    """
    with tempfile.TemporaryDirectory(
        prefix="evolvable-scorer-", ignore_cleanup_errors=True
    ) as folder:
        # Without links in it, because a scorer may compare paths.
        place = Path(folder).resolve()
        await asyncio.to_thread(_copy_inputs, place, workspace, files, rollout.trace)
        python = host.sandbox.python if host.sandbox is not None else sys.executable
        command = [
            part.replace("{taskset}", str(place / "taskset")).replace("{python}", python)
            for part in argv
        ]
        readable = (place / "taskset", place / "transcript.txt", *named_files(command))
        stdin = _make_input(task, rollout, place)
        try:
            work = place / "workspace"
            # Its changes of the copy are not needed, so the copy does not come back.
            ended = await host.run(
                command, work, seconds, stdin, readable=readable, returns=False, task=task.id
            )
        except (OSError, ValueError) as error:
            raise ScorerError(
                f"The scorer of task {task.id} cannot be started: "
                f"{printable_line(executors.start_problem(error))}.",
                "argv names a program and its arguments; {taskset} is the folder of the task set, "
                "{python} a Python.",
            ) from None
    score = _parse_output(task.id, ended, seconds)
    if task.scorer.args.get("outcomes") == "code" and score.code is None:
        raise ScorerError(
            f"The scorer of task {task.id} named no outcome.",
            'It is one of PR, TLE, ..., as "outcome".',
        )
    return score


def _copy_inputs(
    place: Path, workspace: Path | None, files: Mapping[str, bytes], transcript: str
) -> None:
    if workspace is None:
        (place / "workspace").mkdir()
    else:
        try:
            # Links are copied as links: they may lead out of the workspace.
            shutil.copytree(workspace, place / "workspace", symlinks=True, ignore=special_files)
        except (OSError, shutil.Error) as error:
            raise ScorerError(
                f"The workspace cannot be copied for its scorer: {printable_line(str(error))}."
            ) from None
    (place / "taskset").mkdir()
    executors.write_below(place / "taskset", files)
    if transcript:
        (place / "transcript.txt").write_text(transcript, encoding="utf-8", errors="replace")


def special_files(folder: str, names: list[str]) -> set[str]:
    """Return the names of what is neither file, folder nor link.

    Reading a pipe would wait, and no scorer needs one.
    """
    kinds = {name: stat.S_IFMT(os.lstat(os.path.join(folder, name)).st_mode) for name in names}
    copied = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
    return {name for name, kind in kinds.items() if kind not in copied}


def _make_input(task: Task, rollout: Rollout, place: Path) -> bytes:
    request = {
        "task_id": task.id,
        "prompt": task.prompt,
        "expected": task.expected,
        "output": rollout.output,
        "workspace": str(place / "workspace"),
        "transcript_path": str(place / "transcript.txt") if rollout.trace else None,
        "usage": asdict(rollout.usage),
    }
    return json.dumps(request).encode()


def _parse_output(task: str, ended: ProcessResult, seconds: float) -> Score:
    """Return the score that a command printed. Raises ScorerError."""
    if ended.too_long:
        raise ScorerError(
            f"The scorer of task {task} wrote too much.", "It is to print one JSON object."
        )
    if ended.code is None:
        raise ScorerError(
            f"The scorer of task {task} took longer than {seconds:g} s.", "timeout_s gives it more."
        )
    if ended.code != 0:
        stderr_text = printable_line(ended.err.decode("utf-8", "replace")[-400:])
        ending = f": {stderr_text}" if stderr_text else "."
        raise ScorerError(f"The scorer of task {task} ended with exit code {ended.code}{ending}")
    try:
        output = executors.parse_strict_json(ended.out)
    except (ValueError, RecursionError):
        raise ScorerError(
            f"The scorer of task {task} printed no JSON: "
            f"{printable_line(ended.out.decode('utf-8', 'replace'))}",
            'It is to print one object such as {"score": 1.0}, and nothing else; remarks belong '
            "on stderr.",
        ) from None
    try:
        return _parse_score(output)
    except ValueError as error:
        raise ScorerError(f"The scorer of task {task} said what cannot be used: {error}.") from None


def _parse_score(answer: Any) -> Score:
    """Return the score in a scorer's JSON. Raises ValueError."""
    if not isinstance(answer, dict):
        raise ValueError("it is no JSON object")
    schema = executors.load_schema(Path(__file__).with_name("command_score.schema.json"))
    if fault := schema_problem(answer, schema):
        raise ValueError(fault)
    feedback, evidence = answer.get("feedback_public") or "", answer.get("evidence_private") or ""
    if answer.get("status") == "infra_error":
        raise ValueError(
            f"it reports trouble of its own: {printable_line(evidence) or 'no reason given'}"
        )
    code = CodeOutcome(answer["outcome"]) if "outcome" in answer else None
    if code is not None and (code is CodeOutcome.PASSED) is not (answer["score"] == 1):
        raise ValueError(
            f"it says {code} with a score of {answer['score']}; PR is a score of 1 and "
            "nothing else is"
        )
    checks = [
        ScoreCheck(check["name"], check["pass"], check.get("kind", "outcome"))
        for check in answer.get("checks") or ()
    ]
    return Score(
        float(answer["score"]),
        feedback[:MAX_SCORER_TEXT],
        evidence[:MAX_SCORER_TEXT],
        tuple(checks),
        {name: float(value) for name, value in (answer.get("metrics") or {}).items()},
        code=code,
    )


JUDGE_SCHEMA = executors.load_schema(Path(__file__).with_name("judge.schema.json"))
"""JSON schema of a judge's answer."""

# A judge answers in a few sentences.
_MAX_ANSWER = 2_048
"""Tokens of a judge's answer."""


@cache
def judge_instructions() -> str:
    """Return the instructions of every judge.

    They are the same for every question, so a provider can cache them.
    """
    path = Path(__file__).with_name("judge_instructions.txt")
    return path.read_text(encoding="utf-8").rstrip("\n")


def judge_question(
    prompt: str, output: str, *, expected: str | None = None, rubric: str = ""
) -> ModelQuestion:
    """Return the question to a judge about one answer.

    rubric: a text, or the name of a rubric of the program.
    """
    fields = {
        "task": prompt,
        "expected": expected,
        "rubric": rubrics.rubric_text(rubric),
        "answer": output,
    }
    data = {key: value for key, value in fields.items() if value}
    if rubric in rubrics.named_rubrics():
        schema = rubrics.graded_schema(rubric, JUDGE_SCHEMA)
        instructions = rubrics.graded_instructions()
        return ModelQuestion(ModelRole.JUDGE, instructions, data, schema, _MAX_ANSWER)
    return ModelQuestion(ModelRole.JUDGE, judge_instructions(), data, JUDGE_SCHEMA, _MAX_ANSWER)


def parse_judge_score(answer: Mapping[str, Any]) -> Score:
    """Return a judge's score. Raises ValueError for one out of [0, 1] or one that contradicts
    itself.

    Its reason goes to the ledger alone, because it may tell the expected answer.
    """
    value = float(answer["score"])
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"a judge said {value:g}, which is not between 0 and 1")
    # A judge that contradicts itself has not understood the form, and its number means nothing.
    if bool(answer["passed"]) is not (value >= 0.5):
        raise ValueError(f"a judge gave {value:g} and passed {answer['passed']}")
    errors = "; ".join(f"{error['type']}: {error['value']}" for error in answer["errors"])
    reason = "\n".join(filter(None, (str(answer["reason"]), errors)))
    return Score(value, str(answer["feedback"]), reason)


MIN_KNOWN_ANSWERS = 3
"""Known good and known bad answers that a calibration needs, of each."""

MAX_KNOWN_ANSWERS = 10
"""Known good and known bad answers that a judge is asked about at most, of each, for one rubric."""

# With ten answers a side one may be wrong, with fewer none.
MIN_AGREEMENT = 0.9
"""Share of each side that a judge must get right."""

_PASS_SCORE = 0.5
"""A judge's score from which an answer counts as good."""

_MAX_OUTPUT = 60_000
"""Characters of an output that a judge reads."""

# Judges favour answers of their own maker's models.
_FAMILIES = (
    ("claude", "anthropic"),
    ("gpt", "openai", "codex", "o1", "o3", "o4"),
    ("gemini", "google"),
    ("llama",),
)
"""Beginnings of words in a model's name, by maker."""


@dataclass(frozen=True, slots=True)
class JudgeSample:
    """A known answer to a task, and whether a person calls it good."""

    task: Task
    output: str
    good: bool


@dataclass(frozen=True, slots=True)
class JudgeCalibration:
    """The calibration of a judge on known answers, by one rubric.

    good, bad: how many there are of each side; good_right, bad_right: on how many of them it was
    right. wrong: the tasks of those on which it was wrong.
    """

    judge: str
    rubric: str
    good: int
    good_right: int
    bad: int
    bad_right: int
    wrong: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the calibration in a `judge` record of a run."""
        fields = record["calibration"]
        return cls(**{**fields, "wrong": tuple(fields["wrong"])})

    @property
    def agreement(self) -> float:
        """The share of all known answers on which the judge was right; 0 without any."""
        total = self.good + self.bad
        return (self.good_right + self.bad_right) / total if total else 0.0

    @property
    def passes(self) -> bool:
        """Whether there were enough answers of each side and the judge was right on both sides."""
        if min(self.good, self.bad) < MIN_KNOWN_ANSWERS:
            return False
        knows_good = self.good_right >= MIN_AGREEMENT * self.good
        return knows_good and self.bad_right >= MIN_AGREEMENT * self.bad


@dataclass(frozen=True, slots=True)
class JudgeScorer:
    """A judge with its calibrations, by the digest of each rubric.

    It can be pickled when its model can.
    """

    judge_model: ProposerModel
    calibrations: Mapping[str, JudgeCalibration] = field(default_factory=dict)

    async def score(self, rubric: str, task: Task, output: str) -> Score:
        """Return the judge's score.

        Raises JudgeRefused unless it is calibrated for the rubric, and ScorerError.
        """
        calibration = self.calibrations.get(rubric_digest(rubric))
        # The calibration of one model says nothing of another.
        if calibration is None or calibration.judge != self.judge_model.name:
            raise JudgeRefused(
                f"{self.judge_model.name} has not been calibrated for the rubric of task "
                f"{task.id}.",
                "Give its task known answers (good and bad in the scorer's args) and "
                "calibrate it first.",
            )
        check_calibration(calibration)
        return await judge_answer(self.judge_model, rubric, task, output)


@dataclass(frozen=True)
class JudgeSetup:
    """The judge of a run with the known answers to each rubric.

    The calibrations are filled in before it scores.
    """

    judge: JudgeScorer
    calibrations: dict[str, JudgeCalibration]
    samples: Mapping[str, Sequence[JudgeSample]]


def check_calibration(calibration: JudgeCalibration) -> None:
    """Raise JudgeRefused for a calibration that did not pass."""
    if calibration.passes:
        return
    wrong = ", ".join(dict.fromkeys(calibration.wrong[:5]))
    raise JudgeRefused(
        f"{calibration.judge} did not pass its calibration: right on {calibration.good_right} of"
        f" {calibration.good} good and {calibration.bad_right} of {calibration.bad} bad answers"
        + (f" (wrong on those of {wrong})." if wrong else "."),
        f"It needs {MIN_KNOWN_ANSWERS} of each, and {MIN_AGREEMENT:.0%} right on both sides: "
        "sharpen the rubric, or name another judge.",
    )


async def run_judge_calibration(
    judge_model: ProposerModel, rubric: str, samples: Sequence[JudgeSample]
) -> JudgeCalibration:
    """Ask a judge about each known answer once, and return how often it is right.

    Raises ScorerError.
    """
    right = {True: 0, False: 0}
    wrong = []
    for sample in samples:
        score = await judge_answer(judge_model, rubric, sample.task, sample.output)
        if (score.value >= _PASS_SCORE) == sample.good:
            right[sample.good] += 1
        else:
            wrong.append(sample.task.id)
    good = sum(sample.good for sample in samples)
    counts = good, right[True], len(samples) - good, right[False]
    return JudgeCalibration(judge_model.name, rubric_digest(rubric), *counts, tuple(wrong))


def samples_digest(samples: Sequence[JudgeSample]) -> str:
    """Return the sha256 of known answers, by which a calibration is found again."""
    rows = []
    for sample in samples:
        rubric = dict(sample.task.scorer.args).get("rubric")
        rows.append([sample.task.digest, rubric, sample.output, sample.good])
    return hashlib.sha256(json.dumps(rows).encode("ascii")).hexdigest()


def family_warning(executor: Mapping[str, Any], judge: str, label: str) -> str:
    """Return a warning when a model judges answers of its own maker's models, else ''."""
    judged = " ".join(str(executor.get(name, "")) for name in ("kind", "model")) + f" {label}"
    if not judge or not is_same_family(judge, judged):
        return ""
    return (
        f"{judge} judges answers of a model of the same maker ({label}): such judges favour "
        "their own."
    )


def rubric_digest(rubric: str) -> str:
    """Return the key of a rubric's calibration: the sha256 of its text."""
    return hashlib.sha256(rubrics.rubric_text(rubric).encode("utf-8", "replace")).hexdigest()


def is_same_family(first: str, second: str) -> bool:
    """Return whether two names are of models of one maker, as far as the names tell.

    Such a judge is flagged.
    """
    return bool(_find_families(first) & _find_families(second))


def _find_families(name: str) -> set[int]:
    # Letters with the digits right after them: `o3` is a name, and `4o` is not.
    parts = re.findall(r"[a-z]+\d*", name.lower())
    return {
        at for at, words in enumerate(_FAMILIES) if any(part.startswith(words) for part in parts)
    }


async def judge_answer(judge_model: ProposerModel, rubric: str, task: Task, output: str) -> Score:
    """Return the score that a judge gives one answer to a task.

    Raises ScorerError where it gives none.
    """
    excerpt = output[:_MAX_OUTPUT]
    question = judge_question(task.prompt, excerpt, expected=task.expected, rubric=rubric)
    try:
        answer = await judge_model.ask(question)
    except NoAnswer as error:
        text = f"The judge gave no score for task {task.id}: {error}"
        raise ScorerError(text, error.hint, error.usage, error.attempts) from None
    try:
        if rubric in rubrics.named_rubrics():
            score = rubrics.graded_score(rubric, answer.value)
        else:
            score = parse_judge_score(answer.value)
    except ValueError as error:
        text = f"The judge gave no score for task {task.id}: {error}."
        raise ScorerError(text, "Choose a better judge.", answer.usage, answer.attempts) from None
    # Feedback reaches the proposer, so it must not contain the expected answer.
    is_told = task.expected and _normalise(task.expected) in _normalise(score.feedback)
    return replace(
        score,
        feedback="" if is_told else score.feedback,
        evidence=f"{answer.by}: {score.evidence}",
        usage=answer.usage,
        attempts=answer.attempts,
    )


def _normalise(text: str) -> str:
    return " ".join(text.casefold().split())
