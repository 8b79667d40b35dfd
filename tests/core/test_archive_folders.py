"""Skills as plain folders: what goes out comes in again, and nothing on the disk is overwritten."""

import os
import stat
from pathlib import Path

import pytest
from samples import FROZEN
from soundness import assert_sound

from evolvable_store.bundle.folders import export_folders, import_folders
from evolvable_store.errors import (
    InvalidArchive,
    InvalidArgument,
    InvalidPath,
    LibraryError,
    NoSuchResource,
)
from evolvable_store.objects import EXECUTABLE, File, Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store

MAIN = "---\nname: {}\ndescription: Does things.\n---\nDo it.\n"


def put(store: Store, ref: str, files: Files) -> None:
    with store.transaction(Actor.HUMAN, "write") as tx:
        tx.put(Ref.parse(ref), files)


def good(name: str) -> dict[str, File]:
    return {"SKILL.md": File(MAIN.format(name).encode())}


def write(folder: Path, name: str, **more: str) -> Path:
    """Makes the folder of a skill; other files by keyword (`notes` is notes.md)."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(MAIN.format(name), encoding="utf-8")
    for other, text in more.items():
        (place / f"{other}.md").write_text(text, encoding="utf-8")
    return place


def test_skills_go_out_and_come_in_again(store: Store, other: Store, tmp_path: Path) -> None:
    put(
        store,
        "pdf",
        {**good("pdf"), "scripts/run.sh": File(b"#!/bin/sh\n", EXECUTABLE), "empty": File(b"")},
    )
    put(store, "docx", good("docx"))
    target = tmp_path / "deep" / "skills"
    assert [ref.name for ref in export_folders(store, target)] == ["docx", "pdf"]
    assert sorted(os.listdir(target)) == ["docx", "pdf"]
    assert os.access(target / "pdf" / "scripts" / "run.sh", os.X_OK)
    assert not os.access(target / "pdf" / "SKILL.md", os.X_OK)
    result = import_folders(other, target)
    assert [ref.name for ref in result.added] == ["docx", "pdf"]
    assert [other.files(head) for head in other.heads()] == [
        store.files(head) for head in store.heads()
    ]
    assert other.operation(result.operation or 0).actor is Actor.IMPORT
    assert len(other.operations(10)) == 1
    assert import_folders(other, target, replace=True).operation is None, (
        "equal content makes no version"
    )
    assert_sound(other)


def test_nothing_is_overwritten(store: Store, tmp_path: Path) -> None:
    put(store, "pdf", good("pdf"))
    put(store, "docx", good("docx"))
    mine = write(tmp_path / "skills", "pdf", notes="mine")
    with pytest.raises(InvalidArgument, match="has pdf already"):
        export_folders(store, mine.parent)
    assert os.listdir(mine.parent) == ["pdf"]
    assert (mine / "notes.md").read_text(encoding="utf-8") == "mine"
    export_folders(store, mine.parent, [Ref.parse("docx")])
    assert sorted(os.listdir(mine.parent)) == ["docx", "pdf"]


def test_what_is_not_here_or_cannot_be_written_is_named(store: Store, tmp_path: Path) -> None:
    put(store, "pdf", good("pdf"))
    with pytest.raises(NoSuchResource):
        export_folders(store, tmp_path / "out", [Ref.parse("gone")])
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(LibraryError, match="cannot be written"):
        export_folders(store, tmp_path / "file")


def test_a_library_that_somebody_forged_cannot_write_elsewhere(
    store: Store, tmp_path: Path
) -> None:
    put(store, "pdf", good("pdf"))
    with store.backend.writing() as db:
        path = "../../evil.sh"
        manifest = store.manifest(store.head(Ref.parse("pdf")))
        forged = type(manifest)({path: manifest["SKILL.md"]})
        db.execute("UPDATE change SET manifest = ?, tree = ?", (forged.to_json(), forged.tree))
    with pytest.raises(InvalidPath):
        export_folders(store, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []
    assert not list(tmp_path.rglob("evil*"))


def test_folders_are_found_below_and_a_skill_is_found_by_its_own_folder(
    store: Store, tmp_path: Path
) -> None:
    write(tmp_path / "in" / "a" / "b", "deep")
    outer = write(tmp_path / "in", "outer")
    write(outer / "examples", "inner")
    write(tmp_path / "in" / ".git", "hidden")
    result = import_folders(store, tmp_path / "in")
    assert {ref.name for ref in result.added} == {"deep", "outer"}
    assert "examples/inner/SKILL.md" in store.files(store.head(Ref.parse("outer")))
    assert import_folders(store, outer).unchanged == [Ref.parse("skill:user/outer")]


def test_links_are_not_followed(store: Store, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", "secret")
    write(tmp_path / "in", "good")
    (tmp_path / "in" / "linked").symlink_to(outside)
    (write(tmp_path / "in", "holds-link") / "x").symlink_to("/etc/passwd")
    result = import_folders(store, tmp_path / "in")
    assert [ref.name for ref in result.added] == ["good"]
    assert result.refused == [("holds-link", ("x: a symlink",))]


def test_what_breaks_a_rule_is_reported_and_the_others_go_on(store: Store, tmp_path: Path) -> None:
    write(tmp_path / "in", "good")
    write(tmp_path / "in", "Bad Name")
    (write(tmp_path / "in", "hostile") / "SKILL.md").write_bytes(b"\xff")
    put(store, "here", {"SKILL.md": File(b"other")})
    put(store, "frozen", {"SKILL.md": File(FROZEN.encode())})
    write(tmp_path / "in", "here")
    write(tmp_path / "in", "frozen")
    result = import_folders(store, tmp_path / "in")
    assert [ref.name for ref in result.added] == ["bad-name", "good"]
    assert [name for name, _ in result.refused] == ["frozen", "here", "hostile"]
    result = import_folders(store, tmp_path / "in", replace=True)
    assert [ref.name for ref in result.updated] == ["here"]
    assert [name for name, _ in result.refused] == ["frozen", "hostile"]
    assert_sound(store)


def test_other_kinds_and_scopes(store: Store, tmp_path: Path) -> None:
    place = tmp_path / "in" / "USER"
    place.mkdir(parents=True)
    (place / "USER.md").write_text("likes tea", encoding="utf-8")
    result = import_folders(store, tmp_path / "in", kind=Kind.MEMORY, scope="acme", reason="moved")
    assert result.added == [Ref(Kind.MEMORY, "USER", "acme")]
    assert store.operation(result.operation or 0).reason == "moved"


def test_a_place_without_a_skill_says_so(store: Store, tmp_path: Path) -> None:
    for place in (tmp_path / "gone", tmp_path):
        with pytest.raises(InvalidArchive, match="has no folder with"):
            import_folders(store, place)


def test_progress_grows_to_the_end(store: Store, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "in", f"s{number}")
    seen: list[tuple[int, int]] = []
    import_folders(store, tmp_path / "in", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_modes_are_plain_or_executable(store: Store, tmp_path: Path) -> None:
    place = write(tmp_path / "in", "pdf", notes="x")
    (place / "notes.md").chmod(0o4711)
    import_folders(store, tmp_path / "in")
    export_folders(store, tmp_path / "out")
    mode = (tmp_path / "out" / "pdf" / "notes.md").stat().st_mode
    assert mode & (stat.S_ISUID | stat.S_ISGID) == 0
    assert mode & stat.S_IXUSR
