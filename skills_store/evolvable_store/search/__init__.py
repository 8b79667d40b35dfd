"""Full-text search: analysis, postings, BM25 ranking, vectors, and the index file."""
