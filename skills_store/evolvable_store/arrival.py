"""Content that arrives from a watched folder: who answers for it, and whether it is held until a person decides."""

from collections.abc import Callable
from dataclasses import dataclass

from evolvable_store.bindings import Folder
from evolvable_store.git_worktree import Repository, repositories_around
from evolvable_store.objects import Entry, Files, Manifest, manifest_of
from evolvable_store.operation import Head, Identity, Principal
from evolvable_store.resource import Ref

REPOSITORY = Identity(Principal.REPOSITORY, "file")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A directory's content before it becomes a version of `ref`.

    head: of the resource, None for a new one; before: the files that it has. identity: who answers for the content.
    """

    folder: Folder
    directory: str
    ref: Ref
    head: Head | None
    before: Files
    files: Files
    identity: Identity


@dataclass(frozen=True, slots=True)
class Holding:
    """Why a content is held. findings: JSON of what a scan found, None for nothing."""

    reason: str
    findings: str | None = None


Gate = Callable[[Arrival], Holding | None]
"""Decides whether an arrival is held; None publishes it."""


class Origins:
    """Who answers for files of one watched folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str], Repository] = {}

    def repositories(self) -> list[Repository]:
        """Return the repositories around the folder as they are now; each keeps what it has read."""
        around = repositories_around(self._folder.path)
        found = {repository.key: self._known.get(repository.key, repository) for repository in around}
        self._known = found
        return list(found.values())

    def identity(self, directory: str, known: Manifest, files: Files, otherwise: Identity) -> Identity:
        """Return a repository's identity where git holds a file that differs from the known version, else `otherwise`.

        A repository that cannot be read counts as holding every file: who cannot decide does not take it for a
        person's. directory: of the files, or the single file itself.
        """
        around = self.repositories()
        if not around:
            return otherwise
        single = not self._is_directory(directory)
        new = manifest_of(files)
        changed = [path for path, entry in new.items() if not _same(known.get(path), entry)]
        for path in changed:
            place = directory if single else f"{directory}/{path}"
            if any(repository.holds(place, files[path].data) is not False for repository in around):
                return REPOSITORY
        return otherwise

    def _is_directory(self, directory: str) -> bool:
        return (self._folder.path / directory).is_dir()


def _same(known: Entry | None, new: Entry) -> bool:
    return known is not None and known.sha256 == new.sha256
