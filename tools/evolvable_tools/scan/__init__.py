"""The scan of changes: what a resource may not contain, and what it gains the means to do.

Begin with `scan`, which takes the files before and after a change. It returns a `Scan` of
`Finding`s, and of the `Capability`s that the change adds or takes away.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.scan.capabilities import ENVIRONMENT, NETWORK, RUNS, TOOL, WRITES
    from evolvable_tools.scan.left_out import find_left_out
    from evolvable_tools.scan.scan_findings import (
        Capability,
        CapabilityDiff,
        Finding,
        FindingSeverity,
        Scan,
        order_findings,
    )
    from evolvable_tools.scan.scanner import scan
else:
    __getattr__ = late_names(
        __name__,
        {
            "capabilities": "ENVIRONMENT NETWORK RUNS TOOL WRITES",
            "left_out": "find_left_out",
            "scan_findings": (
                "Capability CapabilityDiff Finding FindingSeverity Scan order_findings"
            ),
            "scanner": "scan",
        },
    )

__all__ = [
    "Capability",
    "CapabilityDiff",
    "ENVIRONMENT",
    "Finding",
    "FindingSeverity",
    "NETWORK",
    "RUNS",
    "Scan",
    "TOOL",
    "WRITES",
    "find_left_out",
    "order_findings",
    "scan",
]
