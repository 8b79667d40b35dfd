"""Edits of files: exactly one place, whatever the line ends, and the same for verbs and reviews."""

import pytest

from evolvable_store.errors import EditConflict, InvalidArgument, NoSuchFile
from evolvable_store.objects import File
from evolvable_store.resource import Ref
from evolvable_tools.file_edits import TextEdit, edit_text
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
def test_an_edit_of_a_review_keeps_the_line_ends_of_the_file(edit: SkillEdit, after: str, end: str) -> None:
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
def test_an_edit_without_exactly_one_place_is_refused(edit: TextEdit, error: type[Exception]) -> None:
    with pytest.raises(error):
        edit_text({"SKILL.md": STEPS.encode()}, edit, PDF)
