"""Restructuring of agents: figures of the structure from traces, and the gate that decides on one
edit.

Begin with `summarise_structure` and `decide_structure`.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.structure.structure_evidence import (
        AgentTrace,
        LocalRepair,
        StructureInput,
        StructureSummary,
        summarise_structure,
    )
    from evolvable_evolve.evolution.structure.structure_gate import (
        Restructure,
        StructureAction,
        StructureDecision,
        StructureThresholds,
        decide_structure,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "structure_evidence": (
                "AgentTrace LocalRepair StructureInput StructureSummary summarise_structure"
            ),
            "structure_gate": (
                "Restructure StructureAction StructureDecision StructureThresholds decide_structure"
            ),
        },
    )

__all__ = [
    "AgentTrace",
    "LocalRepair",
    "Restructure",
    "StructureAction",
    "StructureDecision",
    "StructureInput",
    "StructureSummary",
    "StructureThresholds",
    "decide_structure",
    "summarise_structure",
]
