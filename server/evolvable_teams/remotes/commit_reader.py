"""Read commits that a remote sent: which resources they changed, and the contents of these.

Nothing is checked out.

All of it is hostile input: counts and sizes are bounded before anything is read, links and
submodules are refused, and every path is checked by the rules for paths of resources.
"""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from evolvable_store import (
    ABSENT,
    EXECUTABLE,
    MAX_DEPTH,
    MAX_FILE,
    MAX_FILES,
    MAX_RESOURCE,
    PLAIN,
    File,
    Files,
    Manifest,
    Tombstone,
    blob_hash,
    blocking_problems,
    find_problems,
    format_time,
    is_frozen,
    is_ignored,
    is_sync_copy,
    main_path,
    make_manifest,
    pack,
    pack_tombstone,
    unpack,
)
from evolvable_store.errors import EvolvableError, RemoteFailed, TooLarge, quote_text
from evolvable_store.resource import Ref
from evolvable_store.storage import Packed
from evolvable_teams.remotes.git_process import NO_ID, PATIENCE, BareRepository
from evolvable_teams.remotes.layout import BESIDE, CommitMessage, folder_of, read_message
from evolvable_teams.remotes.tree_walk import (
    FOLDER,
    LINK,
    MAX_FOLDERS_INSIDE,
    MAX_TREE,
    MODE_TYPE,
    SUBMODULE,
    TreeChanges,
    TreeWalk,
)

# These bounds are far above real libraries; they end the reading of a hostile repository.
MAX_COMMITS = 500_000
"""New commits of one pull."""

MAX_CHANGED = 1_000_000
"""Files beside the resources that the commits of one pull may change."""

MAX_COMMIT = 2**20
"""Bytes of one commit object."""

_PARENTS = re.compile(rb"tree [0-9a-f]{40}\n((?:parent [0-9a-f]{40}\n)*)")
_AUTHOR = re.compile(rb"^author [^\n]* (\d{1,11}) [+-]\d{4}$", re.MULTILINE)
# A process is killed after PATIENCE, also while a person decides between two questions.
_FRESH = PATIENCE / 2
"""Seconds after which a process is replaced before it is asked again."""


@dataclass(frozen=True, slots=True)
class TreeContent:
    """The content of a tree of git as a resource.

    problems: why it is not a valid one; then the manifest is empty.
    """

    manifest: Manifest
    problems: tuple[str, ...] = ()
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class IncomingCommit:
    """One commit of a remote.

    changed: resource -> its tree in the commit, '' where it was removed.
    """

    id: str
    at: str
    message: CommitMessage
    changed: dict[Ref, str]


class CommitReader:
    """Reads from a repository through two long-lived processes of git. A context manager."""

    def __init__(self, repository: BareRepository, room: Path) -> None:
        """room: a folder; a temporary file on its disk holds the blobs that are read."""
        self._repository, self._open = repository, ExitStack()
        self._spool = self._open.enter_context(tempfile.TemporaryFile(dir=room))  # noqa: SIM115
        # By sha256: place and length in the spool, size of the blob, codec.
        self._packed: dict[str, tuple[int, int, int, str]] = {}
        # By git's id: sha256 and size.
        self._read_blobs: dict[str, tuple[str, int]] = {}
        self._contents: dict[tuple[Ref, str], TreeContent] = {}
        self.stones: Mapping[str, tuple[Tombstone, int]] = {}
        """Blobs that were purged elsewhere, by hash: a tombstone stands for each, with its size."""

        # By the option of cat-file: when the process was started, what ends it, and the process.
        self._running: dict[str, tuple[float, ExitStack, subprocess.Popen[bytes]]] = {}
        self._walk = TreeWalk(lambda tree: self.object(tree, "tree", MAX_TREE), MAX_CHANGED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def _fresh_process(self, how: str) -> "subprocess.Popen[bytes]":
        """Return a running `git cat-file` with this option that has time for a question."""
        began, opened, process = self._running.get(how, (0.0, None, None))
        # One process answers many questions: starting git for each would take most of the time.
        if process is None or time.monotonic() - began > _FRESH:
            if opened is not None:
                opened.close()
            opened = self._open.enter_context(ExitStack())
            process = opened.enter_context(self._repository.process("cat-file", how))
            self._running[how] = time.monotonic(), opened, process
        return process

    def find(self, name: str) -> tuple[str, str, int] | None:
        """Return the id, the type and the size of the object that an expression names, None for
        none.
        """
        line = self._ask(self._fresh_process("--batch-check"), name)
        parts = line.split(" ")
        if len(parts) != 3 or not parts[2].isdigit():
            return None
        return parts[0], parts[1], int(parts[2])

    def tree_id(self, commit: str, folder: str) -> str:
        """Return the id of the tree of a folder in a commit, '' when it has none there."""
        entry = self.find(f"{commit}:{folder}") if commit else None
        return entry[0] if entry is not None and entry[1] == "tree" else NO_ID

    def object(self, identity: str, kind: str, limit: int) -> bytes:
        """Return the content of an object of a type.

        Raises TooLarge over the limit, RemoteFailed for another type.
        """
        entry = self.find(identity)
        if entry is None or entry[1] != kind:
            raise RemoteFailed(
                f"The object {identity[:12]} is missing or no {kind}.", "The repository is damaged."
            )
        name, _, size = entry
        if size > limit:
            raise TooLarge(
                f"The {kind} {identity[:12]} has {size:,} bytes.", f"The limit is {limit:,}."
            )
        process = self._fresh_process("--batch")
        self._ask(process, name)
        assert process.stdout is not None
        # `git cat-file --batch` ends every object with a line end.
        data = process.stdout.read(size + 1)
        if len(data) != size + 1:
            raise RemoteFailed("git ended early.", "Try again; nothing was imported.")
        return data[:-1]

    @staticmethod
    def _ask(process: "subprocess.Popen[bytes]", name: str) -> str:
        """Return the line with which a process answers the name of an object."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(name.encode("utf-8", "surrogateescape") + b"\n")
            process.stdin.flush()
        except OSError:
            raise RemoteFailed("git ended early.", "Try again; nothing was imported.") from None
        line = process.stdout.readline(65_536)
        if not line.endswith(b"\n"):
            raise RemoteFailed("git ended early.", "Try again; nothing was imported.")
        return line.decode("utf-8", "surrogateescape").rstrip("\n")

    def content(self, ref: Ref, tree: str) -> TreeContent:
        """Return the content of a tree as this resource; the empty id has none."""
        content = self._contents.get((ref, tree))
        if content is None:
            content = self._read_content(ref, tree) if tree else TreeContent(Manifest({}))
            self._contents[(ref, tree)] = content
        return content

    def _read_content(self, ref: Ref, tree: str) -> TreeContent:
        try:
            entries = dict(self._files(tree))
            # Before any blob is read, so that the bytes in memory are bounded.
            total = sum(size for _, _, size in entries.values())
            if total > MAX_RESOURCE:
                raise TooLarge(
                    f"its files have {total:,} bytes together", f"the limit is {MAX_RESOURCE:,}"
                )
            files = {
                path: File(self._read_blob(identity), mode)
                for path, (mode, identity, _) in entries.items()
            }
            manifest = make_manifest(files)
        except EvolvableError as error:
            return TreeContent(Manifest({}), (error.text,))
        problems = blocking_problems(find_problems(ref.kind, ref.name, files)) if files else []
        if not files or problems:
            return TreeContent(Manifest({}), tuple(map(str, problems)) or ("it has no file",))
        main = files.get(main_path(ref.kind, ref.name, files))
        return TreeContent(manifest, (), main is not None and is_frozen(main.data))

    def _files(self, tree: str) -> Iterator[tuple[str, tuple[int, str, int]]]:
        """Yield path -> (mode, id, size) of the files of a tree. Raises TooLarge, RemoteFailed."""
        waiting, folders, files = [("", tree)], 0, 0
        while waiting:
            above, identity = waiting.pop()
            folders += 1
            if folders > MAX_FOLDERS_INSIDE or above.count("/") > MAX_DEPTH:
                raise TooLarge("It has too many folders.", "Nothing of it was imported.")
            for name, (mode, entry_id) in self._walk.entries(identity).items():
                path = above + _decode(name)
                kind = mode & MODE_TYPE
                if is_ignored(_decode(name)) or kind != FOLDER and is_sync_copy(_decode(name)):
                    continue
                if kind == FOLDER:
                    waiting.append((f"{path}/", entry_id.hex()))
                    continue
                if kind in (LINK, SUBMODULE):
                    what = "a link" if kind == LINK else "a submodule"
                    raise RemoteFailed(
                        f"{quote_text(path)} is {what}.", "Nothing of it was imported."
                    )
                files += 1
                if files > MAX_FILES:
                    raise TooLarge(
                        f"It has more than {MAX_FILES} files.", "Nothing of it was imported."
                    )
                file_mode = EXECUTABLE if mode & 0o100 else PLAIN
                blob = entry_id.hex()
                yield path, (file_mode, blob, self._check_size(path, blob))

    def _check_size(self, path: str, identity: str) -> int:
        """Return the size of a file's blob. Raises TooLarge, RemoteFailed."""
        if identity in self._read_blobs:
            return self._read_blobs[identity][1]
        entry = self.find(identity)
        if entry is None or entry[1] != "blob":
            raise RemoteFailed(f"{quote_text(path)} is missing.", "Nothing of it was imported.")
        size = entry[2]
        if size > MAX_FILE:
            raise TooLarge(
                f"{quote_text(path)} has {size:,} bytes.",
                f"The limit for one file is {MAX_FILE:,}.",
            )
        return size

    def _read_blob(self, identity: str) -> bytes:
        if identity in self._read_blobs:
            return self._unpack_blob(self._read_blobs[identity][0])
        data = self.object(identity, "blob", MAX_FILE)
        name = blob_hash(data)
        self._read_blobs[identity] = name, len(data)
        # Blobs wait compressed in a file without a name, so a large pull needs little memory.
        if name not in self._packed:
            packed, codec = pack(data)
            place = self._spool.seek(0, 2)
            self._spool.write(packed)
            self._packed[name] = place, len(packed), len(data), codec
        return data

    def read_packed(self, sha256: str) -> Packed:
        """Return a blob that was read, as a library stores it.

        A tombstone stands for one that was purged elsewhere.
        """
        if sha256 in self.stones:
            stone, size = self.stones[sha256]
            return sha256, size, pack_tombstone(stone), ABSENT
        place, length, size, codec = self._packed[sha256]
        self._spool.seek(place)
        return sha256, size, self._spool.read(length), codec

    def _unpack_blob(self, sha256: str) -> bytes:
        place, length, _, codec = self._packed[sha256]
        self._spool.seek(place)
        return unpack(self._spool.read(length), codec)

    def files(self, content: TreeContent) -> Files:
        """Return the files of a content that was read.

        A notice stands for each file that was purged elsewhere.
        """
        return {
            path: File(self._bytes_or_notice(entry.sha256), entry.mode)
            for path, entry in content.manifest.items()
        }

    def _bytes_or_notice(self, sha256: str) -> bytes:
        stone = self.stones.get(sha256)
        return self._unpack_blob(sha256) if stone is None else stone[0].content

    def commits(self, base: str, head: str) -> list[IncomingCommit]:
        """Return the commits that lead to `head` and not to `base`, parents before children.

        Raises TooLarge.
        """
        # One more than allowed, to see that there are too many.
        options = ["--topo-order", "--reverse", f"--max-count={MAX_COMMITS + 1}"]
        excluded = [f"^{base}"] if base else []
        ids = self._repository.run("rev-list", *options, head, *excluded, "--").split()
        if len(ids) > MAX_COMMITS:
            raise TooLarge("The remote has too many new commits.", f"The limit is {MAX_COMMITS:,}.")
        self._walk.allow(len(ids))
        return [self._read_commit(identity) for identity in ids]

    def _read_commit(self, identity: str) -> IncomingCommit:
        head, _, text = self.object(identity, "commit", MAX_COMMIT).partition(b"\n\n")
        author = _AUTHOR.search(head)
        # A commit may claim any time; `datetime` can hold the year 2514, at 2**34 seconds.
        seconds = min(int(author[1]) if author else 0, 2**34)
        at = format_time(datetime.fromtimestamp(seconds, UTC))
        parent_lines = _PARENTS.match(head)
        parents = parent_lines[1].decode("ascii").split()[1::2] if parent_lines else []
        refs = self._changed_refs(identity, parents)
        trees = {ref: self.tree_id(identity, folder_of(ref)) for ref in sorted(refs, key=str)}
        return IncomingCommit(identity, at, read_message(text), trees)

    def _changed_refs(self, commit: str, parents: Sequence[str]) -> set[Ref]:
        """Return the resources of which a commit has a file that none of these parents has."""
        parent_trees = [self.tree_id(parent, "") for parent in parents]
        return self._walk.changed_refs(self.tree_id(commit, ""), parent_trees or [NO_ID])

    def changes(self, base: str, head: str) -> TreeChanges:
        """Return what differs between two commits. base: '' stands for an empty tree.

        Raises TooLarge.
        """
        return self._walk.changes(self.tree_id(head, ""), self.tree_id(base, ""))

    def beside(self, commit: str) -> list[str]:
        """Return the paths of the files beside the resources in a commit."""
        paths = self._walk.files(self.tree_id(commit, BESIDE))
        return [f"{BESIDE}/{_decode(path)}" for path in paths]

    def file(self, commit: str, path: str) -> bytes:
        """Return a file of a commit; b'' when there is none, and for one that is too large."""
        # git would read a line end as the begin of the next question.
        entry = self.find(f"{commit}:{path}") if commit and "\n" not in path else None
        if entry is None or entry[1] != "blob" or entry[2] > MAX_TREE:
            return b""
        return self.object(entry[0], "blob", MAX_TREE)


def _decode(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
