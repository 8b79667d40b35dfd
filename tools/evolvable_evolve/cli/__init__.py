"""The commands of the annex of evolution.

`evolvable_evolve.plugin` names them to the command line. `check_cluster` is the check that doctor runs.
"""

from typing import TYPE_CHECKING

from evolvable_store import late_names

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
