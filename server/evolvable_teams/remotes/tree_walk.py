"""Compare the trees of commits, folder by folder, and count the folders.

git's own walk of a tree has no limit: a few small objects that name one another many times describe
more folders than any process can walk. The folder of a resource is compared by its id. It is
entered only to compare a merge commit with several parents.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from evolvable_store.errors import RemoteFailed, TooLarge
from evolvable_store.resource import Ref
from evolvable_store.workingcopy import GitDamaged, tree_entries
from evolvable_teams.remotes.layout import locate, may_hold_resources

# Counted for the whole pull, so that many small commits cannot add up to an endless walk.
MAX_FOLDERS = 200_000
"""Folders that may be compared for one pull, besides FOLDERS_OF_A_COMMIT for each commit."""

FOLDERS_OF_A_COMMIT = 1_000
"""Folders that may be compared for each commit of a pull."""

MAX_TREE = 32 * 2**20
"""Bytes of one tree object, and of one file beside the resources."""

MAX_FOLDERS_INSIDE = 1_000
"""Folders of one resource."""

FOLDER, LINK, SUBMODULE = 0o040000, 0o120000, 0o160000
MODE_TYPE = 0o170000
"""The bits of a mode that tell files, folders, links and submodules apart."""

_ID_SIZE = 20  # bytes of a SHA-1
_ENTRIES_OF_A_FOLDER = 100  # a larger folder counts as several: it takes as long to compare
_MAX_PATH = 4_096  # bytes
_CACHED = 32 * 2**20  # bytes of the trees that stay in memory

TreeEntry = tuple[int, bytes]
"""The mode and the id of an entry."""

Tree = dict[bytes, TreeEntry]
"""The entries of one folder, by name."""


@dataclass(slots=True)
class TreeChanges:
    """What differs between trees.

    refs: resources. others: path -> (mode, id) of files that belong to no resource; id '' for a
    file that is gone.
    """

    refs: set[Ref] = field(default_factory=set)
    others: dict[bytes, tuple[int, str]] = field(default_factory=dict)


class TreeWalk:
    """Compares trees of one repository. An empty id is a tree that holds nothing."""

    def __init__(self, read: Callable[[str], bytes], most: int) -> None:
        """read: returns the content of a tree by its id.

        most: how many files beside the resources may differ.
        """
        self._read, self._most, self._left = read, most, MAX_FOLDERS
        self._cache: dict[str, Tree] = {}
        self._size = 0

    def allow(self, commits: int) -> None:
        """Raise the limit of folders for so many commits."""
        self._left += FOLDERS_OF_A_COMMIT * commits

    def entries(self, identity: str) -> Tree:
        """Return the entries of a tree by their names.

        Raises RemoteFailed for a damaged one, TooLarge.
        """
        tree = self._cache.get(identity)
        if tree is None:
            data = self._read(identity) if identity else b""
            try:
                tree = tree_entries(data, _ID_SIZE)
            except GitDamaged as error:
                raise RemoteFailed(
                    f"The tree {identity[:12]} cannot be read: {error}.", "Nothing was imported."
                ) from None
            self._size += len(data)
            # Emptied whole: which trees come again cannot be known, and reading one again is cheap.
            if self._size > _CACHED:
                self._cache, self._size = {}, len(data)
            self._cache[identity] = tree
        return tree

    def changes(self, new: str, old: str) -> TreeChanges:
        """Return what differs between two trees. Raises TooLarge, RemoteFailed."""
        changes = TreeChanges()
        waiting = [(b"", (new, old))]
        while waiting:
            above, trees = waiting.pop()
            for name, (now, before) in self._differences(trees):
                path = _join_path(above, name)
                if _as_file(now) != _as_file(before):
                    file = _as_file(now)
                    changes.others[path] = (file[0], file[1].hex()) if file else (0, "")
                    self._check_count(len(changes.others))
                if _as_folder(now) != _as_folder(before):
                    ref = _resource_in(path)
                    if ref is not None:
                        changes.refs.add(ref)
                    else:
                        waiting.append((path, (_as_folder(now), _as_folder(before))))
        return changes

    def changed_refs(self, new: str, olds: Sequence[str]) -> set[Ref]:
        """Return the resources of which a file differs from all the other trees.

        Raises TooLarge, RemoteFailed.
        """
        refs = set[Ref]()
        waiting = [(b"", (new, *olds))]
        while waiting:
            above, trees = waiting.pop()
            for name, entries in self._differences(trees):
                path, folders = _join_path(above, name), tuple(map(_as_folder, entries))
                if folders[0] in folders[1:]:
                    continue
                ref = _resource_in(path)
                if ref is None and may_hold_resources(_decode(path)):
                    waiting.append((path, folders))
                elif ref is not None and (len(folders) == 2 or self._has_own_file(folders)):
                    refs.add(ref)
        return refs

    def files(self, tree: str) -> Iterator[bytes]:
        """Yield the paths of the files of a tree. Raises TooLarge, RemoteFailed."""
        waiting, count = [(b"", tree)], 0
        while waiting:
            above, identity = waiting.pop()
            for name, (now, _) in self._differences((identity, "")):
                count += 1
                self._check_count(count)
                path = _join_path(above, name)
                if _as_file(now):
                    yield path
                else:
                    waiting.append((path, _as_folder(now)))

    def _has_own_file(self, folders: tuple[str, ...]) -> bool:
        """Return whether a file of the first folder differs from that of every other folder.

        True for a folder of more than MAX_FOLDERS_INSIDE, which a later step refuses.
        """
        waiting, count = [folders], 0
        while waiting:
            count += 1
            if count > MAX_FOLDERS_INSIDE:
                return True
            for _, entries in self._differences(waiting.pop()):
                files, subfolders = tuple(map(_as_file, entries)), tuple(map(_as_folder, entries))
                if files[0] not in files[1:]:
                    return True
                if subfolders[0] not in subfolders[1:]:
                    waiting.append(subfolders)
        return False

    def _differences(
        self, trees: tuple[str, ...]
    ) -> Iterator[tuple[bytes, tuple[TreeEntry | None, ...]]]:
        """Yield the names under which the first tree differs from all the others.

        With each name comes the entry of every tree.
        """
        sides = [self.entries(tree) for tree in trees]
        self._left -= 1 + sum(map(len, sides)) // _ENTRIES_OF_A_FOLDER
        if self._left < 0:
            raise TooLarge(
                f"The remote's commits hold more than {MAX_FOLDERS:,} folders.",
                "Nothing was imported. Keep skills in a repository with fewer folders.",
            )
        # The symmetric difference of the entries runs in C and touches no equal entry.
        names = {name for name, _ in sides[0].items() ^ sides[1].items()}
        # A merge differs from all of its parents only where it changed something itself.
        for other in sides[2:]:
            names &= {name for name, _ in sides[0].items() ^ other.items()}
        return ((name, tuple(side.get(name) for side in sides)) for name in sorted(names))

    def _check_count(self, count: int) -> None:
        if count > self._most:
            raise TooLarge(
                "The remote's commits change too many files.", f"The limit is {self._most:,}."
            )


def _as_file(entry: TreeEntry | None) -> TreeEntry | None:
    """Return an entry that is no folder, None for any other."""
    return entry if entry is not None and entry[0] & MODE_TYPE != FOLDER else None


def _as_folder(entry: TreeEntry | None) -> str:
    """Return the id of an entry that is a folder, '' for any other."""
    return entry[1].hex() if entry is not None and entry[0] & MODE_TYPE == FOLDER else ""


def _join_path(above: bytes, name: bytes) -> bytes:
    path = above + b"/" + name if above else name
    if len(path) > _MAX_PATH:
        raise TooLarge(
            f"The remote holds a path of more than {_MAX_PATH:,} bytes.", "Nothing was imported."
        )
    return path


def _resource_in(folder: bytes) -> Ref | None:
    return locate(f"{_decode(folder)}/x")


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
