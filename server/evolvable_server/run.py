"""A library being served, and the serving of one client on stdio; `http` serves several."""

import contextlib
import logging
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import anyio

from evolvable_server.app import caller, lock_of
from evolvable_server.config import Config
from evolvable_server.connection import client_connection, shared_connection
from evolvable_server.homes import registered_homes
from evolvable_server.mcp.approvals import add_approvals
from evolvable_server.mcp.callers import add_callers
from evolvable_server.mcp.decisions import Decisions
from evolvable_server.mcp.early import Early
from evolvable_server.mcp.hook_event import add_hook_event
from evolvable_server.mcp.late_tools import add_late_tools
from evolvable_server.mcp.logs import ClientLog, add_logs
from evolvable_server.mcp.notifications import Notifier, add_notifications
from evolvable_server.mcp.prompts import add_prompts
from evolvable_server.mcp.resources import add_resources
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.sessions import Sessions
from evolvable_server.mcp.skills_extension import SkillsExtension
from evolvable_server.means import opened
from evolvable_server.memory import give_back, share_arenas
from evolvable_server.redaction import Redaction
from evolvable_server.reload import Reloader
from evolvable_server.reviews import lazy_settings, policies
from evolvable_server.trusted_folders import ListedFolders
from evolvable_store.errors import EvolvableError
from evolvable_store.operation import Change, Identity, Principal
from evolvable_store.resource import Kind
from evolvable_store.store import Store
from evolvable_tools.approval_policy import ApprovalLevel
from evolvable_tools.library import Library

log = logging.getLogger(__name__)

_FIRST = "a first task, that the model is loaded for"


class Serving:
    """A library with a server over it, and what keeps both in step with the rest of the world."""

    def __init__(self, config: Config, *, shared: bool = False) -> None:
        """Opens the library, made when it is missing. Raises as Store.open, and InvalidArgument for a setting.

        shared: several clients are served, so this process's own session is none of theirs.
        """
        share_arenas()
        self._open, self._closed = contextlib.ExitStack(), threading.Event()
        means = self._open.enter_context(opened(config, serving=True))
        self.library = Library(
            Store.open(config.home, create=True, registered=registered_homes),
            means,
            redactor=Redaction(config.home).redactor,
            policies=policies(config),
            lock=lock_of(config),
            level=ApprovalLevel(config.approve),
            trusted_folders=ListedFolders(config.home),
        )
        self._notifier = Notifier(self.library.store)
        self.client_log = ClientLog(self._notifier)
        self._home = config.home
        self._reloader = Reloader(self.library, self._changed)
        connection = shared_connection() if shared else client_connection()
        client = replace(caller(config, self.library, Identity(Principal.AGENT, "mcp")), connection=connection)
        extensions = [SkillsExtension(self.library, client)]
        self.server = LibraryServer(subscriptions=self._notifier.bus, lifespan=self._lifespan, extensions=extensions)
        sessions = Sessions(None if shared else config.session, shared=shared)
        add_late_tools(self.server, self.library, client, sessions, lazy_settings(config, self._open))
        self.server.decisions = Decisions(self.library)
        add_hook_event(self.server, config, self.library, client, sessions)
        add_resources(self.server, self.library, client)
        add_prompts(self.server, self.library, client)
        add_notifications(self.server, self._notifier)
        add_approvals(self.server, self.library)
        if "evolve" in config.toolsets:
            from evolvable_server.mcp.evolving import add_evolving  # takes a while, and most never need it

            add_evolving(self.server, self.library, client, sessions, config)
        add_logs(self.server, self.client_log)
        add_callers(self.server, config.home)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notifier.run)
            tasks.start_soon(self.client_log.run)
            yield
            tasks.cancel_scope.cancel()

    def _changed(self, changes: Sequence[Change]) -> None:
        self._notifier.post(changes)
        if any(change.ref.kind is Kind.MEMORY for change in changes):
            self._bring_up()

    def _bring_up(self) -> None:
        """Has the memories say the same where clients read them, when that is switched on."""
        from evolvable_server.memory_text import bring_up

        for copy in bring_up(self._home, self.library):
            if copy.state == "broken":
                log.warning("The memories of %s are not up to date: %s", copy.title, copy.why)

    def _reread(self) -> None:
        from evolvable_tools.trust import mark_repository_heads

        try:
            for text in mark_repository_heads(self.library):
                log.warning(text)
        except EvolvableError as error:
            log.warning("The library was not re-read: %s", error.text)

    def start_following(self) -> None:
        """Starts to follow folders and library and to warm the embedder, in the background.

        Nothing slow may come before the first answer.
        """
        threading.Thread(target=give_back, args=(self._closed,), name="evolvable-give-back", daemon=True).start()
        if not self.library.store.read_only:
            threading.Thread(target=self._reread, name="evolvable-reread", daemon=True).start()
            self._reloader.start()
            threading.Thread(target=self._bring_up, name="evolvable-memory", daemon=True).start()
            if self.library.means.neighbours is not None:
                self.library.means.neighbours.begin(_FIRST)

    def close(self) -> None:
        """Stops following and closes the library."""
        self._closed.set()
        self._reloader.stop()
        self._open.close()
        self.library.close()


def serve_stdio(config: Config, early: Early | None = None) -> NoReturn:
    """Serves one client on stdin and stdout; ends the process when the client is gone. early: who answers till then."""
    from evolvable_server.mcp.stdio import run_stdio

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="evolvable: %(message)s")
    serving = Serving(config)
    # Not over HTTP: a warning may name folders that are no business of another client.
    logging.getLogger("evolvable_server").addHandler(serving.client_log)
    begun = early.end() if early else None
    run_stdio(serving.server, cleanup=[serving.close], ready=serving.start_following, begun=begun)
