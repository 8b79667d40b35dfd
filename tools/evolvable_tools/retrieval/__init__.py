"""Search: the stages from the words of a task to a verdict.

Begin with `search_cascade`: it asks stage after stage with the `SearchDependencies` that there are,
and returns `Match`es. `Verdict` says what the best of them is worth. `find_near_duplicates`
compares new descriptions with old.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.retrieval.cascade import break_ties, search_cascade
    from evolvable_tools.retrieval.clauses import Excerpts, cut_at_words
    from evolvable_tools.retrieval.further import MOST
    from evolvable_tools.retrieval.near_duplicates import (
        EACH,
        NearDuplicateReport,
        find_near_duplicates,
    )
    from evolvable_tools.retrieval.search_types import (
        FITS,
        MODES,
        VERDICTS,
        SearchDependencies,
        StageReport,
        Verdict,
        none_below,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "cascade": "break_ties search_cascade",
            "clauses": "Excerpts cut_at_words",
            "further": "MOST",
            "near_duplicates": "EACH NearDuplicateReport find_near_duplicates",
            "search_types": "FITS MODES SearchDependencies StageReport VERDICTS Verdict none_below",
        },
    )

__all__ = [
    "EACH",
    "Excerpts",
    "FITS",
    "MODES",
    "MOST",
    "NearDuplicateReport",
    "SearchDependencies",
    "StageReport",
    "VERDICTS",
    "Verdict",
    "break_ties",
    "cut_at_words",
    "find_near_duplicates",
    "none_below",
    "search_cascade",
]
