"""The texts of a resource that an embedder reads."""

import pytest

from evolvable_store.resource import Ref


@pytest.mark.models
def test_a_resource_whose_bytes_are_damaged_is_read_by_its_name(library, skill):
    from evolvable_store.search.vector_store import TextRole
    from evolvable_tools.embedding.indexer import document_texts

    skill("pdf-merge", description="Merges PDF files.")
    head = library.store.head(Ref.parse("pdf-merge"))
    sound = document_texts(library.store, head)
    with library.store.backend.writing() as db:
        db.execute("UPDATE blob SET data = x'00'")

    damaged = document_texts(library.store, head)

    assert sound[TextRole.DESCRIPTION] == "Merges PDF files."
    assert damaged == {TextRole.WHOLE: "pdf merge. "}
