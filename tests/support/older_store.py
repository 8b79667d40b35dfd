"""Makes this process write as a program that knew only so many steps of the schema."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evolvable_store import store
from evolvable_store.objects import Manifest
from evolvable_store.operation import Head, Intent
from evolvable_store.provenance import Provenance
from evolvable_store.storage import migrations
from evolvable_store.storage.sql import SqlWriter

CHANNEL, PRINCIPALS, PROVENANCE, ARRIVAL = 5, 10, 26, 27


@contextmanager
def as_older(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Knows only this many steps of the schema, and writes no more than they have room for."""
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", migrations.STEPS[:steps])
        patch.setattr(migrations, "LATEST", steps)
        if steps < PRINCIPALS:
            patch.setattr(store, "Intent", lambda *fields: Intent(*fields[:6]))
            patch.setattr(SqlWriter, "add_operation", _add_operation)
        if steps < PROVENANCE:
            patch.setattr(SqlWriter, "provenance", lambda *_: Provenance(0))
            patch.setattr(SqlWriter, "add_change", _add_change)
        if PRINCIPALS <= steps < ARRIVAL:
            patch.setattr(SqlWriter, "add_operation", _add_operation_of_a_principal)
        patch.setattr(SqlWriter, "follow", lambda *_: None)
        yield


def _add_operation(writer: SqlWriter, identity: int, last: int, intent: Intent, *_: object) -> None:
    row = (identity, last, intent.at, intent.actor, intent.reason, intent.session, None, None)
    writer.db.execute("INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


def _add_operation_of_a_principal(
    writer: SqlWriter, identity: int, last: int, intent: Intent, arrived: bool, _: object
) -> None:
    row = (identity, last, intent.at, intent.actor, intent.reason, intent.session, None, None)
    whose = (intent.principal, intent.via or None, int(arrived))
    writer.db.execute(
        "INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, *whose)
    )


def _add_change(
    writer: SqlWriter,
    head: Head,
    operation: int,
    before: int | None,
    manifest: Manifest | None,
    _: object = None,
) -> None:
    h, text = head, manifest.to_json() if manifest is not None else None
    row = (
        h.sequence,
        operation,
        h.id,
        before,
        h.version,
        h.latest,
        h.tree,
        h.hash,
        int(h.frozen),
        text,
    )
    writer.db.execute("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
