"""What a description says that a resource is not for, in ten languages."""

import time

import pytest

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.search.exclusions import split_exclusions
from evolvable_store.search.index import Index
from evolvable_store.store import Store


@pytest.mark.parametrize(
    ("description", "excluded"),
    [
        (
            "Reviews SQL. DO NOT USE FOR: tables (use csv-tables), charts.",
            "DO NOT USE FOR: tables (use csv-tables), charts.",
        ),
        ("Reviews SQL. Don't use it for tables.", "Don't use it for tables."),
        ("Reviews SQL, not for tables or charts. Reads plans.", "not for tables or charts."),
        ("Reviews SQL (not for tables) and plans.", "not for tables"),
        ("Reviews SQL rather than tables, and plans.", "rather than tables"),
        (
            "Reviews SQL. For tables use csv-tables instead. Reads plans.",
            "For tables use csv-tables instead.",
        ),
        ("Reviews SQL. Does NOT cover tables.", "Does NOT cover tables."),
        ("Reviews SQL, and do not use it for tables.", "do not use it for tables."),
        ("Prüft SQL. Nicht für Tabellen verwenden.", "Nicht für Tabellen verwenden."),
        ("Relit du SQL. Ne pas utiliser pour les tableaux.", "Ne pas utiliser pour les tableaux."),
        ("Revisa SQL. No usar para tablas.", "No usar para tablas."),
        ("Revê SQL. Não usar para tabelas.", "Não usar para tabelas."),
        ("Rivede SQL. Non usare per tabelle.", "Non usare per tabelle."),
        ("Проверяет SQL. Не использовать для таблиц.", "Не использовать для таблиц."),
        ("检查 SQL。不要用于表格。", "不要用于表格。"),
        ("SQL を見直す。表には使わない。", "表には使わない。"),
        ("SQL을 검토한다. 표에는 사용하지 마세요.", "표에는 사용하지 마세요."),
    ],
)
def test_an_excluding_clause_ends_with_its_sentence_or_its_brackets(
    description: str, excluded: str
) -> None:
    parts = split_exclusions(description)

    assert parts.excluded == (excluded,)
    assert sorted("".join(parts.own.split())) == sorted(
        "".join(description.replace(excluded, "").split())
    )


@pytest.mark.parametrize(
    "description",
    [
        "Finds out why a command is not found, even if not asked.",
        'Use when the user says "do not use tables" or "not for me".',
        "Keine halben Sachen: prüft jede Abfrage.",
        "No dependencies. Non-blocking. Pas de deux.",
        "Use DSPy to write programs and metrics instead of prompt strings.",
        "Debug plugins that do not load: check their manifests.",
        "Find a check which does not cover errors, and paths that tests do not cover.",
        "SQL の代わりに表を使う。",
        "SQL 대신 표를 쓴다.",
        "",
    ],
)
def test_a_negation_that_excludes_nothing_stays(description: str) -> None:
    parts = split_exclusions(description)

    assert parts.excluded == () and "".join(parts.own.split()) == "".join(description.split())


@pytest.mark.parametrize(
    "text",
    [
        "not for " * 50_000,
        "do   " * 50_000,
        "不" * 50_000,
        '"(' * 50_000 + "not for",
        "use instead " * 9_000,
    ],
)
def test_a_hostile_description_is_split_in_no_time(text: str) -> None:
    before = time.process_time()
    split_exclusions(text)

    assert time.process_time() - before < 0.5


def test_a_skill_is_not_found_by_what_it_excludes(store: Store) -> None:
    texts = {
        "sql-review": (
            "Reviews SQL queries. Do not use for cleaning messy tables, use csv-tables instead."
        ),
        "csv-tables": "Cleans CSV files with messy tables.",
        "cook": "Cooks dinner.",
    }
    with store.transaction(Actor.HUMAN, "test") as tx:
        for name, description in texts.items():
            tx.put(
                Ref.parse(name),
                {
                    "SKILL.md": File(
                        f"---\nname: {name}\ndescription: {description}\n---\n".encode()
                    )
                },
            )
    with Index.open(store) as index:
        found = index.search("cleaning messy tables").scored

    assert [hit.entry.name for hit in found] == ["csv-tables"]
