"""Optimizers: the frontier, the selection of parents and tasks, and the model-backed operators."""
