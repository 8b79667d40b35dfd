"""English words for tasks in other languages, and letters with marks."""

import time
import unicodedata

import pytest

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.search import translation
from evolvable_store.search.analyzer import FUNCTION_WORDS, parse_query
from evolvable_store.search.bm25 import searched_terms
from evolvable_store.search.index import Index
from evolvable_store.search.tokenizer import fold, tokenize
from evolvable_store.search.translation import GLOSSARY, language_of_task, translate_words
from evolvable_store.store import Store


def english(task: str) -> list[str]:
    words = tokenize(task)
    return translate_words(fold(task), words, language_of_task(fold(task), words, FUNCTION_WORDS))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Übersetze die Dokumente in eine Tabelle", {"translate", "document", "table"}),
        ("Wo liegt die Bilddatei mit dem Verlauf?", {"image", "file", "history"}),
        ("Convertis les images de ce rapport", {"convert", "image", "report"}),
        ("Traduce los documentos de mi informe", {"translate", "document", "report"}),
        ("Traduzir os documentos do meu relatório", {"translate", "document", "report"}),
        ("Tradurre i documenti della mia relazione", {"translate", "document", "report"}),
        ("Переведи документы и отчёты", {"document"}),
        ("把这份报告翻译成表格", {"report", "translate", "table"}),
        ("このレポートを翻訳して表にまとめて", {"report", "translate", "table"}),
        ("이 보고서를 번역해서 표로 만들어줘", {"report", "translate", "table", "create"}),
    ],
)
def test_a_task_in_another_language_gets_english_words(task: str, words: set[str]) -> None:
    assert words <= set(english(task))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Formular ausfüllen", {"form", "fill"}),
        ("Test schreiben", {"write"}),
        ("Datei umbenennen", {"file"}),
        ("remplir un formulaire", {"fill", "form"}),
        ("écrire des tests", {"write", "test"}),
        ("limpiar una tabla", {"clean", "table"}),
        ("escribir pruebas", {"write", "test"}),
        ("compilare un modulo", {"fill", "form"}),
        ("scrivere test", {"write"}),
        ("traduzir um documento", {"translate", "document"}),
        ("Удалить отчёт", {"delete", "report"}),
        ("удалить отчет", {"delete", "report"}),
        ("ﾚﾎﾟｰﾄを翻訳", {"report", "translate"}),
    ],
)
def test_a_few_words_of_the_glossary_tell_the_language(task: str, words: set[str]) -> None:
    assert words <= set(english(task))
    assert words <= set(english(unicodedata.normalize("NFD", task)))


@pytest.mark.parametrize(
    "task",
    [
        "validation pipeline",
        "compile the plan — test code",
        "import table",
        "client red base point",
        "Salud app landing page redesign",
        "cross validation “tuning”",
        "full text search command",
    ],
)
def test_words_of_english_and_of_another_language_tell_nothing(task: str) -> None:
    assert english(task) == []


@pytest.mark.parametrize(
    "task",
    [
        "translate the documents into a table",
        "La La Land posters in a form",
        "the der and das of a data model",
        "fix the 翻訳 label in the settings page of the application",
        "table",
        "!?",
        "",
    ],
)
def test_a_task_in_english_gets_none(task: str) -> None:
    assert english(task) == []


def test_every_line_of_the_glossary_has_a_word_in_every_language() -> None:
    rows = [line.split("\t") for line in GLOSSARY.read_text(encoding="utf-8").splitlines()]

    assert {len(row) for row in rows} == {10} and all(
        cell.strip() == cell != "" for row in rows for cell in row
    )
    assert len({row[0] for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "task",
    [
        "ä" * 4_000,
        "und " + "bilddatei" * 400,
        "und " + "bilddatei " * 390,
        "翻" * 4_000,
        "í é " * 900,
        "Datei " * 660,
    ],
)
def test_a_hostile_task_is_translated_in_no_time(task: str) -> None:
    english("翻訳 und")  # the glossary is read once
    before = time.process_time()
    parse_query(task)

    assert time.process_time() - before < 0.5


def test_a_task_in_english_reads_no_glossary() -> None:
    before = translation._glossary.cache_info().misses
    for task in ("fix the login of our staging server", "flaky docker build cache"):
        assert english(task) == []
    assert translation._glossary.cache_info().misses == before


def test_marks_on_letters_make_no_difference(store: Store) -> None:
    text = "---\nname: mesa\ndescription: Résume des présentations à côté.\n---\n"
    with store.transaction(Actor.HUMAN, "test") as tx:
        tx.put(Ref.parse("mesa"), {"SKILL.md": File(text.encode())})
    with Index.open(store) as index:
        assert (
            len(index.search("presentations").scored)
            == 1
            == len(index.search("PRÉSENTATIONS").scored)
        )


def test_endings_of_japanese_find_nothing_by_themselves(store: Store) -> None:
    text = "---\nname: ocha\ndescription: お茶を入れてからください。\n---\n"
    with store.transaction(Actor.HUMAN, "test") as tx:
        tx.put(Ref.parse("ocha"), {"SKILL.md": File(text.encode())})
    with Index.open(store) as index:
        assert [hit.entry.name for hit in index.search("お茶").scored] == ["ocha"]
        assert index.search("車を洗ってからください").scored == ()


def test_words_of_katakana_that_only_end_alike_do_not_match(store: Store) -> None:
    text = "---\nname: nodes\ndescription: ノードを探すモジュール。\n---\n"
    with store.transaction(Actor.HUMAN, "test") as tx:
        tx.put(Ref.parse("nodes"), {"SKILL.md": File(text.encode())})
    with Index.open(store) as index:
        assert [hit.entry.name for hit in index.search("新しいノード").scored] == ["nodes"]
        assert index.search("キーボードとスケール").scored == ()


def test_a_long_task_keeps_its_words_and_gets_english_ones_beside_the_stems_of_its_language() -> (
    None
):
    words = [f"wort{chr(97 + at // 26)}{chr(97 + at % 26)}ungen" for at in range(60)]
    found = parse_query(f"die Rechnung und die Tabelle mit {' '.join(words)} bitte")

    asked = {one.words for one in found.values() if not one.pair and one.stem_of is None}
    assert asked >= {*words, "rechnung", "tabelle", "invoice", "table"}
    assert {one.words for one in found.values() if one.stem_of} >= set(words)


def test_function_words_of_the_language_of_a_task_are_not_searched_in_a_small_library() -> None:
    task = "die Rechnung für den Kunden"
    small, large = (
        {
            one.words
            for one in searched_terms(task, size).values()
            if not (one.pair or one.translated)
        }
        for size in (5, 500)
    )
    assert small == {"rechnung", "kunden"}
    assert large == small | {"die", "fur", "den"}
