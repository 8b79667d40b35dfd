"""The ledger of a run: its directory, its records and the state that follows from them.

Begin with `Ledger` for writing and `load_run_state` for reading. `RunState` is computed from the
records and is stored nowhere.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.ledger.run_directory import (
        AGS_DIR,
        DAMAGE_ERRORS,
        EVOLVE_DIR,
        Ledger,
        LedgerBusy,
        LedgerDamaged,
        LedgerError,
        LedgerRecord,
        RunDirectory,
        create_run,
        find_run,
        iter_runs,
        ledger_head,
        read_ledger,
        translate_damage,
    )
    from evolvable_evolve.evolution.ledger.run_reducer import (
        Journal,
        fold_records,
        iter_run_states,
        load_run,
        load_run_state,
        read_records,
    )
    from evolvable_evolve.evolution.ledger.run_state import (
        AskedQuestion,
        CandidateDecision,
        RunCandidate,
        RunPhase,
        RunState,
        mean,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "run_directory": (
                "AGS_DIR DAMAGE_ERRORS EVOLVE_DIR Ledger LedgerBusy LedgerDamaged LedgerError "
                "LedgerRecord RunDirectory create_run find_run iter_runs ledger_head "
                "read_ledger translate_damage"
            ),
            "run_reducer": (
                "Journal fold_records iter_run_states load_run load_run_state read_records"
            ),
            "run_state": "AskedQuestion CandidateDecision RunCandidate RunPhase RunState mean",
        },
    )

__all__ = [
    "AGS_DIR",
    "AskedQuestion",
    "CandidateDecision",
    "DAMAGE_ERRORS",
    "EVOLVE_DIR",
    "Journal",
    "Ledger",
    "LedgerBusy",
    "LedgerDamaged",
    "LedgerError",
    "LedgerRecord",
    "RunCandidate",
    "RunDirectory",
    "RunPhase",
    "RunState",
    "create_run",
    "find_run",
    "fold_records",
    "iter_run_states",
    "iter_runs",
    "ledger_head",
    "load_run",
    "load_run_state",
    "mean",
    "read_ledger",
    "read_records",
    "translate_damage",
]
