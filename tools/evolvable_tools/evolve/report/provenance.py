"""Where a run comes from: what it was started with, by hash and version, and the command that begins it again."""

import shlex
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.metadata import version
from typing import Any

from evolvable_tools.evolve.report.judges import judged
from evolvable_tools.evolve.run_settings import RunSettings
from evolvable_tools.evolve.run_state import RunState

_OPTIONS = {
    "brain": "--brain",
    "mode": "--mode",
    "optimizer": "--optimizer",
    "iterations": "--iterations",
    "judge": "--judge",
    "parent": "--parent",
    "admit": "--admit",
    "frontier": "--frontier",
    "repeats": "--repeats",
    "test_repeats": "--test-repeats",
    "fail_below": "--pass-at",
    "concurrency": "--concurrency",
}
_LIMITS = {"cost": "--max-cost", "tokens": "--max-tokens", "calls": "--max-calls"}


def provenance(state: RunState, finalist: str) -> dict[str, Any]:
    """Returns what is needed to make the run again and to tell it from another."""
    said = state.settings
    return {
        "evolvable": version("evolvable"),
        "task_set": f"{said.get('task_set', '')}@{said.get('task_set_version', '')}",
        "task_set_digest": said.get("task_set_digest", ""),
        "test_digest": said.get("test_digest", ""),
        "executor": state.fingerprint,
        "brain": said.get("brain", ""),
        **({"judge": "; ".join(judged(state))} if state.judges else {}),
        "seed": said.get("seed"),
        "base_digest": state.base,
        "finalist_digest": finalist,
        "program": [f"{pin['ref']}@{pin['version']}" for pin in said.get("program", ())],
        "command": reproducing(said),
    }


def reproducing(settings: Mapping[str, Any]) -> str:
    """Returns the command for settings as the ledger holds them; '' for a run that no command began."""
    if not settings.get("task_set_digest"):
        return ""
    usual = {one.name: one.default for one in fields(RunSettings) if one.default is not MISSING}
    words = ["evolvable", "evolve", "start", str(settings["task_set"])]
    for pin in settings.get("program", ()):
        words += ["--program", str(pin["ref"])]
    words += ["--executor", _spec(settings["executor"]), "--seed", str(settings["seed"])]
    for name, option in _OPTIONS.items():
        if settings.get(name, usual.get(name)) != usual.get(name):
            words += [option, str(settings[name])]
    limits = settings.get("limit", {})
    for name, option in _LIMITS.items():
        if limits.get(name) is not None:
            words += [option, f"{limits[name]:g}"]
    return shlex.join(words)


def _spec(executor: Mapping[str, Any]) -> str:
    if executor.get("kind") == "command":
        return shlex.join(map(str, executor.get("command", ())))
    model = executor.get("model")
    return f"{executor.get('kind', '')}:{model}" if model else str(executor.get("kind", ""))
