"""Statistics of paired trials: exact tests, intervals, the power of a design, and the alpha of a
look. No numpy.

Begin with `PairedScores` and `Ruling`, the verdict on them. `power_band` returns the power of a
design, `alpha_for_look` the alpha of one more look.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.statistics.claim_forecast import (
        FOUND_GAIN,
        TryForecast,
        forecast_found,
        forecast_rest,
    )
    from evolvable_evolve.evolution.statistics.claim_stages import (
        DEFAULT_STAGES,
        MIN_NET,
        SIDE_ALPHA,
        SPENDING_RULE,
        StageDecision,
        TryAnswer,
        carried_difference,
        decide_stage,
        step_up,
    )
    from evolvable_evolve.evolution.statistics.general_claim import GeneralClaim, claim_of_groups
    from evolvable_evolve.evolution.statistics.narrow_claim import (
        MIN_GROUPS,
        MIN_NARROW_TASKS,
        NARROW_ALPHA,
        NARROW_REPEATS,
        NarrowResult,
        is_covered,
        narrow_sizes,
        permutation_p_value,
        permutation_result,
    )
    from evolvable_evolve.evolution.statistics.paired_tests import (
        NOISE,
        POWER,
        alpha_for_look,
        paired_interval,
        pool_estimates,
        read_estimates,
        sign_flip_p_value,
    )
    from evolvable_evolve.evolution.statistics.power import (
        GAINS,
        PowerDesign,
        chance_left,
        power_band,
        smallest_gain,
    )
    from evolvable_evolve.evolution.statistics.repeat_labels import LabelTest, label_test
    from evolvable_evolve.evolution.statistics.staged_test import (
        EQUAL_SHARES,
        STAGE_SHARES,
        STAGES,
        MissingTrials,
        StagedResult,
        alpha_of_look,
        harm_bound,
        missing_p_value,
        staged_sign_flip,
    )
    from evolvable_evolve.evolution.statistics.verdict import (
        MIN_COVERAGE,
        PairedScores,
        Ruling,
        compare_log_costs,
        pair_scores,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "claim_forecast": "FOUND_GAIN TryForecast forecast_found forecast_rest",
            "claim_stages": (
                "DEFAULT_STAGES MIN_NET SIDE_ALPHA SPENDING_RULE StageDecision TryAnswer "
                "carried_difference decide_stage step_up"
            ),
            "general_claim": "GeneralClaim claim_of_groups",
            "narrow_claim": (
                "MIN_GROUPS MIN_NARROW_TASKS NARROW_ALPHA NARROW_REPEATS NarrowResult is_covered "
                "narrow_sizes permutation_p_value permutation_result"
            ),
            "paired_tests": (
                "NOISE POWER alpha_for_look paired_interval pool_estimates read_estimates "
                "sign_flip_p_value"
            ),
            "power": "GAINS PowerDesign chance_left power_band smallest_gain",
            "repeat_labels": "LabelTest label_test",
            "staged_test": (
                "EQUAL_SHARES MissingTrials STAGES STAGE_SHARES StagedResult alpha_of_look "
                "harm_bound missing_p_value staged_sign_flip"
            ),
            "verdict": "MIN_COVERAGE PairedScores Ruling compare_log_costs pair_scores",
        },
    )

__all__ = [
    "DEFAULT_STAGES",
    "EQUAL_SHARES",
    "FOUND_GAIN",
    "GAINS",
    "GeneralClaim",
    "LabelTest",
    "MIN_COVERAGE",
    "MIN_GROUPS",
    "MIN_NARROW_TASKS",
    "MIN_NET",
    "MissingTrials",
    "NARROW_ALPHA",
    "NARROW_REPEATS",
    "NOISE",
    "NarrowResult",
    "POWER",
    "PairedScores",
    "PowerDesign",
    "Ruling",
    "SIDE_ALPHA",
    "SPENDING_RULE",
    "STAGES",
    "STAGE_SHARES",
    "StageDecision",
    "StagedResult",
    "TryAnswer",
    "TryForecast",
    "alpha_for_look",
    "alpha_of_look",
    "carried_difference",
    "chance_left",
    "claim_of_groups",
    "compare_log_costs",
    "decide_stage",
    "forecast_found",
    "forecast_rest",
    "harm_bound",
    "is_covered",
    "label_test",
    "missing_p_value",
    "narrow_sizes",
    "pair_scores",
    "paired_interval",
    "permutation_p_value",
    "permutation_result",
    "pool_estimates",
    "power_band",
    "read_estimates",
    "sign_flip_p_value",
    "smallest_gain",
    "staged_sign_flip",
    "step_up",
]
