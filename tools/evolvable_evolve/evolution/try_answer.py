"""The answer of a trial of a skill: two claims, and the sentences that state each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import SequenceMatcher
from math import ceil
from typing import Any

from evolvable_evolve.evolution.statistics import GeneralClaim, TryAnswer

MAX_SHOWN_TEXT = 4_000
"""The most characters of an answer that are shown beside the other arm's."""


@dataclass(frozen=True)
class ClaimOnTasks:
    """A claim about exactly these tasks.

    passed_with, passed_without: sums of scores. repeats: of each task, as many as were planned.
    steady: all repeats of every task agree; then the sentence has no p. p, p_worse: of the whole
    comparison, not adjusted for others beside it. difference: of `no difference of more than`.
    compared: a judge compared answers.
    """

    answer: TryAnswer
    tasks: int
    repeats: int
    passed_with: float
    passed_without: float
    fixed: int
    broken: int
    net: float
    p: float
    p_worse: float
    steady: bool
    difference: float
    compared: bool = False


@dataclass(frozen=True)
class TaskAnswers:
    """Both answers to one task, of its first repeat, with the means of all."""

    task: str
    category: str
    prompt: str
    score_without: float | None
    score_with: float | None
    without: str
    with_skill: str


@dataclass(frozen=True)
class SkillTrial:
    """The result of a trial for one skill.

    read: in how many tasks the skill was read. tokens: the relative change a task, None where they
    are not reported; seconds: the change a task. fallen: categories that came out worse, with their
    means. why: what prevented an answer, '' for nothing. against: the program of the other arm, ''
    for no skill at all.
    """

    skill: str
    on_these: ClaimOnTasks
    like_these: GeneralClaim
    read: int
    tokens: float | None
    seconds: float | None
    fallen: dict[str, tuple[float, float]] = field(default_factory=dict)
    answers: list[TaskAnswers] = field(default_factory=list)
    why: str = ""
    sentence: str = ""
    against: str = ""


@dataclass(frozen=True)
class TryResult:
    """A trial of skills, finished or not.

    left_out: tasks, with the reason. trials: that were run.
    """

    run: str
    label: str
    state: str
    trials: int
    cost: float | None
    tokens: int
    seconds: float
    skills: list[SkillTrial]
    left_out: dict[str, str] = field(default_factory=dict)
    source: str = ""
    why: str = ""


def sentence_of(trial: SkillTrial) -> str:
    """Return the answer as sentences: on these tasks, side effects, and for tasks like these."""
    parts = [
        _describe_on_these(trial),
        _describe_side_effects(trial),
        _describe_like_these(trial.like_these),
    ]
    return " ".join(filter(None, parts))


def _describe_on_these(trial: SkillTrial) -> str:
    claim = trial.on_these
    # The reason is more telling than the figures.
    if trial.why and claim.answer is TryAnswer.CANNOT_TELL:
        return f"{trial.skill}: cannot tell. {trial.why}"
    if claim.compared:
        head = (
            f"The judge preferred the answer with {trial.skill} in {claim.fixed} of "
            f"{claim.tasks} tasks, without it in {claim.broken}"
        )
        return f"{head}: {_describe_verdict(claim)}{_format_p(claim)}."
    times = f"{claim.repeats} of {claim.repeats} times each"
    other = "with the base" if trial.against else "without"
    # With steady repeats a p-value says no more than the counts do.
    if claim.steady:
        with_, without = (
            f"{_format_number(passed)} of {claim.tasks}"
            for passed in (claim.passed_with, claim.passed_without)
        )
        head = f"With {trial.skill} {with_}, {other} {without}, {times}"
        fixed = f"fixed {claim.fixed} of {claim.tasks}, broke {claim.broken}"
        return f"{head}: {_describe_verdict(claim)} ({fixed})."
    runs = claim.tasks * claim.repeats
    with_, without = (
        _format_number(passed * claim.repeats)
        for passed in (claim.passed_with, claim.passed_without)
    )
    head = (
        f"With {trial.skill} {with_} of {runs} runs of {claim.tasks} tasks, {other} "
        f"{without} of {runs}"
    )
    return f"{head}: {_describe_verdict(claim)}{_format_p(claim)}."


def _describe_verdict(claim: ClaimOnTasks) -> str:
    match claim.answer:
        case TryAnswer.HELPS:
            return "it helps on these tasks"
        case TryAnswer.HARMS:
            return "it harms on these tasks"
        case TryAnswer.NO_DIFFERENCE:
            # Rounded up: the claim must not be stronger than the computation.
            return (
                f"it makes no difference of more than {ceil(100 * claim.difference)} points on "
                "these tasks"
            )
    return "cannot tell on these tasks"


def _format_p(claim: ClaimOnTasks) -> str:
    return f" (p = {min(claim.p, claim.p_worse):.2g})"


def _format_number(value: float) -> str:
    # Sums of graded scores may miss a whole number by rounding.
    return f"{value:.0f}" if abs(value - round(value)) < 0.005 else f"{value:.2f}"


def _describe_side_effects(trial: SkillTrial) -> str:
    # Nothing was measured.
    if not trial.on_these.tasks:
        return ""
    parts = [f"It was read in {trial.read} of {trial.on_these.tasks}."]
    costs = []
    if trial.tokens is not None:
        costs.append(f"{trial.tokens:+.0%} tokens".replace("%", " %"))
    if trial.seconds is not None:
        direction = "more" if trial.seconds >= 0 else "less"
        costs.append(f"{abs(trial.seconds):.0f} s {direction} a task")
    parts += [f"{', '.join(costs)}."] if costs else []
    if trial.fallen:
        fell = (
            f"{name} ({100 * (after - before):+.0f} points)"
            for name, (before, after) in trial.fallen.items()
        )
        parts.append(f"Worse: {', '.join(fell)}.")
    return " ".join(parts)


def _describe_like_these(claim: GeneralClaim) -> str:
    counts = f"({claim.better} better, {claim.worse} worse)"
    if claim.answer is not TryAnswer.CANNOT_TELL:
        return f"For tasks like these in general: it {claim.answer} {counts}."
    more = ""
    # Both readings of the numbers may agree.
    if claim.more is not None:
        low, high = claim.more
        number = f"{low}" if low == high else f"{low} to {high}"
        more = f"; {number} more tasks would in 4 of 5 cases"
    return f"For tasks like these in general: cannot tell {counts}{more}."


def word_changes(before: str, after: str) -> list[tuple[str, str]]:
    """Return two texts as one, in pieces: the words of both (`=`), of the first alone (`-`), and of
    the second alone (`+`).
    """
    old, new = before.split(), after.split()
    pieces = []
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for change, start, end, new_start, new_end in matcher.get_opcodes():
        removed, added = " ".join(old[start:end]), " ".join(new[new_start:new_end])
        if change == "equal":
            pieces.append(("=", removed))
            continue
        if end > start:
            pieces.append(("-", removed))
        if new_end > new_start:
            pieces.append(("+", added))
    return pieces


def skills_to_json(skills: Sequence[SkillTrial]) -> list[dict[str, Any]]:
    """Return the results of skills as the ledger records them."""
    return [asdict(skill) for skill in skills]


def skills_from_json(written: Sequence[Mapping[str, Any]]) -> list[SkillTrial]:
    """Return the results that `skills_to_json` wrote."""
    return [_read_skill(dict(record)) for record in written]


def _read_skill(record: dict[str, Any]) -> SkillTrial:
    on_these = dict(record["on_these"])
    on_these["answer"] = TryAnswer(on_these["answer"])
    like = dict(record["like_these"])
    like["answer"] = TryAnswer(like["answer"])
    # JSON has no tuples.
    like["more"] = tuple(like["more"]) if like["more"] else None
    fallen = {name: (before, after) for name, (before, after) in record["fallen"].items()}
    answers = [TaskAnswers(**answer) for answer in record["answers"]]
    more = {"on_these": ClaimOnTasks(**on_these), "like_these": GeneralClaim(**like)}
    return SkillTrial(**{**record, **more, "fallen": fallen, "answers": answers})
