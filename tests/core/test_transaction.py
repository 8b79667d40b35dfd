"""The one door for a change: versions, conflicts, freezing, restoring, removing, and operations as
a whole.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import pytest
from postgres_place import add_later_columns, remove_later_columns
from samples import FROZEN, Clock, attacks, skill
from soundness import all_changes, assert_sound, whole_history

from evolvable_store.errors import (
    AlreadyExists,
    Conflict,
    EvolvableError,
    Frozen,
    InvalidArgument,
    InvalidPath,
    InvalidRef,
    NoSuchFile,
    NoSuchOperation,
    NoSuchResource,
    NoSuchVersion,
    TooLarge,
    VersionConflict,
)
from evolvable_store.objects import EXECUTABLE, MAX_FILE, File
from evolvable_store.operation import Actor, Identity, Intent, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.bindings import Binding, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.transaction import WriteResult

PDF = Ref.parse("pdf")
XLS = Ref.parse("xls")
DOC = Ref.parse("doc")
Put = Callable[..., WriteResult]


def text_of(store: Store, ref: Ref, version: int | None = None) -> str:
    return store.file(store.head(ref), "SKILL.md", version).data.decode()


# Versions


def test_versions_are_numbered_from_one_without_gaps(store: Store, put: Put) -> None:
    assert [put("pdf", text).version for text in ("a", "b", "c")] == [1, 2, 3]
    assert [past.version.number for past in whole_history(store, store.head(PDF))] == [1, 2, 3]
    assert_sound(store)


def test_each_resource_has_its_own_numbers(store: Store, put: Put) -> None:
    put("pdf", "a")
    put("pdf", "b")
    assert put("xls", "a").version == 1
    assert store.head(PDF).version == 2


def test_every_version_can_be_read_byte_for_byte(store: Store, put: Put) -> None:
    """docs/promises.md."""
    files = {
        "SKILL.md": File(b"\xff\x00 any bytes"),
        "scripts/run.sh": File(b"#!/bin/sh\n", EXECUTABLE),
        "e": File(b""),
    }
    with store.transaction(Actor.HUMAN, "with a script") as tx:
        tx.put(PDF, files)
    put("pdf", "all else is gone")
    head = store.head(PDF)
    assert store.files(head, 1) == files
    assert store.files(head) == store.files(head, 2) == skill("all else is gone")


def test_one_name_may_be_used_in_every_kind_and_scope(store: Store) -> None:
    refs = [Ref(kind, "pdf", scope) for kind in Kind for scope in ("user", "acme")]
    with store.transaction(Actor.IMPORT, "all") as tx:
        for ref in refs:
            tx.put(ref, {"X.md": File(str(ref).encode())})
    assert {written.version for written in tx.written} == {1}
    for ref in refs:
        assert store.file(store.head(ref), "X.md").data == str(ref).encode()


def test_a_write_whose_content_is_the_heads_makes_no_version(store: Store, put: Put) -> None:
    """attacks.json lineage-06; nothing is written to the log either."""
    put("pdf", "same")
    before = store.sequence()
    again = put("pdf", "same", expected_version=1)
    assert (again.version, again.previous, again.changed) == (1, 1, False)
    assert store.sequence() == before


def test_the_same_content_after_another_is_a_new_version(store: Store, put: Put) -> None:
    assert [put("pdf", text).version for text in ("a", "b", "a")] == [1, 2, 3]
    assert store.version(store.head(PDF), 1).tree == store.version(store.head(PDF), 3).tree
    assert store.version(store.head(PDF), 1).hash != store.version(store.head(PDF), 3).hash


def test_a_file_made_executable_is_a_new_version(store: Store) -> None:
    for mode in (0o644, 0o755):
        with store.transaction(Actor.HUMAN, "mode") as tx:
            tx.put(PDF, {"SKILL.md": File(b"x"), "run": File(b"x", mode)})
    assert store.head(PDF).version == 2
    assert store.file(store.head(PDF), "run").mode == EXECUTABLE


# What is expected of the head


@pytest.mark.parametrize("expected", [None, 0])
def test_a_new_name_is_made_when_none_or_nothing_is_expected(
    put: Put, expected: int | None
) -> None:
    assert put("pdf", "a", expected_version=expected).version == 1


@pytest.mark.parametrize("expected", [None, 2])
def test_a_write_that_expects_the_head_or_nothing_succeeds(put: Put, expected: int | None) -> None:
    put("pdf", "a")
    put("pdf", "b")
    written = put("pdf", "c", expected_version=expected)
    assert (written.ref, written.version, written.previous, written.changed) == (
        PDF.within("user"),
        3,
        2,
        True,
    )


@pytest.mark.parametrize("expected", [0, 1, 3, 2**70, -1])
def test_a_write_that_expects_another_version_is_a_conflict_that_names_both(
    store: Store, put: Put, expected: int
) -> None:
    """attacks.json lineage-02 (a negative one)."""
    put("pdf", "a")
    put("pdf", "b")
    with pytest.raises(VersionConflict, match=f"version {expected}.*version 2") as conflict:
        put("pdf", "c", expected_version=expected)
    assert (conflict.value.ref, conflict.value.expected, conflict.value.head) == (
        "skill:pdf",
        expected,
        2,
    )
    assert text_of(store, PDF) == "b"


def test_a_write_that_expects_a_version_of_what_is_not_there_is_a_conflict(
    store: Store, put: Put
) -> None:
    with pytest.raises(VersionConflict, match="does not exist") as conflict:
        put("pdf", "a", expected_version=1)
    assert conflict.value.head == 0
    assert store.head_or_none(PDF) is None


def test_equal_content_does_not_excuse_a_stale_expectation(put: Put) -> None:
    put("pdf", "a")
    put("pdf", "b")
    with pytest.raises(VersionConflict):
        put("pdf", "b", expected_version=1)


def test_restore_and_remove_expect_as_put_does(store: Store, put: Put) -> None:
    put("pdf", "a")
    put("pdf", "b")
    with pytest.raises(VersionConflict), store.transaction(Actor.AGENT, "stale") as tx:
        tx.restore(PDF, 1, expected_version=1)
    with pytest.raises(VersionConflict), store.transaction(Actor.AGENT, "stale") as tx:
        tx.remove(PDF, expected_version=1)
    assert store.head(PDF).version == 2


def test_one_of_an_update_and_a_restore_wins_and_the_other_learns_of_it(
    store: Store, put: Put
) -> None:
    """attacks.json lineage-11."""
    put("pdf", "a")
    put("pdf", "b")
    with store.transaction(Actor.AGENT, "restore") as tx:
        tx.restore(PDF, 1, expected_version=2)
    with pytest.raises(VersionConflict):
        put("pdf", "c", expected_version=2)
    assert text_of(store, PDF) == "a"


def test_create_refuses_a_name_that_is_taken(store: Store, put: Put) -> None:
    """attacks.json lineage-09."""
    put("pdf", "a")
    with pytest.raises(AlreadyExists, match="version 1"):
        put("pdf", "b", create=True)
    assert text_of(store, PDF) == "a"
    assert put("xls", "b", create=True).version == 1


def test_create_takes_a_name_that_was_removed(store: Store, put: Put) -> None:
    put("pdf", "a")
    with store.transaction(Actor.HUMAN, "away") as tx:
        tx.remove(PDF)
    assert put("pdf", "b", create=True).version == 2


# Frozen


@pytest.mark.parametrize("actor", [actor for actor in Actor if actor is not Actor.HUMAN])
def test_what_is_frozen_refuses_every_actor_but_a_person(
    store: Store, put: Put, actor: Actor
) -> None:
    put("pdf", "first", Actor.HUMAN)
    put("pdf", FROZEN, Actor.HUMAN)
    assert store.head(PDF).frozen
    for write in (
        lambda tx: tx.put(PDF, skill("other")),
        lambda tx: tx.put(PDF, skill(FROZEN)),
        lambda tx: tx.put(PDF, {**skill(FROZEN), "more.md": File(b"x")}),
        lambda tx: tx.restore(PDF, 1),
        lambda tx: tx.remove(PDF),
    ):
        with pytest.raises(Frozen, match=str(actor)), store.transaction(actor, "try") as tx:
            write(tx)
    assert store.head(PDF).version == 2


def test_a_person_may_change_and_thaw_what_is_frozen(store: Store, put: Put) -> None:
    put("pdf", FROZEN, Actor.HUMAN)
    put("pdf", FROZEN + "More.\n", Actor.HUMAN)
    put("pdf", FROZEN.replace("false", "true"), Actor.HUMAN)
    assert not store.head(PDF).frozen
    assert put("pdf", "by an agent", Actor.AGENT).version == 4


def test_what_is_frozen_and_removed_stays_closed_to_all_but_a_person(
    store: Store, put: Put
) -> None:
    put("pdf", FROZEN, Actor.HUMAN)
    with store.transaction(Actor.HUMAN, "away") as tx:
        tx.remove(PDF)
    with pytest.raises(Frozen):
        put("pdf", "mine now", Actor.AGENT)
    with pytest.raises(Frozen), store.transaction(Actor.AGENT, "back") as tx:
        tx.restore(PDF, 1)
    assert put("pdf", "again", Actor.HUMAN).version == 2


def test_restoring_a_frozen_version_freezes_again(store: Store, put: Put) -> None:
    put("pdf", FROZEN, Actor.HUMAN)
    put("pdf", "free", Actor.HUMAN)
    with store.transaction(Actor.AGENT, "back") as tx:
        tx.restore(PDF, 1)
    with pytest.raises(Frozen):
        put("pdf", "other", Actor.AGENT)


def test_a_skill_whose_main_file_is_skill_md_in_small_letters_can_be_frozen(
    store: Store, put: Put
) -> None:
    """The Agent Skills reference accepts both spellings, so both must freeze."""
    with store.transaction(Actor.HUMAN, "as found") as tx:
        tx.put(PDF, {"skill.md": File(FROZEN.encode())})
    with pytest.raises(Frozen):
        put("pdf", "other", Actor.AGENT)
    put("pdf", "free", Actor.HUMAN)
    with store.transaction(Actor.HUMAN, "back") as tx:
        tx.restore(PDF, 1)
    assert store.head(PDF).frozen


def test_the_word_in_another_file_or_in_the_body_freezes_nothing(store: Store) -> None:
    with store.transaction(Actor.AGENT, "harmless") as tx:
        tx.put(PDF, skill(f"---\nname: pdf\n---\n{FROZEN}", notes=FROZEN))
    assert not store.head(PDF).frozen


# Restore


def test_a_restore_makes_a_new_version_with_the_old_content(store: Store, put: Put) -> None:
    for text in ("a", "b", "c"):
        put("pdf", text)
    with store.transaction(Actor.HUMAN, "a was better") as tx:
        tx.restore(PDF, 1, expected_version=3)
    assert (tx.written[0].version, tx.written[0].previous) == (4, 3)
    assert [text_of(store, PDF, number) for number in (1, 2, 3, 4)] == ["a", "b", "c", "a"]
    assert_sound(store)


def test_restoring_the_head_changes_nothing(store: Store, put: Put) -> None:
    put("pdf", "a")
    with store.transaction(Actor.HUMAN, "again") as tx:
        tx.restore(PDF, 1)
    assert (tx.written[0].changed, tx.operation, store.head(PDF).version) == (False, None, 1)


@pytest.mark.parametrize("number", [0, -1, 3, 2**70])
def test_a_version_that_never_was_cannot_be_restored(store: Store, put: Put, number: int) -> None:
    """attacks.json lineage-03."""
    put("pdf", "a")
    put("pdf", "b")
    with pytest.raises(NoSuchVersion) as refusal, store.transaction(Actor.AGENT, "restore") as tx:
        tx.restore(PDF, number)
    assert "versions 1 to 2" in refusal.value.hint
    assert store.head(PDF).version == 2


def test_what_never_was_cannot_be_restored_or_removed(store: Store) -> None:
    with pytest.raises(NoSuchResource), store.transaction(Actor.AGENT, "restore") as tx:
        tx.restore(PDF, 1)
    with pytest.raises(NoSuchResource), store.transaction(Actor.AGENT, "remove") as tx:
        tx.remove(PDF)


# Remove and return


def test_a_removed_resource_is_gone_and_its_history_stays(store: Store, put: Put) -> None:
    put("pdf", "a")
    put("pdf", "b")
    with store.transaction(Actor.AGENT, "not needed") as tx:
        tx.remove(PDF, expected_version=2)
    assert (tx.written[0].version, tx.written[0].previous, tx.written[0].changed) == (None, 2, True)
    with pytest.raises(NoSuchResource, match="was removed.* 2 versions"):
        store.head(PDF)
    assert store.heads() == []
    tombstone = store.head_or_none(PDF)
    assert tombstone is not None
    assert (tombstone.version, tombstone.latest) == (None, 2)
    assert store.files(tombstone, 1) == skill("a")
    assert_sound(store)


def test_heads_of_several_names_are_read_at_once_with_removed_ones_and_without_those_of_others(
    store: Store, put: Put
) -> None:
    put("pdf", "a")
    put("xls", "b")
    put("skill:far/doc", "of another scope")
    put("prompt:tables", "of another kind")
    with store.transaction(Actor.AGENT, "away") as tx:
        tx.remove(XLS)
    names = ["pdf", "xls", "doc", "tables", "it's", "", "pdf"]
    found = store.backend.heads_by_name(Kind.SKILL, "user", names)
    assert found == {"pdf": store.head(PDF), "xls": store.head_or_none(XLS)}
    assert store.backend.heads_by_name(Kind.SKILL, "user", []) == {}


def test_what_is_removed_is_not_there_to_expect_or_to_remove(store: Store, put: Put) -> None:
    put("pdf", "a")
    with store.transaction(Actor.AGENT, "away") as tx:
        tx.remove(PDF)
    with (
        pytest.raises(NoSuchResource, match="removed already"),
        store.transaction(Actor.AGENT, "away") as tx,
    ):
        tx.remove(PDF)
    with pytest.raises(VersionConflict) as conflict:
        put("pdf", "b", expected_version=1)
    assert conflict.value.head == 0


def test_a_returning_resource_continues_its_history(store: Store, put: Put) -> None:
    put("pdf", "a")
    with store.transaction(Actor.AGENT, "away") as tx:
        tx.remove(PDF)
    back = put("pdf", "b", expected_version=0)
    assert (back.version, back.previous) == (2, None)
    assert [past.version.number for past in whole_history(store, store.head(PDF))] == [1, 2]
    assert_sound(store)


def test_returning_with_the_same_content_returns_to_the_same_version(
    store: Store, put: Put
) -> None:
    put("pdf", "a")
    with store.transaction(Actor.AGENT, "away") as tx:
        tx.remove(PDF)
    back = put("pdf", "a")
    assert (back.version, back.previous, back.changed) == (1, None, True)
    assert store.head(PDF).latest == 1
    assert_sound(store)


def test_a_removed_resource_is_restored_from_any_of_its_versions(store: Store, put: Put) -> None:
    for text in ("a", "b"):
        put("pdf", text)
    with store.transaction(Actor.AGENT, "away") as tx:
        tx.remove(PDF)
    with store.transaction(Actor.HUMAN, "back") as tx:
        tx.restore(PDF, 1, expected_version=0)
    assert tx.written[0].version == 3
    assert text_of(store, PDF) == "a"


# Operations


def test_several_writes_are_one_operation(store: Store, put: Put) -> None:
    put("doc", "old")
    with store.transaction(Actor.EVOLUTION, "together", session="s1", evidence=["e1", "e2"]) as tx:
        tx.put(PDF, skill("p"))
        tx.put(XLS, skill("x"))
        tx.remove(DOC)
    assert [written.version for written in tx.written] == [1, 1, None]
    assert tx.operation is not None
    assert [change.ref.name for change in store.backend.changes_of([tx.operation.id])] == [
        "pdf",
        "xls",
        "doc",
    ]
    assert store.operation(tx.operation.id) == tx.operation
    assert tx.operation.intent.evidence == ("e1", "e2")
    assert store.operations(session="s1") == [tx.operation]
    assert_sound(store)


def test_the_first_changes_of_each_operation_leave_out_the_others(store: Store, put: Put) -> None:
    with store.transaction(Actor.AGENT, "together") as many:
        for ref in (PDF, XLS, DOC):
            many.put(ref, skill(ref.name))
    put("pdf", "between")
    put("xls", "alone")
    assert many.operation is not None
    (alone,) = store.operations(1)
    found = store.backend.first_changes_of([many.operation.id, alone.id], 2)
    made = [(change.operation, change.ref.name) for change in found]
    assert made == [(many.operation.id, "pdf"), (many.operation.id, "xls"), (alone.id, "xls")]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_conflict_among_several_writes_publishes_nothing(
    store: Store, put: Put, place: int
) -> None:
    for name in ("pdf", "xls", "doc"):
        put(name, "old")
    before = all_changes(store)
    with pytest.raises(VersionConflict), store.transaction(Actor.AGENT, "all or nothing") as tx:
        for number, ref in enumerate((PDF, XLS, DOC)):
            tx.put(ref, skill("new"), expected_version=9 if number == place else 1)
        tx.put(Ref.parse("brand-new"), skill("new"))
    assert all_changes(store) == before
    assert [text_of(store, ref) for ref in (PDF, XLS, DOC)] == ["old"] * 3
    assert store.head_or_none(Ref.parse("brand-new")) is None
    assert (tx.written, tx.operation) == ([], None)


def test_an_exception_in_the_block_publishes_nothing(store: Store) -> None:
    """docs/promises.md."""
    with pytest.raises(KeyError), store.transaction(Actor.AGENT, "breaks") as tx:
        tx.put(PDF, skill("a"))
        raise KeyError
    assert (store.sequence(), store.heads(), tx.operation) == (0, [], None)


def test_nothing_is_seen_before_the_block_ends(store: Store) -> None:
    with store.transaction(Actor.AGENT, "later") as tx:
        tx.put(PDF, skill("a"))
        assert store.head_or_none(PDF) is None
    assert store.head(PDF).version == 1


def test_a_refused_write_leaves_the_door_open(store: Store, put: Put) -> None:
    put("pdf", "a")
    with pytest.raises(Conflict):
        put("pdf", "b", expected_version=7)
    assert put("pdf", "b", expected_version=1).version == 2


def test_writes_to_one_resource_in_one_operation_follow_each_other(store: Store) -> None:
    with store.transaction(Actor.AGENT, "step by step") as tx:
        tx.put(PDF, skill("a"), expected_version=0)
        tx.put(PDF, skill("b"), expected_version=1)
        tx.remove(PDF, expected_version=2)
        tx.restore(PDF, 1, expected_version=0)
    assert [written.version for written in tx.written] == [1, 2, None, 3]
    assert {past.operation.id for past in whole_history(store, store.head(PDF))} == {1}
    assert_sound(store)


def test_an_operation_is_kept_only_when_something_changed(store: Store, put: Put) -> None:
    put("pdf", "a")
    with store.transaction(Actor.AGENT, "nothing new") as tx:
        tx.put(PDF, skill("a"))
    with store.transaction(Actor.AGENT, "nothing at all") as empty:
        pass
    assert (tx.operation, empty.operation, len(store.operations())) == (None, None, 1)


@pytest.mark.parametrize("reason", ["", "  ", "\n"])
def test_a_change_needs_a_reason(store: Store, reason: str) -> None:
    with pytest.raises(InvalidArgument, match="reason"):
        store.transaction(Actor.AGENT, reason)


def test_a_version_says_who_made_it_when_and_why(store: Store, clock: Clock) -> None:
    with store.transaction(
        Actor.REVIEW, "clearer triggers", session="s7", evidence=["run 3"]
    ) as tx:
        tx.put(PDF, skill("a"))
    (past,) = store.history(store.head(PDF))
    operation = past.operation
    assert (operation.actor, operation.reason, operation.session) == (
        Actor.REVIEW,
        "clearer triggers",
        "s7",
    )
    assert operation.at == "2026-11-20T12:00:00.000000Z"
    assert past.version.operation == operation.id == 1


def test_the_order_of_versions_does_not_depend_on_the_clock(
    store: Store, put: Put, clock: Clock
) -> None:
    """Jumps of ten years, back and forth."""
    for number, days in enumerate((0, 3650, -7300, 3650), start=1):
        clock.move(days=days)
        assert put("pdf", f"{number}").version == number
    assert [operation.id for operation in store.operations()] == [4, 3, 2, 1]
    assert text_of(store, PDF) == "4"
    assert_sound(store)


@pytest.mark.parametrize("field", ["reason", "session", "evidence"])
@pytest.mark.parametrize(
    "text", ["\ud800", "a\x00b", "'; DROP TABLE change; --", "🦔" * 1000, "\u202e"]
)
def test_any_text_of_an_operation_is_kept_as_it_is_or_refused(
    store: Store, field: str, text: str
) -> None:
    said = {"reason": "r", "session": "s", "evidence": ("e",)} | {
        field: (text,) if field == "evidence" else text
    }
    try:
        with store.transaction(Actor.AGENT, **said) as tx:  # type: ignore[arg-type]
            tx.put(PDF, skill("a"))
    except InvalidArgument:
        assert store.sequence() == 0
    else:
        kept = store.operation(1).intent
        assert {"reason": kept.reason, "session": kept.session, "evidence": kept.evidence} == said
        assert_sound(store)


# What cannot be written


def test_what_no_resource_may_hold_is_refused_at_once(store: Store) -> None:
    with store.transaction(Actor.AGENT, "try") as tx:
        with pytest.raises(InvalidPath):
            tx.put(PDF, {"../SKILL.md": File(b"x")})
        with pytest.raises(TooLarge):
            tx.put(PDF, {"SKILL.md": File(bytes(MAX_FILE + 1))})
    assert store.sequence() == 0


@pytest.mark.parametrize("case", attacks("name", "reject"), ids=lambda case: case["id"])
def test_a_hostile_name_is_refused_even_when_no_text_was_parsed(
    store: Store, case: dict[str, str]
) -> None:
    """attacks.json, category name, by a caller that builds the ref itself."""
    for ref in (Ref(Kind.SKILL, case["input"]), Ref(Kind.SKILL, "pdf", case["input"])):
        with pytest.raises(EvolvableError), store.transaction(Actor.AGENT, "try") as tx:
            tx.put(ref, skill("a"))
    assert store.sequence() == 0


def test_a_version_in_a_ref_cannot_be_sql() -> None:
    """attacks.json lineage-04."""
    with pytest.raises(InvalidRef):
        Ref.parse("pdf@1;drop")


# Reading


@pytest.mark.parametrize("number", [0, -1, 2, 2**40])
def test_a_version_that_is_not_there_is_never_answered_with_another(
    store: Store, put: Put, number: int
) -> None:
    put("pdf", "a")
    head = store.head(PDF)
    for read in (store.version, store.manifest, store.files):
        with pytest.raises(NoSuchVersion):
            read(head, number)
    with pytest.raises(NoSuchVersion):
        store.file(head, "SKILL.md", number)


def test_a_number_beyond_all_bounds_is_an_answer_and_no_crash(store: Store, put: Put) -> None:
    put("pdf", "a")
    head = store.head(PDF)
    with pytest.raises(EvolvableError):
        store.version(head, 2**70)
    with pytest.raises(EvolvableError):
        store.operation(2**70)
    with pytest.raises(NoSuchOperation):
        store.operation(0)


def test_a_missing_file_is_answered_with_the_files_there_are(store: Store, put: Put) -> None:
    put("pdf", "a")
    with pytest.raises(NoSuchFile) as refusal:
        store.file(store.head(PDF), "REFERENCE.md")
    assert "SKILL.md" in refusal.value.hint


def test_a_missing_name_is_answered_with_names_that_are_near(store: Store, put: Put) -> None:
    put("pdf-reader", "a")
    with pytest.raises(NoSuchResource) as refusal:
        store.head(Ref.parse("pdfreader"))
    assert "pdf-reader" in refusal.value.hint


def test_scopes_are_looked_through_in_order_and_never_beyond(store: Store) -> None:
    """A project's resource hides the user's; attacks.json lineage-12: another's scope
    is not seen.
    """
    with store.transaction(Actor.HUMAN, "three") as tx:
        for scope in ("user", "acme", "other"):
            tx.put(PDF.within(scope), skill(scope))
        tx.put(XLS.within("other"), skill("secret"))
    assert store.file(store.head(PDF, ("acme", "user")), "SKILL.md").data == b"acme"
    assert store.file(store.head(PDF, ("user",)), "SKILL.md").data == b"user"
    assert store.file(store.head(PDF.within("other")), "SKILL.md").data == b"other"
    with pytest.raises(NoSuchResource):
        store.head(XLS, ("acme", "user"))


def test_history_comes_newest_first_in_pages(store: Store, put: Put) -> None:
    for number in range(1, 6):
        put("pdf", f"{number}")
    head = store.head(PDF)
    assert [past.version.number for past in store.history(head, limit=2)] == [5, 4]
    assert [past.version.number for past in store.history(head, limit=2, below=4)] == [3, 2]
    assert store.history(head, below=1) == store.history(head, below=0) == []


def test_the_log_tells_every_move_in_order(store: Store, put: Put) -> None:
    put("pdf", "a")
    put("xls", "a")
    put("pdf", "b")
    with store.transaction(Actor.AGENT, "away") as tx:
        tx.remove(PDF)
    moves = [
        (change.sequence, change.ref.name, change.before, change.after)
        for change in store.changes()
    ]
    assert moves == [
        (1, "pdf", None, 1),
        (2, "xls", None, 1),
        (3, "pdf", 1, 2),
        (4, "pdf", 2, None),
    ]
    assert [change.sequence for change in store.changes(after=2, limit=1)] == [3]
    assert store.sequence() == 4


# Threads


def test_threads_that_write_at_once_lose_nothing(store: Store, put: Put) -> None:
    put("pdf", "")

    def add(word: str) -> int:
        while True:
            head = store.head(PDF)
            text = store.file(head, "SKILL.md", head.version).data.decode()
            try:
                return put("pdf", f"{text} {word}", expected_version=head.version).version or 0
            except VersionConflict:
                continue

    with ThreadPoolExecutor(8) as pool:
        versions = list(pool.map(add, (f"w{number}" for number in range(120))))
    assert sorted(versions) == list(range(2, 122))
    assert sorted(text_of(store, PDF).split()) == sorted(f"w{number}" for number in range(120))
    assert_sound(store)


@pytest.mark.process
def test_a_reader_sees_an_operation_whole_or_not_at_all(store: Store) -> None:
    """Two skills that always move together are never seen apart by one reading of the heads."""
    stop, torn = threading.Event(), []

    def watch() -> None:
        while not stop.is_set():
            trees = {head.tree for head in store.heads()}
            if len(trees) > 1:
                torn.append(trees)

    watchers = [threading.Thread(target=watch) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for number in range(150):
            with store.transaction(Actor.AGENT, "both") as tx:
                tx.put(PDF, skill(f"{number}"))
                tx.put(XLS, skill(f"{number}"))
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    assert torn == []
    assert_sound(store)


# Later versions


def test_columns_that_a_later_version_adds_stop_no_write(
    store: Store, put: Put, tmp_path: Path
) -> None:
    """Servers of both versions may have the library open.

    With `-m nightly` the whole suite runs on such a library.
    """
    put("pdf", "before")
    # With `-m nightly`, the library may have those of open_later.
    add_later_columns(store, "later_still")
    try:
        put("pdf", "after")
        put("xls", "new")
        with store.transaction(Actor.HUMAN, "back") as tx:
            tx.restore(PDF, 1)
        head, backend = store.head(PDF), store.backend
        backend.attestations.attribute([(head.id, 2)], store.now(), Identity(Principal.AGENT))
        folder = backend.bindings.add_folder(tmp_path / "skills", "user", Kind.SKILL)
        backend.bindings.bind([Binding(folder.id, "pdf", head.id, 2, "", "")])
        assert [one.version for one in backend.bindings.of_resources([head.id])] == [2]
        assert text_of(store, PDF) == text_of(store, PDF, 1) != text_of(store, PDF, 2)
        assert_sound(store)
    finally:
        remove_later_columns(store, "later_still")


@pytest.mark.parametrize("added", ["skills", "", "skills/inside"])
def test_a_folder_that_another_process_adds_meanwhile_is_found_or_in_the_way(
    store: Store,
    reopen: Callable[[], Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    added: str,
) -> None:
    bindings, look = store.backend.bindings, store.backend.bindings.folders

    def look_before_another_adds_one() -> list[WatchedFolder]:
        found = look()
        monkeypatch.setattr(bindings, "folders", look)
        with reopen() as other:
            other.backend.bindings.add_folder(tmp_path / added, "user", Kind.SKILL)
        return found

    monkeypatch.setattr(bindings, "folders", look_before_another_adds_one)
    if added == "skills":
        assert [bindings.add_folder(tmp_path / "skills", "user", Kind.SKILL)] == look()
    else:
        with pytest.raises(AlreadyExists, match="lie in one another"):
            bindings.add_folder(tmp_path / "skills", "user", Kind.SKILL)
        assert len(look()) == 1


def test_an_intent_that_is_dated_has_every_other_field_it_had() -> None:
    values = {one.name: f"{one.name} as given" for one in fields(Intent)}

    assert Intent(**values).with_time("now") == Intent(**(values | {"at": "now"}))  # type: ignore[arg-type]
