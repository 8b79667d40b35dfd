"""Who may be found: the documents that a search may return."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evolvable_store.driver import Connection

FEW = 400
"""So many documents are looked at one by one; of more, the best are looked up."""

_MOST_KNOWN = 20_000  # documents, some two megabytes


@dataclass(frozen=True, slots=True)
class Visible:
    """Which entries a search may return: a condition over `entry e`, and its values."""

    condition: str
    values: tuple[Any, ...]

    def documents(self, db: "Connection", limit: int) -> dict[int, int]:
        """Returns some documents that there are, at most `limit`, each with its resource."""
        return self._select(db, "", (), limit)

    def among(self, db: "Connection", documents: Sequence[int]) -> dict[int, int]:
        """Returns those of the documents that may be returned, each with its resource."""
        return self._select(db, " AND e.document IN (SELECT value FROM json_each(?))", (json.dumps(documents),), -1)

    def _select(self, db: "Connection", further: str, values: tuple[Any, ...], limit: int) -> dict[int, int]:
        query = f"SELECT e.document, e.id FROM entry e WHERE {self.condition}{further} LIMIT ?"
        return dict(db.execute(query, (*self.values, *values, limit)).fetchall())


class Seen:
    """The documents that a search may return in one state of the index: each is looked up once."""

    def __init__(self, db: "Connection", visible: Visible) -> None:
        documents = visible.documents(db, FEW + 1)
        self.few = documents if len(documents) <= FEW else None
        """All of them, each with its resource, when they are few."""
        self._visible = visible
        self._known: dict[int, int | None] = {}

    def among(self, db: "Connection", documents: Sequence[int]) -> dict[int, int]:
        """Returns those of the documents that may be returned, each with its resource."""
        known = self._known if len(self._known) < _MOST_KNOWN else {}
        unknown = [document for document in documents if document not in known]
        if unknown:
            known.update(dict.fromkeys(unknown) | self._visible.among(db, unknown))
            self._known = known
        return {document: resource for document in documents if (resource := known[document]) is not None}
