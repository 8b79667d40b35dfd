"""Evidence that counts: sessions that the server saw, each over a connection of its own."""

from talks import Talk

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import add_client_session
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.verbs import load

LOAD = "mcp__evolvable__load_skill"

WORDS = {"succeeded": "it works", "failed": "that is wrong"}
"""What a person types at the end, by the outcome that it tells."""


def client(session: str, connection: str = "") -> Caller:
    """An agent in a session of a client, over a connection of its own unless one is named."""
    return Caller(Actor.AGENT, session, connection=connection or f"client-{session}")


def without(library: Library, session: str, outcome: str) -> None:
    """Has the server see a session that uses no skill, and takes its transcript in."""
    seen(library, session)
    record_uses(library, Talk(session).typed("x").ran("ls", "a").typed(WORDS[outcome]).session)


def seen(library: Library, *sessions: str) -> None:
    """Has the server see these sessions, each over a connection of its own."""
    with library.store.backend.writing() as db:
        for session in sessions:
            add_client_session(db, session, f"client-{session}", library.store.now())


def verified(
    library: Library, name: str, session: str, outcome: str, connection: str = "", task: str = "x"
) -> None:
    """Has the server serve a skill in a session that then ends so, and takes the session's
    transcript in.
    """
    loaded = load.load_skill(library, client(session, connection), Ref.parse(name))
    said = f"...\nuse_id: {loaded.use_id} (report_outcome with it when the task is done)"
    talk = Talk(session).typed(task).called(LOAD, {"ref": name}, said)
    talk.called(LOAD, {"ref": name, "path": "notes.md"}, said)
    record_uses(library, talk.typed(WORDS[outcome]).session)
