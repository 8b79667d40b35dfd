"""Kinds, names, scopes and the refs that write them (the name rule of agentskills.io)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import attacks

from evolvable_store.errors import InvalidRef
from evolvable_store.resource import (
    USER_SCOPE,
    Kind,
    Ref,
    check_name,
    check_scope,
    main_file,
    parse_kind,
    slugify,
)

NAMES = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True).filter(lambda name: slugify(name) == name)


@pytest.mark.parametrize(
    ("text", "ref"),
    [
        ("pdf", Ref(Kind.SKILL, "pdf")),
        ("skill:pdf", Ref(Kind.SKILL, "pdf")),
        ("skill:pdf@7", Ref(Kind.SKILL, "pdf", None, 7)),
        ("skill:acme/pdf", Ref(Kind.SKILL, "pdf", "acme")),
        ("skill:acme/pdf@12", Ref(Kind.SKILL, "pdf", "acme", 12)),
        ("acme/pdf", Ref(Kind.SKILL, "pdf", "acme")),
        ("memory:USER", Ref(Kind.MEMORY, "USER")),
        ("agent:reviewer", Ref(Kind.AGENT, "reviewer")),
        ("tool:a", Ref(Kind.TOOL, "a")),
        ("environment:web-1", Ref(Kind.ENVIRONMENT, "web-1")),
        ("prompt:" + "x" * 64, Ref(Kind.PROMPT, "x" * 64)),
    ],
)
def test_a_ref_names_kind_scope_name_and_version(text: str, ref: Ref) -> None:
    assert Ref.parse(text) == ref


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "skill:",
        "pdf@",
        "pdf@0",
        "pdf@-1",
        "pdf@1.0",
        "pdf@٣",
        "pdf@1;drop",
        "pdf@9999999999",
        "pdf@1@2",
        "/pdf",
    ]
    + ["a/b/pdf", "Skill:pdf", "virus:pdf", "skill:pdf:x", "skill: pdf", "pdf\n", "Acme/pdf", "../pdf", "USER", "con"],
)
def test_text_that_writes_no_ref_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidRef) as refusal:
        Ref.parse(text)
    assert refusal.value.hint


def test_a_bare_name_is_of_the_kind_that_the_reader_expects() -> None:
    assert Ref.parse("USER", Kind.MEMORY) == Ref(Kind.MEMORY, "USER")
    assert Ref.parse("skill:pdf", Kind.MEMORY).kind is Kind.SKILL


@pytest.mark.process
@given(
    kind=st.sampled_from(Kind),
    name=NAMES,
    scope=st.none() | st.just(USER_SCOPE) | NAMES,
    version=st.none() | st.integers(1, 999_999_999),
)
def test_a_written_ref_is_read_back_the_same(kind: Kind, name: str, scope: str | None, version: int | None) -> None:
    ref = Ref(kind, name, scope, version)
    assert Ref.parse(str(ref)) == Ref(kind, name, None if scope == USER_SCOPE else scope, version)


def test_the_users_own_scope_is_not_written() -> None:
    assert str(Ref(Kind.SKILL, "pdf", USER_SCOPE)) == "skill:pdf"
    assert str(Ref(Kind.SKILL, "pdf", "acme", 3)) == "skill:acme/pdf@3"


@given(text=st.text(max_size=100))
def test_any_text_is_a_ref_or_an_invalid_ref(text: str) -> None:
    try:
        ref = Ref.parse(text)
    except InvalidRef as refusal:
        assert refusal.text.isprintable()
    else:
        assert check_name(ref.kind, ref.name) == ref.name


@pytest.mark.parametrize("case", attacks("name", "reject"), ids=lambda case: case["id"])
def test_a_hostile_name_is_refused(case: dict[str, Any]) -> None:
    """attacks.json, category name."""
    for kind in Kind:
        with pytest.raises(InvalidRef):
            check_name(kind, case["input"])
    with pytest.raises(InvalidRef):
        check_scope(case["input"])
    with pytest.raises(InvalidRef):
        Ref.parse(case["input"])


@pytest.mark.parametrize("name", ["a", "0", "pdf-2", "x" * 64, "a-b-c"])
def test_a_name_of_the_specification_is_taken(name: str) -> None:
    assert all(check_name(kind, name) == name for kind in Kind)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a--b", "A", "a_b", "a.b", "x" * 65, "é", "aux", "com1", "lpt9"])
def test_a_name_outside_the_specification_is_refused(name: str) -> None:
    with pytest.raises(InvalidRef):
        check_name(Kind.SKILL, name)


def test_only_a_memory_may_have_a_capital_name() -> None:
    assert [check_name(Kind.MEMORY, name) for name in ("SOUL", "USER", "MEMORY")] == ["SOUL", "USER", "MEMORY"]
    with pytest.raises(InvalidRef):
        check_name(Kind.SKILL, "USER")


def test_a_refusal_proposes_the_nearest_name() -> None:
    with pytest.raises(InvalidRef, match="My_PDF Reader") as refusal:
        check_name(Kind.SKILL, "My_PDF Reader")
    assert "'my-pdf-reader' would do" in refusal.value.hint


@given(text=st.text(max_size=200))
def test_a_slug_is_a_name_or_nothing(text: str) -> None:
    slug = slugify(text)
    assert slug == "" or check_name(Kind.SKILL, slug) == slug
    assert slugify(slug) == slug


def test_a_device_of_windows_gets_a_slug_that_is_none() -> None:
    assert slugify("CON") == "con-x"


def test_there_are_six_kinds_each_with_its_main_file() -> None:
    assert {kind: main_file(kind, "x") for kind in Kind} == {
        "skill": "SKILL.md",
        "prompt": "PROMPT.md",
        "agent": "AGENT.md",
        "tool": "TOOL.md",
        "environment": "ENVIRONMENT.md",
        "memory": "MEMORY.md",
    }
    assert main_file(Kind.MEMORY, "SOUL") == "SOUL.md"
    assert main_file(Kind.MEMORY, "USER") == "USER.md"


def test_an_unknown_kind_is_answered_with_the_six() -> None:
    with pytest.raises(InvalidRef) as refusal:
        parse_kind("skil")
    assert all(kind in refusal.value.hint for kind in Kind)
