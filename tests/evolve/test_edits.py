"""Bounded edits of a program."""

from typing import Any

import pytest
from evolving import a_program, a_skill

from evolvable_evolve.evolution.candidates.program_edits import (
    EditOperation,
    InvalidEdit,
    ProgramEdit,
    apply_edits,
)
from evolvable_evolve.evolution.candidates.programs import Program, make_part
from evolvable_store.resource import Kind
from evolvable_tools.file_edits import TextEdit

CSV = a_skill("csv", "a", "b")
BASE = a_program(
    a_skill("pdf", "first step", "second step", notes_md="of old"),
    make_part(Kind.SKILL, "csv", {**CSV.files, "logo.png": b"\x89PNG\r\n\x1a\n\0IHDR"}),
)
NEW = {"SKILL.md": "---\nname: x\ndescription: New.\n---\n\nbody\n"}
FROZEN = a_program(a_skill("pdf", more='metadata:\n  evolvable: "false"\n'))


def text(program: Program, ref: str, path: str = "SKILL.md") -> str:
    return {part.ref: part for part in program.parts}[ref].files[path].decode()


def refs(program: Program) -> list[str]:
    return [part.ref for part in program.parts]


def test_an_edit_changes_one_passage_and_leaves_the_rest() -> None:
    after = apply_edits(
        BASE,
        [
            ProgramEdit(
                EditOperation.EDIT,
                "skill:pdf",
                (TextEdit("SKILL.md", "first step", "zeroth\nfirst step"),),
            )
        ],
    )

    assert text(after, "skill:pdf") == text(BASE, "skill:pdf").replace("first", "zeroth\nfirst", 1)
    assert text(after, "skill:pdf", "notes.md") == "of old"
    assert after.digest != BASE.digest
    assert [part for part in after.parts if part.name == "csv"] == [
        part for part in BASE.parts if part.name == "csv"
    ]


def test_each_operation_does_what_its_name_says() -> None:
    created = apply_edits(BASE, [ProgramEdit(EditOperation.CREATE, "skill:new", files=NEW)])
    split = apply_edits(
        BASE,
        [
            ProgramEdit(
                EditOperation.SPLIT,
                "skill:pdf",
                (TextEdit("SKILL.md", "second step", "see skill new"),),
                other="skill:new",
                other_files=NEW,
            )
        ],
    )
    merged = apply_edits(
        BASE,
        [ProgramEdit(EditOperation.MERGE, "skill:pdf", files={"csv.md": "a b"}, other="skill:csv")],
    )
    pruned = apply_edits(
        BASE,
        [
            ProgramEdit(EditOperation.PRUNE, "skill:csv"),
            ProgramEdit(EditOperation.PRUNE, "skill:pdf", removed=("notes.md",)),
        ],
    )
    rewritten = apply_edits(BASE, [ProgramEdit(EditOperation.RESTRUCTURE, "skill:pdf", files=NEW)])

    assert refs(created) == ["skill:csv", "skill:new", "skill:pdf"]
    assert (
        "see skill new" in text(split, "skill:pdf") and text(split, "skill:new") == NEW["SKILL.md"]
    )
    assert refs(merged) == ["skill:pdf"] and text(merged, "skill:pdf", "csv.md") == "a b"
    assert refs(pruned) == ["skill:pdf"] and list(pruned.parts[0].files) == ["SKILL.md"]
    assert list(rewritten.parts[1].files) == ["SKILL.md"]


def test_edits_follow_each_other() -> None:
    edits = [
        ProgramEdit(EditOperation.CREATE, "skill:new", files=NEW),
        ProgramEdit(EditOperation.EDIT, "skill:new", (TextEdit("SKILL.md", "body", "better"),)),
    ]

    assert "better" in text(apply_edits(BASE, edits), "skill:new")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (
            ProgramEdit(EditOperation.EDIT, "skill:pdf", (TextEdit("SKILL.md", "step", "x"),)),
            "is there 2 times",
        ),
        (
            ProgramEdit(EditOperation.EDIT, "skill:pdf", (TextEdit("SKILL.md", "", "x"),)),
            "is not there",
        ),
        (
            ProgramEdit(EditOperation.EDIT, "skill:pdf", (TextEdit("none.md", "a", "x"),)),
            "no file none.md",
        ),
        (
            ProgramEdit(EditOperation.EDIT, "skill:csv", (TextEdit("logo.png", "IHDR", "x"),)),
            "not text in UTF-8",
        ),
        (ProgramEdit(EditOperation.EDIT, "skill:pdf"), "changes nothing"),
        (ProgramEdit(EditOperation.EDIT, "skill:none", files=NEW), "none of this name"),
        (ProgramEdit(EditOperation.CREATE, "skill:pdf", files=NEW), "there already"),
        (ProgramEdit(EditOperation.CREATE, "skill:new"), "no files"),
        (ProgramEdit(EditOperation.CREATE, "skill:New Thing", files=NEW), "not a name"),
        (ProgramEdit(EditOperation.CREATE, "skill:acme/new", files=NEW), "without scope"),
        (ProgramEdit(EditOperation.CREATE, "skill:new@3", files=NEW), "without scope and version"),
        (ProgramEdit(EditOperation.CREATE, "skill:new", files={"../../etc/x": "y"}), "etc"),
        (ProgramEdit(EditOperation.CREATE, "skill:new", files={"/abs": "y"}), "abs"),
        (ProgramEdit(EditOperation.EDIT, "skill:pdf", files={"a\0b": "y"}), "a"),
        (ProgramEdit(EditOperation.RESTRUCTURE, "skill:none", files=NEW), "none of this name"),
        (
            ProgramEdit(
                EditOperation.SPLIT, "skill:pdf", (TextEdit("SKILL.md", "second step", ""),)
            ),
            "names no other",
        ),
        (
            ProgramEdit(
                EditOperation.SPLIT,
                "skill:pdf",
                (TextEdit("SKILL.md", "second step", ""),),
                other="skill:csv",
            ),
            "there already",
        ),
        (
            ProgramEdit(EditOperation.MERGE, "skill:pdf", files={"a.md": "x"}, other="skill:pdf"),
            "the same",
        ),
        (ProgramEdit(EditOperation.MERGE, "skill:pdf", other="skill:csv"), "changes nothing"),
        (ProgramEdit(EditOperation.PRUNE, "skill:none"), "none of this name"),
        (
            ProgramEdit(EditOperation.CREATE, "environment:tasks", files={"ENVIRONMENT.md": "x"}),
            "may not be changed",
        ),
    ],
)
def test_an_edit_that_cannot_be_made_says_why_and_changes_nothing(
    edit: ProgramEdit, why: str
) -> None:
    before = BASE.digest

    with pytest.raises(InvalidEdit, match=why) as bad:
        apply_edits(
            BASE, [ProgramEdit(EditOperation.EDIT, "skill:csv", files={"more.md": "x"}), edit]
        )

    assert "Edit 2" in bad.value.text and bad.value.hint
    assert bad.value.text.count(bad.value.hint) == 1  # the records of a run are this text
    assert BASE.digest == before


@pytest.mark.parametrize("count", [0, 5])
def test_edits_are_few(count: int) -> None:
    edits = [
        ProgramEdit(EditOperation.EDIT, "skill:pdf", files={f"{number}.md": "x"})
        for number in range(count)
    ]

    with pytest.raises(InvalidEdit, match=f"{count} edits"):
        apply_edits(BASE, edits)


@pytest.mark.parametrize(
    "edit",
    [
        ProgramEdit(EditOperation.EDIT, "skill:pdf", files={"a.md": "x"}),
        ProgramEdit(EditOperation.PRUNE, "skill:pdf"),
        ProgramEdit(EditOperation.RESTRUCTURE, "skill:pdf", files=NEW),
    ],
)
def test_what_is_frozen_is_changed_by_nothing(edit: ProgramEdit) -> None:
    with pytest.raises(InvalidEdit, match="frozen"):
        apply_edits(FROZEN, [edit])


def test_no_edit_freezes_a_resource() -> None:
    frozen = '---\nname: new\ndescription: x\nmetadata:\n  evolvable: "false"\n---\n\nbody\n'

    with pytest.raises(InvalidEdit, match="freeze"):
        apply_edits(
            BASE, [ProgramEdit(EditOperation.CREATE, "skill:new", files={"SKILL.md": frozen})]
        )


def test_a_mode_lets_only_its_kinds_be_changed() -> None:
    prompt = make_part(
        Kind.PROMPT, "tone", {"PROMPT.md": b"---\nname: tone\ndescription: x\n---\n\nbe brief\n"}
    )
    both = a_program(prompt, a_skill("pdf"))
    change = ProgramEdit(
        EditOperation.EDIT, "prompt:tone", (TextEdit("PROMPT.md", "be brief", "be short"),)
    )
    kinds: Any = frozenset({Kind.PROMPT})

    assert "be short" in text(apply_edits(both, [change], kinds=kinds), "prompt:tone", "PROMPT.md")
    with pytest.raises(InvalidEdit, match="kind skill may not be changed") as refused:
        apply_edits(both, [ProgramEdit(EditOperation.PRUNE, "skill:pdf")], kinds=kinds)
    assert "prompt" in refused.value.hint
    with pytest.raises(InvalidEdit, match="may not be changed"):
        apply_edits(both, [change], kinds=frozenset({Kind.SKILL}))
