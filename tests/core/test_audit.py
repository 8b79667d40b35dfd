"""The audit log: every decision is in it, and a row that was changed, removed, moved or cut off
shows.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evolvable_store.errors import AlreadyExists, InvalidArgument, LibraryError
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.audit import AuditEntry, Decision
from evolvable_store.storage.connection import dbapi
from evolvable_tools import audit
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, proposal_inbox, release, versions

PERSON = Caller(Actor.HUMAN, "s-1", principal=Principal.PERSON, via="terminal")
AGENT = Caller(Actor.AGENT, "s-2", principal=Principal.AGENT, via="client:codex")
REMOTE = replace(PERSON, via="oidc:ada@login.example.org", address="192.0.2.7")


def text(body: str) -> dict[str, bytes]:
    return {
        "SKILL.md": f"---\nname: pdf\ndescription: Works with PDF files.\n---\n\n{body}\n".encode()
    }


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with Library.open(tmp_path / "library", create=True) as opened:
        edit.update_resource(
            opened, PERSON, Ref.parse("pdf"), "made", files=text("one"), create=True
        )
        yield opened


def proposed(library: Library, body: str) -> int:
    ref = Ref.parse("skill:user/pdf")
    base = library.store.head(ref).version or 0
    changed = {
        "SKILL.md": replace(
            library.store.files(library.store.head(ref))["SKILL.md"], data=text(body)["SKILL.md"]
        )
    }
    return proposal_inbox.propose(library, AGENT, ref, base, changed, "shorter")


def entries(library: Library) -> list[AuditEntry]:
    return list(audit.read_entries(library))


def decisions(library: Library) -> list[tuple[str, str]]:
    return [(one.decision, one.subject) for one in entries(library)]


def test_decisions_are_recorded_with_who_what_and_from_where_and_other_changes_are_not(
    library: Library,
) -> None:
    first, second = proposed(library, "two"), proposed(library, "three")
    approved = proposal_inbox.approve_together(library, REMOTE, [first], "clear")[0]
    proposal_inbox.reject(library, second, "no", PERSON)
    proposal_inbox.reopen(library, PERSON, second)
    versions.undo(library, PERSON, "back", operation=approved.operation)
    release.set_policy(library, PERSON, "live", "all of it")
    edit.update_resource(
        library, AGENT, Ref.parse("pdf"), "an edit", files=text("four"), expected_version=3
    )

    assert decisions(library) == [
        ("approve", "skill:pdf@2 (proposal 1)"),
        ("reject", "skill:pdf (proposal 2)"),
        ("reopen", "skill:pdf (proposal 2)"),
        ("undo", "skill:pdf@3"),
        ("set policy", "channel live"),
    ]
    one = entries(library)[0]
    assert (one.principal, one.via, one.address) == (
        "person",
        "oidc:ada@login.example.org",
        "192.0.2.7",
    )
    assert (one.session, one.operation) == ("s-1", approved.operation)
    assert entries(library)[1].address  # this machine's name
    assert audit.verify_log(library).intact


def test_a_refused_decision_leaves_no_row(library: Library) -> None:
    number = proposed(library, "two")
    proposal_inbox.reject(library, number, "no", PERSON)
    with pytest.raises(InvalidArgument):
        proposal_inbox.reject(library, number, "again", PERSON)
    with pytest.raises(InvalidArgument):
        proposal_inbox.approve_together(library, PERSON, [number], "late")
    assert len(entries(library)) == 1


def filled(library: Library, rows: int = 4) -> str:
    """Record some decisions; return the head."""
    who = Identity(Principal.PERSON, "page")
    log = library.store.backend.audit
    log.add(
        *(
            Decision(f"2026-11-23T10:00:0{n}Z", "reject", f"skill:s{n}", who, "127.0.0.1")
            for n in range(rows)
        )
    )
    return audit.verify_log(library).head


def tamper(library: Library, *statements: str) -> None:
    """Write to the file as its owner can: without the triggers."""
    with dbapi.connect(library.store.home / "library.db") as db:
        triggers = [
            row[0] for row in db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")
        ]
        for name in ("audit_is_not_changed", "audit_is_not_removed"):
            db.execute(f"DROP TRIGGER {name}")
        for one in statements:
            db.execute(one)
        for sql in triggers:
            db.execute(sql)
        db.commit()
    db.close()


@pytest.mark.parametrize(
    "statement", ["UPDATE audit SET via = 'terminal'", "DELETE FROM audit WHERE number = 4"]
)
def test_the_library_refuses_to_change_or_remove_a_row(library: Library, statement: str) -> None:
    filled(library)
    with (
        pytest.raises((LibraryError, dbapi.Error), match="append-only"),
        library.store.backend.audit._backend.writing() as db,
    ):
        db.execute(statement)
    assert len(entries(library)) == 4


TAMPERED = {
    "a row changed": (
        ["UPDATE audit SET subject = 'skill:x' WHERE number = 2"],
        "row 2 was changed",
    ),
    "a row removed": (["DELETE FROM audit WHERE number = 2"], "row 2 is missing"),
    "rows exchanged": (
        [
            "UPDATE audit SET number = 90 WHERE number = 2",
            "UPDATE audit SET number = 2 WHERE number = 3",
            "UPDATE audit SET number = 3 WHERE number = 90",
        ],
        "row 2 does not follow",
    ),
    "a row removed and the rest numbered anew": (
        [
            "DELETE FROM audit WHERE number = 2",
            "UPDATE audit SET number = number + 100 WHERE number > 2",
            "UPDATE audit SET number = number - 101 WHERE number > 100",
        ],
        "row 2 does not follow",
    ),
    "the first row removed": (["DELETE FROM audit WHERE number = 1"], "row 1 is missing"),
    "a row put in": (
        [
            "INSERT INTO audit SELECT 5, at, decision, 'skill:y', principal, via, address, "
            "session, operation, hash, hash FROM audit WHERE number = 4"
        ],
        "row 5 was changed",
    ),
    "the time changed": (
        ["UPDATE audit SET at = '2026-11-24' WHERE number = 4"],
        "row 4 was changed",
    ),
}


@pytest.mark.parametrize(("statements", "says"), TAMPERED.values(), ids=TAMPERED.keys())
def test_tampering_shows_in_the_chain(library: Library, statements: list[str], says: str) -> None:
    filled(library)
    tamper(library, *statements)
    report = audit.verify_log(library)
    assert not report.intact and any(says in problem for problem in report.problems), (
        report.problems
    )


def test_a_cut_off_end_shows_only_against_a_head_that_was_noted(library: Library) -> None:
    head = filled(library)
    tamper(library, "DELETE FROM audit WHERE number >= 3")
    assert audit.verify_log(library).intact
    report = audit.verify_log(library, head)
    (problem,) = report.problems
    assert "row 4" in problem and "noted" in problem


def test_a_log_that_was_written_anew_shows_only_against_a_head_that_was_noted(
    library: Library,
) -> None:
    head = filled(library)
    tamper(library, "DELETE FROM audit")
    filled(library, 5)
    assert audit.verify_log(library).intact
    who = Identity(Principal.PERSON, "terminal")
    assert audit.verify_log(library, head).intact  # equal rows have equal hashes
    tamper(library, "DELETE FROM audit")
    library.store.backend.audit.add(Decision("2026-11-23T10:00:00Z", "approve", "skill:s0", who))
    assert not audit.verify_log(library, head).intact


def test_an_approval_whose_row_is_gone_from_the_end_is_missed(library: Library) -> None:
    proposal_inbox.approve_together(library, PERSON, [proposed(library, "two")], "clear")
    proposal_inbox.approve_together(library, PERSON, [proposed(library, "three")], "clear")
    tamper(library, "DELETE FROM audit WHERE number = 2")
    (problem,) = audit.verify_log(library).problems
    assert "approved proposal 2" in problem and "no row" in problem


@pytest.mark.parametrize("head", ["4", "x:y", "1:" + "a" * 63, "1:" + "G" * 64, "-1:" + "a" * 64])
def test_a_head_that_is_none_is_refused(library: Library, head: str) -> None:
    with pytest.raises(InvalidArgument, match="is no head"):
        audit.verify_log(library, head)


def test_an_export_is_private_new_and_verifies_alone(library: Library, tmp_path: Path) -> None:
    head, target = filled(library), tmp_path / "audit.jsonl"
    assert audit.export_log(library, target) == 4
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(AlreadyExists):
        audit.export_log(library, target)
    report = audit.verify_entries(audit.read_export(target), head)
    assert report.intact and report.head == head

    lines = target.read_text().splitlines()
    lines[1] = lines[1].replace("skill:s1", "skill:s9")
    target.write_text("\n".join(lines) + "\n")
    assert audit.verify_entries(audit.read_export(target)).problems == ["row 2 was changed"]


@pytest.mark.parametrize("line", ["", "[]", "{}", "nul", "[" * 5000, json.dumps({"number": "1"})])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, line: str) -> None:
    source = tmp_path / "export"
    source.write_text(line + "\n")
    with pytest.raises(InvalidArgument, match="Line 1 of"):
        list(audit.read_export(source))


def test_texts_that_a_database_would_change_are_stored_as_they_are_hashed(library: Library) -> None:
    who = Identity(Principal.PERSON, "oidc:\udcff\0x@h")
    library.store.backend.audit.add(Decision("2026", "reject", "skill:\ud800\0", who, "\udc80"))
    assert audit.verify_log(library).intact
