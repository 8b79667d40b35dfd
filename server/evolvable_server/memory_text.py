"""The memories of the user, written where clients read them."""

from pathlib import Path

from evolvable_server.clients.memory_copies import MemoryCopy, brought_up, switched_on
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE
from evolvable_tools.library import Caller, Library
from evolvable_tools.verbs.memory_facts import memories_for_clients


def text_of(library: Library) -> str:
    """Returns what clients read: the memories of the user, and how to treat them."""
    return memories_for_clients(library, Caller(Actor.AGENT, None, (USER_SCOPE,)))


def bring_up(home: Path, library: Library) -> list[MemoryCopy]:
    """Brings the copies in step; returns those that were changed or could not be. Off, it reads nothing."""
    return brought_up(home, text_of(library)) if switched_on(home) else []
