"""Edits of files: exactly one place, whatever the line ends, and the same for verbs and reviews."""

import pytest

from evolvable_store.errors import EditConflict, InvalidArgument, NoSuchFile
from evolvable_store.objects import File
from evolvable_store.resource import Ref
from evolvable_tools.file_edits import TextEdit, append_line, edit_text
from evolvable_tools.review.candidates import SkillEdit, SkillEditOp, _apply

PDF = Ref.parse("skill:pdf")
STEPS = "one\ntwo\n\nthree\n"


def reviewed(edit: SkillEdit, text: str) -> dict[str, str]:
    files = {"SKILL.md": File(text.encode())}
    _apply(files, edit, PDF)
    return {path: file.data.decode() for path, file in files.items()}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (SkillEdit(SkillEditOp.TEXT, old="two\n", new="2\n"), "one\n2\n\nthree\n"),
        (SkillEdit(SkillEditOp.ADD_GUARD, old="one\ntwo", new="stop"), "one\ntwo\nstop\n\nthree\n"),
        (SkillEdit(SkillEditOp.REORDER, old="one\n", after="two\n"), "two\n\none\nthree\n"),
    ],
    ids=["text", "guard", "reorder"],
)
def test_an_edit_of_a_review_keeps_the_line_ends_of_the_file(
    edit: SkillEdit, after: str, end: str
) -> None:
    made = reviewed(edit, STEPS.replace("\n", end))["SKILL.md"]

    assert made.replace("\r\n", "\n").split() == after.split()
    if edit.op is SkillEditOp.TEXT:
        assert made == after.replace("\n", end)


def test_a_split_moves_a_text_into_a_new_file() -> None:
    made = reviewed(SkillEdit(SkillEditOp.SPLIT, old="three", to="more.md"), STEPS)

    assert made == {"SKILL.md": "one\ntwo\n\nSee [more.md](more.md).\n", "more.md": "three\n"}


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (TextEdit("SKILL.md", "o", "x"), EditConflict),
        (TextEdit("SKILL.md", "", "x"), EditConflict),
        (TextEdit("SKILL.md", "four", "x"), EditConflict),
        (TextEdit("none.md", "one", "x"), NoSuchFile),
        (TextEdit("SKILL.md", "one", "\ud800"), InvalidArgument),
    ],
    ids=["twice", "empty", "missing", "no file", "surrogate"],
)
def test_an_edit_without_exactly_one_place_is_refused(
    edit: TextEdit, error: type[Exception]
) -> None:
    with pytest.raises(error):
        edit_text({"SKILL.md": STEPS.encode()}, edit, PDF)


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n\0IHDR", "IHDR h\u00e4".encode("utf-16"), "IHDR \u00e4".encode("latin-1")],
    ids=["picture", "utf-16", "latin-1"],
)
def test_a_text_edit_of_a_file_that_is_not_text_is_refused(data: bytes) -> None:
    """Only the whole file can be given: UTF-8 inside of another encoding is readable in neither."""
    edit = TextEdit("assets/big logo.png", "IHDR", "\u00e4")

    with pytest.raises(InvalidArgument, match=r"^assets/big logo.png of .*pdf .*UTF-8") as refused:
        edit_text({"assets/big logo.png": data}, edit, PDF)
    assert "the whole file" in refused.value.hint
    with pytest.raises(InvalidArgument, match=r"^tasks.jsonl .*UTF-8"):
        append_line({"tasks.jsonl": File(data)}, "tasks.jsonl", "{}")


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        ("one\r\ntwo\r\n", "one", "1\n1b", "1\r\n1b\r\ntwo\r\n"),
        ("one\r\ntwo", "two", "2\n2b", "one\r\n2\r\n2b"),
        ("one\r\ntwo\r\n", "\ntwo", "\n2", "one\r\n2\r\n"),
        ("one\r\ntwo\r\n", "\ntwo", "", "one\r\n"),
        ("one\r\ntwo\r\n", "one\r\n", "1\r\n1b\r\n", "1\r\n1b\r\ntwo\r\n"),
        ("one\r\ntwo\nthree\n", "two", "2\n2b", "one\r\n2\n2b\nthree\n"),
        ("one\ntwo", "two", "2\n2b", "one\n2\n2b"),
    ],
    ids=[
        "one line",
        "last line",
        "begins with an end",
        "removes an end",
        "as it is",
        "mixed",
        "lf",
    ],
)
def test_new_lines_end_as_the_lines_around_them(data: str, old: str, new: str, after: str) -> None:
    assert edit_text({"a.md": data.encode()}, TextEdit("a.md", old, new), PDF) == after.encode()
