"""The hooks by which the annex of the local page adds its command to the core."""

from collections.abc import Mapping
from pathlib import Path

from evolvable_server.plugins import hookimpl


@hookimpl
def verb_table() -> Path:
    """Return the verbs of this annex."""
    return Path(__file__).with_name("registry.json")


@hookimpl
def commands() -> Mapping[str, str]:
    """Return the commands of this annex."""
    return {"ui": "evolvable_page.ui_command:ui_command"}
