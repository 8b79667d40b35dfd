"""What a hook has to know before it does anything: where the library is, and whether hooks are on.

A part of `config`, kept apart because a client waits for a hook: this module imports `os` alone.
"""

import os
from collections.abc import Mapping

HOME = "EVOLVABLE_HOME"
HOOKS = "EVOLVABLE_HOOKS"
REVIEW = "EVOLVABLE_REVIEW"

OFF = ("off", "no", "0", "none", "false")
"""What a person may write to switch something off."""


def library_home(environment: Mapping[str, str]) -> str:
    """Returns the library's folder: EVOLVABLE_HOME, by default ~/.evolvable."""
    return os.path.abspath(os.path.expanduser(environment.get(HOME) or "~/.evolvable"))


def hooks_on(environment: Mapping[str, str]) -> bool:
    """Returns whether hooks do anything: always, unless EVOLVABLE_HOOKS says off."""
    return (environment.get(HOOKS) or "on").strip().lower() not in OFF


def reviews_on(environment: Mapping[str, str]) -> bool:
    """Returns whether sessions are reviewed at all: always, unless EVOLVABLE_REVIEW says off."""
    return (environment.get(REVIEW) or "handoff").strip().lower() not in OFF
