"""Bounded edits of a program."""

from typing import Any

import pytest
from evolving import a_program, a_skill

from evolvable_store.resource import Kind
from evolvable_tools.evolve.edits import BadEdit, Change, Edit, Op, applied
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.programs import part_of

BASE = a_program(a_skill("pdf", "first step", "second step", notes_md="of old"), a_skill("csv", "a", "b"))
NEW = {"SKILL.md": "---\nname: x\ndescription: New.\n---\n\nbody\n"}
FROZEN = a_program(a_skill("pdf", more='metadata:\n  evolvable: "false"\n'))


def text(program: Program, ref: str, path: str = "SKILL.md") -> str:
    return {part.ref: part for part in program.parts}[ref].files[path].decode()


def refs(program: Program) -> list[str]:
    return [part.ref for part in program.parts]


def test_an_edit_changes_one_passage_and_leaves_the_rest() -> None:
    after = applied(BASE, [Edit(Op.EDIT, "skill:pdf", (Change("SKILL.md", "first step", "zeroth\nfirst step"),))])

    assert text(after, "skill:pdf") == text(BASE, "skill:pdf").replace("first", "zeroth\nfirst", 1)
    assert text(after, "skill:pdf", "notes.md") == "of old"
    assert after.digest != BASE.digest
    assert [part for part in after.parts if part.name == "csv"] == [part for part in BASE.parts if part.name == "csv"]


def test_each_operation_does_what_its_name_says() -> None:
    created = applied(BASE, [Edit(Op.CREATE, "skill:new", files=NEW)])
    split = applied(
        BASE,
        [
            Edit(
                Op.SPLIT,
                "skill:pdf",
                (Change("SKILL.md", "second step", "see skill new"),),
                other="skill:new",
                other_files=NEW,
            )
        ],
    )
    merged = applied(BASE, [Edit(Op.MERGE, "skill:pdf", files={"csv.md": "a b"}, other="skill:csv")])
    pruned = applied(BASE, [Edit(Op.PRUNE, "skill:csv"), Edit(Op.PRUNE, "skill:pdf", removed=("notes.md",))])
    rewritten = applied(BASE, [Edit(Op.RESTRUCTURE, "skill:pdf", files=NEW)])

    assert refs(created) == ["skill:csv", "skill:new", "skill:pdf"]
    assert "see skill new" in text(split, "skill:pdf") and text(split, "skill:new") == NEW["SKILL.md"]
    assert refs(merged) == ["skill:pdf"] and text(merged, "skill:pdf", "csv.md") == "a b"
    assert refs(pruned) == ["skill:pdf"] and list(pruned.parts[0].files) == ["SKILL.md"]
    assert list(rewritten.parts[1].files) == ["SKILL.md"]


def test_edits_follow_each_other() -> None:
    edits = [
        Edit(Op.CREATE, "skill:new", files=NEW),
        Edit(Op.EDIT, "skill:new", (Change("SKILL.md", "body", "better"),)),
    ]

    assert "better" in text(applied(BASE, edits), "skill:new")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Edit(Op.EDIT, "skill:pdf", (Change("SKILL.md", "step", "x"),)), "stands 2 times"),
        (Edit(Op.EDIT, "skill:pdf", (Change("SKILL.md", "", "x"),)), "stands 0 times"),
        (Edit(Op.EDIT, "skill:pdf", (Change("none.md", "a", "x"),)), "no file 'none.md'"),
        (Edit(Op.EDIT, "skill:pdf"), "changes nothing"),
        (Edit(Op.EDIT, "skill:none", files=NEW), "none of this name"),
        (Edit(Op.CREATE, "skill:pdf", files=NEW), "there already"),
        (Edit(Op.CREATE, "skill:new"), "no files"),
        (Edit(Op.CREATE, "skill:New Thing", files=NEW), "not a name"),
        (Edit(Op.CREATE, "skill:acme/new", files=NEW), "without scope"),
        (Edit(Op.CREATE, "skill:new@3", files=NEW), "without scope and version"),
        (Edit(Op.CREATE, "skill:new", files={"../../etc/x": "y"}), "etc"),
        (Edit(Op.CREATE, "skill:new", files={"/abs": "y"}), "abs"),
        (Edit(Op.EDIT, "skill:pdf", files={"a\0b": "y"}), "a"),
        (Edit(Op.RESTRUCTURE, "skill:none", files=NEW), "none of this name"),
        (Edit(Op.SPLIT, "skill:pdf", (Change("SKILL.md", "second step", ""),)), "names no other"),
        (Edit(Op.SPLIT, "skill:pdf", (Change("SKILL.md", "second step", ""),), other="skill:csv"), "there already"),
        (Edit(Op.MERGE, "skill:pdf", files={"a.md": "x"}, other="skill:pdf"), "the same"),
        (Edit(Op.MERGE, "skill:pdf", other="skill:csv"), "changes nothing"),
        (Edit(Op.PRUNE, "skill:none"), "none of this name"),
        (Edit(Op.CREATE, "environment:tasks", files={"ENVIRONMENT.md": "x"}), "may not be changed"),
    ],
)
def test_an_edit_that_cannot_be_made_says_why_and_changes_nothing(edit: Edit, why: str) -> None:
    before = BASE.digest

    with pytest.raises(BadEdit, match=why) as bad:
        applied(BASE, [Edit(Op.EDIT, "skill:csv", files={"more.md": "x"}), edit])

    assert "Edit 2" in bad.value.text and bad.value.hint
    assert BASE.digest == before


@pytest.mark.parametrize("count", [0, 5])
def test_edits_are_few(count: int) -> None:
    edits = [Edit(Op.EDIT, "skill:pdf", files={f"{number}.md": "x"}) for number in range(count)]

    with pytest.raises(BadEdit, match=f"{count} edits"):
        applied(BASE, edits)


@pytest.mark.parametrize(
    "edit",
    [
        Edit(Op.EDIT, "skill:pdf", files={"a.md": "x"}),
        Edit(Op.PRUNE, "skill:pdf"),
        Edit(Op.RESTRUCTURE, "skill:pdf", files=NEW),
    ],
)
def test_what_is_frozen_is_changed_by_nothing(edit: Edit) -> None:
    with pytest.raises(BadEdit, match="frozen"):
        applied(FROZEN, [edit])


def test_no_edit_freezes_a_resource() -> None:
    frozen = '---\nname: new\ndescription: x\nmetadata:\n  evolvable: "false"\n---\n\nbody\n'

    with pytest.raises(BadEdit, match="freeze"):
        applied(BASE, [Edit(Op.CREATE, "skill:new", files={"SKILL.md": frozen})])


def test_a_mode_lets_only_its_kinds_be_changed() -> None:
    prompt = part_of(Kind.PROMPT, "tone", {"PROMPT.md": b"---\nname: tone\ndescription: x\n---\n\nbe brief\n"})
    both = a_program(prompt, a_skill("pdf"))
    change = Edit(Op.EDIT, "prompt:tone", (Change("PROMPT.md", "be brief", "be short"),))
    kinds: Any = frozenset({Kind.PROMPT})

    assert "be short" in text(applied(both, [change], kinds=kinds), "prompt:tone", "PROMPT.md")
    with pytest.raises(BadEdit, match="What may be: prompt|skill may not be changed"):
        applied(both, [Edit(Op.PRUNE, "skill:pdf")], kinds=kinds)
    with pytest.raises(BadEdit, match="may not be changed"):
        applied(both, [change], kinds=frozenset({Kind.SKILL}))
