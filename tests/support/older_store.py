"""Makes this process write as a program that knew only so many steps of the schema."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evolvable_store import store
from evolvable_store.operation import Intent
from evolvable_store.storage import migrations
from evolvable_store.storage.sql import SqlWriter

CHANNEL, PRINCIPALS = 5, 10


@contextmanager
def as_older(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Knows only this many steps of the schema, and writes no more than they have room for."""
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "STEPS", migrations.STEPS[:steps])
        patch.setattr(migrations, "LATEST", steps)
        if steps < PRINCIPALS:
            patch.setattr(store, "Intent", lambda *fields: Intent(*fields[:6]))
            patch.setattr(SqlWriter, "add_operation", _add_operation)
        patch.setattr(SqlWriter, "follow", lambda *_: None)
        yield


def _add_operation(writer: SqlWriter, identity: int, last: int, intent: Intent, arrived: bool) -> None:
    row = (identity, last, intent.at, intent.actor, intent.reason, intent.session, None, None)
    writer.db.execute("INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
