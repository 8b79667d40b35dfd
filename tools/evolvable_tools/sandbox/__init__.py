"""Sandboxes: run a command isolated from the rest of the machine."""

from evolvable_tools.sandbox.exchange import ModelAccess, SandboxOutputError, bring_back, relay
from evolvable_tools.sandbox.mechanisms import MODEL_PORT, Confinement, ResourceLimits, Sandbox, environment_inside
from evolvable_tools.sandbox.probe import ProbeReport, SandboxChoice, sandbox_of

__all__ = [
    "MODEL_PORT",
    "SandboxChoice",
    "Confinement",
    "ProbeReport",
    "ResourceLimits",
    "ModelAccess",
    "Sandbox",
    "SandboxOutputError",
    "bring_back",
    "environment_inside",
    "relay",
    "sandbox_of",
]
