"""From what a client wrote down to one Session: read, redacted, and with the origin of every piece of text."""

from evolvable_tools.sessions.session import NoTranscript, Origin, Session, Span

__all__ = ["NoTranscript", "Origin", "Session", "Span"]
