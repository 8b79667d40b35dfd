"""The records beside that of a trial: of each answer of its rounds, of each request to a model."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from evolvable_evolve.evolution.task import Score, Task, Trial, code_outcome
from evolvable_evolve.evolution.trials.trial import TrialAttempt, shorten_text

ROUND, ATTEMPTED = "round", "attempted"
"""The types of the record of one answer, and of one attempt to ask a model."""

Record = tuple[str, dict[str, Any]]
"""The type of a record, and its fields."""


def round_records(
    task: Task, trial: Trial, attempt: TrialAttempt, /, **about: object
) -> Iterator[Record]:
    """Yield a record for each answer of a trial that was answered in rounds.

    about: fields of every record. Their usages and times add up to those of the trial, except where
    infrastructure ended it within a round. The text of the last answer is in the trial's record.
    Scores are for the ledger and the report: no round saw one.
    """
    solutions = attempt.rollout.solutions
    for number, solution in enumerate(solutions):
        last = number == len(solutions) - 1
        # Earlier answers have scores by position, and not all of them were scored.
        score = attempt.score if last else dict(enumerate(attempt.earlier)).get(number)
        outcome = attempt.outcome if last else solution.outcome
        value = score.value if score else None
        # A failure that counts without a scorer has its score of 0 in the trial alone.
        if last and trial.outcome.counts:
            value = trial.score
        yield (
            ROUND,
            {
                **about,
                "key": trial.key,
                "task": trial.task,
                "program": trial.program,
                "repeat": trial.repeat,
                "round": number,
                "score": value,
                **code_fields(task, outcome, score),
                "usage": asdict(solution.usage),
                "wall": solution.wall,
                "output": "" if last else shorten_text(solution.text),
                "files": dict(solution.files),
                "feedback": shorten_text(solution.feedback),
                "critique": shorten_text(solution.critique),
                "detail": shorten_text(solution.detail),
            },
        )


def attempt_records(key: str, attempt: TrialAttempt, /, **about: object) -> Iterator[Record]:
    """Yield a record for each request of a trial to a model behind an API.

    The budget counts the trial's record, which has their sums. about: fields of every record.
    """
    by_role = {"executor": attempt.rollout.attempts, "judge": attempt.judged}
    for role, requests in by_role.items():
        for request in requests:
            yield ATTEMPTED, {**about, "key": key, "role": role, **asdict(request)}


def code_fields(task: Task, outcome: Any, score: Score | None) -> dict[str, Any]:
    """Return the fields of a record about an answer to a programming problem.

    They are empty for a task of another kind.
    """
    code = code_outcome(task, outcome, score)
    if code is None:
        return {}
    return {"code": str(code), "code_metrics": dict(score.metrics) if score else {}}
