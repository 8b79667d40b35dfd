"""How sessions are called, so that what a client calls its own is never taken for somebody who showed a token."""

BEARERS = ("token:", "oauth:")
"""What the sessions of bearers begin with: those with a token of the library, those of an authorization server."""

CLIENT = "client:"
"""What comes before a client's own name of its session when it begins like a bearer's."""


def of_bearer(bearer: str, session: str | None) -> str:
    """Returns the session of a bearer's call: what the client names, behind the bearer, who begins as BEARERS do."""
    return f"{bearer}/{session}" if session else bearer


def of_client(session: str | None) -> str | None:
    """Returns the session of a call for which no token was shown, as its client names it."""
    return f"{CLIENT}{session}" if session is not None and session.startswith(BEARERS) else session
