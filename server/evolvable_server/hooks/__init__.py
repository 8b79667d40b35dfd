"""Hooks of clients: offer the skill that fits a prompt, note what was opened, queue a session for review."""

from typing import TYPE_CHECKING

from evolvable_store import late_names

if TYPE_CHECKING:
    from evolvable_server.hooks.dispatch import HookDispatcher, parse_event
else:
    __getattr__ = late_names(
        __name__,
        {
            "dispatch": "HookDispatcher parse_event",
        },
    )

__all__ = ["HookDispatcher", "parse_event"]
