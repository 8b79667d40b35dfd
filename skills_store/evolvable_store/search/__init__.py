"""Full-text search: analysis, postings, BM25 ranking, vectors, and the index file.

Begin with `Index`: it opens the index beside a library, catches up from the log of changes, and
ranks resources for a task (`Match`). `Vectors` keeps the vectors of an embedder. The index can
be deleted at any time.
"""

from evolvable_store.faces import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_store.search.analyzer import FUNCTION_WORDS, MAX_QUERY, terms
    from evolvable_store.search.bm25 import COMPILED, PRIOR
    from evolvable_store.search.index import (
        Candidates,
        DocumentScore,
        Index,
        IndexEntry,
        Match,
        Ranking,
        TermScore,
        TriggerPhrase,
        check_index,
    )
    from evolvable_store.search.index_entries import AnalyzedText, SourceText, analyze_source
    from evolvable_store.search.index_file import EARLIER_INDEX_FILES, INDEX_FILE
    from evolvable_store.search.index_writer import BACKLOG_BATCH, BATCH, Analyze, BulkIndexer
    from evolvable_store.search.learned_texts import (
        NEAR_DUPLICATE,
        PastTasks,
        content_terms,
        likeness,
        nearest,
        tasks_in_force,
    )
    from evolvable_store.search.postings import SETTLED_AT_ONCE
    from evolvable_store.search.tokenizer import fold, tokenize
    from evolvable_store.search.translation import is_not_english
    from evolvable_store.search.vector_store import (
        VECTORS_FILE,
        WITH_DESCRIPTIONS,
        TextDigest,
        TextRole,
        VectorModel,
        VectorResource,
        Vectors,
        digest_text,
        embedding_progress,
        forget_vectors,
        set_aside,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "analyzer": "FUNCTION_WORDS MAX_QUERY terms",
            "bm25": "COMPILED PRIOR",
            "index": (
                "Candidates DocumentScore Index IndexEntry Match Ranking TermScore "
                "TriggerPhrase check_index"
            ),
            "index_entries": "AnalyzedText SourceText analyze_source",
            "index_file": "EARLIER_INDEX_FILES INDEX_FILE",
            "index_writer": "Analyze BACKLOG_BATCH BATCH BulkIndexer",
            "learned_texts": (
                "NEAR_DUPLICATE PastTasks content_terms likeness nearest tasks_in_force"
            ),
            "postings": "SETTLED_AT_ONCE",
            "tokenizer": "fold tokenize",
            "translation": "is_not_english",
            "vector_store": (
                "TextDigest TextRole VECTORS_FILE VectorModel VectorResource Vectors "
                "WITH_DESCRIPTIONS digest_text embedding_progress forget_vectors set_aside"
            ),
        },
    )

__all__ = [
    "Analyze",
    "AnalyzedText",
    "BACKLOG_BATCH",
    "BATCH",
    "BulkIndexer",
    "COMPILED",
    "Candidates",
    "DocumentScore",
    "EARLIER_INDEX_FILES",
    "FUNCTION_WORDS",
    "INDEX_FILE",
    "Index",
    "IndexEntry",
    "MAX_QUERY",
    "Match",
    "NEAR_DUPLICATE",
    "PRIOR",
    "PastTasks",
    "Ranking",
    "SETTLED_AT_ONCE",
    "SourceText",
    "TermScore",
    "TextDigest",
    "TextRole",
    "TriggerPhrase",
    "VECTORS_FILE",
    "VectorModel",
    "VectorResource",
    "Vectors",
    "WITH_DESCRIPTIONS",
    "analyze_source",
    "check_index",
    "content_terms",
    "digest_text",
    "embedding_progress",
    "fold",
    "forget_vectors",
    "is_not_english",
    "likeness",
    "nearest",
    "set_aside",
    "tasks_in_force",
    "terms",
    "tokenize",
]
