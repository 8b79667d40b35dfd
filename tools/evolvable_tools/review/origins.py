"""Who can be believed: where a piece of a session comes from decides what may follow from it."""

from evolvable_tools.sessions.session import UNTRUSTED, Origin

TYPED = Origin.USER
"""Words that a person typed."""

ECHOED = frozenset({Origin.SKILL, Origin.MEMORY})
"""What the library itself put into the session: it proves nothing about anything."""

__all__ = ["ECHOED", "TYPED", "UNTRUSTED"]
