"""What transcripts teach, and what a person refused: over every implementation of the storage."""

import pytest
from samples import skill

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.learned import MAX_TASKS, LearnedTask, TaskSource
from evolvable_store.store import Store

AT = "2026-11-20T08:00:00.000000Z"


@pytest.fixture
def pdf(store: Store) -> int:
    """A skill, by its number."""
    with store.transaction(Actor.HUMAN, "first") as tx:
        tx.put(Ref.parse("pdf"), skill("one"))
    return store.head(Ref.parse("pdf")).id


def task(
    resource: int,
    text: str,
    session: str = "s1",
    source: TaskSource = TaskSource.TRANSCRIPT,
    at: str = AT,
) -> LearnedTask:
    return LearnedTask(resource, text, at, False, source, session)


def texts(store: Store, resource: int) -> list[str]:
    return [one.task for one in store.backend.learned.tasks_of([resource]).get(resource, ())]


def test_a_transcript_is_known_as_it_was_read_and_replaces_what_its_session_taught(
    store: Store, pdf: int
) -> None:
    learned = store.backend.learned
    assert not learned.is_read("file", "1")

    assert learned.take_transcript("file", "1", "s1", [task(pdf, "merge files")]) == 1
    assert learned.take_transcript("file", "2", "s1", [task(pdf, "merge files")]) == 0
    assert learned.take_transcript("other", "1", "", []) == 0

    assert (
        learned.is_read("file", "1"),
        learned.is_read("file", "2"),
        learned.is_read("other", "1"),
    ) == (
        False,
        True,
        True,
    )
    learned.replace_transcript("s1", [task(pdf, "split files")])
    assert texts(store, pdf) == ["split files"]


def test_what_a_person_removed_comes_back_from_no_source(store: Store, pdf: int) -> None:
    learned = store.backend.learned
    learned.replace_transcript("s1", [task(pdf, "merge files")])
    learned.remove(learned.tasks_of([pdf])[pdf][0].id, refuse=True)

    learned.replace_transcript("s1", [task(pdf, "merge files")])
    store.backend.observations.learn(
        "s1", "digest", [task(pdf, "merge files", source=TaskSource.SESSION)]
    )

    assert texts(store, pdf) == []


def test_a_verified_end_takes_the_place_of_what_the_transcript_taught(
    store: Store, pdf: int
) -> None:
    learned = store.backend.learned
    learned.replace_transcript("s1", [task(pdf, "merge files")])

    store.backend.observations.learn(
        "s1", "digest", [task(pdf, "merge files", source=TaskSource.SESSION)]
    )
    learned.replace_transcript("s1", [task(pdf, "merge files")])

    assert [one.source for one in learned.tasks_of([pdf])[pdf]] == [TaskSource.SESSION]


def test_a_prompt_goes_before_a_verified_end_where_a_skill_has_too_many_tasks(
    store: Store, pdf: int
) -> None:
    learned = store.backend.learned
    store.backend.observations.learn(
        "s0", "digest", [task(pdf, "verified", "s0", TaskSource.SESSION)]
    )
    for number in range(MAX_TASKS + 2):
        at = f"2026-11-21T{number:02}:00:00.000000Z"
        learned.replace_transcript(
            f"s{number + 1}", [task(pdf, f"prompt {number}", f"s{number + 1}", at=at)]
        )

    assert texts(store, pdf) == [
        "verified",
        *(f"prompt {number}" for number in range(3, MAX_TASKS + 2)),
    ]


def test_what_transcripts_taught_is_forgotten_with_the_transcripts_and_nothing_else(
    store: Store, pdf: int
) -> None:
    learned = store.backend.learned
    learned.take_transcript("file", "1", "s1", [task(pdf, "merge files")])
    learned.add([task(pdf, "named by a person", "", TaskSource.PERSON)])

    assert learned.forget_transcripts() == 1

    assert texts(store, pdf) == ["named by a person"] and not learned.is_read("file", "1")


def test_a_purged_text_leaves_no_session_that_could_teach_it_again(store: Store, pdf: int) -> None:
    learned = store.backend.learned
    learned.replace_transcript("s1", [task(pdf, "merge files of bluebird")])

    learned.refuse_texts(["bluebird"])
    learned.replace_transcript("s1", [task(pdf, "merge files of bluebird, please")])

    assert texts(store, pdf) == ["merge files of bluebird"]
