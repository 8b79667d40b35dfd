"""The commands of the annex of evolution.

`evolvable_evolve.plugin` names them to the command line. `check_cluster` is the check that doctor runs.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.cli.cluster_health import check_cluster
else:
    __getattr__ = late_names(
        __name__,
        {
            "cluster_health": "check_cluster",
        },
    )

__all__ = ["check_cluster"]
