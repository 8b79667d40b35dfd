"""The report of a run: one page, one JSON file, and the same as text.

Begin with `collect_facts`, all that a report states (`RunFacts`), and `write_report`.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.report.charts import draw_curve, draw_lineage, format_mean
    from evolvable_evolve.evolution.report.render import write_report
    from evolvable_evolve.evolution.report.run_facts import (
        CandidateFacts,
        MeanInterval,
        RunFacts,
        changed_test_tasks,
        collect_facts,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "charts": "draw_curve draw_lineage format_mean",
            "render": "write_report",
            "run_facts": "CandidateFacts MeanInterval RunFacts changed_test_tasks collect_facts",
        },
    )

__all__ = [
    "CandidateFacts",
    "MeanInterval",
    "RunFacts",
    "changed_test_tasks",
    "collect_facts",
    "draw_curve",
    "draw_lineage",
    "format_mean",
    "write_report",
]
