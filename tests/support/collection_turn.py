"""The order in which a process of pytest-xdist reads the test modules: each begins at another one.

Rewriting the assertions of all modules takes twenty seconds. Processes that read them in one order
rewrite each module at the same moment, each for itself. When each begins elsewhere, it rewrites a
share and finds the others' on the disk.
"""

import pytest


def turned(
    found: list[pytest.Item | pytest.Collector], worker: int, workers: int
) -> list[pytest.Item | pytest.Collector]:
    """Return the entries of a folder from the one on with which this process begins."""
    first = len(found) * worker // workers
    return found[first:] + found[:first]


def restore(items: list[pytest.Item]) -> None:
    """Put the tests into the order of their files, which has to be that of all processes."""
    items.sort(key=lambda item: item.path.parts)
