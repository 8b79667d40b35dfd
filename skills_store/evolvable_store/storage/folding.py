"""Make what is old coarser: impressions become counts of a day, and refused proposals lose their
files.
"""

import json
from dataclasses import dataclass

from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.proposals import EXPIRED, REJECTED
from evolvable_store.storage.sqlite_file import SqliteRepository

_TOGETHER = 500
"""Impressions that are folded under one lock: some 10 ms."""

_UNSETTLED = "SELECT search FROM pool_unit WHERE session IS NULL AND search IS NOT NULL"
"""Searches by which a trial learns the session of a unit, from the impression itself."""

# A search that a trial still waits for keeps its impression, however old it is.
_OLD = f"at < ? AND search NOT IN ({_UNSETTLED})"


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """The rows that are folded, or would be.

    impressions: single rows. proposals: those that lose their files.
    """

    impressions: int = 0
    proposals: int = 0


class Folding(SqliteRepository):
    """Compaction of rows that are years old. Each method may be interrupted and called again."""

    def count(self, before: str) -> FoldedRows:
        """Return the counts of rows older than this moment (ISO 8601 in UTC) that `fold` would
        fold.
        """
        row = self._one(f"SELECT count(*) FROM shown WHERE {_OLD}", before)
        return FoldedRows(int(row[0]), len(self._refused_proposals(before)))

    def fold(self, before: str, now: str) -> FoldedRows:
        """Fold rows older than this moment, in batches; return their counts.

        Raises as every write.
        """
        proposals = self._refused_proposals(before)
        folded = sum(
            self._fold_impressions(resource, before) for resource in self._resources(before)
        )
        removed = 0
        query = """UPDATE proposal SET files_removed_at = ? WHERE files_removed_at IS NULL
            AND state IN (?, ?)
            AND id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))"""
        for start in range(0, len(proposals), _TOGETHER):
            some = json.dumps(proposals[start : start + _TOGETHER])
            removed += self._do(query, now, REJECTED, EXPIRED, some)
        return FoldedRows(folded, removed)

    def _resources(self, before: str) -> list[int]:
        return self._all(int, f"SELECT DISTINCT resource FROM shown WHERE {_OLD}", before)

    def _fold_impressions(self, resource: int, before: str) -> int:
        return sum(iter(lambda: self._fold_some(resource, before), 0))

    def _fold_some(self, resource: int, before: str) -> int:
        """Fold some impressions of a resource, the oldest first; return how many.

        What counts nowhere, such as what an archive brought, is no part of the counts.
        """
        query = (
            f"SELECT search, at, origin FROM shown WHERE resource = ? AND {_OLD} "
            "ORDER BY at LIMIT ?"
        )
        with self._backend.writing() as db:
            rows = db.execute(query, (resource, before, _TOGETHER)).fetchall()
            days: dict[str, list[str]] = {}
            for _, at, origin in rows:
                # Only impressions that count are counted; the others are deleted without a trace.
                if origin is None:
                    days.setdefault(at[:10], []).append(at)
            for day, moments in days.items():
                counted = (len(moments), moments[-1], resource, day)
                add = """UPDATE shown_day SET number = number + ?1, last = CASE WHEN last < ?2 THEN
                    ?2 ELSE last END
                    WHERE resource = ?3 AND day = ?4"""
                # The first impressions of a day make its row.
                if not db.execute(add, counted).rowcount:
                    db.execute(
                        "INSERT INTO shown_day (number, last, resource, day) VALUES (?, ?, ?, ?)",
                        counted,
                    )
            gone = json.dumps([row[0] for row in rows])
            delete = (
                "DELETE FROM shown WHERE resource = ? AND search IN (SELECT value "
                "FROM json_each(?))"
            )
            db.execute(delete, (resource, gone))
        return len(rows)

    def _refused_proposals(self, before: str) -> list[int]:
        """Return the proposals with files that were turned down before this moment, as far as that
        is known.
        """
        query = """SELECT id, kind, scope, name FROM proposal WHERE state IN (?, ?)
            AND files_removed_at IS NULL
            AND at < ? AND coalesce(expires, '') < ? AND manifest <> '{}' ORDER BY id"""
        # The audit log knows when a proposal was turned down; the proposal knows only when it was
        # made.
        lately = set(
            self._all(
                str, "SELECT subject FROM audit WHERE decision = 'reject' AND at >= ?", before
            )
        )
        return [
            int(identity)
            for identity, kind, scope, name in self._rows(query, REJECTED, EXPIRED, before, before)
            if f"{Ref(Kind(kind), name, scope)} (proposal {identity})" not in lately
        ]
