"""Learned tasks as the index sees them: which of them count, how much, and how alike
two tasks are.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from evolvable_store.operation import Head
from evolvable_store.search.analyzer import FUNCTION_WORDS, Learned, terms
from evolvable_store.search.tokenizer import tokenize
from evolvable_store.storage import LearnedTask, TaskSource, by_sign
from evolvable_store.store import Store

# Half a year: what a team works on changes; a year-old task still counts a quarter.
HALF_LIFE = timedelta(days=180)
"""The age at which a learned task counts half."""

# Reached after some 600 days: without a limit each text would grow forever.
MIN_SHARE = 0.1
"""A task that counts less than this share of a new one is left out of the index."""

# Three fifths of the content words of both: one more word in a task of five still counts as the
# same.
NEAR_DUPLICATE = 0.6
"""Likeness from which two tasks count as one."""


COUNT_LEARNED = """INSERT INTO state VALUES ('learned_docs', '1')
    ON CONFLICT DO UPDATE SET value = CAST(value + 1 AS TEXT)"""
"""Counts in the index, in the transaction that replaced documents, so that a process reads its
cached state again.
"""


def changed_resources(store: Store, applied: int, *, aged: bool) -> list[int]:
    """Return the resources to index again: those whose tasks changed since `applied`.

    aged: a month began, and tasks lose weight with age: every resource with learned tasks. A number
    that is ahead of the library, which was restored from a backup, means all of them too.
    """
    learned = store.backend.learned
    if aged or applied > learned.sequence():
        # The log of changes also has the resources that lost their last task.
        return sorted({*learned.resources(), *learned.changed_resources(0)})
    return sorted(learned.changed_resources(applied))


def tasks_in_force(store: Store, resources: Sequence[int]) -> dict[int, Learned]:
    """Return the tasks that count for these resources, each with its share of a new one.

    A resource whose newest version nobody trusts has none: what was learned of other content says
    nothing of it.
    """
    tasks = store.backend.learned.tasks_of(resources)
    trusted = set(tasks).difference(
        store.backend.authorship.untrusted_resources(list(tasks)) if tasks else ()
    )
    now, found = store.clock(), dict[int, Learned]()
    for resource in trusted:
        shares = [
            (learned_task.task, share_of(learned_task, now))
            for learned_task in by_sign(tasks, resource, against=False)
        ]
        if in_force := [(task, share) for task, share in shares if share >= MIN_SHARE]:
            found[resource] = in_force
    return found


class LearnedTexts:
    """The learned tasks of a library for one pass of the index."""

    def __init__(self, store: Store, any_: bool) -> None:
        """any_: whether anything was learned; otherwise nothing is read."""
        self._store, self._any = store, any_

    def of(self, head: Head) -> Learned:
        """Return the tasks that count for a resource, as `tasks_in_force` does."""
        return (
            tasks_in_force(self._store, [head.id]).get(
                head.id,
                (),
            )
            if self._any
            else ()
        )


def share_of(task: LearnedTask, now: datetime) -> float:
    """Return how much a task counts by its age, 0 to 1.

    A time that cannot be read, or in the future, counts as new.
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
    """Return how alike two tasks are by their terms, 0 to 1."""
    return len(first & second) / len(first | second) if first and second else 0.0


def nearest(task: frozenset[str], tasks: Sequence[LearnedTask]) -> tuple[LearnedTask | None, float]:
    """Return the most alike of these tasks and its likeness; None and 0 where none has a term in
    common.
    """
    best, most = None, 0.0
    for candidate in tasks:
        alike = likeness(task, content_terms(candidate.task))
        if alike > most:
            best, most = candidate, alike
    return best, most


class PastTasks(NamedTuple):
    """Resources with a near duplicate of a task among their learned tasks.

    wrong: another one was right for it. labelled: a person named this one for it. succeeded: a
    session used it for it.
    """

    wrong: frozenset[int]
    labelled: frozenset[int]
    succeeded: frozenset[int]


NO_PAST_TASKS = PastTasks(frozenset(), frozenset(), frozenset())


def past_tasks(store: Store, task: str, resources: Iterable[int]) -> PastTasks:
    """Return which of these resources nearly this task was for, and which it was not for.

    What is for a resource counts only while it is trusted and not too old, as in `tasks_in_force`.
    """
    found = store.backend.learned.tasks_of(resources)
    if not found:
        return NO_PAST_TASKS
    terms_, now = content_terms(task), store.clock()
    trusted = set(found).difference(store.backend.authorship.untrusted_resources(list(found)))
    wrong, labelled, succeeded = set[int](), set[int](), set[int]()
    for resource in found:
        if nearest(terms_, by_sign(found, resource, against=True))[1] >= NEAR_DUPLICATE:
            wrong.add(resource)
        # Tasks against a resource have no such limit: a wrong match stays wrong.
        in_force = [
            learned_task
            for learned_task in by_sign(found, resource, against=False)
            if share_of(learned_task, now) >= MIN_SHARE
        ]
        for learned_task in in_force if resource in trusted else ():
            if likeness(terms_, content_terms(learned_task.task)) >= NEAR_DUPLICATE:
                (labelled if learned_task.source is TaskSource.PERSON else succeeded).add(resource)
    return PastTasks(frozenset(wrong), frozenset(labelled), frozenset(succeeded))
