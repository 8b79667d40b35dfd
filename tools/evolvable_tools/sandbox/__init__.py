"""Running a command apart from the rest of the machine."""

from evolvable_tools.sandbox.confinement import MODEL_PORT, Confinement, Limits, Sandbox
from evolvable_tools.sandbox.probing import Choice, Found, sandbox_of
from evolvable_tools.sandbox.relay import ModelAccess, relay
from evolvable_tools.sandbox.returning import SandboxTrouble, bring_back
from evolvable_tools.sandbox.runtimes import environment_inside

__all__ = [
    "MODEL_PORT",
    "Choice",
    "Confinement",
    "Found",
    "Limits",
    "ModelAccess",
    "Sandbox",
    "SandboxTrouble",
    "bring_back",
    "environment_inside",
    "relay",
    "sandbox_of",
]
