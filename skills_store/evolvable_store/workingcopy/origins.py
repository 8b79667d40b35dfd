"""Tell who brought the bytes that lie in a watched folder: git, or somebody who saved them.

Git stores objects before it writes files. So bytes that the object store of the work tree holds
when they are first seen came from git, unless this library had them from a person before, or HEAD's
log says that the person committed them here. A save is in no object store. While git is at work, a
change that nobody answers for waits.

What a log said before the watched folder was imported is the word of those who brought the
repository: an archive may bring one. So the position of HEAD's log at that time is kept in the
library's home, on this machine alone.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from evolvable_store.objects import Files, Manifest, TreeEntry, make_manifest
from evolvable_store.operation import FollowedPull, Identity, Principal, followed_pull
from evolvable_store.paths import GIT_POSITIONS
from evolvable_store.regular_files import write_private
from evolvable_store.storage import WatchedFolder
from evolvable_store.workingcopy.git_repository import (
    DAMAGE,
    LOCK_SECONDS,
    MOVED_SECONDS,
    LogPosition,
    Repository,
    repositories_around,
)
from evolvable_store.workingcopy.incoming import REPOSITORY

# Room for some ten thousand repositories.
_MAX_BYTES = 2**22
"""Bytes of the file with the positions that are read."""


class GitPositions:
    """The positions of the logs of the repositories around one watched folder."""

    def __init__(self, home: Path, folder: WatchedFolder) -> None:
        self._file, self._folder = home / GIT_POSITIONS, str(folder.path)
        self._positions: dict[str, LogPosition] | None = None

    @property
    def is_new(self) -> bool:
        """Whether the folder is just imported: nothing is known of its repositories."""
        return self._load() is None

    def of(self, repository: Repository) -> LogPosition | None:
        """Return the position from which the log of a repository counts, None for nowhere.

        The log of a repository that was made since the import counts from its beginning.
        """
        positions = self._load()
        # A repository that is not noted was made after the folder was imported.
        return None if positions is None else positions.get(repository.git, LogPosition())

    def forget(self) -> None:
        """Forget the positions of the folder: it is imported again."""
        every = _read(self._file)
        if every.pop(self._folder, None) is not None:
            write_private(self._file, json.dumps(every), durable=False)
        self._positions = None

    def remember_new(self, repositories: list[Repository]) -> None:
        """Note where the logs end of those repositories that nothing is noted of."""
        positions = self._load() or {}
        unknown = [repository for repository in repositories if repository.git not in positions]
        if unknown:
            self.remember(unknown)

    def remember(self, repositories: list[Repository]) -> None:
        """Note where the logs of these repositories end now."""
        with contextlib.suppress(*DAMAGE):
            # Kept in the home: a file in the repository could be brought along with it.
            ends = {repository.git: repository.log_end() for repository in repositories}
            positions = {**(self._load() or {}), **ends}
            every = _read(self._file)
            every[self._folder] = {git: [end.offset, end.digest] for git, end in positions.items()}
            write_private(self._file, json.dumps(every), durable=False)
            self._positions = positions

    def _load(self) -> dict[str, LogPosition] | None:
        if self._positions is None:
            rows = _read(self._file).get(self._folder)
            if isinstance(rows, dict):
                self._positions = {git: _parse_position(row) for git, row in rows.items()}
        return self._positions


def _parse_position(row: object) -> LogPosition:
    if isinstance(row, list) and len(row) == 2:
        offset, digest = row
        if isinstance(offset, int) and isinstance(digest, str):
            return LogPosition(max(0, offset), digest)
    # No log has this digest, so nothing of the log counts.
    return LogPosition(0, "unreadable")


def _read(file: Path) -> dict[str, object]:
    try:
        with open(file, "rb") as stream:
            content = json.loads(stream.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


# Each line can cost two walks down a tree; a person seldom moves HEAD so often between two saves.
MAX_LINES = 200
"""Lines of a log that are read, the newest."""

# Only these make a commit of the work tree; a merge or a rebase brings what others wrote.
_OWN_ACTIONS = ("commit", "commit (amend)", "commit (initial)")
"""The names in HEAD's log of commits that a person made here of the work tree."""

_AGENT = Identity(Principal.AGENT, "file")

_PULLS = ("pull", "merge", "rebase")
"""Beginnings of the names in HEAD's log of actions that bring the work of others."""

_OTHER_SYSTEMS = (".jj", ".hg", ".svn")
"""The folders of version control systems whose objects are not read here."""

Makers = Callable[[bytes], set[Principal]]
"""Returns the principals of the library's versions that have a file of these bytes."""


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """The identity that answers for a content.

    waits: why the answer has to wait, '' where it is final.
    """

    identity: Identity
    waits: str = ""


class _Bringer(Enum):
    """Who brought the bytes of one file."""

    GIT = "git wrote it"
    PERSON = "the person committed it, or it was the person's before"
    AGENT = "it was the agent's before"
    STAGED = "it is in the index, and in no commit"
    NOBODY = "git does not have it"


class OriginResolver:
    """Tells who answers for files of one watched folder."""

    def __init__(self, folder: WatchedFolder, home: Path, makers: Makers) -> None:
        """home: the library's folder."""
        self._folder, self._makers = folder, makers
        self._positions = GitPositions(home, folder)
        self._repositories: dict[tuple[str, str, str], Repository] = {}
        self._first_waited: dict[str, float] = {}

    def repositories(self, place: Path | None = None) -> list[Repository]:
        """Return the repositories around the folder, or a place in it, as they are now, the nearest
        first.
        """
        around = repositories_around(self._folder.path, place)
        return [self._repositories.setdefault(repository.key, repository) for repository in around]

    def take_in(self) -> None:
        """Note where the logs of the repositories end, for a folder that is imported first."""
        if self._positions.is_new:
            self._positions.remember(self.repositories())

    def activity(self, directory: str = "") -> str:
        """Return the activity of git around a directory, '' for none."""
        around = self.repositories(self._folder.path / directory)
        return next(filter(None, map(_describe_activity, around)), "")

    def moved_since(self, directory: str, at: float) -> bool:
        """Return whether git moved the index or HEAD around a directory right after a time.

        at: seconds since 1970.
        """
        around = self.repositories(self._folder.path / directory)
        return any(at <= repository.moved_at() <= at + MOVED_SECONDS for repository in around)

    def is_other_system(self, directory: str) -> bool:
        """Return whether a directory lies in a checkout of another system than git.

        The objects of such a system are not read here.
        """
        place = self._folder.path / directory
        markers = (folder / name for folder in (place, *place.parents) for name in _OTHER_SYSTEMS)
        return any(map(os.path.lexists, markers)) and not self.repositories(place)

    @property
    def is_new(self) -> bool:
        """Whether the folder was never seen before."""
        return self._positions.is_new

    def origin(
        self,
        directory: str,
        base_manifest: Manifest,
        files: Files,
        otherwise: Identity,
        links: Mapping[str, Path] = MappingProxyType({}),
        *,
        is_new: bool,
        follows: str = "",
    ) -> FileOrigin:
        """Return the origin of a directory's content: a repository where git brought a file, else
        `otherwise`.

        A repository that cannot be read counts as holding every file: who cannot decide does not
        take it for a person's. base_manifest: the version that was there before. links: paths ->
        the files that they lead to; these are judged where they lie. is_new: the folder is just
        imported, so the log does not count. follows: the folder whose pulls the person follows, ''
        for none; the identity says which commit a pull brought.
        """
        new = make_manifest(files)
        # The mode is left out: it says nothing about who wrote the bytes.
        changed = [
            path for path, entry in new.items() if not _is_same_blob(base_manifest.get(path), entry)
        ]
        around = self.repositories(self._folder.path / directory)
        if not changed or not around and not links:
            return FileOrigin(otherwise)
        bringer_by_path = self._find_bringers(directory, changed, files, links, is_new=is_new)
        # Only a change that nobody answers for waits for git: others are known already.
        unclaimed = otherwise.principal is Principal.UNKNOWN
        busy = next(filter(None, map(_describe_activity, around)), "") if unclaimed else ""
        lock = busy if any(_describe_lock(repository) for repository in around) else ""
        bringers = set(bringer_by_path.values())
        # One file from git is enough: what it says can steer an agent.
        if _Bringer.GIT in bringers:
            brought = [path for path, who in bringer_by_path.items() if who is _Bringer.GIT]
            places = {self._locate(directory, path, links): files[path].data for path in brought}
            commit = self._find_newest_pulled_commit(places) if follows else ""
            waits = self._find_wait_reason(directory, lock if commit or not follows else busy)
            return FileOrigin(
                followed_pull(FollowedPull(commit, follows)) if commit else REPOSITORY, waits
            )
        # Every file is somebody's already, so git has nothing to add.
        settled = not bringers - {_Bringer.PERSON, _Bringer.AGENT}
        identity = _AGENT if unclaimed and _Bringer.AGENT in bringers else otherwise
        return FileOrigin(identity, self._find_wait_reason(directory, "" if settled else busy))

    def was_committed(self, directory: str, files: Files, disk: Files) -> bool:
        """Return whether commits of HEAD's log had those files of a version that differ from disk.

        files: of the version. disk: the files as they lie there now.
        """
        differ = [path for path in files if path not in disk or files[path].data != disk[path].data]
        return bool(differ) and all(
            self._was_committed_at(self._locate(directory, path, {}), files[path].data)
            for path in differ
        )

    def _was_committed_at(self, place: Path, data: bytes) -> bool:
        for repository in self.repositories(place.parent):
            inside, position = repository.place_of(place), self._positions.of(repository)
            try:
                log = repository.log_since(position) if position is not None else None
                lines = (log or [])[-MAX_LINES:]
                commits = dict.fromkeys(
                    commit for line in lines for commit in (line.before, line.after)
                )
                if repository.was_committed(commits, inside, data):
                    return True
            except DAMAGE:
                continue
        return False

    def _find_wait_reason(self, directory: str, why: str) -> str:
        """Return why a directory waits; '' for no reason, or once it waited for LOCK_SECONDS."""
        if not why:
            self._first_waited.pop(directory, None)
            return ""
        # A lock that stays, left or planted, must not keep saves out of the library.
        since = self._first_waited.setdefault(directory, time.monotonic())
        return why if time.monotonic() - since <= LOCK_SECONDS else ""

    def _find_bringers(
        self,
        directory: str,
        changed: Iterable[str],
        files: Files,
        links: Mapping[str, Path],
        *,
        is_new: bool,
    ) -> dict[str, _Bringer]:
        """Return the bringer of each of these files, by the repositories around."""
        bringer_by_path: dict[str, _Bringer] = {}
        untracked: set[str] = set()
        for path in changed:
            place = self._locate(directory, path, links)
            data = files[path].data
            around = self.repositories(place.parent)
            if is_new:
                self._positions.remember_new(around)
            bringer = self._find_bringer(around, place, data, is_new=is_new)
            bringer_by_path[path] = bringer
            if bringer is _Bringer.GIT and not _is_tracked(around, place):
                untracked.add(path)
        if _Bringer.NOBODY in bringer_by_path.values():
            # git has the bytes of an untracked file at another path, such as a licence that
            # somebody copied beside a skill of their own.
            bringer_by_path.update(dict.fromkeys(untracked, _Bringer.NOBODY))
        return bringer_by_path

    def _locate(self, directory: str, path: str, links: Mapping[str, Path]) -> Path:
        """Return where a file of a directory lies."""
        place = self._folder.path / directory
        return links.get(path, place / path if place.is_dir() else place)

    def _find_newest_pulled_commit(self, places: Mapping[Path, bytes]) -> str:
        """Return the newest commit with which a pull brought these files.

        '' where another action than a pull brought one of them.
        """
        commits = [
            self._find_pulled_commit(place, data) for place, data in places.items() if data.strip()
        ]
        return commits[-1] if commits and all(commits) else ""

    def _find_pulled_commit(self, place: Path, data: bytes) -> str:
        for repository in self.repositories(place.parent):
            inside, position = repository.place_of(place), self._positions.of(repository)
            blobs = repository.blobs(inside, data)
            if not blobs or position is None:
                continue
            try:
                for line in reversed((repository.log_since(position) or [])[-MAX_LINES:]):
                    was, now = (
                        repository.blob_at(commit, inside) in blobs
                        for commit in (line.before, line.after)
                    )
                    if now and not was:
                        is_pull = line.action.startswith(_PULLS)
                        return line.after.hex()[:7] if line.after and is_pull else ""
            except DAMAGE:
                continue
        return ""

    def _find_bringer(
        self, around: list[Repository], place: Path, data: bytes, *, is_new: bool
    ) -> _Bringer:
        if not data.strip():
            return _Bringer.PERSON  # every repository has the empty file, and it says nothing
        bringers = [
            self._find_repository_bringer(
                repository, repository.place_of(place), data, is_new=is_new
            )
            for repository in around
        ]
        # The least trusted answer of all repositories around wins.
        for bringer in (_Bringer.GIT, _Bringer.STAGED, _Bringer.AGENT, _Bringer.PERSON):
            if bringer in bringers:
                return bringer
        return _Bringer.NOBODY

    def _find_repository_bringer(
        self, repository: Repository, place: str, data: bytes, *, is_new: bool
    ) -> _Bringer:
        blobs = repository.blobs(place, data)
        # A repository that cannot be read counts as holding every file.
        if blobs is None:
            return _Bringer.GIT
        if not blobs:
            return _Bringer.NOBODY
        makers = self._makers(data)
        # The library had these bytes from a person before git did.
        if makers & {Principal.PERSON, Principal.UNKNOWN}:
            return _Bringer.PERSON
        if Principal.AGENT in makers:
            return _Bringer.AGENT
        position = None if is_new else self._positions.of(repository)
        if position is None:
            return _Bringer.GIT
        try:
            committed = self._is_committed_here(repository, place, blobs, position)
            if committed is None and self._is_only_staged(repository, place, blobs):
                return _Bringer.STAGED
        except DAMAGE:
            committed = False
        return _Bringer.PERSON if committed else _Bringer.GIT

    def _is_committed_here(
        self, repository: Repository, place: str, blobs: set[bytes], position: LogPosition
    ) -> bool | None:
        """Return whether the first commit that had one of these blobs is the person's own.

        None where no commit of the log has one. A commit on top of text of others that the library
        does not know is no commit of the person's own text.
        """
        lines = repository.log_since(position)
        if lines is None:
            # Git shortened its log: only what comes now counts.
            self._positions.remember([repository])
            return False
        if not lines:
            return None
        lines = lines[-MAX_LINES:]
        before = repository.blob_at(lines[0].before, place)
        if before in blobs:
            return False  # it was there before, and git put it back
        # Text of others that nobody has looked at: a commit on top of it is not the person's alone.
        foreign = not self._is_known(repository, before)
        for line in lines:
            now = repository.blob_at(line.after, place)
            own = line.action in _OWN_ACTIONS
            if now != before and not own:
                foreign = not self._is_known(repository, now)
            if now != before and now in blobs:
                return own and not foreign
            before = now
        return None

    def _is_only_staged(self, repository: Repository, place: str, blobs: set[bytes]) -> bool:
        """Return whether the person staged a file on top of a known version, with no commit yet."""
        if not repository.is_staged(place, blobs):
            return False
        # In a merge without a tree of git's own it cannot be told which lines are staged by whom.
        if repository.is_merging() and repository.automatic_merge() is None:
            return False
        sources = [*repository.tips(), *filter(None, [repository.automatic_merge()])]
        if any(repository.blob_at(source, place) in blobs for source in sources):
            return False
        return self._is_known(repository, repository.blob_at(repository.head_commit(), place))

    def _is_known(self, repository: Repository, blob: bytes | None) -> bool:
        """Return whether the library has a blob in a version; also where there is none."""
        if blob is None:
            return True
        objects, _ = repository.open_objects()
        return bool(self._makers(objects.read(blob, "blob")))


def holds_one(folder: WatchedFolder, directory: str, files: Files) -> bool:
    """Return whether a repository around a watched folder holds a file of a directory.

    files: those of the directory.
    """
    single = not (folder.path / directory).is_dir()
    for repository in repositories_around(folder.path):
        for path, file in files.items():
            place = folder.path / directory if single else folder.path / directory / path
            if repository.blobs(repository.place_of(place), file.data) != set():
                return True
    return False


def _is_tracked(around: Iterable[Repository], place: Path) -> bool:
    return any(repository.is_tracked(repository.place_of(place)) for repository in around)


def _describe_lock(repository: Repository) -> str:
    path = repository.lock(time.time())
    return f"git is at work: {path}" if path is not None else ""


def _describe_activity(repository: Repository) -> str:
    """Return the activity of git in a repository, '' for none."""
    if lock := _describe_lock(repository):
        return lock
    age = time.time() - repository.moved_at()
    return f"git just changed {repository.root}" if 0 <= age < MOVED_SECONDS else ""


def _is_same_blob(old: TreeEntry | None, new: TreeEntry) -> bool:
    return old is not None and old.sha256 == new.sha256
