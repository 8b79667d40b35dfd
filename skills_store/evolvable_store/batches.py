"""Cuts a long write into pieces, so that other processes wait for one piece and not for all."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

MAX_ITEMS, MAX_BYTES = 200, 8 * 2**20
"""What is written under one lock: some 10 ms."""

T = TypeVar("T")


def batches(items: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Yields the items in lists of at most MAX_ITEMS and, but for a single large one, MAX_BYTES together."""
    batch: list[T] = []
    total = 0
    for item in items:
        if batch and (len(batch) >= MAX_ITEMS or total + size(item) > MAX_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
