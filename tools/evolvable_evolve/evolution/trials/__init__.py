"""Where attempts run: in this process, in processes of this machine, or on many machines.

Begin with `TrialRunner`, which runs a `TrialRequest` within a `RunBudget`, and `TrialBackend`, the
protocol of a place.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.trials.backends import (
        ProcessBackend,
        RemoteExecutor,
        RemoteModel,
    )
    from evolvable_evolve.evolution.trials.budget import (
        Bill,
        BudgetSpent,
        ConcurrencyLimit,
        Reservation,
        RunBudget,
        make_concurrency_limit,
        to_bill,
    )
    from evolvable_evolve.evolution.trials.measurement import (
        BACKOFF,
        TrialRequest,
        TrialRunner,
        TrialSettings,
        TrialsFailing,
    )
    from evolvable_evolve.evolution.trials.ray_backend import RayBackend, RayMissing
    from evolvable_evolve.evolution.trials.ray_worker import NodeMismatch
    from evolvable_evolve.evolution.trials.round_records import ROUND
    from evolvable_evolve.evolution.trials.trial import (
        AsyncioBackend,
        TrialAttempt,
        TrialBackend,
        TrialJob,
        parse_trial,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "backends": "ProcessBackend RemoteExecutor RemoteModel",
            "budget": (
                "Bill BudgetSpent ConcurrencyLimit Reservation RunBudget "
                "make_concurrency_limit to_bill"
            ),
            "measurement": "BACKOFF TrialRequest TrialRunner TrialSettings TrialsFailing",
            "ray_backend": "RayBackend RayMissing",
            "ray_worker": "NodeMismatch",
            "round_records": "ROUND",
            "trial": "AsyncioBackend TrialAttempt TrialBackend TrialJob parse_trial",
        },
    )

__all__ = [
    "AsyncioBackend",
    "BACKOFF",
    "Bill",
    "BudgetSpent",
    "ConcurrencyLimit",
    "NodeMismatch",
    "ProcessBackend",
    "ROUND",
    "RayBackend",
    "RayMissing",
    "RemoteExecutor",
    "RemoteModel",
    "Reservation",
    "RunBudget",
    "TrialAttempt",
    "TrialBackend",
    "TrialJob",
    "TrialRequest",
    "TrialRunner",
    "TrialSettings",
    "TrialsFailing",
    "make_concurrency_limit",
    "parse_trial",
    "to_bill",
]
