"""Scorers: each returns the score of an answer. One that cannot tell raises ScorerError and never
returns 0.

Begin with `TaskSetScorer`, which scores a task by the scorer that it names.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.scorers.external_scorers import (
        MAX_KNOWN_ANSWERS,
        MIN_AGREEMENT,
        MIN_KNOWN_ANSWERS,
        JudgeCalibration,
        JudgeSample,
        JudgeScorer,
        JudgeSetup,
        check_calibration,
        command_score,
        family_warning,
        judge_answer,
        rubric_digest,
        run_judge_calibration,
        samples_digest,
        special_files,
    )
    from evolvable_evolve.evolution.scorers.registry import (
        TaskSetScorer,
        argument_problem,
        extract_answer,
        known_samples,
        sample_list,
    )
    from evolvable_evolve.evolution.scorers.rubrics import dimension_names
else:
    __getattr__ = late_names(
        __name__,
        {
            "external_scorers": (
                "JudgeCalibration JudgeSample JudgeScorer JudgeSetup MAX_KNOWN_ANSWERS "
                "MIN_AGREEMENT MIN_KNOWN_ANSWERS check_calibration command_score "
                "family_warning judge_answer rubric_digest run_judge_calibration "
                "samples_digest special_files"
            ),
            "registry": ("TaskSetScorer argument_problem extract_answer known_samples sample_list"),
            "rubrics": "dimension_names",
        },
    )

__all__ = [
    "JudgeCalibration",
    "JudgeSample",
    "JudgeScorer",
    "JudgeSetup",
    "MAX_KNOWN_ANSWERS",
    "MIN_AGREEMENT",
    "MIN_KNOWN_ANSWERS",
    "TaskSetScorer",
    "argument_problem",
    "check_calibration",
    "command_score",
    "dimension_names",
    "extract_answer",
    "family_warning",
    "judge_answer",
    "known_samples",
    "rubric_digest",
    "run_judge_calibration",
    "sample_list",
    "samples_digest",
    "special_files",
]
