"""A JSON archive moves histories between libraries: every version, operation and byte."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import FROZEN, attacks, skill
from soundness import all_changes, assert_sound, replayed

from evolvable_store.bundle import archive_reader as stream_module
from evolvable_store.bundle.export import export_json
from evolvable_store.bundle.import_ import ImportReport, import_json
from evolvable_store.errors import (
    EvolvableError,
    InvalidArchive,
    LibraryError,
    NoSuchResource,
    TooLarge,
)
from evolvable_store.fsck import check_library
from evolvable_store.objects import (
    EXECUTABLE,
    File,
    Manifest,
    TreeEntry,
    blob_hash,
    chain_hash,
    make_manifest,
)
from evolvable_store.operation import Actor, Intent
from evolvable_store.resource import Ref
from evolvable_store.storage.protocol import ReplayStep
from evolvable_store.store import Store
from evolvable_store.transaction import replay

PDF, TOOL = Ref.parse("skill:user/pdf"), Ref.parse("tool:acme/t")
BYTES = [
    b"",
    b"\xff\xfe",
    b"\xef\xbb\xbfbom",
    b"a\0b",
    b"a\r\nb\rc",
    "\u2028\U0001f600\u0301".encode(),
    b'"\\\x1b[31m',
]


@pytest.fixture
def full(store: Store) -> Store:
    """A library in which everything has happened that can."""
    for number in range(3):
        with store.transaction(
            Actor.AGENT, f"write {number}", session="s", evidence=["seen", "twice"]
        ) as tx:
            tx.put(
                PDF,
                {
                    **skill(f"text {number}"),
                    **{f"{n}.bin": File(data) for n, data in enumerate(BYTES)},
                },
            )
            tx.put(
                TOOL, {"TOOL.md": File(b"t%d" % number), "run.sh": File(b"#!/bin/sh\n", EXECUTABLE)}
            )
    change(store, PDF, None)
    change(store, PDF, "text back")
    with store.transaction(Actor.REVIEW, "restore", undoes=[1, 3]) as tx:
        tx.restore(PDF, 1)
    change(store, TOOL, None)
    change(store, Ref.parse("skill:kept"), FROZEN)
    change(store, Ref.parse("skill:kept"), FROZEN + "more\n", Actor.HUMAN)
    return store


def change(store: Store, ref: Ref, text: str | None, actor: Actor = Actor.AGENT) -> None:
    """Writes one file, or removes the resource, in an operation of its own."""
    with store.transaction(actor, f"change {ref}") as tx:
        if text is None:
            tx.remove(ref)
        else:
            tx.put(ref, {f"{ref.kind.upper()}.md": File(text.encode())})


def exported(store: Store, refs: list[Ref] | None = None) -> dict[str, Any]:
    stream = io.BytesIO()
    export_json(store, stream, refs)
    document: dict[str, Any] = json.loads(stream.getvalue())
    return document


def imported(store: Store, document: object) -> ImportReport:
    return import_json(store, io.BytesIO(json.dumps(document).encode()))


def histories(document: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns the whole history of each resource as an archive tells it, but for the ids of one
    library.
    """
    operations = {operation.pop("id"): operation for operation in document["operations"]}
    told: dict[str, list[Any]] = {}
    for step in document["changes"]:
        told.setdefault(step.pop("ref"), []).append(
            {**step, "operation": operations[step["operation"]]}
        )
    return told


def grouped(document: dict[str, Any]) -> list[list[str]]:
    """Returns the refs that each operation changed."""
    ids = [operation["id"] for operation in document["operations"]]
    return [[step["ref"] for step in document["changes"] if step["operation"] == i] for i in ids]


def test_an_empty_library_gets_everything_as_it_was(
    full: Store, other: Store, tmp_path: Path
) -> None:
    refs = export_json(full, tmp_path / "all.json")
    assert [str(ref) for ref in refs] == ["skill:kept", "skill:pdf", "tool:acme/t"]
    assert import_json(other, tmp_path / "all.json") == ImportReport(
        None, added=[PDF, TOOL, refs[0]]
    )
    assert histories(exported(other)) == histories(exported(full))
    assert grouped(exported(other)) == grouped(exported(full))
    assert exported(other)["blobs"] == exported(full)["blobs"]
    assert replayed(all_changes(other)) == replayed(all_changes(full))
    assert [other.files(head) for head in other.heads()] == [
        full.files(head) for head in full.heads()
    ]
    assert [head.frozen for head in other.heads()] == [head.frozen for head in full.heads()]
    assert_sound(other)
    assert check_library(other).faults == ()


def test_the_same_again_changes_nothing(full: Store, other: Store) -> None:
    document = exported(full)
    imported(other, document)
    before = other.sequence()
    assert imported(other, document) == ImportReport(
        None, unchanged=[PDF, TOOL, Ref.parse("skill:user/kept")]
    )
    assert imported(full, document).added == []
    assert other.sequence() == before


def test_what_came_later_is_appended(full: Store, other: Store) -> None:
    imported(other, exported(full))
    change(full, PDF, "newer")
    change(full, PDF, "newest")
    change(full, TOOL, "back")
    change(other, Ref.parse("only-here"), "x")
    result = imported(other, exported(full))
    assert (set(result.updated), result.refused) == ({PDF, TOOL}, [])
    ours = histories(exported(other))
    assert ours.pop("skill:only-here")
    assert ours == histories(exported(full))
    assert check_library(other).faults == ()


@pytest.mark.parametrize("last", ["removed", "returned", "removed again"])
def test_removals_and_returns_are_part_of_a_history(store: Store, other: Store, last: str) -> None:
    change(store, PDF, "one")
    imported(other, exported(store))
    change(store, PDF, None)
    if last != "removed":
        change(store, PDF, "one")
    if last == "removed again":
        change(store, PDF, None)
    assert imported(other, exported(store)).updated == [PDF]
    assert histories(exported(other)) == histories(exported(store))
    assert imported(other, exported(store)).unchanged == [PDF]
    assert_sound(other)


def test_a_library_that_is_ahead_stays_as_it_is(full: Store, other: Store) -> None:
    document = exported(full)
    imported(other, document)
    change(other, PDF, "newer")
    change(other, TOOL, "back")
    before = other.sequence()
    assert imported(other, document).unchanged == [PDF, TOOL, Ref.parse("skill:user/kept")]
    assert other.sequence() == before


@pytest.mark.parametrize(
    "ours, theirs",
    [("a", "b"), (None, "b"), ("a", None), (None, None)],
    ids=["both", "removed here", "there", "twice"],
)
def test_what_went_another_way_is_left_alone_and_said(
    store: Store, other: Store, ours: str | None, theirs: str | None
) -> None:
    for text in ("zero", "one"):
        change(store, PDF, text)
    imported(other, exported(store))
    change(other, PDF, ours)
    change(store, PDF, theirs)
    change(store, TOOL, "new")
    before = histories(exported(other))
    result = imported(other, exported(store))
    ((ref, (why,)),) = result.refused
    assert ref == "skill:pdf"
    assert "went another way" in why
    assert result.added == [TOOL], "the others go on"
    assert histories(exported(other, [PDF])) == before
    assert_sound(other)


def test_an_operation_over_several_resources_stays_one(store: Store, other: Store) -> None:
    with store.transaction(Actor.AGENT, "both") as tx:
        tx.put(PDF, skill("p"))
        tx.put(TOOL, {"TOOL.md": File(b"t")})
        tx.remove(PDF)
        tx.put(PDF, skill("q"))
    imported(other, exported(store))
    assert grouped(exported(other)) == [["skill:pdf", "tool:acme/t", "skill:pdf", "skill:pdf"]]
    change(store, PDF, "r")
    assert imported(other, exported(store)).updated == [PDF]
    assert histories(exported(other)) == histories(exported(store))


def test_some_resources_can_be_chosen(full: Store, other: Store) -> None:
    document = exported(full, [TOOL])
    assert list(histories(document)) == ["tool:acme/t"]
    document = exported(full, [TOOL])
    assert len(document["blobs"]) == 4
    assert imported(other, document).added == [TOOL]
    assert imported(other, exported(full)).unchanged == [TOOL]
    with pytest.raises(NoSuchResource):
        exported(full, [Ref.parse("pfd")])


def test_text_is_text_and_the_rest_is_base64(full: Store, other: Store) -> None:
    blobs = exported(full, [PDF])["blobs"]
    texts = [blob["text"].encode() for blob in blobs if "text" in blob]
    assert [data for data in BYTES if data not in texts] == [b"\xff\xfe"]
    assert sum("base64" in blob for blob in blobs) == 1
    assert len({blob["sha256"] for blob in blobs}) == len(blobs)


def test_an_export_is_one_moment_though_others_write(full: Store, other: Store) -> None:
    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            change(full, Ref.parse("meanwhile"), str(self.tell()))
            return super().write(data)

    before = histories(exported(full))
    stream = Slow()
    export_json(full, stream)
    assert histories(json.loads(stream.getvalue())) == before
    assert import_json(other, io.BytesIO(stream.getvalue())).refused == []


def test_a_file_is_replaced_whole_or_not_at_all(full: Store, tmp_path: Path) -> None:
    target = tmp_path / "all.json"
    export_json(full, target)
    whole = target.read_bytes()
    with full.backend.writing() as db:
        db.execute("DELETE FROM blob")
    with pytest.raises(LibraryError):
        export_json(full, target)
    assert target.read_bytes() == whole
    assert [path.name for path in tmp_path.glob("*all*")] == ["all.json"]
    with pytest.raises(LibraryError, match="cannot be written"):
        export_json(full, tmp_path / "gone" / "all.json")


# What is not sound


def changed(document: dict[str, Any], where: str, index: int, **fields: Any) -> dict[str, Any]:
    """Returns the archive with these fields of one record changed."""
    document[where][index] |= fields
    return document


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a file's text": (
        lambda d: changed(d, "blobs", 0, text="eno"),
        "does not match its hash",
    ),
    "a file's name": (
        lambda d: changed(d, "blobs", 0, sha256="0" * 64),
        "does not match its hash",
    ),
    "a missing file": (lambda d: d["blobs"].pop(0), "does not match its hash"),
    "a hash": (
        lambda d: changed(d, "changes", 0, hash="0" * 64),
        "version 1 does not match",
    ),
    "a reason": (
        lambda d: changed(d, "operations", 0, reason="forged"),
        "version 1 does not match",
    ),
    "an actor": (
        lambda d: changed(d, "operations", 0, actor="human"),
        "version 1 does not match",
    ),
    "a time": (
        lambda d: changed(d, "operations", 0, at="2020-01-01T00:00:00Z"),
        "version 1 does not match",
    ),
    "evidence": (
        lambda d: changed(d, "operations", 0, evidence=["forged"]),
        "version 1 does not match",
    ),
    "a number": (lambda d: changed(d, "changes", 0, after=2), "after version 0 comes version 2"),
    "a missing version": (lambda d: d["changes"].pop(0), "after version 0 comes version 2"),
    "an order": (lambda d: d["changes"].reverse(), "after version 0 it points at version None"),
    "a missing operation": (lambda d: d["operations"].pop(0), "its operation 1 is missing"),
    "a removal of nothing": (
        lambda d: d["changes"].append(d["changes"][-1]),
        "it points at version None",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_does_not_match_is_refused_and_the_rest_goes_on(
    store: Store, other: Store, name: str
) -> None:
    for text in ("one", "two", None):
        change(store, PDF, text)
    change(store, TOOL, "sound")
    document = exported(store)
    tool = [step for step in document["changes"] if step["ref"] != "skill:pdf"]
    document["changes"] = [step for step in document["changes"] if step["ref"] == "skill:pdf"]
    forge, why = FORGERIES[name]
    forge(document)
    document["changes"] += tool
    result = imported(other, document)
    ((ref, (reason,)),) = result.refused
    assert ref == "skill:pdf"
    assert why in reason
    assert result.added == [TOOL]
    assert [str(head.ref) for head in other.heads()] == ["tool:acme/t"]
    assert check_library(other).faults == ()


class Forger:
    """Writes archives whose hashes all match, whatever they hold."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {"format": "evolvable-history", "version": 1}
        self.document |= {"operations": [], "changes": [], "blobs": []}
        self._hash, self._number = "", 0

    def add(
        self,
        actor: str,
        files: dict[str, tuple[bytes, int]],
        ref: str = "skill:pdf",
        larger: int = 0,
    ) -> "Forger":
        intent = Intent("2026-01-01T00:00:00Z", Actor(actor), "forged")
        manifest = Manifest(
            {
                path: TreeEntry(blob_hash(data), len(data) + larger, mode)
                for path, (data, mode) in files.items()
            }
        )
        self._number += 1
        self._hash = chain_hash(self._hash, self._number, manifest.tree, intent.digest)
        record = {
            "id": self._number,
            "at": intent.at,
            "actor": actor,
            "reason": "forged",
            "session": None,
        }
        self.document["operations"].append({**record, "evidence": [], "undoes": []})
        listed = json.loads(manifest.to_json())
        step = {
            "operation": self._number,
            "ref": ref,
            "after": self._number,
            "hash": self._hash,
            "files": listed,
        }
        self.document["changes"].append(step)
        for data, _ in files.values():
            self.document["blobs"].append(
                {"sha256": blob_hash(data), "text": data.decode("latin-1")}
            )
        return self


def refusal(store: Store, forger: Forger) -> str:
    result = imported(store, forger.document)
    assert store.sequence() == 0
    return result.refused[0][1][0]


MAIN = {"SKILL.md": (b"---\nname: pdf\ndescription: d\n---\nText\n", 0o644)}


def test_a_forged_archive_that_is_sound_is_taken(store: Store) -> None:
    """The control of the tests below."""
    assert imported(store, Forger().add("agent", MAIN).document).added == [PDF]


def test_an_agent_cannot_have_changed_what_was_frozen(store: Store) -> None:
    frozen = {"SKILL.md": (FROZEN.encode(), 0o644)}
    assert "while it was frozen" in refusal(store, Forger().add("human", frozen).add("agent", MAIN))
    assert imported(store, Forger().add("agent", frozen).add("human", MAIN).document).added == [PDF]


def test_a_size_that_is_not_the_files_is_refused(store: Store) -> None:
    why = refusal(store, Forger().add("agent", MAIN, larger=1))
    assert "SKILL.md is missing or does not match" in why


@pytest.mark.parametrize("mode", [0o4755, 0o600, 0o120777, 0, -1])
def test_a_mode_that_no_file_has_is_refused(store: Store, mode: int) -> None:
    assert "has the mode" in refusal(store, Forger().add("agent", {**MAIN, "x": (b"x", mode)}))


@pytest.mark.parametrize("case", attacks("path", "reject"), ids=lambda case: case["id"])
def test_a_path_that_leads_elsewhere_is_refused(store: Store, case: dict[str, Any]) -> None:
    assert "version 1: " in refusal(
        store, Forger().add("agent", {**MAIN, case["input"]: (b"x", 0o644)})
    )


def test_hostile_frontmatter_is_refused_in_any_version(store: Store) -> None:
    hostile = {"SKILL.md": (b"---\nname: pdf\ndescription: !!python/name:os.system\n---\n", 0o644)}
    why = refusal(store, Forger().add("agent", hostile).add("agent", MAIN))
    assert "version 1: SKILL.md: " in why and "frontmatter" in why


def test_a_version_without_a_change_is_refused(store: Store) -> None:
    assert "has the content of version 1" in refusal(
        store, Forger().add("agent", MAIN).add("agent", MAIN)
    )


def test_what_a_library_of_ours_may_hold_is_taken_though_it_breaks_a_specification(
    store: Store,
) -> None:
    """A library can be moved with everything in it; only what is hostile is refused."""
    assert imported(
        store, Forger().add("human", {"SKILL.md": (b"no frontmatter", 0o644)}).document
    ).added == [PDF]


@pytest.mark.parametrize(
    "ref", ["skill:../x", "skill:Pdf", "spell:pdf", "skill:a/b/c", "", "skill:\ud800"]
)
def test_a_name_that_is_none_refuses_the_archive(store: Store, ref: str) -> None:
    with pytest.raises(InvalidArchive):
        imported(store, Forger().add("agent", MAIN, ref).document)


BAD_RECORDS: dict[str, dict[str, Any]] = {
    "operations": {
        "id": "1",
        "at": 5,
        "actor": "nobody",
        "reason": " ",
        "session": [],
        "evidence": [5],
        "undoes": "1",
    },
    "changes": {"operation": 2**70, "ref": 5, "after": 0, "hash": 5, "files": [5]},
    "blobs": {"text": "\ud800"},
}


@pytest.mark.parametrize(
    "where, field", [(where, field) for where in BAD_RECORDS for field in BAD_RECORDS[where]]
)
def test_a_record_of_another_shape_refuses_the_archive(
    store: Store, where: str, field: str
) -> None:
    document = changed(
        Forger().add("agent", MAIN).document, where, 0, **{field: BAD_RECORDS[where][field]}
    )
    with pytest.raises(InvalidArchive):
        imported(store, document)
    assert store.sequence() == 0


SHA = 64 * "0"
BAD_FILES = [
    {"x": 5},
    {"x": ["00", 1, 420]},
    {"x": [SHA, "1", 420]},
    {"x": [SHA, 1]},
    {"\ud800": [SHA, 1, 420]},
]


@pytest.mark.parametrize("files", BAD_FILES)
def test_files_of_another_shape_refuse_the_archive(store: Store, files: object) -> None:
    with pytest.raises(InvalidArchive):
        imported(store, changed(Forger().add("agent", MAIN).document, "changes", 0, files=files))


def test_a_record_twice_or_none_at_all_refuses_the_archive(store: Store) -> None:
    document = Forger().add("agent", MAIN).document
    with pytest.raises(InvalidArchive):
        imported(store, {**document, "operations": 2 * document["operations"]})
    with pytest.raises(InvalidArchive):
        imported(store, {**document, "blobs": ["x"]})
    with pytest.raises(InvalidArchive):
        imported(store, {**document, "changes": {}})


NO_ARCHIVES = {
    "nothing": b"",
    "text": b"hello",
    "a list": b"[]",
    "an empty object": b"{}",
    "another format": b'{"format": "other", "version": 1}',
    "no version": b'{"format": "evolvable-history"}',
    "lists before the format": b'{"operations": [1], "format": "evolvable-history", "version": 1}',
    "two documents": b'{"format": "evolvable-history", "version": 1}{}',
    "a comma too much": b'{"format": "evolvable-history", "version": 1,}',
    "a comma too few": b'{"format": "evolvable-history" "version": 1}',
    "no UTF-8": b'{"format": "\xff"}',
    "UTF-16": '{"format": "evolvable-history", "version": 1}'.encode("utf-16"),
    "brackets without end": b'{"x": {"y": ' + b"[" * 200_000,
    "a number without end": b'{"x": ' + b"1" * 100_000 + b"}",
}


@pytest.mark.parametrize("name", NO_ARCHIVES)
def test_what_is_no_archive_says_so(store: Store, name: str) -> None:
    with pytest.raises(InvalidArchive) as raised:
        import_json(store, io.BytesIO(NO_ARCHIVES[name]))
    assert raised.value.hint


def test_an_archive_that_is_cut_off_gives_nothing(full: Store, other: Store) -> None:
    stream = io.BytesIO()
    export_json(full, stream)
    whole = stream.getvalue()
    for end in range(0, len(whole.rstrip()) - 1, 97):
        with pytest.raises(InvalidArchive):
            import_json(other, io.BytesIO(whole[:end]))
    assert other.sequence() == 0


def test_an_archive_of_a_newer_program_asks_for_an_update(store: Store) -> None:
    with pytest.raises(InvalidArchive) as raised:
        imported(store, {"format": "evolvable-history", "version": 2})
    assert "Update this program" in raised.value.text


def test_a_piece_without_end_is_not_read_to_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def read(self, size: int = -1) -> bytes:
            self.taken += size
            return b"x" * size

    monkeypatch.setattr(stream_module, "MAX_PIECE", 2**20)
    endless = Endless()
    stream = io.BytesIO(b'{"format": "')
    stream.read = lambda size=-1: io.BytesIO.read(stream, size) or endless.read(size)  # type: ignore[method-assign]
    with pytest.raises(TooLarge):
        import_json(store, stream)
    assert endless.taken < 2**23


def test_an_archive_may_be_written_with_other_spaces_and_orders(full: Store, other: Store) -> None:
    document = exported(full)
    head = {key: document[key] for key in ("format", "version")}
    text = json.dumps({**head, "blobs": document["blobs"], **document}, indent=3)
    assert import_json(other, io.BytesIO(b"\xef\xbb\xbf" + text.encode())).refused == []
    assert histories(exported(other)) == histories(exported(full))


def test_an_archive_may_come_in_any_pieces() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(1)

    document = {
        "number": 1234,
        "text": "\u2028\U0001f600",
        "list": [12, -3.5e2, {"a": [1]}],
        "none": [],
        "last": 99,
    }
    pieces = list(
        stream_module.iterate_members(Trickle(json.dumps(document, ensure_ascii=False).encode()))
    )
    listed = [("list", element) for element in document["list"]]  # type: ignore[attr-defined]
    assert pieces == [("number", 1234), ("text", document["text"]), *listed, ("last", 99)]


def test_a_file_that_is_not_there_says_so(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidArchive, match="cannot be read"):
        import_json(store, tmp_path / "gone.json")


# The door


def test_replaying_happens_whole_or_not_at_all(store: Store) -> None:
    manifest = make_manifest(skill("x"))
    intent = Intent("2026-01-01T00:00:00Z", Actor.AGENT, "r")
    good = ReplayStep(PDF, 1, 1, chain_hash("", 1, manifest.tree, intent.digest), False, manifest)
    bad = ReplayStep(TOOL, 1, 1, "0" * 64, False, manifest)
    with pytest.raises(InvalidArchive, match="tool:acme/t .*version 1"):
        replay(store.backend, [(intent, [good]), (intent, [bad])])
    assert store.sequence() == 0
    (operation,) = replay(store.backend, [(intent, [good]), (intent, [])])
    assert (operation.intent, operation.id) == (intent, 1)


Act = tuple[str, int, int]
acts = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 3)), max_size=8)


def act(store: Store, happened: list[Act]) -> None:
    """Does one thing after the other; what cannot be done is left out."""
    for name, what, number in happened:
        ref = Ref.parse(f"skill:user/{name}")
        try:
            with store.transaction(
                Actor.HUMAN, f"{name} {what} {number}", session=str(number) * number
            ) as tx:
                match what:
                    case 0 | 1:
                        tx.put(ref, skill(f"text {number}", notes=f"{what}"))
                    case 2:
                        tx.remove(ref)
                    case 3:
                        tx.restore(ref, number + 1)
                    case 4:
                        tx.put(ref, skill(f"text {number}"))
                        tx.put(Ref.parse("skill:user/c"), skill(f"{name}{number}"))
        except EvolvableError:
            continue


@pytest.mark.process
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(first=acts, then=acts, here=acts)
def test_any_history_can_be_moved_and_continued(
    tmp_path_factory: pytest.TempPathFactory, first: list[Act], then: list[Act], here: list[Act]
) -> None:
    """Whatever happened: what went on where we ended is appended, the rest is left alone, and
    nothing is unsound.
    """
    folder = tmp_path_factory.mktemp("moved")
    with (
        Store.open(folder / "a", create=True) as source,
        Store.open(folder / "b", create=True) as target,
    ):
        act(source, first)
        imported(target, exported(source))
        assert histories(exported(target)) == histories(exported(source))
        act(source, then)
        act(target, here)
        ours, theirs = histories(exported(target)), histories(exported(source))
        result = imported(target, exported(source))
        after = histories(exported(target))
        for ref in (*result.added, *result.updated):
            assert after.pop(str(ref)) == theirs[str(ref)]
        assert after == {ref: told for ref, told in ours.items() if ref in after}
        assert {ref for ref, _ in result.refused} == {
            ref for ref in ours if ref in theirs and not prefix(ours[ref], theirs[ref])
        }
        assert check_library(target).faults == ()


def prefix(one: list[Any], two: list[Any]) -> bool:
    """Returns whether one of the histories goes on where the other ends."""
    return one[: len(two)] == two[: len(one)]
