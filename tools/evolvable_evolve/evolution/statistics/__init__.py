"""Statistics of paired trials: exact tests, intervals, what a design could detect, what a look costs. No numpy.

Begin with `decide_verdict` over `PairedScores`. `power_band` says what a design could detect, `alpha_for_look` what
one more look costs.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
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
    from evolvable_evolve.evolution.statistics.power import GAINS, PowerDesign, chance_left, power_band, smallest_gain
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
            "narrow_claim": (
                "MIN_GROUPS MIN_NARROW_TASKS NARROW_ALPHA NARROW_REPEATS NarrowResult is_covered "
                "narrow_sizes permutation_p_value permutation_result"
            ),
            "paired_tests": (
                "NOISE POWER alpha_for_look paired_interval pool_estimates read_estimates sign_flip_p_value"
            ),
            "power": "GAINS PowerDesign chance_left power_band smallest_gain",
            "staged_test": (
                "EQUAL_SHARES MissingTrials STAGES STAGE_SHARES StagedResult alpha_of_look harm_bound "
                "missing_p_value staged_sign_flip"
            ),
            "verdict": "MIN_COVERAGE PairedScores Ruling compare_log_costs pair_scores",
        },
    )

__all__ = [
    "EQUAL_SHARES",
    "GAINS",
    "MIN_COVERAGE",
    "MIN_GROUPS",
    "MIN_NARROW_TASKS",
    "MissingTrials",
    "NARROW_ALPHA",
    "NARROW_REPEATS",
    "NOISE",
    "NarrowResult",
    "POWER",
    "PairedScores",
    "PowerDesign",
    "Ruling",
    "STAGES",
    "STAGE_SHARES",
    "StagedResult",
    "alpha_for_look",
    "alpha_of_look",
    "chance_left",
    "compare_log_costs",
    "harm_bound",
    "is_covered",
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
]
