"""Near duplicates: of any resources, and of what a single write made, found after its answer and
given out once.

A server compares on a thread of its own. Another process leaves the resource for the next
`evolvable status`, which compares. Nothing is kept for good: `evolvable doctor` compares the whole
library.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from evolvable_store import Head
from evolvable_store.errors import EvolvableError, LibraryBusy, may_pass
from evolvable_store.resource import Ref
from evolvable_tools import retrieval
from evolvable_tools.authors import NOBODYS, authorships
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.near_duplicate_notes import leave_for_status, note_pairs, take_notes
from evolvable_tools.untrusted_text import quoted_excerpt

if TYPE_CHECKING:
    from evolvable_store.search import IndexEntry
    from evolvable_tools.retrieval import NearDuplicateReport

MAX_PAIRS = 3
"""Pairs named for one write, and in one answer."""

MAX_LINE = 200
"""Bytes of one hint."""

MAX_WAITING = 50
"""Resources that wait to be compared. The oldest give way."""

MAX_READERS = 1_000
"""Readers with a hint that they did not ask for yet. The oldest give way."""

PAUSE_SECONDS = 0.05
"""How long after a write the comparison begins: the answer of the write goes out first."""

AGAIN_SECONDS = 1.0
"""How long a resource waits for the next try while the library is busy."""

_END_SECONDS = 2.0

log = logging.getLogger(__name__)


class DuplicateHints:
    """Compares new descriptions in the background of a server. Safe from any thread."""

    def __init__(self, library: Library, notify: Callable[[str], object]) -> None:
        """notify: called with each hint, on the thread that found it."""
        self._library, self._notify = library, notify
        self._waiting = OrderedDict[int, Caller]()
        self._hints = OrderedDict[str, list[str]]()
        # The condition guards _waiting and _hints; the event ends every wait at once.
        self._changed, self._closed = threading.Condition(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="evolvable-duplicates", daemon=True)
        self._thread.start()

    def add(self, caller: Caller, resource: int) -> None:
        """Have a resource compared that the caller gave a new description."""
        with self._changed:
            self._waiting.pop(resource, None)
            self._waiting[resource] = caller
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)
            self._changed.notify_all()

    def take(self, reader: str | None) -> list[str]:
        """Return the hints on what this reader wrote, each once. reader: as `Caller.reader`."""
        with self._changed:
            return self._hints.pop(reader, []) if reader else []

    def close(self) -> None:
        """End the thread; leave what was not compared for `evolvable status`."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            # A comparison that takes longer is abandoned: the thread is a daemon.
            self._thread.join(_END_SECONDS)
        # After the join, so that what the thread finished meanwhile is not left again.
        leave_for_status(self._library.store.home, self._waiting)

    def _run(self) -> None:
        while self._wait():
            with self._changed:
                resource, caller = next(iter(self._waiting.items()))
            pause = 0.0
            try:
                self._compare(resource, caller)
            except (EvolvableError, OSError) as error:
                pause = AGAIN_SECONDS if may_pass(error) else 0.0
                log.debug("resource %d is not compared: %s", resource, error)
            except Exception:
                if self._closed.is_set():  # the library was closed meanwhile
                    return
                log.exception("the search for near duplicates failed")
            with self._changed:
                # A busy library means again, and so does a write since the comparison began.
                if not pause and self._waiting.get(resource) is caller:
                    del self._waiting[resource]
            self._closed.wait(pause)

    def _wait(self) -> bool:
        """Wait until something is there to compare, and return False at the end of the server."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
        return not self._closed.wait(PAUSE_SECONDS)

    def _compare(self, resource: int, caller: Caller) -> None:
        """Find the near duplicates of a resource, and keep the hints for its writer.

        Raise LibraryBusy while the index does not have the newest version.
        """
        library = self._library
        # Read again: the head may have moved since the write that asked for the comparison.
        head = library.store.backend.heads_by_id([resource]).get(resource)
        if head is None or head.version is None:  # it was removed since
            return
        library.index.catch_up(wait=False)
        entry = library.index.entry(head)
        if entry is not None and entry.version != head.version:
            raise LibraryBusy(f"The index does not have {head.ref}@{head.version} yet.")
        pairs, lines = list[tuple[int, int]](), list[str]()
        for pair in near_duplicates_of(library, [head], limit=MAX_PAIRS).pairs:
            other = library.store.head_or_none(Ref.parse(pair.other))
            if other is not None:
                pairs.append((other.id, round(100 * pair.likeness)))
                shared = _format_shared_words(library, caller, (head, other), pair.shared)
                lines.append(hint_line(head, other, pair.likeness, shared))
        note_pairs(library.store.home, resource, pairs)
        if not lines:
            return
        if caller.reader:
            with self._changed:
                hints = [*self._hints.pop(caller.reader, ()), *lines]
                self._hints[caller.reader] = hints[-MAX_PAIRS:]
                if len(self._hints) > MAX_READERS:
                    self._hints.popitem(last=False)
        for line in lines:
            self._notify(line)


def _format_shared_words(
    library: Library, caller: Caller, heads: Sequence[Head], words: Sequence[str]
) -> str:
    """Return what two resources share, as an agent reads it: between marks where one of them is not
    trusted.
    """
    text = ", ".join(f'"{word}"' if " " in word else word for word in words)
    authors = authorships(library, [head.id for head in heads], caller)
    marked = any(authors.get(head.id, NOBODYS).is_marked for head in heads)
    return quoted_excerpt(text) if text and marked else text


def hint_line(head: Head, other: Head, likeness: float, shared: str = "") -> str:
    """Return one line of at most MAX_LINE bytes.

    shared: words of both, left out where they have no room.
    """
    line = f"{head.ref} and {other.ref} answer the same questions ({likeness:.0%} alike)"
    longer = f"{line[:-1]}: {shared})"
    if shared and len(longer.encode()) <= MAX_LINE:
        return longer
    data = line.encode()
    return line if len(data) <= MAX_LINE else f"{data[: MAX_LINE - 3].decode(errors='ignore')}…"


def take_pairs(library: Library) -> list[str]:
    """Return a line for each pair that was found since the last call; compare first what other
    processes left.
    """
    notes = take_notes(library.store.home)
    heads = library.store.backend.heads_by_id(notes) if notes else {}
    left = [resource for resource, noted_pairs in notes.items() if noted_pairs is None]
    waiting = [heads[resource] for resource in left if resource in heads][-MAX_WAITING:]
    pairs = [
        (resource, other, percent / 100)
        for resource, noted_pairs in notes.items()
        for other, percent in noted_pairs or ()
    ]
    try:
        # The newest first, which a line begins with.
        for pair in near_duplicates_of(library, waiting[::-1]).pairs if waiting else ():
            refs = [
                library.store.head_or_none(Ref.parse(ref)) for ref in (pair.newcomer, pair.other)
            ]
            heads |= {head.id: head for head in refs if head is not None}
            pairs += [(refs[0].id, refs[1].id, pair.likeness)] if refs[0] and refs[1] else []
    except EvolvableError as error:
        if may_pass(error):
            leave_for_status(library.store.home, [head.id for head in waiting])
    if pairs:
        others = {other for _, other, _ in pairs} - heads.keys()
        heads |= library.store.backend.heads_by_id(others)
    lines = dict[frozenset[int], str]()
    for resource, other, likeness in pairs:
        first, second = heads.get(resource), heads.get(other)
        if first and second and first.version is not None and second.version is not None:
            lines.setdefault(frozenset((resource, other)), hint_line(first, second, likeness))
    return list(lines.values())


def near_duplicates_of(
    library: Library,
    resources: Sequence[Ref | Head],
    *,
    limit: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> "NearDuplicateReport":
    """Return which of these resources can easily be taken for another one, the most alike first.

    progress: see `find_near_duplicates`.
    """
    candidates = [
        resource if isinstance(resource, Head) else library.store.head_or_none(resource)
        for resource in resources
    ]
    heads = [head for head in candidates if head is not None]
    if len(heads) <= retrieval.EACH:
        entries = _find_index_entries(library, heads)
        return retrieval.find_near_duplicates(
            library.index, entries, seen=library.scopes_from, limit=limit
        )
    others = _find_index_entries(library, library.store.heads())
    ids = {head.id for head in heads}
    newcomers = [entry for entry in others if entry.id in ids]
    return retrieval.find_near_duplicates(
        library.index,
        newcomers,
        seen=library.scopes_from,
        limit=limit,
        others=others,
        progress=progress,
    )


def _find_index_entries(library: Library, heads: Iterable[Head]) -> "list[IndexEntry]":
    return list(library.index.visible_entries(head.id for head in heads).values())
