"""Learned tasks for the index: which of them count, how much, and how similar two tasks are."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from evolvable_store.operation import Head
from evolvable_store.search.analyzer import FUNCTION_WORDS, Learned, terms
from evolvable_store.search.tokenizer import tokenize
from evolvable_store.storage import LearnedTask, TaskSource, by_sign
from evolvable_store.store import Store

# The work of a team changes; at half a year, a year-old task still counts a quarter.
HALF_LIFE = timedelta(days=180)
"""The age at which a learned task counts half."""

# Reached after some 600 days: without a limit each text would grow forever.
MIN_SHARE = 0.1
"""A task that counts less than this share of a new one is left out of the index."""

# At three fifths, a task of five content words and the same task with one more count as one.
NEAR_DUPLICATE = 0.6
"""Likeness from which two tasks count as one."""


COUNT_LEARNED = """INSERT INTO state VALUES ('learned_docs', '1')
    ON CONFLICT DO UPDATE SET value = CAST(value + 1 AS TEXT)"""
"""Counts changes of learned tasks in the index, so that processes read their cached state again.

It runs in the transaction that replaces the documents.
"""


def changed_resources(store: Store, applied: int, *, aged: bool) -> list[int]:
    """Return the resources to index again: those whose tasks changed since `applied`.

    aged: a month began, and tasks lose weight with age, so return every resource with learned
    tasks. Return all of them too where `applied` is ahead of the library, which was then restored
    from a backup.
    """
    learned = store.backend.learned
    if aged or applied > learned.sequence():
        # The log of changes also has the resources that lost their last task.
        return sorted({*learned.resources(), *learned.changed_resources(0)})
    return sorted(learned.changed_resources(applied))


def tasks_in_force(store: Store, resources: Sequence[int]) -> dict[int, Learned]:
    """Return by resource the tasks that count for it, each with its share of a new task's weight.

    A resource whose newest version nobody trusts has none: its tasks were learned of other content.
    """
    tasks = store.backend.learned.tasks_of(resources)
    now, by_resource = store.clock(), dict[int, Learned]()
    for resource in _trusted_resources(store, tasks):
        shares = [
            (learned_task.task, share_of(learned_task, now))
            for learned_task in by_sign(tasks, resource, against=False)
        ]
        if in_force := [(task, share) for task, share in shares if share >= MIN_SHARE]:
            by_resource[resource] = in_force
    return by_resource


def _trusted_resources(store: Store, resources: Collection[int]) -> set[int]:
    if not resources:
        return set()
    return set(resources).difference(store.backend.authorship.untrusted_resources(list(resources)))


class LearnedTexts:
    """The learned tasks of a library for one pass of the index."""

    def __init__(self, store: Store, any_: bool) -> None:
        """any_: whether anything was learned; otherwise nothing is read."""
        self._store, self._any = store, any_

    def of(self, head: Head) -> Learned:
        """Return the tasks that count for a resource, as `tasks_in_force` does."""
        if not self._any:
            return ()
        return tasks_in_force(self._store, [head.id]).get(head.id, ())


def share_of(task: LearnedTask, now: datetime) -> float:
    """Return how much a task counts by its age, 0 to 1.

    A task with an unreadable time, or one in the future, counts as new.
    """
    try:
        at = datetime.fromisoformat(task.at)
    except ValueError:
        return 1.0
    # A time without a zone comes from an archive made elsewhere.
    age = now - (at.replace(tzinfo=UTC) if at.tzinfo is None else at)
    return float(0.5 ** max(0.0, age / HALF_LIFE))


@lru_cache(maxsize=1024)
def content_terms(text: str) -> frozenset[str]:
    """Return the terms of a task without function words."""
    return frozenset(terms(word for word in tokenize(text) if word not in FUNCTION_WORDS))


def likeness(first: frozenset[str], second: frozenset[str]) -> float:
    """Return how similar two tasks are by their terms, 0 to 1 (Jaccard index)."""
    return len(first & second) / len(first | second) if first and second else 0.0


def nearest(task: frozenset[str], tasks: Sequence[LearnedTask]) -> tuple[LearnedTask | None, float]:
    """Return the most similar of these tasks and its likeness.

    None and 0 where none has a term in common.
    """
    best, best_likeness = None, 0.0
    for candidate in tasks:
        candidate_likeness = likeness(task, content_terms(candidate.task))
        if candidate_likeness > best_likeness:
            best, best_likeness = candidate, candidate_likeness
    return best, best_likeness


class PastTasks(NamedTuple):
    """Resources with a near duplicate of a task among their learned tasks.

    wrong: another resource was right for the task. labelled: a person named this one for it.
    succeeded: a session used this one for it with success.
    """

    wrong: frozenset[int]
    labelled: frozenset[int]
    succeeded: frozenset[int]


NO_PAST_TASKS = PastTasks(frozenset(), frozenset(), frozenset())


def past_tasks(store: Store, task: str, resources: Iterable[int]) -> PastTasks:
    """Return the resources that are right, or wrong, for a near duplicate of this task.

    A task counts for a resource only while that is trusted and the task is not too old, as in
    `tasks_in_force`.
    """
    tasks = store.backend.learned.tasks_of(resources)
    if not tasks:
        return NO_PAST_TASKS
    task_terms, now = content_terms(task), store.clock()
    trusted = _trusted_resources(store, tasks)
    wrong, labelled, succeeded = set[int](), set[int](), set[int]()
    for resource in tasks:
        # Neither trust nor age limits tasks against a resource: a wrong match stays wrong.
        if nearest(task_terms, by_sign(tasks, resource, against=True))[1] >= NEAR_DUPLICATE:
            wrong.add(resource)
        for learned_task in by_sign(tasks, resource, against=False) if resource in trusted else ():
            is_old = share_of(learned_task, now) < MIN_SHARE
            if is_old or likeness(task_terms, content_terms(learned_task.task)) < NEAR_DUPLICATE:
                continue
            is_label = learned_task.source is TaskSource.PERSON
            (labelled if is_label else succeeded).add(resource)
    return PastTasks(frozenset(wrong), frozenset(labelled), frozenset(succeeded))
