"""Sandboxes: run a command isolated from the rest of the machine.

Begin with `sandbox_of`, which finds what this machine can do, and `Sandbox.run`. `Bubblewrap` is
the mechanism; `ResourceLimits` and `ModelAccess` say what is inside.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.sandbox.exchange import ModelAccess, SandboxOutputError, bring_back, relay
    from evolvable_evolve.sandbox.mechanisms import (
        MODEL_PORT,
        Bubblewrap,
        Confinement,
        ResourceLimits,
        Sandbox,
        environment_inside,
    )
    from evolvable_evolve.sandbox.probe import SandboxChoice, sandbox_of
else:
    __getattr__ = late_names(
        __name__,
        {
            "exchange": "ModelAccess SandboxOutputError bring_back relay",
            "mechanisms": (
                "Bubblewrap Confinement MODEL_PORT ResourceLimits Sandbox environment_inside"
            ),
            "probe": "SandboxChoice sandbox_of",
        },
    )

__all__ = [
    "Bubblewrap",
    "Confinement",
    "MODEL_PORT",
    "ModelAccess",
    "ResourceLimits",
    "Sandbox",
    "SandboxChoice",
    "SandboxOutputError",
    "bring_back",
    "environment_inside",
    "relay",
    "sandbox_of",
]
