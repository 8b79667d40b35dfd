"""Serve one client on stdio, or several over HTTP, from a library that is kept in sync with its
folders.
"""

import contextlib
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import anyio
from mcp.server.request_state import RequestStateSecurity

from evolvable_server import plugins
from evolvable_server.app import ListedFolders, approvals_lock, make_caller, marks_agents
from evolvable_server.auto_switch import read_switch
from evolvable_server.client_process import client_connection, shared_connection
from evolvable_server.clients import add_client_log
from evolvable_server.config import MEMORY_COPIES, SMALL, Config
from evolvable_server.hooks import named_session
from evolvable_server.index_worker import index_elsewhere
from evolvable_server.learning_consent import consent
from evolvable_server.mcp import (
    ClientLog,
    FastStart,
    LessonGate,
    Notifier,
    SkillsExtension,
    add_approvals,
    add_lazy_tools,
    add_logs,
    add_notifications,
    add_prompts,
    add_resources,
)
from evolvable_server.mcp.call import CallSessions, conversation_of
from evolvable_server.mcp.server import LibraryServer, add_hook_event
from evolvable_server.model_setup import (
    Redaction,
    approval_policies,
    lazy_review_settings,
    open_search,
)
from evolvable_server.person_config import registered_homes
from evolvable_server.process_memory import return_free_memory, tune_malloc
from evolvable_server.watcher import Watcher
from evolvable_store import Change, Identity, Principal, Store
from evolvable_store.errors import EvolvableError, may_pass
from evolvable_store.resource import Kind
from evolvable_tools import ApprovalLevel, Caller, Library
from evolvable_tools.retrieval import SearchDependencies
from evolvable_tools.verbs import DuplicateHints

# A client's first calls come at once, and must not wait for this work.
LEARN_SECONDS = 3.0
"""How long after the start ended sessions are read and reviewed."""

YOUNG_COMMITS = 100
"""Commits of a project that are searched for the first one while clients wait for answers."""

AGAIN_SECONDS = 5.0
"""How long the background waits after a failure, such as a busy library, before it tries again."""

log = logging.getLogger(__name__)

StateKey = Callable[[Path], bytes]
"""Returns the key of a home that seals the state which clients send back with an answer."""

_FIRST = "a first task, that the model is loaded for"
"""A task for the embedder, which loads its model before a client asks."""


def _ignore_notice(_: str) -> None:
    """Notify nobody."""


def _open_library(config: Config, dependencies: SearchDependencies) -> Library:
    """Open the library as a server needs it, made when it is missing."""
    return Library(
        Store.open(config.home, create=True, registered=registered_homes),
        dependencies=dependencies,
        redactor=Redaction(config.home).redactor,
        policies=approval_policies(config),
        lock=approvals_lock(config),
        level=ApprovalLevel(config.approve),
        marks_agents=marks_agents(config),
        trusted_folders=(listed_folders := ListedFolders(config.home)),
        followed_folders=listed_folders.list_followed,
        trials=plugins.trial_arms(),
        bulk=partial(index_elsewhere, config.home),
    )


class Serving:
    """A library with a server over it, both in sync with the folders and with other processes."""

    def __init__(
        self, config: Config, *, shared: bool = False, state_key: StateKey | None = None
    ) -> None:
        """Open the library, made when it is missing. Raise as Store.open, and InvalidArgument for a
        setting.

        shared: whether several clients are served, which do not have this process's session.
        state_key: by default the key is this process's own.
        """
        # Before the first thread starts, see `tune_malloc`.
        tune_malloc()
        # The models of searches and reviews, which `close` ends.
        self._open = contextlib.ExitStack()
        self._closed = threading.Event()
        self._memories_changed = threading.Event()
        dependencies = self._open.enter_context(open_search(config, serving=True))
        self.library = _open_library(config, dependencies)
        self._notifier = Notifier(self.library.store)
        self.client_log = ClientLog(self._notifier)
        self._home, self._config = config.home, config
        # Over HTTP the log of one client may not name what another one wrote: there the hint comes
        # with the next answer.
        self._hints = DuplicateHints(
            self.library, _ignore_notice if shared else partial(self.client_log.post, "warning")
        )
        self.library.compare_later = self._hints.add
        self._reloader = Watcher(self.library, self._note_changes)
        connection = shared_connection() if shared else client_connection()
        client = make_caller(config, self.library, Identity(Principal.AGENT, "mcp"))
        client = replace(client, connection=connection)
        if shared:
            client = replace(client, project=None)  # each client works in a folder of its own
        self._notifier.lists_tools = "tools" in config.toolsets
        security = None
        if state_key is not None:
            security = RequestStateSecurity(keys=[state_key(config.home)])
        self.server = LibraryServer(
            tools_change=self._notifier.lists_tools,
            subscriptions=self._notifier.bus,
            lifespan=self._run_tasks,
            extensions=[SkillsExtension(self.library, client)],
            request_state_security=security,
        )
        hook_session = partial(named_session, config.home, None if shared else connection)
        sessions = CallSessions(
            None if shared else config.session, shared=shared, hook_session=hook_session
        )
        self.server.take_hints = lambda request: self._hints.take(
            conversation_of(client, request, sessions)
        )
        self._add_features(config, client, sessions)

    def _add_features(self, config: Config, client: Caller, sessions: CallSessions) -> None:
        """Add the tools, resources, prompts, notifications and logs to the server."""
        settings = lazy_review_settings(config, self._open)
        delegates, small = "delegation" in config.toolsets, SMALL in config.toolsets
        self.server.prefix = config.tool_prefix
        add_lazy_tools(
            self.server, self.library, client, sessions, settings, delegates=delegates, small=small
        )
        add_hook_event(self.server, config, self.library, client, sessions)
        add_resources(self.server, self.library, client, sessions)
        add_prompts(self.server, self.library, client)
        add_notifications(self.server, self._notifier)
        add_approvals(
            self.server, self.library, client, sessions, confirms=config.person.confirm == "session"
        )
        # The first gate that asks about a call also makes it, so this one comes last.
        self.server.gates.append(LessonGate(self.library, client, sessions))
        self._add_groups(config, client, sessions)
        add_logs(self.server, self.client_log)
        add_client_log(self.server, config.home)

    def _add_groups(self, config: Config, caller: Caller, sessions: CallSessions) -> None:
        """Add the groups of tools that are asked for."""
        if "delegation" in config.toolsets:
            from evolvable_server.mcp import add_delegation  # takes a while, and most never need it

            add_delegation(self.server, self.library, caller, sessions)
        if config.toolsets:  # else a start reads no metadata of distributions
            plugins.all_hooks().add_tools(
                server=self.server,
                library=self.library,
                caller=caller,
                sessions=sessions,
                config=config,
            )

    @contextlib.asynccontextmanager
    async def _run_tasks(self, _: Any) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notifier.run)
            tasks.start_soon(self.client_log.run)
            if self.server.approved_tools is not None:
                tasks.start_soon(self.server.approved_tools.watch, self._notifier)
            yield
            tasks.cancel_scope.cancel()

    def _note_changes(self, changes: Sequence[Change]) -> None:
        self._notifier.post(changes)
        if any(change.ref.kind is Kind.MEMORY for change in changes):
            self._memories_changed.set()

    def _follow_memories(self) -> None:
        """Update the files in which clients read memories, at the start and after each change.

        A file that could not be read or written is tried again, and logged once.
        """
        reported: set[str] = set()
        while not self._closed.is_set():
            # Before the update: a change that comes during it sets the event again.
            self._memories_changed.clear()
            failures = self._refresh_memories()
            for text in failures - reported:
                log.warning(text)
            reported = failures
            self._memories_changed.wait(AGAIN_SECONDS if failures else None)

    def _refresh_memories(self) -> set[str]:
        """Bring the files of memories up to date where they are on; return the failures."""
        if not (self._home / MEMORY_COPIES).exists():
            return set()
        from evolvable_server.clients import refresh_memory_files

        try:
            copies = refresh_memory_files(self._home, self.library)
        except (EvolvableError, OSError) as error:
            return {f"The memories of the clients are not up to date: {error}"}
        broken = [copy for copy in copies if copy.state == "broken"]
        return {f"The memories of {copy.title} are not up to date: {copy.why}" for copy in broken}

    def _reread(self) -> None:
        """Mark what repositories brought, once; try again after an error that may pass."""
        last = ""
        while not self._closed.is_set():
            try:
                # In the `try`: the import fails where the program was replaced meanwhile.
                from evolvable_store.workingcopy import refresh_marks
                from evolvable_tools import mark_repository_heads

                for text in mark_repository_heads(self.library):
                    log.warning(text)
                refresh_marks(self.library.store, YOUNG_COMMITS)
                return
            except (EvolvableError, OSError) as error:
                if str(error) != last:
                    log.warning("The library was not re-read: %s", error)
                # An error that will not pass is not tried again.
                if not may_pass(error):
                    return
                last = str(error)
            self._closed.wait(AGAIN_SECONDS)

    def _keep_up(self) -> None:
        # Late: it imports the readers of runs, which no answer needs.
        from evolvable_server.upkeep import keep_up_quietly

        keep_up_quietly(self.library)

    def _learn(self) -> None:
        """Learn from the sessions that ended since the last start, where the person agreed."""
        if not consent(self._home) or self._closed.wait(LEARN_SECONDS):
            return
        from evolvable_server.session_learning import learn_ended_sessions  # few agreed

        learn_ended_sessions(self._config, self.library, self._closed.is_set)

    def _review(self) -> None:
        """Start the reviews that are due since the last start, where the person switched automatic
        reviews on.
        """
        if not read_switch(self._home).projects or self._closed.wait(LEARN_SECONDS):
            return
        from evolvable_server.auto_queue import start_if_due  # few switched them on

        try:
            if (process := start_if_due(self._config)) is not None:
                # Without the wait, its entry in the process table would stay as long as this one.
                process.wait()
        except OSError as error:
            log.warning("Sessions were not reviewed: %s", error)

    def start_following(self) -> None:
        """Start to follow folders and library and to warm the embedder, in the background.

        Call it after the first answer, which must not wait for any of this.
        """
        _start_thread("give-back", partial(return_free_memory, self._closed))
        # A library that cannot be written is served as it is.
        if self.library.store.read_only:
            return
        _start_thread("reread", self._reread)
        try:
            self._reloader.start()
        # The library is served without the watcher.
        except EvolvableError as error:
            log.warning("Folders are not followed: %s", error.text)
        _start_thread("memory", self._follow_memories)
        _start_thread("upkeep", self._keep_up)
        self._hints.start()
        _start_thread("learn", self._learn)
        _start_thread("review", self._review)
        if self.library.dependencies.neighbours is not None:
            self.library.dependencies.neighbours.begin(_FIRST)

    def close(self) -> None:
        """Stop following and close the library.

        The process may end during this call, so the rows of evidence in memory are written first.
        """
        self._closed.set()
        self._memories_changed.set()
        self.library.impressions.close()
        self._hints.close()
        self._reloader.stop()
        self._open.close()
        self.library.close()


def _start_thread(name: str, work: Callable[[], object]) -> None:
    threading.Thread(target=work, name=f"evolvable-{name}", daemon=True).start()


def serve_stdio(config: Config, early: FastStart | None = None) -> NoReturn:
    """Serve one client on stdin and stdout; end the process when the client is gone.

    early: the start that has answered until now, None where there was none.
    """
    from evolvable_server.transport import run_stdio

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="evolvable: %(message)s")
    serving = Serving(config)
    # Not over HTTP: a warning may name folders that another client must not see.
    logging.getLogger("evolvable_server").addHandler(serving.client_log)
    begun = early.end() if early else None
    run_stdio(serving.server, cleanup=[serving.close], ready=serving.start_following, begun=begun)
