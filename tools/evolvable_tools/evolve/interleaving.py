"""The order in which a batch runs: all arms take turns on every task, so that nothing which drifts favours one."""

import hashlib
from collections.abc import Sequence

from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.task import Task

Request = tuple[Program, Task, int]
"""What is to be measured: a task under a program, and which repeat."""


def interleaved(requests: Sequence[Request]) -> list[int]:
    """Returns the indices of the requests in the order to run them; the same requests give the same order.

    Tasks come as the batch first names them, each with all its arms side by side before the next. Which arm of a task
    goes first is decided by the task's hash, so that over a batch none is always the first.
    """
    groups: dict[tuple[int, str], list[int]] = {}
    for index, (_, task, repeat) in enumerate(requests):
        groups.setdefault((repeat, task.digest), []).append(index)
    order: list[int] = []
    for (repeat, digest), indices in groups.items():
        first = hashlib.sha256(f"{digest} {repeat}".encode()).digest()[0] % len(indices)
        order += indices[first:] + indices[:first]
    return order
