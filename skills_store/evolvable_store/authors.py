"""Who stands behind the content of a head: the actors of the operations that made it, as the history says."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from evolvable_store.operation import Actor, Principal
from evolvable_store.sqlite import SqliteBackend

_NEWEST = 50
"""Versions of a resource among which equal content is looked for."""


@dataclass(frozen=True, slots=True)
class Author:
    """One operation that made the content of a head.

    proposed: it approved what somebody else had proposed. principal: who answers for it, None for an operation of a
    version before 0.2; via: how that is known.
    """

    actor: Actor
    version: int
    session: str | None
    proposed: bool
    principal: Principal | None = None
    operation: int = 0
    via: str = ""


def authors(backend: SqliteBackend, resources: Iterable[int]) -> dict[int, list[Author]]:
    """Returns by resource who made its newest version, newest first, with all who made the same content before."""
    with backend.reading() as db:
        rows = db.execute(_AUTHORS, (json.dumps(list(resources)), _NEWEST)).fetchall()
    found: dict[int, list[Author]] = {}
    for resource, version, actor, session, evidence, principal, arrived, via, operation in rows:
        proposed = any(
            text.startswith("proposal ") and " by human" not in text for text in json.loads(evidence or "[]")
        )
        known = Principal.IMPORT if arrived else Principal(principal) if principal else None
        author = Author(Actor(actor), version, session, proposed, known, operation, via)
        found.setdefault(resource, []).append(author)
    return found


_AUTHORS = """WITH newest AS (
        SELECT r.id, c.latest, c.tree FROM resource r JOIN change c ON c.sequence = (
            SELECT sequence FROM change WHERE resource = r.id ORDER BY latest DESC, sequence DESC LIMIT 1)
        WHERE r.id IN (SELECT value FROM json_each(?1))
    )
    SELECT n.id, c.latest, o.actor, o.session, o.evidence, coalesce(a.principal, o.principal),
        o.arrived AND a.principal IS NULL, coalesce(a.via, o.via, ''), o.id
    FROM newest n
    JOIN change c ON c.resource = n.id AND c.latest > n.latest - ?2 AND c.tree = n.tree AND c.manifest IS NOT NULL
    JOIN operation o ON o.id = c.operation
    LEFT JOIN attribution a ON a.resource = c.resource AND a.version = c.latest
    ORDER BY c.sequence DESC"""
