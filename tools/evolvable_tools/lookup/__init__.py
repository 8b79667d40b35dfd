"""Lookup: from a task, in anybody's words, to the resources that fit it."""
