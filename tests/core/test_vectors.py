"""The file of vectors: each text is embedded once, nothing outlives the texts it is of, and damage
costs only time.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evolvable_store.search.vector_store import (
    VECTORS_FILE,
    WITH_DESCRIPTIONS,
    EmbeddingProgress,
    TextDigest,
    TextRole,
    VectorResource,
    Vectors,
    digest_text,
    embedding_progress,
)

ONE, TWO = digest_text("one"), digest_text("two")
BOTH = [ONE.hash, TWO.hash]
PDF, SQL = VectorResource(1, "skill", "user", "pdf"), VectorResource(2, "skill", "user", "sql")


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[Vectors]:
    with Vectors.open(tmp_path) as vectors:
        yield vectors


def say(vectors: Vectors, **said: TextDigest) -> None:
    """Gives pdf and sql one text each."""
    places = {"pdf": PDF, "sql": SQL}
    vectors.take_in(
        {places[name]: {TextRole.WHOLE: text} for name, text in said.items()}, (), {"applied": "1"}
    )


def test_equal_texts_have_one_vector(vectors: Vectors) -> None:
    say(vectors, pdf=ONE, sql=ONE)
    model = vectors.model("m", "onnx")
    assert vectors.resources_without_vector(model, TextRole.WHOLE) == {1: 3, 2: 3}

    vectors.store_vectors(model, {ONE.hash: b"11"})

    assert vectors.resources_without_vector(model, TextRole.WHOLE) == {}
    assert list(vectors.all(model, TextRole.WHOLE)) == [(1, b"11"), (2, b"11")]


def test_a_vector_goes_with_the_last_text_it_is_of(vectors: Vectors) -> None:
    say(vectors, pdf=ONE, sql=ONE)
    model = vectors.model("m", "onnx")
    vectors.store_vectors(model, {ONE.hash: b"11"})

    say(vectors, pdf=TWO)
    assert vectors.stored_vectors(model, BOTH) == {ONE.hash: b"11"}

    vectors.take_in({}, [SQL.id], {})
    assert vectors.stored_vectors(model, BOTH) == {}
    assert vectors.places() == [PDF]


def test_what_is_taken_in_is_noted_with_it(vectors: Vectors) -> None:
    say(vectors, pdf=ONE)
    assert (vectors.state("applied"), vectors.state("mark")) == ("1", "")


def test_each_model_has_its_own_vectors(vectors: Vectors) -> None:
    say(vectors, pdf=ONE)
    old, new = vectors.model("old", "onnx:a"), vectors.model("new", "onnx:b")
    vectors.store_vectors(old, {ONE.hash: b"11"})
    assert vectors.resources_without_vector(new, TextRole.WHOLE) == {1: 3}

    vectors.forget_model(old)

    assert [model.name for model in vectors.models()] == ["new"]
    assert vectors.stored_vectors(old, BOTH) == {}


def test_another_history_keeps_the_vectors_of_texts_that_come_again(vectors: Vectors) -> None:
    say(vectors, pdf=ONE, sql=TWO)
    model = vectors.model("m", "onnx")
    vectors.store_vectors(model, {ONE.hash: b"11", TWO.hash: b"22"})

    vectors.forget_texts()
    say(vectors, sql=ONE)
    vectors.delete_unused_vectors()

    assert vectors.stored_vectors(model, BOTH) == {ONE.hash: b"11"}
    assert vectors.state("applied") == "1"


def test_progress_counts_the_texts_that_are_wanted(vectors: Vectors, tmp_path: Path) -> None:
    vectors.take_in({PDF: {TextRole.WHOLE: ONE, TextRole.DESCRIPTION: TWO}}, (), {})
    vectors.store_vectors(vectors.model("m", "onnx"), {ONE.hash: b"11"})
    assert embedding_progress(tmp_path) == EmbeddingProgress("m", 1, 1)

    vectors.note(WITH_DESCRIPTIONS, "1")

    assert embedding_progress(tmp_path) == EmbeddingProgress("m", 1, 2)


def test_there_is_no_progress_before_anything_was_begun(tmp_path: Path) -> None:
    assert embedding_progress(tmp_path) is None
    assert not (tmp_path / VECTORS_FILE).exists()


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4000]
)
def test_a_damaged_file_is_set_aside_and_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / VECTORS_FILE).write_bytes(content)
    assert embedding_progress(tmp_path) is None
    with Vectors.open(tmp_path) as vectors:
        assert vectors.places() == []
    assert (tmp_path / f"{VECTORS_FILE}.damaged").read_bytes() == content


def test_a_file_of_another_program_is_set_aside(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / VECTORS_FILE)) as other:
        other.execute("CREATE TABLE theirs (x)")
    with Vectors.open(tmp_path) as vectors:
        assert vectors.models() == []
    assert (tmp_path / f"{VECTORS_FILE}.damaged").exists()


def test_a_file_of_another_version_is_made_anew(tmp_path: Path) -> None:
    with Vectors.open(tmp_path) as vectors:
        say(vectors, pdf=ONE)
    with closing(sqlite3.connect(tmp_path / VECTORS_FILE)) as older:
        older.execute("PRAGMA user_version=1")
    with Vectors.open(tmp_path) as vectors:
        assert vectors.places() == []
