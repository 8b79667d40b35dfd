"""Follow a library and its folders: a change by one process reaches every other process and every
folder.

One process owns the folders of a library (see `evolvable_store.workingcopy.folder_lock`): it
watches, scans and writes them. A thread of its own gives its sign of life
(`evolvable_server.heartbeat`). The others follow the library alone, and wait for the owner's end.
Events of the file system only say where to look. A slow scan of all folders runs beside them,
because events get lost. Where the system gives no events, only the scan finds changes. The owner
then writes the reason beside its sign of life, for `status` and `doctor`, and asks again at every
scan. Changes are found by content, so a write of our own processes never comes back as an edit.
"""

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import evolvable_tools
from evolvable_server.file_events import EventSource, FileEvents, library_events, tree_events
from evolvable_server.heartbeat import Heartbeat
from evolvable_server.index_worker import BurstIndexer
from evolvable_server.watch_failures import (
    RESCAN_SECONDS,
    WatchFailure,
    explain_failure,
    format_failures,
)
from evolvable_store import Change, workingcopy
from evolvable_store.errors import EvolvableError, LibraryBusy
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy import FolderOwner
from evolvable_tools import Library
from evolvable_tools.verbs import changes_seen, moves_seen

if TYPE_CHECKING:
    from evolvable_store.workingcopy import SyncReport, WorkingCopies

log = logging.getLogger(__name__)

POLL_SECONDS = 0.03
"""How often the library is asked for changes of other processes, where the system gives no events.
"""

QUIET_SECONDS = 2.0
"""How often it is asked where the system gives events."""

# The event of a commit comes before its end: SQLite writes its log, waits for the disk, and then
# publishes. The call that made the change goes on meanwhile, with other commits, and should have
# the processor.
FIRST_SECONDS = 0.015
"""How soon after an event the owner asks; each further wait is three times as long, up to
QUIET_SECONDS.
"""

FOLLOWER_SECONDS = 0.035
"""How soon after an event the other servers ask: they have only clients to notify."""

# A search brings the index up to date itself, so the owner waits until the processor is free. Of
# many changes in a row to one resource, only the last is indexed then.
INDEX_SECONDS = 0.1
"""Time without a change after which the owner brings the text index up to date."""

INDEX_LATEST = 1.0
"""Seconds that a change waits for that at most."""

RESCAN_SHARE, ALONE_SHARE = 250, 20
"""The least pause after a scan of all folders, as a multiple of its duration: with events, and
without.
"""

GRACE_SECONDS = 0.4
"""How long a vanished folder may take to come back: editors and `git checkout` replace folders in
two steps.
"""

AGAIN_SECONDS = (0.3, 2.5)
"""When a directory is scanned again whose files are so new that their times do not tell a later
save.
"""

GIT_SECONDS = 1.0
"""When a directory is scanned again that waits for git, or that git may have brought."""

# The import is still indexed then, which needs every core.
ADDED_SECONDS = 2.0
"""How long after the last import from a folder that another process added the owner scans it."""

BEHIND_SECONDS = 0.3
"""How long the process of a change has to write it into the folders, before the owner does."""

# The folder above a watched one gives no events.
TICK_SECONDS = 0.5
"""How often the owner checks whether a folder was replaced, or is back."""

END_SECONDS = 2.0
"""How long `stop` waits for the threads to end."""

BATCH = 5_000
"""Changes of the library that are read at once."""

MAX_REPORTED, MAX_TEXTS = 10_000, 10
"""Subjects with logged reports that are remembered, and reports on one subject."""

Listener = Callable[[Sequence[Change]], None]


class Watcher:
    """Three threads over one library: one follows it, one its folders, one gives the sign of life.

    The second works only while this process owns the folders.
    """

    def __init__(
        self, library: Library, listener: Listener, *, rescan_seconds: float = RESCAN_SECONDS
    ) -> None:
        """Watch one library.

        listener: called, on one of our threads, with every batch of changes that clients can see.
        Those are the moves of skills on the stable channel, and all changes of other kinds.
        """
        self._library, self._listener, self._rescan = library, listener, rescan_seconds
        self._copies: WorkingCopies
        self._owner = FolderOwner(library.store.home)
        self._heart = Heartbeat(
            self._owner, self._claim, self._note_claim, partial(self._note_error, self._claim)
        )
        self._stop, self._owning = threading.Event(), threading.Event()
        self._library_events: EventSource | None = None
        self._folder_events: EventSource | None = None
        self._failures: dict[str, WatchFailure] = {}
        self._folders_changed = self._added = False
        self._sequence = library.store.sequence()
        self._move = library.store.backend.channel.last()
        self._watched: Sequence[WatchedFolder] = ()
        self._reported: dict[Hashable, set[str]] = {}
        self._later: list[tuple[float, WatchedFolder, set[str]]] = []
        # When the owner writes changes of others into the folders, and the last change that is
        # there already.
        self._behind: tuple[float, int] | None = None
        # When the first change came that is not indexed.
        self._unindexed: float | None = time.monotonic()
        # When the last change came.
        self._changed = 0.0
        self._indexer = BurstIndexer(library.store.home)
        self._threads = [
            self._heart.thread,
            threading.Thread(target=self._follow_library, name="evolvable-library", daemon=True),
            threading.Thread(target=self._follow_folders, name="evolvable-folders", daemon=True),
        ]

    def start(self) -> None:
        """Start following.

        If this process owns the folders it scans them at once, in the background.
        """
        self._copies = workingcopy.WorkingCopies(
            self._library.store,
            grace=GRACE_SECONDS,
            gate=self._library.gate,
            allowed=lambda: self._owner.owns,
            powers=self._library.powers,
            forks=self._library.started_agent,
        )
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop following and give the folders to another process.

        Return when all threads have ended, or after END_SECONDS.
        """
        self._stop.set()
        # Wakes the thread that waits to own the folders.
        self._owning.set()
        self._heart.stop()
        for events in (self._library_events, self._folder_events):
            if events is not None:
                events.wake()
        latest = time.monotonic() + END_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, latest - time.monotonic()))

    # The library

    def _follow_library(self) -> None:
        self._step_library()
        self._run_guarded(self._index)
        while not self._stop.is_set():
            self._run_guarded(self._poll)

    def _poll(self) -> None:
        published, pause = -1, FIRST_SECONDS
        next_retry = time.monotonic() + self._rescan
        attempt = partial(library_events, self._library.store.home, self._owner.place)
        with (
            self._library.store.backend.watching() as data_version,
            self._open_source("library", attempt) as events,
        ):
            self._library_events = events
            while not self._stop.is_set():
                self._step_library()
                if time.monotonic() >= next_retry:
                    events.retry()
                    next_retry = time.monotonic() + self._rescan
                version = data_version()
                if version != published:
                    self._publish_changes()
                    published, pause = version, FIRST_SECONDS
                self._write_behind()
                pause = min(pause * 3, QUIET_SECONDS)
                self._index_when_quiet(pause)
                longest = (
                    min(pause, self._get_behind_wait()) if events.gives_events else POLL_SECONDS
                )
                if paths := events.wait(longest):
                    pause = FIRST_SECONDS
                    self._stop.wait(pause if self._owner.owns else FOLLOWER_SECONDS)
                    # A lock file was closed: the owner may have ended.
                    if any(path.endswith(".lock") for path in paths):
                        self._heart.wake()
                self._note_error(self._poll, None)

    def _step_library(self, *_: object) -> None:
        self._heart.step("library")

    def _step_folders(self, *_: object) -> None:
        self._heart.step("folders")

    def _claim(self) -> bool:
        # A newer program has migrated the library: one of its servers takes over.
        if self._library.store.read_only:
            self._owner.release()
            return False
        # A copy, because another thread changes it. Sorted: that of the folders comes first.
        failures = dict(self._failures)
        return self._owner.claim(format_failures(failures[what] for what in sorted(failures)))

    def _note_claim(self, owns: bool) -> None:
        if owns:
            self._owning.set()
        elif self._owning.is_set() and not self._stop.is_set():
            self._owning.clear()
            self._wake_folders()

    def _publish_changes(self) -> None:
        self._notice_folders()
        while changes := self._library.store.changes(self._sequence, BATCH):
            self._listener(changes_seen(self._library.store, changes))
            self._changed = time.monotonic()
            self._unindexed = self._unindexed or time.monotonic()
            if self._owner.owns:
                self._behind = self._behind or (time.monotonic() + BEHIND_SECONDS, self._sequence)
            # After the listener: where it raises, the same changes are read again.
            self._sequence = changes[-1].sequence
        while True:
            moved, last = moves_seen(self._library.store, self._move)
            if last == self._move:
                return
            self._listener(moved)
            self._move = last

    def _index_when_quiet(self, pause: float) -> None:
        """Index the changes: as the owner soon after the last one, else when all is quiet.

        By then the owner has usually done it. pause: about how long there was no event.
        """
        waited = time.monotonic() - self._unindexed if self._unindexed else 0.0
        soon = self._owner.owns and (pause >= INDEX_SECONDS or waited >= INDEX_LATEST)
        if soon or pause == QUIET_SECONDS:
            self._index()

    def _index(self) -> None:
        # Another process may index many changes now; this one looks again later.
        with contextlib.suppress(LibraryBusy):
            if self._unindexed:
                self._library.index.catch_up(self._step_library, wait=False)
                self._unindexed = None

    def _get_behind_wait(self) -> float:
        return max(0.0, self._behind[0] - time.monotonic()) if self._behind else QUIET_SECONDS

    def _write_behind(self) -> None:
        """Write the changes into the folders that the processes of others have not written."""
        if self._behind and self._get_behind_wait() == 0:
            heads = self._library.store.backend.changed_heads(self._behind[1], self._sequence)
            # Another process may have become the owner, which writes them then.
            syncs = self._copies.sync_behind(heads) if self._owner.owns else []
            # Only now: after an error the same changes are written again.
            self._behind = None
            for sync in syncs:
                self._log_issues(sync)
                self._look_after_trouble(sync)

    def _notice_folders(self) -> None:
        if self._owner.owns and self._copies.folders() != list(self._watched):
            self._folders_changed = True
            self._wake_folders()

    def _wake_folders(self) -> None:
        if (events := self._folder_events) is not None:
            events.wake()

    # The folders

    def _follow_folders(self) -> None:
        while not self._stop.is_set():
            self._heart.rest("folders")
            self._owning.wait()
            self._step_folders()
            self._run_guarded(self._follow_once)
        self._indexer.stop()

    def _follow_once(self) -> None:
        self._indexer.end()
        if self._stop.is_set() or not self._owner.owns:
            self._stop.wait(TICK_SECONDS)  # it has just been taken over, or the process ends
            return
        added, self._added, self._folders_changed = self._added, False, False
        before = {folder.id for folder in self._watched}
        # A plugin may have been installed or updated since the last scan.
        self._copies.follow_plugins()
        self._watched = self._copies.folders()
        identities = {folder.path: _read_identity(folder.path) for folder in self._watched}
        attempt = partial(tree_events, [path for path, identity in identities.items() if identity])
        with self._open_source("folders", attempt) as events:
            self._folder_events = events
            folders = self._watched
            if added:
                # A new folder is left for a while to the process that imports it.
                folders = [watched for watched in self._watched if watched.id in before]
            next_rescan = self._sync_all(folders)
            self._note_error(self._follow_once, None)
            latest_rescan = time.monotonic() + self._rescan
            if added:
                next_rescan = time.monotonic() + ADDED_SECONDS
            while self._owner.owns and not self._folders_changed and not self._stop.is_set():
                self._step_folders()
                paths = events.wait(self._get_look_wait(next_rescan))
                # No event: a burst of saved files is over.
                if not paths:
                    self._indexer.end()
                for folder, places in self._group_by_folder(map(Path, paths)).items():
                    self._look(folder, places, again=True)
                self._look_again()
                # A folder was replaced, or has come back: the events are those of the old one.
                if any(_read_identity(path) != identity for path, identity in identities.items()):
                    return
                # Events were dropped: the next round scans everything.
                if events.lost_events():
                    return
                # An import that goes on delays the scan, until `latest_rescan`.
                if added and next_rescan < self._changed + ADDED_SECONDS < latest_rescan:
                    next_rescan = self._changed + ADDED_SECONDS
                if time.monotonic() >= next_rescan:
                    added = False
                    self._copies.follow_plugins()
                    self._notice_folders()
                    events.retry()
                    next_rescan = self._sync_all(self._watched)
            # Only after a change of the folders: the first scan of a new owner cannot wait.
            self._added = self._folders_changed and self._owner.owns

    @contextlib.contextmanager
    def _open_source(
        self, what: str, attempt: Callable[[], FileEvents | None]
    ) -> Iterator[EventSource]:
        events = EventSource(attempt, partial(self._note_failure, what), self._stop)
        try:
            yield events
        finally:
            events.close()

    def _note_failure(self, what: str, error: OSError | None) -> None:
        """Note why the folders, or the library, give no events; error: None where they do."""
        before = self._failures.pop(what, None)
        if error is not None:
            self._failures[what] = explain_failure(what, error, self._rescan)
            self._report_once(what, self._failures[what].text)
        elif before is not None:
            self._reported.pop(what, None)
            log.warning("Events come again: %s", before.what)

    def _get_look_wait(self, next_rescan: float) -> float:
        due = min((due for due, _, _ in self._later), default=next_rescan)
        seconds = min(due, next_rescan) - time.monotonic()
        return min(TICK_SECONDS, max(0.0, seconds))

    def _run_guarded(self, work: Callable[[], object]) -> None:
        """Do the work and go on after any error, which is logged once until the work succeeds."""
        try:
            work()
        except Exception as error:
            self._note_error(work, error)
            # An error that stays must not keep the processor busy.
            self._stop.wait(1)

    def _note_error(self, work: Callable[[], object], error: Exception | None) -> None:
        if error is None:
            self._reported.pop(work, None)
        else:
            self._report_once(work, _describe(error))

    def _group_by_folder(self, paths: Iterable[Path]) -> dict[WatchedFolder, set[str]]:
        places: dict[WatchedFolder, set[str]] = {}
        for path in paths:
            for folder in self._watched:
                if path != folder.path and path.is_relative_to(folder.path):
                    place = path.relative_to(folder.path).as_posix()
                    places.setdefault(folder, set()).add(place)
        return places

    def _look(self, folder: WatchedFolder, places: set[str], *, again: bool) -> None:
        copy = self._copies.copy(folder)
        # With the directories that git may have brought, which are looked at again.
        directories = (
            copy.status.filter_changed(copy.directories_at(places))
            | places & copy.recent_imports.directories
        )
        if not directories:
            return
        if again:  # else they were read before, and what changed since is little
            self._indexer.begin(len(directories))
        sync = copy.sync(directories, self._step_folders)
        self._log_issues(sync, directories)
        self._look_after_git(sync)
        self._look_after_trouble(sync)
        if again and sync.unsettled or sync.waiting:
            now, unsure = time.monotonic(), sync.unsettled | set(sync.missing)
            self._later += [(now + delay, folder, unsure) for delay in AGAIN_SECONDS]

    def _look_after_git(self, sync: "SyncReport") -> None:
        waiting = {
            *sync.waiting_for_git,
            *self._copies.copy(sync.folder).recent_imports.directories,
        }
        if waiting:
            self._later.append((time.monotonic() + GIT_SECONDS, sync.folder, waiting))

    def _look_after_trouble(self, sync: "SyncReport") -> None:
        """Scan the directories again that a busy library, a full disk and the like stopped."""
        if sync.again:
            self._later.append((time.monotonic() + AGAIN_SECONDS[-1], sync.folder, set(sync.again)))

    def _look_again(self) -> None:
        # Where this raises, `_follow_once` begins again with a scan of all folders.
        now = time.monotonic()
        due = [item for item in self._later if item[0] <= now]
        self._later = [item for item in self._later if item[0] > now]
        places_by_folder: dict[WatchedFolder, set[str]] = {}
        for _, folder, places in due:
            places_by_folder.setdefault(folder, set()).update(places)
        for folder, places in places_by_folder.items():
            self._look(folder, places, again=False)

    def _sync_all(self, folders: Iterable[WatchedFolder]) -> float:
        """Scan these folders; return when to scan again (monotonic seconds)."""
        begun = time.monotonic()
        for folder in folders:
            self._copies.settle(folder)
            self._step_folders()
            sync = self._copies.copy(folder).sync(progress=self._step_folders)
            self._log_issues(sync, None)
            self._look_after_git(sync)
            self._look_after_trouble(sync)
            if sync.waiting:
                self._later.append((time.monotonic() + GRACE_SECONDS, folder, set(sync.missing)))
            if sync.unsettled:
                self._later.append((time.monotonic() + AGAIN_SECONDS[-1], folder, sync.unsettled))
        now = time.monotonic()
        share = ALONE_SHARE if "folders" in self._failures else RESCAN_SHARE
        return now + max(self._rescan, share * (now - begun))

    def _log_issues(self, sync: "SyncReport", looked: Iterable[str] | None = ()) -> None:
        """Log the problems of a sync.

        looked: the directories that it scanned, None for all.
        """
        issues = [*sync.refused, *sync.conflicts]
        self._forget_fine(sync, looked, {issue.directory for issue in issues})
        for issue in issues:
            text = f"{sync.folder.path}/{issue.directory}: {'; '.join(issue.problems)}"
            self._report_once((sync.folder, issue.directory), text)
        if sync.taken:
            for line in evolvable_tools.leak_messages(evolvable_tools.leaks(self._library)):
                self._report_once(line, f"{line}. A person decides on it: `evolvable doctor`.")

    def _forget_fine(
        self, sync: "SyncReport", looked: Iterable[str] | None, wrong: set[str]
    ) -> None:
        """Forget the reports on directories without a problem now: one that comes back is logged
        again.
        """
        if not self._reported or sync.stale:
            return
        # A copy, because the other thread writes it too.
        subjects = [what for what in list(self._reported) if isinstance(what, tuple)]
        reported = [directory for folder, directory in subjects if folder == sync.folder]
        refused = self._copies.copy(sync.folder).status.refused
        unsure = {*wrong, *refused, *sync.waiting_for_git, *sync.missing}
        for directory in set(reported if looked is None else looked) - unsure:
            self._reported.pop((sync.folder, directory), None)

    def _report_once(self, what: Hashable, text: str) -> None:
        """Log a problem of a subject, once until the subject has none any more.

        Every scan finds it again.
        """
        if len(self._reported) < MAX_REPORTED:
            texts = self._reported.setdefault(what, set())
        else:
            # Beyond the limit nothing new is remembered or logged: a broken folder must not fill
            # the memory.
            texts = self._reported.get(what, {text})
        if text not in texts and len(texts) < MAX_TEXTS:
            texts.add(text)
            log.warning("%s", text)


def _read_identity(path: Path) -> tuple[int, int] | None:
    """Return numbers that differ for another folder at the same path, None without a folder."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISDIR(status.st_mode) else None


def _describe(error: Exception) -> str:
    if isinstance(error, EvolvableError):
        return error.text
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be opened: {error.strerror}"
    return f"{type(error).__name__}: {error}"
