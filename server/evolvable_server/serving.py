"""Serve a library: keep it in sync with its folders, notify the server, and serve one client on stdio.

Events of the file system only say where to look; a slow scan of everything runs beside them, because events get lost.
Changes are found by content, so nothing that this process writes comes back as an edit.

The allocator is tuned here too: freed memory goes back to the system, and the collector skips objects that stay.
"""

import contextlib
import gc
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import anyio

from evolvable_server.app import (
    ListedFolders,
    approvals_lock,
    client_connection,
    make_caller,
    shared_connection,
)
from evolvable_server.clients.registry import add_client_log
from evolvable_server.config import Config
from evolvable_server.mcp.elicitation import add_approvals
from evolvable_server.mcp.fast_start import FastStart
from evolvable_server.mcp.notifications import ClientLog, Notifier, add_logs, add_notifications
from evolvable_server.mcp.prompts_and_skills import SkillsExtension, add_prompts
from evolvable_server.mcp.resources import add_resources
from evolvable_server.mcp.server import CallSessions, LibraryServer, add_hook_event, add_lazy_tools
from evolvable_server.model_setup import Redaction, approval_policies, lazy_review_settings, open_search
from evolvable_server.person_config import registered_homes
from evolvable_store.errors import EvolvableError
from evolvable_store.operation import Change, Identity, Principal
from evolvable_store.resource import Kind
from evolvable_store.storage.bindings import WatchedFolder
from evolvable_store.store import Store
from evolvable_tools.approval_policy import ApprovalLevel
from evolvable_tools.library import Library
from evolvable_tools.verbs.host_catalog import changes_seen, moves_seen

if TYPE_CHECKING:
    from evolvable_store.workingcopy.incoming import SyncReport
    from evolvable_store.workingcopy.registry import WorkingCopies

# Start time: the first answer comes before the folders are followed.


_M_ARENA_MAX = -8
"""mallopt's name for the most arenas (malloc.h of glibc)."""

ARENAS = 2

GIVE_BACK_SECONDS = 30.0
"""How often what is free goes back to the system; that takes one to four milliseconds."""


def tune_malloc() -> None:
    """Make all threads share a few arenas of the C library's allocator.

    glibc gives nearly every new thread an arena of its own, and what is freed in one is of no use to the others. Call
    it before the first thread starts: arenas that are there stay in use, and every one grows for thousands of calls.
    """
    _call("mallopt", _M_ARENA_MAX, ARENAS)


def return_free_memory(stop: threading.Event, every: float = GIVE_BACK_SECONDS) -> None:
    """Give free memory back to the system again and again until `stop`: glibc by itself keeps what lies in between.

    First it keeps Python's collector from what is there now and after the first while: modules, for the most part. To
    look all of them through takes it a twentieth of a second, in the middle of some call.
    """
    gc.freeze()
    if not stop.wait(every):
        gc.freeze()
        _call("malloc_trim", 0)
    while not stop.wait(every) and _call("malloc_trim", 0):
        pass


def _call(name: str, *arguments: int) -> bool:
    """Call a function of glibc; return whether there is one."""
    if sys.platform != "linux":
        return False
    try:
        # What ctypes itself is made of: a client waits for this import, and that of ctypes takes four times as long.
        from _ctypes import call_function, dlopen, dlsym

        call_function(dlsym(dlopen("libc.so.6", 0), name), arguments)
    except (ImportError, AttributeError, OSError):
        return False
    return True


_watch_log = logging.getLogger(__name__)

POLL_SECONDS = 0.03
"""How often the library is asked whether another process changed it; one question costs microseconds."""

RESCAN_SECONDS = 30.0
"""How often every folder is looked at, events or not."""

SETTLE_SECONDS = 0.5
"""When every folder is looked at once more after its events have begun to come."""

GRACE_SECONDS = 0.4
"""How long a vanished folder may take to come back: editors and `git checkout` replace folders in two steps."""

AGAIN_SECONDS = (0.3, 0.9, 2.5)
"""When a place that had an event is looked at again."""

DEBOUNCE_MS, STEP_MS, TICK_MS = 100, 20, 200

AWAY_SECONDS = 1.0
"""How often it is looked whether folders that are all away have come back."""

BATCH, MAX_SAID = 5_000, 10_000

Listener = Callable[[Sequence[Change]], None]


class Watcher:
    """Two threads over one library: one follows the folders, one follows the library."""

    def __init__(self, library: Library, listener: Listener, *, rescan_seconds: float = RESCAN_SECONDS) -> None:
        """listener: called, on one of our threads, with every batch of changes that clients can see.

        Of skills that is what moves on the stable channel, of everything else what changes in the library.
        """
        self._library, self._listener, self._rescan = library, listener, rescan_seconds
        self._copies: WorkingCopies
        self._stop = threading.Event()
        self._folders_changed = threading.Event()
        self._busy = threading.Lock()
        self._sequence = library.store.sequence()
        self._move = library.store.backend.channel.last()
        self._watched: Sequence[WatchedFolder] = ()
        self._said: set[str] = set()
        self._later: list[tuple[float, WatchedFolder, set[str]]] = []
        self._threads = [
            threading.Thread(target=self._follow_library, name="evolvable-library", daemon=True),
            threading.Thread(target=self._follow_folders, name="evolvable-folders", daemon=True),
        ]

    def start(self) -> None:
        """Start following. The first look at the folders happens at once, in the background."""
        from evolvable_store.workingcopy.registry import WorkingCopies  # a server answers before it follows folders

        self._copies = WorkingCopies(self._library.store, grace=GRACE_SECONDS, gate=self._library.gate)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop following; return when both threads have ended, or after two seconds."""
        self._stop.set()
        self._folders_changed.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=2)

    # The library

    def _follow_library(self) -> None:
        self._guarded(self._library.index.catch_up)
        while not self._stop.is_set():
            self._guarded(self._poll)

    def _poll(self) -> None:
        seen = -1
        with self._library.store.backend.watching() as data_version:
            while not self._stop.wait(POLL_SECONDS):
                now = data_version()
                if now != seen:
                    self._tell()
                    seen = now

    def _tell(self) -> None:
        self._notice_folders()
        while changes := self._library.store.changes(self._sequence, BATCH):
            self._listener(changes_seen(self._library.store, changes))
            self._library.index.catch_up()
            with self._busy:
                for sync in self._copies.behind({change.ref for change in changes}):
                    self._log(sync)
            self._sequence = changes[-1].sequence
        while True:
            moved, last = moves_seen(self._library.store, self._move)
            if last == self._move:
                return
            self._listener(moved)
            self._move = last

    def _notice_folders(self) -> None:
        if [folder.id for folder in self._copies.folders()] != [folder.id for folder in self._watched]:
            self._folders_changed.set()

    # The folders

    def _follow_folders(self) -> None:
        while not self._stop.is_set():
            self._guarded(self._follow_once)

    def _follow_once(self) -> None:
        self._folders_changed.clear()
        self._watched = self._copies.folders()
        self._sync_all()
        if any(_identity(folder.path) for folder in self._watched):
            self._watch()
        else:
            self._folders_changed.wait(AWAY_SECONDS)

    def _guarded(self, work: Callable[[], object]) -> None:
        """Do the work; whatever goes wrong is said once, and following goes on."""
        try:
            work()
        except Exception as error:
            self._say(error.text if isinstance(error, EvolvableError) else f"{type(error).__name__}: {error}")
            self._stop.wait(1)

    def _watch(self) -> None:
        """Follow events until the folders change; look at everything every RESCAN_SECONDS."""
        from watchfiles import watch

        identities = {folder.path: _identity(folder.path) for folder in self._watched}
        # What was saved between the look at everything and the start of the events is seen by one more look.
        next_rescan = time.monotonic() + SETTLE_SECONDS
        events = watch(
            *(path for path, identity in identities.items() if identity),
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._folders_changed,
            rust_timeout=TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        for batch in events:
            for folder, places in self._by_folder(Path(path) for _, path in batch).items():
                self._look(folder, places, again=True)
            self._look_again()
            if any(_identity(path) != identity for path, identity in identities.items()):
                return  # a folder was replaced, or has come back: its events come from another place now
            if time.monotonic() >= next_rescan:
                self._notice_folders()
                self._sync_all()
                next_rescan = time.monotonic() + self._rescan

    def _by_folder(self, paths: Iterable[Path]) -> dict[WatchedFolder, set[str]]:
        found: dict[WatchedFolder, set[str]] = {}
        for path in paths:
            for folder in self._watched:
                if path != folder.path and path.is_relative_to(folder.path):
                    found.setdefault(folder, set()).add(path.relative_to(folder.path).as_posix())
        return found

    def _look(self, folder: WatchedFolder, places: set[str], *, again: bool) -> None:
        with self._busy:
            copy = self._copies.copy(folder)
            sync = copy.sync(copy.directories_at(places))
        self._log(sync)
        if again or sync.waiting:
            # Events of files in a directory that has only just been made get lost, and editors save in steps.
            now = time.monotonic()
            self._later += [(now + delay, folder, places) for delay in AGAIN_SECONDS]

    def _look_again(self) -> None:
        now = time.monotonic()
        due = [item for item in self._later if item[0] <= now]
        self._later = [item for item in self._later if item[0] > now]
        together: dict[WatchedFolder, set[str]] = {}
        for _, folder, places in due:
            together.setdefault(folder, set()).update(places)
        for folder, places in together.items():
            self._look(folder, places, again=False)

    def _sync_all(self) -> None:
        for folder in self._watched:
            with self._busy:
                sync = self._copies.copy(folder).sync()
            self._log(sync)
            if sync.waiting:
                self._later.append((time.monotonic() + GRACE_SECONDS, folder, set(sync.missing)))

    def _log(self, sync: "SyncReport") -> None:
        for refusal in (*sync.refused, *sync.conflicts):
            self._say(f"{sync.folder.path}/{refusal.directory}: {'; '.join(refusal.problems)}")
        if sync.taken:
            from evolvable_tools import secret_leaks  # late: its patterns take a while to compile

            for line in secret_leaks.leak_messages(secret_leaks.leaks(self._library)):
                self._say(f"{line}. A person decides on it: `evolvable doctor`.")

    def _say(self, text: str) -> None:
        # Every look finds it again; it is said once.
        if text not in self._said and len(self._said) < MAX_SAID:
            self._said.add(text)
            _watch_log.warning("%s", text)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells this folder from another at the same path, None when there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


log = logging.getLogger(__name__)

_FIRST = "a first task, that the model is loaded for"


class Serving:
    """A library with a server over it, both in sync with the folders and with other processes."""

    def __init__(self, config: Config, *, shared: bool = False) -> None:
        """Open the library, made when it is missing. Raise as Store.open, and InvalidArgument for a setting.

        shared: several clients are served, so this process's own session is none of theirs.
        """
        tune_malloc()
        self._open, self._closed = contextlib.ExitStack(), threading.Event()
        means = self._open.enter_context(open_search(config, serving=True))
        self.library = Library(
            Store.open(config.home, create=True, registered=registered_homes),
            means=means,
            redactor=Redaction(config.home).redactor,
            policies=approval_policies(config),
            lock=approvals_lock(config),
            level=ApprovalLevel(config.approve),
            trusted_folders=ListedFolders(config.home),
        )
        self._notifier = Notifier(self.library.store)
        self.client_log = ClientLog(self._notifier)
        self._home = config.home
        self._reloader = Watcher(self.library, self._changed)
        connection = shared_connection() if shared else client_connection()
        client = replace(make_caller(config, self.library, Identity(Principal.AGENT, "mcp")), connection=connection)
        extensions = [SkillsExtension(self.library, client)]
        self.server = LibraryServer(subscriptions=self._notifier.bus, lifespan=self._lifespan, extensions=extensions)
        sessions = CallSessions(None if shared else config.session, shared=shared)
        add_lazy_tools(self.server, self.library, client, sessions, lazy_review_settings(config, self._open))
        add_hook_event(self.server, config, self.library, client, sessions)
        add_resources(self.server, self.library, client)
        add_prompts(self.server, self.library, client)
        add_notifications(self.server, self._notifier)
        add_approvals(self.server, self.library)
        if "evolve" in config.toolsets:
            from evolvable_server.mcp.evolve_tools import add_evolving  # takes a while, and most never need it

            add_evolving(self.server, self.library, client, sessions, config)
        add_logs(self.server, self.client_log)
        add_client_log(self.server, config.home)

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
        """Have the memories say the same where clients read them, when that is switched on."""
        from evolvable_server.clients.memory_files import refresh_memory_files

        for copy in refresh_memory_files(self._home, self.library):
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
        """Start to follow folders and library and to warm the embedder, in the background.

        Nothing slow may come before the first answer.
        """
        threading.Thread(
            target=return_free_memory, args=(self._closed,), name="evolvable-give-back", daemon=True
        ).start()
        if not self.library.store.read_only:
            threading.Thread(target=self._reread, name="evolvable-reread", daemon=True).start()
            self._reloader.start()
            threading.Thread(target=self._bring_up, name="evolvable-memory", daemon=True).start()
            if self.library.means.neighbours is not None:
                self.library.means.neighbours.begin(_FIRST)

    def close(self) -> None:
        """Stop following and close the library."""
        self._closed.set()
        self._reloader.stop()
        self._open.close()
        self.library.close()


def serve_stdio(config: Config, early: FastStart | None = None) -> NoReturn:
    """Serve one client on stdin and stdout; end the process when the client is gone. early: who answers till then."""
    from evolvable_server.transport.stdio import run_stdio

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="evolvable: %(message)s")
    serving = Serving(config)
    # Not over HTTP: a warning may name folders that are no business of another client.
    logging.getLogger("evolvable_server").addHandler(serving.client_log)
    begun = early.end() if early else None
    run_stdio(serving.server, cleanup=[serving.close], ready=serving.start_following, begun=begun)
