"""What a hook has to know before it does anything: where the library is, and whether hooks are on.

A part of `config`, kept apart because a client waits for a hook: this module imports `os` alone.

How sessions are called, so that what a client calls its own is never taken for somebody who showed a token.
"""

import os
from collections.abc import Mapping

HOME = "EVOLVABLE_HOME"
HOOKS = "EVOLVABLE_HOOKS"
REVIEW = "EVOLVABLE_REVIEW"
REVIEWING = "EVOLVABLE_REVIEWING"
"""Set in what we start to think: whoever finds it set queues no session, reviews none and starts nobody to think."""

OFF = ("off", "no", "0", "none", "false")
"""What a person may write to switch something off."""


def library_home(environment: Mapping[str, str]) -> str:
    """Return the library's folder: EVOLVABLE_HOME, by default ~/.evolvable."""
    return os.path.abspath(os.path.expanduser(environment.get(HOME) or "~/.evolvable"))


def is_review_process(environment: Mapping[str, str]) -> bool:
    """Return whether this process belongs to a command that we started to think."""
    return bool(environment.get(REVIEWING))


def hooks_on(environment: Mapping[str, str]) -> bool:
    """Return whether hooks do anything: always, unless EVOLVABLE_HOOKS says off or the client thinks for us."""
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
