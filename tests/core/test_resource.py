"""Kinds, names, scopes and the refs that write them (the name rule of agentskills.io)."""

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import attacks

from evolvable_store.confusables import skeleton
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

NAMES = st.from_regex(r"[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,3}", fullmatch=True).filter(
    lambda name: slugify(name) == name
)


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
    + [
        "a/b/pdf",
        "Skill:pdf",
        "virus:pdf",
        "skill:pdf:x",
        "skill: pdf",
        "pdf\n",
        "Acme/pdf",
        "../pdf",
        "USER",
        "con",
    ],
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
def test_a_written_ref_is_read_back_the_same(
    kind: Kind, name: str, scope: str | None, version: int | None
) -> None:
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


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "a--b", "A", "a_b", "a.b", "x" * 65, "É", "aux", "com1", "lpt9"]
)
def test_a_name_outside_the_specification_is_refused(name: str) -> None:
    with pytest.raises(InvalidRef):
        check_name(Kind.SKILL, name)


def test_only_a_memory_may_have_a_capital_name() -> None:
    assert [check_name(Kind.MEMORY, name) for name in ("SOUL", "USER", "MEMORY")] == [
        "SOUL",
        "USER",
        "MEMORY",
    ]
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


IN_ANY_SCRIPT = [
    "翻译-v2",
    "отчёт",
    "번역",
    "日本語プロンプト",
    "データ-2026",
    "pdf翻译",
    "한국어漢字abc",
    "注音ㄅㄆㄇ",
    "हिन्दी-पाठ",
    "ราคา",
    "café",
    "straße",
    "عربي-٣٤",
]


@pytest.mark.parametrize("name", IN_ANY_SCRIPT)
def test_a_name_may_have_letters_of_any_script(name: str) -> None:
    assert [check_name(kind, name) for kind in Kind] == [name] * len(Kind)
    assert check_scope(name) == slugify(name) == slugify(name.capitalize()) == name
    assert str(Ref.parse(f"agent:{name}/{name}@3")) == f"agent:{name}/{name}@3"


@pytest.mark.parametrize("name", ["отчёт", "한국", "café", "データ"])
def test_a_ref_in_another_normal_form_means_the_same_name(name: str) -> None:
    """As macOS hands out the names of files."""
    assert Ref.parse(unicodedata.normalize("NFD", name)) == Ref.parse(name)
    assert slugify(unicodedata.normalize("NFD", name)) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pаypal", "a Cyrillic letter among Latin ones"),
        ("отчётpdf", "Cyrillic and Latin in one word"),
        ("αбв", "Greek and Cyrillic"),
        ("한カナ", "no language writes Hangul and Kana together"),
        ("Отчёт", "a capital"),
        ("ﬁle", "a ligature"),
        ("ｐｄｆ", "wide letters"),
        ("a\u0301", "not composed"),
        ("x\u200dy", "a joiner"),
        ("пр\u202eивет", "turns the direction"),
        ("한\u3164", "a letter without a shape"),
        ("한\u115f", "a letter without a shape"),
        ("字\ufe00", "a selector without a shape"),
        ("\u0301а", "begins with a mark"),
        ("٣۳", "two numbering systems"),
        ("翻译--v2", "two hyphens"),
        ("-翻译", "a hyphen at an end"),
        ("翻/译", "a slash"),
        ("🚀", "no letter"),
        ("字" * 65, "65 characters"),
        ("𠮷" * 64, "256 bytes"),
        ("com¹", "a device of Windows"),
    ],
)
def test_a_name_that_could_deceive_or_that_no_file_system_takes_is_refused(
    name: str, why: str
) -> None:
    with pytest.raises(InvalidRef):
        check_name(Kind.SKILL, name)
    with pytest.raises(InvalidRef):
        check_scope(name)
    assert not (slug := slugify(name)) or check_name(Kind.SKILL, slug) == slug, why


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Отчёт о продажах.md", "отчёт-о-продажах-md"),
        ("отчётPDF", "отчёт-pdf"),
        ("İstanbul", "istanbul"),
        ("翻译 (草稿)", "翻译-草稿"),
        ("می\u200cخواهم", "می-خواهم"),
        ("𠮷" * 64, "𠮷" * 48),
        ("🚀", ""),
    ],
)
def test_the_nearest_name_keeps_the_letters_of_every_script(text: str, name: str) -> None:
    assert slugify(text) == name


@example("A\u0487")  # a mark of another script than the letter that it follows
@given(st.text(max_size=200))
def test_the_nearest_name_to_any_text_is_a_name_or_none(text: str) -> None:
    name = slugify(text)
    assert name == "" or check_name(Kind.SKILL, name) == name


def test_a_message_shows_letters_and_writes_out_what_cannot_be_seen() -> None:
    with pytest.raises(InvalidRef, match="'Отчёт' is not a name") as refusal:
        check_name(Kind.SKILL, "Отчёт")
    assert "'отчёт' would do" in refusal.value.hint
    with pytest.raises(InvalidRef, match=re.escape(r"'a\u202eb\u115f\x1b' is not a name")):
        check_name(Kind.SKILL, "a\u202eb\u115f\x1b")


@pytest.mark.parametrize(
    ("one", "other"),
    [("раура1", "paypal"), ("сор", "cop"), ("modern", "rnodern"), ("ロ", "口"), ("οδος", "οδοσ")],
)
def test_names_that_look_alike_have_one_skeleton(one: str, other: str) -> None:
    """UTS 39, section 4: also where each is of one script."""
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(
    ("one", "other"), [("отчёт", "отчет"), ("pdf", "pdf-2"), ("翻译", "番译"), ("a0", "ao")]
)
def test_names_that_look_different_have_two_skeletons(one: str, other: str) -> None:
    assert skeleton(one) != skeleton(other)
