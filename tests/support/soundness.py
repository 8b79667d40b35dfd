"""Proves a library through its public door: every hash, every chain, every head, and the log that
made them.
"""

import hashlib
from itertools import pairwise

from evolvable_store.objects import chain_hash
from evolvable_store.operation import Change, Head
from evolvable_store.resource import Ref
from evolvable_store.store import HistoryEntry, Store


def assert_sound(store: Store) -> None:
    """Fail unless everything that the library holds fits together."""
    assert store.backend.maintenance.file_faults() == []
    changes = all_changes(store)
    assert [change.sequence for change in changes] == list(range(1, len(changes) + 1))
    _check_operations(store, changes)
    for ref, moves in _by_ref(changes).items():
        head = store.head_or_none(ref)
        assert head is not None
        _check_moves(head, moves)
        _check_history(store, head)


def all_changes(store: Store) -> list[Change]:
    """Return the whole log, read in pages as a follower would."""
    changes: list[Change] = []
    while page := store.changes(after=changes[-1].sequence if changes else 0, limit=700):
        changes += page
    return changes


def replayed(changes: list[Change]) -> dict[Ref, int]:
    """Return the living heads that following the log from its start leads to."""
    heads = {ref: moves[-1].after for ref, moves in _by_ref(changes).items()}
    return {ref: version for ref, version in heads.items() if version is not None}


def whole_history(store: Store, head: Head) -> list[HistoryEntry]:
    """Return all versions of a resource, oldest first, read in pages."""
    pasts: list[HistoryEntry] = []
    while page := store.history(head, limit=500, below=pasts[-1].version.number if pasts else None):
        pasts += page
    return pasts[::-1]


def _by_ref(changes: list[Change]) -> dict[Ref, list[Change]]:
    moves: dict[Ref, list[Change]] = {}
    for change in changes:
        moves.setdefault(change.ref, []).append(change)
    return moves


def _check_operations(store: Store, changes: list[Change]) -> None:
    """An operation is named by its first change, and its changes stand in a row."""
    firsts = [
        now.operation
        for before, now in pairwise([None, *changes])
        if not before or before.operation != now.operation
    ]
    assert firsts == sorted(set(firsts))
    for change in changes:
        assert change.operation <= change.sequence
    for first in firsts:
        assert changes[first - 1].operation == first
        assert store.operation(first).reason


def _check_moves(head: Head, moves: list[Change]) -> None:
    assert [move.before for move in moves] == [None, *(move.after for move in moves[:-1])]
    assert head.version == moves[-1].after
    assert head.sequence == moves[-1].sequence


def _check_history(store: Store, head: Head) -> None:
    parent = tree = ""
    pasts = whole_history(store, head)
    assert [past.version.number for past in pasts] == list(range(1, head.latest + 1))
    for past in pasts:
        version, manifest = past.version, store.manifest(head, past.version.number)
        assert manifest.tree == version.tree
        assert version.tree != tree, "a version without a change"
        assert version.hash == chain_hash(
            parent, version.number, version.tree, past.operation.intent.digest
        )
        for entry in manifest.values():
            data = store.blob(entry.sha256)
            assert (hashlib.sha256(data).hexdigest(), len(data)) == (entry.sha256, entry.size)
        parent, tree = version.hash, version.tree
    assert (head.hash, head.tree) == (parent, tree)
