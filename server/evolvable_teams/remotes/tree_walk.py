"""Compare the trees of commits, folder by folder, and count the folders.

git's own walk of a tree has no limit: a few small objects that name one another many times hold
more folders than anybody can walk. A folder of a resource is compared by its id and entered only
where a merge asks for it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from evolvable_store.errors import RemoteFailed, TooLarge
from evolvable_store.resource import Ref
from evolvable_store.workingcopy import GitDamaged, tree_entries
from evolvable_teams.remotes.layout import locate, may_hold_resources

# Counted for the whole pull, so that many small commits cannot add up to an endless walk.
MAX_FOLDERS = 200_000
"""Folders that are compared for one pull, and FOLDERS_OF_A_COMMIT more for each commit."""

FOLDERS_OF_A_COMMIT = 1_000
MAX_TREE = 32 * 2**20
"""Bytes of one tree, and of what lies beside the resources."""

MAX_FOLDERS_INSIDE = 1_000
"""Folders of one resource."""

FOLDER, LINK, SUBMODULE = 0o040000, 0o120000, 0o160000
_TYPE = 0o170000  # the part of a mode that says file, folder or link
_ID_SIZE = 20  # bytes of a SHA-1
_ENTRIES_OF_A_FOLDER = 100  # a larger folder counts as several: it takes as long to compare
_MAX_PATH = 4_096  # bytes
_KEPT = 32 * 2**20  # bytes of the trees that stay in memory

TreeEntry = tuple[int, bytes]
"""The mode and the id of an entry."""

Tree = dict[bytes, TreeEntry]


@dataclass(slots=True)
class TreeChanges:
    """What differs between trees.

    others: path -> (mode, id) of the files of no resource; id '': gone.
    """

    refs: set[Ref] = field(default_factory=set)
    others: dict[bytes, tuple[int, str]] = field(default_factory=dict)


class TreeWalk:
    """Compares trees of one repository. An empty id is a tree that holds nothing."""

    def __init__(self, read: Callable[[str], bytes], most: int) -> None:
        """read: returns the content of a tree by its id.

        most: files beside the resources that may differ.
        """
        self._read, self._most, self._left = read, most, MAX_FOLDERS
        self._cache: dict[str, Tree] = {}
        self._size = 0

    def allow(self, commits: int) -> None:
        """Let the walk compare the folders of so many commits more."""
        self._left += FOLDERS_OF_A_COMMIT * commits

    def entries(self, identity: str) -> Tree:
        """Return the entries of a tree by their names.

        Raises RemoteFailed for a damaged one, TooLarge.
        """
        found = self._cache.get(identity)
        if found is None:
            data = self._read(identity) if identity else b""
            try:
                found = tree_entries(data, _ID_SIZE)
            except GitDamaged as error:
                raise RemoteFailed(
                    f"The tree {identity[:12]} cannot be read: {error}.", "Nothing was imported."
                ) from None
            self._size += len(data)
            # Emptied whole: which trees come again cannot be known, and reading one again is cheap.
            if self._size > _KEPT:
                self._cache, self._size = {}, len(data)
            self._cache[identity] = found
        return found

    def changes(self, new: str, old: str) -> TreeChanges:
        """Return what differs between two trees. Raises TooLarge, RemoteFailed."""
        found = TreeChanges()
        waiting = [(b"", (new, old))]
        while waiting:
            above, trees = waiting.pop()
            for name, (now, before) in self._differences(trees):
                path = _join_path(above, name)
                if _file(now) != _file(before):
                    file = _file(now)
                    found.others[path] = (file[0], file[1].hex()) if file else (0, "")
                    self._check_count(len(found.others))
                if _folder(now) != _folder(before):
                    ref = _resource_in(path)
                    if ref is not None:
                        found.refs.add(ref)
                    else:
                        waiting.append((path, (_folder(now), _folder(before))))
        return found

    def changed_refs(self, new: str, olds: Sequence[str]) -> set[Ref]:
        """Return the resources of which a file differs from all the other trees.

        Raises TooLarge, RemoteFailed.
        """
        found = set[Ref]()
        waiting = [(b"", (new, *olds))]
        while waiting:
            above, trees = waiting.pop()
            for name, entries in self._differences(trees):
                path, folders = _join_path(above, name), tuple(map(_folder, entries))
                if folders[0] in folders[1:]:
                    continue
                ref = _resource_in(path)
                if ref is None and may_hold_resources(_text(path)):
                    waiting.append((path, folders))
                elif ref is not None and (len(folders) == 2 or self._has_own_file(folders)):
                    found.add(ref)
        return found

    def files(self, tree: str) -> Iterator[bytes]:
        """Yield the paths of the files of a tree. Raises TooLarge, RemoteFailed."""
        waiting, count = [(b"", tree)], 0
        while waiting:
            above, identity = waiting.pop()
            for name, (now, _) in self._differences((identity, "")):
                count += 1
                self._check_count(count)
                path = _join_path(above, name)
                if _file(now):
                    yield path
                else:
                    waiting.append((path, _folder(now)))

    def _has_own_file(self, folders: tuple[str, ...]) -> bool:
        """Return whether a file of the first folder differs from all the others; True for a folder
        without an end.
        """
        waiting, count = [folders], 0
        while waiting:
            count += 1
            if count > MAX_FOLDERS_INSIDE:
                return True
            for _, entries in self._differences(waiting.pop()):
                files, inner = tuple(map(_file, entries)), tuple(map(_folder, entries))
                if files[0] not in files[1:]:
                    return True
                if inner[0] not in inner[1:]:
                    waiting.append(inner)
        return False

    def _differences(
        self, trees: tuple[str, ...]
    ) -> Iterator[tuple[bytes, tuple[TreeEntry | None, ...]]]:
        """Yield the entries in which the first tree differs from all the others, with those of
        every tree.
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


def _file(entry: TreeEntry | None) -> TreeEntry | None:
    return entry if entry is not None and entry[0] & _TYPE != FOLDER else None


def _folder(entry: TreeEntry | None) -> str:
    return entry[1].hex() if entry is not None and entry[0] & _TYPE == FOLDER else ""


def _join_path(above: bytes, name: bytes) -> bytes:
    path = above + b"/" + name if above else name
    if len(path) > _MAX_PATH:
        raise TooLarge(
            f"The remote holds a path of more than {_MAX_PATH:,} bytes.", "Nothing was imported."
        )
    return path


def _resource_in(folder: bytes) -> Ref | None:
    return locate(f"{_text(folder)}/x")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
