"""Embedding: texts as vectors, kept by one process for each library that every server asks."""
