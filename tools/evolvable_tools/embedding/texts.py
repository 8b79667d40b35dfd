"""What a resource says, as the texts that are embedded."""

from evolvable_store import frontmatter
from evolvable_store.errors import LibraryCorrupt
from evolvable_store.operation import Head
from evolvable_store.search.vector_store import TextRole
from evolvable_store.store import Store
from evolvable_store.validation import main_path

MAX_DESCRIPTION = 8_192
"""Characters of a description that are taken; a model reads far fewer."""


def said_by(store: Store, head: Head) -> dict[TextRole, str]:
    """Returns the texts of a living resource; of one whose bytes are damaged only its name. Raises LibraryError."""
    description = frontmatter.summarize(_document(store, head)).description[:MAX_DESCRIPTION]
    texts = {TextRole.WHOLE: f"{head.name.replace('-', ' ')}. {description}"}
    if description.strip():
        texts[TextRole.DESCRIPTION] = description
    return texts


def _document(store: Store, head: Head) -> frontmatter.Document:
    data = b""
    try:
        manifest = store.manifest(head)
        path = main_path(head.kind, head.name, manifest)
        data = store.blob(manifest[path].sha256) if path else b""
    except LibraryCorrupt:
        pass  # compared by its name still; fsck reports it
    return frontmatter.parse_document(data)
