"""Compact old rows: impressions become counts of a day, and refused proposals lose their files."""

import json
from dataclasses import dataclass

from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.proposals import EXPIRED, REJECTED
from evolvable_store.storage.sqlite_file import SqliteRepository

_TOGETHER = 500
"""Rows that are folded under one write lock, for which others wait."""

_UNSETTLED = "SELECT search FROM pool_unit WHERE session IS NULL AND search IS NOT NULL"
"""Searches whose impressions a trial needs to find the session of a unit."""

# The impression of a search that a trial still needs stays, however old it is.
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
        """Return the counts of rows older than this moment (ISO 8601 in UTC) for `fold`."""
        row = self._one(f"SELECT count(*) FROM shown WHERE {_OLD}", before)
        return FoldedRows(int(row[0]), len(self._refused_proposals(before)))

    def fold(self, before: str, now: str) -> FoldedRows:
        """Fold rows older than this moment, in batches; return their counts.

        Raises as every write.
        """
        proposals = self._refused_proposals(before)
        resources = self._resources(before)
        folded = sum(self._fold_impressions(resource, before) for resource in resources)
        removed = 0
        query = """UPDATE proposal SET files_removed_at = ? WHERE files_removed_at IS NULL
            AND state IN (?, ?)
            AND id IN (SELECT CAST(value AS INTEGER) FROM json_each(?))"""
        for start in range(0, len(proposals), _TOGETHER):
            batch = json.dumps(proposals[start : start + _TOGETHER])
            removed += self._do(query, now, REJECTED, EXPIRED, batch)
        return FoldedRows(folded, removed)

    def _resources(self, before: str) -> list[int]:
        return self._all(int, f"SELECT DISTINCT resource FROM shown WHERE {_OLD}", before)

    def _fold_impressions(self, resource: int, before: str) -> int:
        return sum(iter(lambda: self._fold_batch(resource, before), 0))

    def _fold_batch(self, resource: int, before: str) -> int:
        """Fold a batch of impressions of a resource, the oldest first; return how many.

        Impressions that count nowhere, such as those of an archive, are deleted without a count.
        """
        query = (
            f"SELECT search, at, origin FROM shown WHERE resource = ? AND {_OLD} "
            "ORDER BY at LIMIT ?"
        )
        with self._backend.writing() as db:
            rows = db.execute(query, (resource, before, _TOGETHER)).fetchall()
            days: dict[str, list[str]] = {}
            for _, at, origin in rows:
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
        """Return the proposals with files that were rejected or expired before this moment."""
        query = """SELECT id, kind, scope, name FROM proposal WHERE state IN (?, ?)
            AND files_removed_at IS NULL
            AND at < ? AND coalesce(expires, '') < ? AND manifest <> '{}' ORDER BY id"""
        # The audit log has the time of a rejection; the proposal has only the time of its making.
        rejected_later = "SELECT subject FROM audit WHERE decision = 'reject' AND at >= ?"
        lately = set(self._all(str, rejected_later, before))
        return [
            int(identity)
            for identity, kind, scope, name in self._rows(query, REJECTED, EXPIRED, before, before)
            if f"{Ref(Kind(kind), name, scope)} (proposal {identity})" not in lately
        ]
