"""Hooks of clients: offer the skill that fits a prompt, note what was opened, queue a session for
review.

Begin with `HookDispatcher`. `evolvable_server.hooks.command` is the program that a client runs: it
passes the event on to the server and imports nothing that a person would wait for.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_server.hooks.dispatch import HookDispatcher, parse_event
    from evolvable_server.hooks.named_sessions import named_session
else:
    __getattr__ = late_names(
        __name__, {"dispatch": "HookDispatcher parse_event", "named_sessions": "named_session"}
    )

__all__ = ["HookDispatcher", "named_session", "parse_event"]
