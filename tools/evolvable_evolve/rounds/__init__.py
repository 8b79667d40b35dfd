"""Rounds over real sessions, and the pool of versions on trial.

Begin with `run_round` (`RoundReport`), and with `start_trial`, `decide_trial` and `list_pool` for
the pool.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.rounds.pool import (
        SHARE,
        PoolArm,
        PoolEnded,
        PoolEntry,
        PoolPage,
        decide_trial,
        list_pool,
        show_trial,
        start_trial,
    )
    from evolvable_evolve.rounds.round_source import (
        MAX_SESSIONS,
        RoundSource,
        SessionSource,
        TrialSource,
    )
    from evolvable_evolve.rounds.round_state import RoundState, read_rounds
    from evolvable_evolve.rounds.service import RoundReport, run_round
    from evolvable_evolve.rounds.traces import RoundTrace, hash_text
else:
    __getattr__ = late_names(
        __name__,
        {
            "pool": (
                "PoolArm PoolEnded PoolEntry PoolPage SHARE decide_trial list_pool show_trial "
                "start_trial"
            ),
            "round_source": "MAX_SESSIONS RoundSource SessionSource TrialSource",
            "round_state": "RoundState read_rounds",
            "service": "RoundReport run_round",
            "traces": "RoundTrace hash_text",
        },
    )

__all__ = [
    "MAX_SESSIONS",
    "PoolArm",
    "PoolEnded",
    "PoolEntry",
    "PoolPage",
    "RoundReport",
    "RoundSource",
    "RoundState",
    "RoundTrace",
    "SHARE",
    "SessionSource",
    "TrialSource",
    "decide_trial",
    "hash_text",
    "list_pool",
    "read_rounds",
    "run_round",
    "show_trial",
    "start_trial",
]
