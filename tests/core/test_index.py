"""The text index: always in step with the library, and made anew whenever anything is wrong with
it.
"""

import contextlib
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import index_children
import pytest
from postgres_place import ON_SQLITE
from processes import poll
from samples import put_texts

from evolvable_store import fsck
from evolvable_store.errors import InvalidArgument, LibraryBusy, LibraryCorrupt
from evolvable_store.objects import File, blob_hash
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.search import index_file
from evolvable_store.search.analyzer import ANALYSIS, FUNCTION_WORDS
from evolvable_store.search.index import Index, IndexEntry, check_index
from evolvable_store.search.index_writer import BATCH
from evolvable_store.storage import connection
from evolvable_store.store import Store

PDF = """---
name: pdf
description: Fill and merge PDF forms.
metadata:
  triggers: merge pdf, split pdf
  delegate: agent:clerk
---
Use pypdf. Check every signature.
"""


def put(store: Store, ref: str, text: str) -> None:
    put_texts(store, {ref: text})


def remove(store: Store, ref: str) -> None:
    put_texts(store, {}, remove=[ref])


def found(index: Index, query: str, **where: Any) -> list[str]:
    return [str(scored.entry.ref) for scored in index.search(query, **where).scored]


def refs(entries: Sequence[IndexEntry]) -> list[str]:
    return [str(entry.ref) for entry in entries]


def child(
    role: str, home: Path, *values: str, flags: Sequence[str] = ()
) -> "subprocess.Popen[str]":
    command = [sys.executable, index_children.__file__, *flags, role, str(home), *values]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def said(process: "subprocess.Popen[str]") -> Any:
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(out) if out else None


# In step with the library


def test_what_was_just_written_is_found(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    assert found(index, "signature") == ["skill:pdf"]
    put(store, "pdf", PDF.replace("signature", "checkbox"))
    assert found(index, "signature") == []
    assert found(index, "checkbox") == ["skill:pdf"]


@pytest.mark.process
def test_what_another_process_wrote_is_found(store: Store, index: Index) -> None:
    assert found(index, "quokka") == []
    said(child("put", store.home, "marsupial", "All about the quokka."))
    assert found(index, "quokka") == ["skill:marsupial"]


def test_what_was_removed_is_gone_and_what_came_back_is_there(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    assert found(index, "signature") == ["skill:pdf"]
    head = store.head(Ref.parse("pdf"))
    remove(store, "pdf")
    assert found(index, "signature") == []
    assert index.entries() == [] and index.phrases(["pdf"]) == [] and index.entry(head) is None
    with store.transaction(Actor.HUMAN, "back") as tx:
        tx.restore(Ref.parse("pdf"), 1)
    assert found(index, "signature") == ["skill:pdf"]


def test_a_restored_version_is_found_by_its_old_text(store: Store, index: Index) -> None:
    put(store, "pdf", "about quokkas")
    put(store, "pdf", "about wombats")
    assert found(index, "wombats") == ["skill:pdf"]
    with store.transaction(Actor.HUMAN, "restore") as tx:
        tx.restore(Ref.parse("pdf"), 1)
    (scored,) = index.search("quokkas").scored
    assert scored.entry.version == 3
    assert found(index, "wombats") == []


def test_an_entry_says_what_the_main_file_says(store: Store, index: Index) -> None:
    put(store, "pdf", PDF.replace("triggers:", 'evolvable: "false"\n  triggers:'))
    entry = index.entry(store.head(Ref.parse("pdf")))
    assert entry is not None
    assert (entry.kind, entry.scope, entry.name, entry.version) == (
        Kind.SKILL,
        USER_SCOPE,
        "pdf",
        1,
    )
    assert (entry.description, entry.triggers) == (
        "Fill and merge PDF forms.",
        ("merge pdf", "split pdf"),
    )
    assert (entry.frozen, entry.delegate) == (True, "agent:clerk")


@ON_SQLITE
@pytest.mark.alone
def test_nothing_new_costs_next_to_nothing(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    index.catch_up()
    spent = []
    for _ in range(200):
        started = time.perf_counter()
        assert index.catch_up() == 0
        spent.append(time.perf_counter() - started)
    assert sorted(spent)[100] < 0.0005


def test_progress_is_told_after_every_batch(store: Store, index: Index) -> None:
    with store.transaction(Actor.IMPORT, "many") as tx:
        for number in range(BATCH + 10):
            tx.put(Ref.parse(f"skill-{number}"), {"SKILL.md": File(f"text {number}".encode())})
    told: list[tuple[int, int]] = []
    assert index.catch_up(lambda done, of: told.append((done, of))) == BATCH + 10
    assert told == [(BATCH, BATCH + 10), (BATCH + 10, BATCH + 10)]
    assert found(index, "7", limit=1) == ["skill:skill-7"]


def test_a_resource_whose_main_file_is_missing_or_odd_is_found_by_its_name(
    store: Store, index: Index
) -> None:
    with store.transaction(Actor.HUMAN, "odd ones") as tx:
        tx.put(Ref.parse("no-main-file"), {"notes.md": File(b"notes")})
        tx.put(Ref.parse("binary-main-file"), {"SKILL.md": File(bytes(range(256)))})
        tx.put(Ref.parse("empty-main-file"), {"SKILL.md": File(b"")})
    assert set(found(index, "main file")) == {
        "skill:no-main-file",
        "skill:binary-main-file",
        "skill:empty-main-file",
    }


@ON_SQLITE
def test_a_page_that_sqlite_cannot_read_keeps_no_other_resource_out_of_the_index(
    open_store: Callable[..., Store], tmp_path: Path
) -> None:
    text = "---\nname: pdf\ndescription: d\n---\n" + random.Random(1).randbytes(60_000).hex()
    name = blob_hash(text.encode())
    with open_store(tmp_path / "home", create=True) as store:
        put_texts(store, {"csv": "---\nname: csv\ndescription: Sorts columns.\n---\n", "pdf": text})
        ((_, packed, _),) = store.backend.maintenance.packed_blobs([name])
    damage_overflow(tmp_path / "home/library.db", packed)

    with open_store(tmp_path / "home") as store, Index.open(store) as index:
        with pytest.raises(LibraryCorrupt):
            store.backend.maintenance.packed_blobs([name])
        assert found(index, "sort columns") == ["skill:csv"]
        assert found(index, "pdf") == ["skill:pdf"]


def damage_overflow(path: Path, packed: bytes) -> None:
    """Make one of the pages that a blob goes on in lead to a page that does not exist."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")  # of a page, in the header of the file
    for start in range(0, len(data), size):
        if (
            bytes(data[start + 4 : start + 68]) in packed
            and len(set(data[start + 4 : start + 68])) > 20
        ):
            data[start : start + 4] = b"\x7f\xff\xff\xf0"
            path.write_bytes(data)
            return
    raise AssertionError("the blob has no page of its own")


@ON_SQLITE
def test_a_damaged_blob_is_not_the_index_s_trouble(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    put(store, "csv", "Tables of numbers.")
    with store.backend.writing() as db:
        db.execute("UPDATE blob SET data = x'00' WHERE id = 1")
    assert found(index, "pdf") == ["skill:pdf"]
    assert found(index, "numbers") == ["skill:csv"]


def test_a_skill_is_found_by_what_its_file_calls_it_too(store: Store, index: Index) -> None:
    put(store, "pdf-2", "---\nname: acrobat\ndescription: x\n---\n")
    assert found(index, "acrobat") == ["skill:pdf-2"]
    assert {phrase.text for phrase in index.phrases(["acrobat", "pdf", "2"])} == {
        "acrobat",
        "pdf 2",
    }


def test_a_word_counts_as_a_name_only_where_it_may(store: Store, index: Index) -> None:
    put(store, "pdf", "---\ndescription: x\nmetadata:\n  triggers: merge, fill forms\n---\n")
    said = ["merge", "pdf", "and", "fill", "forms"]
    assert {phrase.text for phrase in index.phrases(said)} == {"merge", "pdf", "fill forms"}
    assert {phrase.text for phrase in index.phrases(said, names=["pdf"])} == {
        "merge",
        "pdf",
        "fill forms",
    }
    assert {phrase.text for phrase in index.phrases(said, names=[])} == {"merge", "fill forms"}


def test_names_and_triggers_are_found_however_many_come_and_go(store: Store, index: Index) -> None:
    def called(*words: str) -> set[str]:
        return {phrase.text for phrase in index.phrases(words)}

    put(store, "pdf", PDF)
    assert called("please", "merge", "pdf", "files") == {"pdf", "merge pdf"}
    many = {
        f"skill-{number}": f"---\nname: skill-{number}\ndescription: x\n---\n"
        for number in range(300)
    }
    put_texts(store, many)
    assert all(called("run", *name.split("-"), "now") == {name.replace("-", " ")} for name in many)
    put_texts(store, {"pdf": "Nothing calls it but its name."}, remove=["skill-7"])
    assert called("merge", "pdf") == {"pdf"} and called("skill", "7") == set()
    put_texts(store, {"skill-7": many["skill-7"], "late": "Comes last."})
    assert called("skill", "7", "is", "late") == {"skill 7", "late"}


# Search


def test_words_are_found_in_every_field_by_their_stem(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    for query in ("PDFs", "merging", "splits", "signatures"):
        assert found(index, query) == ["skill:pdf"], query
    parts = {part.field for part in index.search("pdf").scored[0].parts}
    assert parts == {"name", "description", "triggers"}


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Очищает таблицы и отчёты", "очистка таблиц"),
        ("Καθαρίζει πίνακες", "καθαρισμός πίνακα"),
        ("يراجع الجداول", "جداول"),
        ("फॉर्म भरता है", "फॉर्मों को भरना"),
    ],
)
def test_words_of_other_scripts_are_found_by_the_stems_of_their_languages(
    store: Store, index: Index, said: str, asked: str
) -> None:
    put(store, "one", f"---\nname: one\ndescription: {said}\n---\n")
    put(store, "other", PDF)

    assert found(index, asked) == ["skill:one"]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        (
            "Prüft die Rechnungen des Monats und ordnet sie den Konten zu.",
            "eine Rechnung für meinen Kunden",
        ),
        (
            "Nettoie les tableaux du service avec les règles de la banque.",
            "il faut nettoyer un tableau",
        ),
        ("Genera las copias de los contratos y las envía.", "¿cómo enviar una copia del contrato?"),
        (
            "Cria as cópias dos contratos e envia para os gerentes.",
            "quero criar um contrato para o gerente",
        ),
        (
            "Controlla le fatture dei fornitori e i pagamenti del mese.",
            "controllare una fattura del fornitore",
        ),
    ],
)
def test_words_of_a_text_and_a_task_in_one_language_are_found_by_its_stems(
    store: Store, index: Index, said: str, asked: str
) -> None:
    put(store, "one", f"---\nname: one\ndescription: {said}\n---\n")
    put(store, "exact", f"---\nname: exact\ndescription: {asked}\n---\n")
    put(store, "other", "---\nname: other\ndescription: Merge files.\n---\n")

    exact, inflected = index.search(asked).scored
    assert (str(exact.entry.ref), str(inflected.entry.ref)) == ("skill:exact", "skill:one")
    assert inflected.score < exact.score
    assert 0 < inflected.coverage <= exact.coverage == pytest.approx(1.0)


def test_a_task_whose_language_is_not_known_finds_a_text_by_the_words_that_it_says(
    store: Store, index: Index
) -> None:
    put(
        store,
        "one",
        "---\nname: one\ndescription: Prüft die Rechnungen mit dem Docker-Image und bucht sie.\n"
        "---\n",
    )

    assert found(index, "rechnungen") == ["skill:one"]
    assert found(index, "bitte die Rechnung buchen") == ["skill:one"]
    assert found(index, "docker") == ["skill:one"]


def test_a_word_without_a_stem_leaves_the_weights_of_the_others(store: Store, index: Index) -> None:
    put(
        store,
        "one",
        "---\nname: one\ndescription: Rotate the keys of a team.\n---\nIt's the team's.\n",
    )
    put(store, "other", "---\nname: other\ndescription: Reads what's new in the team.\n---\n")

    def coverages(task: str) -> list[float]:
        return [hit.coverage for hit in index.search(task).scored]

    assert coverages("the team's rotated keys") == pytest.approx(
        coverages("rotated keys of the team's")
    )


def test_english_with_words_of_other_languages_is_no_other_language(
    store: Store, index: Index
) -> None:
    said = "Plan a trip to los angeles or las vegas and book el al flights for the team"
    put(store, "trip", f"---\nname: trip\ndescription: {said}\n---\n")

    terms = {
        part.word for part in index.search(said).scored[0].parts if part.field == "description"
    }
    assert terms == set(said.lower().split()) - FUNCTION_WORDS


def test_scripts_without_spaces_are_searched_by_pairs(store: Store, index: Index) -> None:
    put(store, "migration", "---\nname: m\ndescription: 数据库迁移的步骤\n---\n")
    put(store, "release", "---\nname: r\ndescription: リリースノートを書く\n---\n")
    assert found(index, "怎么迁移数据库") == ["skill:migration"]
    assert found(index, "ノートを書きたい") == ["skill:release"]


def test_a_near_scope_hides_the_same_name_further_away(store: Store, index: Index) -> None:
    put(store, "pdf", "about quokkas")
    put(store, "acme/pdf", "about wombats")
    put(store, "zoo/csv", "about quokkas")
    assert found(index, "quokkas wombats", scopes=("acme", "user")) == ["skill:acme/pdf"]
    assert found(index, "quokkas wombats", scopes=("user", "acme")) == ["skill:pdf"]
    assert found(index, "quokkas wombats", scopes=()) == []
    assert set(found(index, "quokkas wombats")) == {"skill:pdf", "skill:acme/pdf", "skill:zoo/csv"}
    assert refs(index.entries(scopes=("acme", "user"))) == ["skill:acme/pdf"]
    remove(store, "acme/pdf")
    assert found(index, "quokkas wombats", scopes=("acme", "user")) == ["skill:pdf"]


def test_a_few_of_one_kind_are_found_among_many_of_another(store: Store, index: Index) -> None:
    """They must not drown among the candidates that the rarest words choose."""
    with store.transaction(Actor.IMPORT, "many") as tx:
        for number in range(600):
            tx.put(
                Ref.parse(f"skill-{number}"),
                {"SKILL.md": File(b"review the code of a pull request " * 3)},
            )
        tx.put(
            Ref.parse("agent:helper"),
            {"AGENT.md": File(b"review code, and very many other things besides")},
        )
    assert found(index, "review code", kind=Kind.AGENT) == ["agent:helper"]
    assert len(found(index, "review code", kind=Kind.SKILL, limit=7)) == 7


def test_common_words_count_though_rare_ones_choose(store: Store, index: Index) -> None:
    """Over 400 resources the search goes in two steps; the second must not forget what the first
    did not ask.
    """
    with store.transaction(Actor.IMPORT, "many") as tx:
        for number in range(450):
            text = f"common{number % 2} words about topic{number % 40}"
            tx.put(Ref.parse(f"skill-{number}"), {"SKILL.md": File(text.encode())})
    best = index.search("topic7 common1", limit=3).scored
    assert all(int(scored.entry.name.partition("-")[2]) % 40 == 7 for scored in best)
    assert {part.word for part in best[0].parts} == {"topic7", "common1"}


def test_any_number_of_words_is_a_query(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    query = "signature " + " ".join(f"word{number}" for number in range(200_000))
    started = time.perf_counter()
    assert found(index, query) == ["skill:pdf"]
    assert time.perf_counter() - started < 1


# Lists


def test_pages_follow_each_other_in_the_order_of_names(store: Store, index: Index) -> None:
    for ref in ("b", "a", "acme/a", "agent:a", "c"):
        put(store, ref, "text")
    everything = ["agent:a", "skill:acme/a", "skill:a", "skill:b", "skill:c"]
    assert refs(index.entries()) == everything
    paged: list[IndexEntry] = []
    while page := index.entries(
        limit=2, after=(paged[-1].name, paged[-1].kind, paged[-1].scope) if paged else None
    ):
        paged += page
    assert refs(paged) == everything


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("FORMS", ["skill:pdf"]),
        ("pdf merge", ["skill:pdf"]),
        ("100%", ["skill:b"]),
        ("a_b", []),
        ("\\", []),
    ],
)
def test_a_filter_takes_every_word_literally(
    store: Store, index: Index, query: str, expected: list[str]
) -> None:
    put(store, "pdf", PDF)
    put(store, "b", "---\nname: b\ndescription: aXb 100%\n---\n")
    assert refs(index.entries(query=query)) == expected


def test_a_filter_of_a_thousand_words_is_refused(index: Index) -> None:
    with pytest.raises(InvalidArgument, match="too long"):
        index.entries(query="word " * 1000)


@pytest.mark.parametrize("text", ["\ud800", "\0", "a\0b", "'; DROP TABLE entry;--", "\U0010ffff"])
def test_hostile_text_is_only_text_everywhere(store: Store, index: Index, text: str) -> None:
    put(store, "pdf", PDF)
    assert index.entries(query=text.replace(" ", "") + "x") == []
    assert index.names(prefix=text) == []
    assert index.phrases([text]) == []
    assert index.search(text, scopes=(text,)).scored == ()
    assert refs(index.entries(after=(text, text, text))) in ([], ["skill:pdf"])
    assert refs(index.entries()) == ["skill:pdf"]


def test_names_are_completed_in_order_and_each_once(store: Store, index: Index) -> None:
    for ref in ("pdf", "acme/pdf", "pdf-forms", "prompt:pdf-fill", "csv"):
        put(store, ref, "text")
    assert index.names(Kind.SKILL, "pdf", 10) == ["pdf", "pdf-forms"]
    assert index.names(Kind.SKILL, "", 2) == ["csv", "pdf"]
    assert index.names(prefix="p") == ["pdf", "pdf-fill", "pdf-forms"]


# The file


def break_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def overwrite(path: Path) -> None:
    path.write_bytes(b"not a database, whatever it was before " * 500)


def scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = random.Random(7).randbytes(len(data) - 4096)
    path.write_bytes(data)


def outdate(path: Path) -> None:
    with contextlib.closing(connection.dbapi.connect(str(path))) as db:
        db.execute("PRAGMA user_version=0")


def adopt(path: Path) -> None:
    with contextlib.closing(connection.dbapi.connect(str(path))) as db:
        db.execute("PRAGMA application_id=1")


def drop(path: Path) -> None:
    with contextlib.closing(connection.dbapi.connect(str(path))) as db:
        db.execute("DROP TABLE document")


DAMAGES = [Path.unlink, break_off, overwrite, scribble, outdate, adopt, drop]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_bad_file_is_made_anew_without_a_word(
    store: Store, damage: Callable[[Path], None]
) -> None:
    put(store, "pdf", PDF)
    with Index.open(store) as index:
        assert found(index, "signature") == ["skill:pdf"]
        path = index.path
    damage(path)
    with Index.open(store) as index:
        assert found(index, "signature") == ["skill:pdf"]
        assert index.path == path
        assert index.find_faults() == []


def forget_analysis(path: Path) -> None:
    """Leave the file as a version before the note of the analysis made it."""
    with contextlib.closing(connection.dbapi.connect(str(path))) as db, db:
        db.execute("DELETE FROM state WHERE key = 'analysis'")


def test_an_index_of_an_earlier_analysis_is_made_again_once_as_any_other(store: Store) -> None:
    put(store, "pdf", PDF)
    counts: list[int] = []

    def indexed() -> int:
        with Index.open(store, bulk=lambda missing, _: counts.append(missing)) as index:
            taken = index.catch_up()
            assert found(index, "signature") == ["skill:pdf"] and index.find_faults() == []
        return taken

    assert [indexed(), indexed()] == [1, 0]
    put_many(store, "quokka")
    assert indexed() == BATCH + 10 and counts == [BATCH + 10]
    forget_analysis(store.home / index_file.INDEX_FILE)
    assert [indexed(), indexed()] == [BATCH + 11, 0] and counts == [BATCH + 10, BATCH + 11]


def test_a_new_index_notes_its_analysis(store: Store, index: Index) -> None:
    with index_file.IndexFile(store.home).reading() as db:
        assert index_file.read_state(db, "analysis") == str(ANALYSIS)


def test_a_private_copy_of_an_earlier_analysis_is_used_as_it_is(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    index.catch_up()
    index.close()
    forget_analysis(index.path)
    with (
        contextlib.closing(index_file.IndexFile(store.home, private=True)) as copy,
        copy.reading() as db,
    ):
        assert index_file.read_state(db, "applied") == "1"


def test_the_file_of_an_earlier_format_stays_while_a_process_uses_it_and_goes_then(
    store: Store,
) -> None:
    """Servers of two versions on one library each have an index of their own."""
    put(store, "pdf", PDF)
    earlier = store.home / "index.db"
    with contextlib.closing(sqlite3.connect(earlier)) as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE posting (term TEXT)")
        other.commit()
        for _ in range(2):
            with Index.open(store) as index:
                assert found(index, "signature") == ["skill:pdf"]
            assert (
                other.execute("SELECT count(*) FROM posting").fetchone() == (0,)
                and earlier.exists()
            )
    with Index.open(store):
        assert not earlier.exists()


def test_a_file_that_goes_bad_while_it_is_open_is_made_anew(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    index.catch_up()
    drop(index.path)
    assert found(index, "signature") == ["skill:pdf"]
    put(store, "csv", "quokka")
    drop(index.path)
    assert index.catch_up() == 2
    assert found(index, "quokka") == ["skill:csv"]


@ON_SQLITE
def test_the_index_of_another_history_is_not_believed(store: Store, tmp_path: Path) -> None:
    """A restored backup may have as many changes as the library had, and others."""
    put(store, "pdf", "about quokkas")
    store.close()
    shutil.copytree(store.home, tmp_path / "backup")
    for home, text in ((store.home, "about wombats"), (tmp_path / "backup", "about lemurs")):
        with Store.open(home) as library, Index.open(library) as index:
            put(library, "pdf", text)
            assert found(index, "quokkas wombats lemurs") == ["skill:pdf"]
    shutil.copy(tmp_path / "backup" / "library.db", store.home / "library.db")
    with Store.open(store.home) as library, Index.open(library) as index:
        assert (found(index, "lemurs"), found(index, "wombats")) == (["skill:pdf"], [])


@ON_SQLITE
def test_the_index_of_a_longer_history_is_not_believed(store: Store) -> None:
    put(store, "pdf", "about quokkas")
    store.close()
    old = (store.home / "library.db").read_bytes()
    with Store.open(store.home) as library, Index.open(library) as index:
        put(library, "pdf", "about wombats")
        assert found(index, "wombats") == ["skill:pdf"]
    (store.home / "library.db").write_bytes(old)
    with Store.open(store.home) as library, Index.open(library) as index:
        assert (found(index, "quokkas"), found(index, "wombats")) == (["skill:pdf"], [])


@pytest.mark.process
def test_eight_processes_may_open_it_at_once(store: Store, tmp_path: Path) -> None:
    with store.transaction(Actor.IMPORT, "many") as tx:
        for number in range(BATCH + 100):
            tx.put(
                Ref.parse(f"skill-{number}"), {"SKILL.md": File(f"quokka{number} text".encode())}
            )
    gate = tmp_path / "gate"
    gate.mkdir()
    children = [child("search", store.home, "quokka550", str(gate)) for _ in range(8)]
    try:
        poll(lambda: len(list(gate.glob("ready-*"))) == 8, "the children to be ready")
        (gate / "go").touch()
        for process in children:
            told = said(process)
            assert (told["found"], told["entries"], told["faults"]) == (
                ["skill-550"],
                BATCH + 100,
                [],
            )
            assert told["path"] == str(store.home / index_file.INDEX_FILE)
    finally:
        for process in children:
            process.kill()


def put_many(store: Store, word: str, count: int = BATCH + 10) -> None:
    """Put more resources than are indexed at once, each with a word of its own."""
    with store.transaction(Actor.IMPORT, "many") as tx:
        for number in range(count):
            tx.put(Ref.parse(f"{word}-{number}"), {"SKILL.md": File(f"{word}{number}".encode())})


def test_one_process_indexes_many_changes_and_the_others_leave_it_to_that(
    store: Store, index: Index
) -> None:
    put_many(store, "quokka", 2 * BATCH + 10)

    def look(done: int, of: int) -> None:
        if done == BATCH:  # more than a batch is left
            with pytest.raises(LibraryBusy, match="Another process is indexing"):
                index.catch_up(wait=False)

    with Index.open(store) as other:
        assert other.catch_up(look) == 2 * BATCH + 10
    assert index.catch_up(wait=False) == 0 and found(index, "quokka3") == ["skill:quokka-3"]


def test_a_process_that_stops_while_it_indexes_holds_up_one_search_of_another_and_hides_nothing(
    store: Store, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "BACKLOG_SECONDS", 0.05)
    put_many(store, "quokka")
    with index_file.IndexFile(store.home).backlog():
        assert found(index, "quokka3") == ["skill:quokka-3"]  # it has waited, and seen no progress
        put_many(store, "wombat")
        monkeypatch.setattr(index_file, "BACKLOG_SECONDS", 60.0)
        # At once.
        assert found(index, "wombat3") == [] and found(index, "quokka3") == ["skill:quokka-3"]
    assert found(index, "wombat3") == ["skill:wombat-3"]


@ON_SQLITE
@pytest.mark.process
def test_where_nothing_can_be_written_it_lies_elsewhere(
    store: Store, index: Index, tmp_path: Path
) -> None:
    put(store, "pdf", PDF)
    index.catch_up()
    index.close()
    store.close()
    for path in (store.home, *store.home.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    # All of them: another run of pytest may have closed one above an open one again.
    for above in (tmp_path, *tmp_path.parents):
        if not above.stat().st_mode & 0o001:
            above.chmod(0o755)
    try:
        told = said(child("search", store.home, "signature", flags=("--nobody",)))
    finally:
        store.home.chmod(0o755)
    assert (told["found"], told["faults"]) == (["pdf"], [])
    assert not Path(told["path"]).is_relative_to(store.home)
    assert not Path(told["path"]).parent.exists()


@pytest.mark.process
@pytest.mark.skipif(
    sqlite3.sqlite_version_info >= (3, 43, 0), reason="the standard library's SQLite is a new one"
)
def test_an_old_sqlite_keeps_an_index_too_and_reads_no_newer_one(
    store: Store, index: Index
) -> None:
    put(store, "pdf", PDF)
    index.catch_up()
    index.close()
    store.close()
    told = said(child("change", store.home, flags=("--stdlib",)))
    assert (told["found"], told["entries"], told["faults"]) == ([], 1, [])
    with Store.open(store.home) as library, Index.open(library) as again:
        assert found(again, "signature") == ["skill:pdf"]
        assert again.find_faults() == []


def test_threads_may_share_it(store: Store, index: Index) -> None:
    problems: list[BaseException] = []

    def look() -> None:
        try:
            for number in range(40):
                assert found(index, "signature") in ([], ["skill:pdf"])
                assert number >= 0
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(20):
        put(store, "pdf", PDF + str(number))
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert found(index, "signature") == ["skill:pdf"]


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_may_use_it(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    assert found(index, "signature") == ["skill:pdf"]
    pid = os.fork()
    if pid == 0:
        os._exit(0 if found(index, "signature") == ["skill:pdf"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    put(store, "csv", "quokka")
    assert found(index, "quokka") == ["skill:csv"]


# fsck


def test_fsck_says_when_it_is_not_in_step(store: Store, index: Index) -> None:
    put(store, "pdf", PDF)
    put(store, "csv", "numbers")
    assert fsck.check_library(store, checks=[check_index]).faults == ()
    with contextlib.closing(connection.dbapi.connect(str(index.path), isolation_level=None)) as db:
        db.execute("DELETE FROM document WHERE id = 1")
        db.execute("UPDATE entry SET tree = 'x' WHERE name = 'csv'")
    faults = [str(fault) for fault in fsck.check_library(store, checks=[check_index]).faults]
    assert len(faults) == 2
    assert "skill:csv" in faults[0] and "postings" in faults[1]


@pytest.mark.process
@pytest.mark.parametrize("seed", range(4))
def test_it_is_in_step_after_any_operations(store: Store, index: Index, seed: int) -> None:
    rng = random.Random(seed)
    texts: dict[str, str] = {}
    names = [f"{scope}skill-{number}" for scope in ("", "acme/") for number in range(4)]
    for step in range(60):
        name = rng.choice(names)
        with store.transaction(Actor.HUMAN, f"step {step}") as tx:
            if name in texts and rng.random() < 0.3:
                tx.remove(Ref.parse(name))
                del texts[name]
            else:
                word = f"word{rng.randrange(5)}"
                tx.put(Ref.parse(name), {"SKILL.md": File(f"{word} and others".encode())})
                texts[name] = word
        if rng.random() < 0.5:
            word = f"word{rng.randrange(5)}"
            assert sorted(found(index, word)) == sorted(
                f"skill:{name}" for name in texts if texts[name] == word
            )
        if rng.random() < 0.1:
            index.close()
            index.path.unlink()
            index = Index.open(store)
    assert index.find_faults() == []
    assert refs(index.entries()) == [
        str(head.ref) for head in sorted(store.heads(), key=lambda h: (h.name, h.scope))
    ]
    index.close()
