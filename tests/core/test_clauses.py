"""Texts that are read side by side: cut at words, and begun where near-equal ones differ."""

import pytest

from evolvable_tools.retrieval.clauses import Excerpts, cut_at_words

SHARED = (
    "Use this skill when designing, reviewing or debugging the automation of a customer "
    "service team"
)


@pytest.mark.parametrize("length", range(1, 40))
def test_a_text_is_cut_after_a_word(length: int) -> None:
    text = "Merge, split and fill the forms."
    cut = cut_at_words(text, length)

    assert len(cut) <= length
    assert cut == text or not cut or cut.endswith("…")
    if length > 12 and cut != text:
        assert text.startswith(cut[:-1]) and text[len(cut[:-1])] in " ,"


def test_a_text_without_spaces_is_cut_between_two_characters() -> None:
    assert cut_at_words("填写合并拆分表单" * 20, 21) == ("填写合并拆分表单" * 20)[:20] + "…"


def test_lines_become_one() -> None:
    assert cut_at_words("one\n\n two\tthree", 100) == "one two three"


def test_near_equal_texts_begin_with_the_clause_in_which_they_differ() -> None:
    texts = [
        f"{SHARED}; for inbound calls over the telephone.",
        f"{SHARED}; for outbound campaigns by letter.",
    ]
    excerpts = Excerpts(texts)

    assert excerpts.excerpt(0, 60) == "…for inbound calls over the telephone."
    assert excerpts.excerpt(1, 60) == "…for outbound campaigns by letter."
    assert [excerpts.excerpt(at, 400) for at in (0, 1)] == texts


def test_a_difference_among_the_first_characters_needs_no_other_beginning() -> None:
    texts = [
        f"For inbound calls. {SHARED} of a bank.",
        f"For outbound letters. {SHARED} of a bank.",
    ]

    assert Excerpts(texts).excerpt(0, 60).startswith("For inbound calls. Use this skill")


def test_texts_that_are_unlike_begin_with_their_first_words() -> None:
    texts = [
        f"{SHARED}; for inbound calls.",
        "Merges PDF forms and signs them with a certificate of the person. " * 3,
    ]

    assert Excerpts(texts).excerpt(0, 60).startswith("Use this skill")
    assert Excerpts(texts).excerpt(1, 60).startswith("Merges PDF")


def test_equal_and_empty_texts_are_cut_as_they_are() -> None:
    for texts in ([SHARED, SHARED], ["", ""], ["", SHARED], [], [SHARED]):
        excerpts = Excerpts(texts)
        assert [excerpts.excerpt(at, 30) for at in range(len(texts))] == [
            cut_at_words(text, 30) for text in texts
        ]
