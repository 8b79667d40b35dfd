"""The audit log over every storage: rows are added in order, and neither changed nor removed."""

import pytest

from evolvable_store.errors import LibraryError
from evolvable_store.operation import Identity, Principal
from evolvable_store.storage.audit import Decision
from evolvable_store.store import Store

WHO = Identity(Principal.PERSON, "oidc:ada@login.example.org")


def test_rows_are_chained_in_order_and_the_library_changes_none(store: Store) -> None:
    log = store.backend.audit
    log.add(*(Decision("2026", "reject", f"skill:s{n}", WHO, "192.0.2.7", "s") for n in range(3)))
    log.add(Decision("2026", "approve", "skill:s3@2", WHO, operation=4))
    rows = log.entries()

    assert [one.number for one in rows] == [1, 2, 3, 4]
    assert [one.previous for one in rows] == ["", *(one.hash for one in rows[:-1])]
    assert all(one.hash == one.expected_hash for one in rows)
    assert log.entries(2, 1) == [rows[2]] and log.newest(1) == [rows[3]]
    for statement in ("UPDATE audit SET via = 'x'", "DELETE FROM audit WHERE number = 4"):
        with pytest.raises(LibraryError, match="append-only"):
            log._do(statement)
    assert log.entries() == rows
