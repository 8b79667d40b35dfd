"""The settings of a hook: where the library is, whether hooks are on, and how sessions are named.

A client waits for a hook, so this part of `config` imports `os` alone.
"""

import os
from collections.abc import Mapping

HOME = "EVOLVABLE_HOME"
HOOKS = "EVOLVABLE_HOOKS"
REVIEW = "EVOLVABLE_REVIEW"
REVIEWING = "EVOLVABLE_REVIEWING"
"""Set for reviewer processes that we start: such a process queues and reviews no session, and starts no reviewer."""

OFF = ("off", "no", "0", "none", "false")
"""What a person may write to switch something off."""


def library_home(environment: Mapping[str, str]) -> str:
    """Return the library's folder: EVOLVABLE_HOME, by default ~/.evolvable."""
    return os.path.abspath(os.path.expanduser(environment.get(HOME) or "~/.evolvable"))


def is_review_process(environment: Mapping[str, str]) -> bool:
    """Return whether this process belongs to a reviewer that we started."""
    return bool(environment.get(REVIEWING))


def hooks_on(environment: Mapping[str, str]) -> bool:
    """Return whether hooks do anything: always, unless EVOLVABLE_HOOKS says off or this is a review."""
    return not is_review_process(environment) and (environment.get(HOOKS) or "on").strip().lower() not in OFF


def reviews_on(environment: Mapping[str, str]) -> bool:
    """Return whether sessions are reviewed at all: always, unless EVOLVABLE_REVIEW says off or this is a review."""
    return not is_review_process(environment) and (environment.get(REVIEW) or "handoff").strip().lower() not in OFF


BEARERS = ("token:", "oauth:")
"""What the sessions of bearers begin with: those with a token of the library, those of an authorization server."""

CLIENT = "client:"
"""What comes before a client's own name of its session when it begins like a bearer's."""


def bearer_session(bearer: str, session: str | None) -> str:
    """Return the session of a bearer's call: what the client names, behind the bearer, who begins as BEARERS do."""
    return f"{bearer}/{session}" if session else bearer


def client_session(session: str | None) -> str | None:
    """Return the session of a call for which no token was shown, as its client names it."""
    return f"{CLIENT}{session}" if session is not None and session.startswith(BEARERS) else session
