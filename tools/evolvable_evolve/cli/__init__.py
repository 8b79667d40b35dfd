"""The commands of the annex of evolution."""
