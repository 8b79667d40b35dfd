"""The lessons that wait are told in one line and decided by one answer, where automatic reviews are
on.
"""

import json
from collections.abc import Sequence

import mcp_types as types
import pytest
from labelled_sessions import labelled
from samples import teach

from evolvable_server.auto_switch import AutoSwitch, write_switch
from evolvable_server.config import Config
from evolvable_server.hooks.dispatch import EMPTY_ANSWER, HookDispatcher
from evolvable_store.operation import Actor
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review.review_config import ReviewSettings
from evolvable_tools.review.service import review_session, submit_review
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.lessons import lessons_line, waiting_lessons

pytestmark = [pytest.mark.process, pytest.mark.anyio]

SESSION = next(one for one in labelled() if one.name == "alembic")
SAID = "We always generate migrations with alembic revision"
PROMPT = {
    "hook_event_name": "UserPromptSubmit",
    "session_id": "s1",
    "prompt": "Tell me a joke about the sea.",
}


class Person:
    """Answers every question the same way, and remembers what was asked."""

    def __init__(self, action: str) -> None:
        self.action, self.asked = action, list[str]()

    async def __call__(self, context, params) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(
            action=self.action, content={} if self.action == "accept" else None
        )


def edits(*pairs: tuple[str, str]) -> Sequence[dict[str, str]]:
    return [{"op": "text", "old": old, "new": new} for old, new in pairs]


def learn(home, folder, *changes) -> None:
    """Review a session whose reviewer proposes these edits of skill:db-migrations."""
    with Library.open(home) as library:
        settings, caller = ReviewSettings(Redactor()), Caller(Actor.AGENT)
        begun = review_session(library, caller, settings, transcript_path=SESSION.write(folder))
        assert begun.packet is not None
        span = next(one["id"] for one in begun.packet["data"]["evidence"] if SAID in one["text"])
        given = [
            {
                "kind": "skill-edit",
                "target": "skill:db-migrations",
                "claim": claim,
                "edits": change,
                "evidence": [{"span": span, "quote": SAID}],
            }
            for claim, change in changes
        ]
        assert len(
            submit_review(library, caller, settings, str(begun.review_id), given).proposals
        ) == len(changes)


@pytest.fixture
def learned(place):
    """A library with a lesson that waits, of a project where automatic reviews are on."""
    with Store.open(place.home) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    learn(
        place.home,
        place.root,
        ("Migrations are generated.", edits(("By hand.", "With alembic revision."))),
    )
    write_switch(place.home, AutoSwitch([str(place.root.resolve())]))
    return place


async def test_one_yes_makes_the_lesson_and_undo_takes_it_back(learned, era):
    person = Person("accept")
    async with learned.client(era, elicitation_callback=person) as client:
        await client.call_tool("find_skill", {"task": "write a database migration"})
        text = (await client.call_tool("load_skill", {"ref": "db-migrations"})).content[0].text
        await client.call_tool("find_skill", {"task": "write a database migration"})
    assert "With alembic revision." in text
    (asked,) = person.asked
    assert asked.startswith("1 lesson of your earlier sessions. Keep?")
    assert f"user, turn 2: “{SAID}”" in asked and "+With alembic revision." in asked
    with Library.open(learned.home) as library:
        assert waiting_lessons(library) == []


async def test_a_lesson_that_was_declined_waits_and_no_client_asks_again(learned, era):
    person = Person("decline")
    for _ in range(2):
        async with learned.client(era, elicitation_callback=person) as client:
            await client.call_tool("find_skill", {"task": "write a database migration"})
    assert len(person.asked) == 1
    with Library.open(learned.home) as library:
        assert [one.ref for one in proposal_inbox.list_waiting(library)] == ["skill:db-migrations"]
        hooks = HookDispatcher(Config(learned.home, learned.root), library, Caller(Actor.AGENT))
        assert hooks.answer({**PROMPT, "cwd": str(learned.root)}) == EMPTY_ANSWER


async def test_a_lesson_that_a_question_cannot_show_whole_waits_in_the_inbox(place, era):
    with Store.open(place.home) as store:
        teach(
            store, "db-migrations", "Write database migrations.", body="By hand.\n\nThen apply it."
        )
    long = (
        "With alembic revision. "
        + "Read the file that it wrote, column by column. " * 20
        + "Then drop the old table."
    )
    short = edits(("Then apply it.", "Run alembic upgrade head."))
    learn(
        place.home,
        place.root,
        ("Migrations are generated.", edits(("By hand.", long))),
        ("It is applied.", short),
    )
    write_switch(place.home, AutoSwitch([str(place.root.resolve())]))
    person = Person("accept")
    async with place.client(era, elicitation_callback=person) as client:
        await client.call_tool("find_skill", {"task": "write a database migration"})
    (asked,) = person.asked
    assert (
        asked.startswith("1 lesson of")
        and "+Run alembic upgrade head." in asked
        and "column by column" not in asked
    )
    with Library.open(place.home) as library:
        assert [one.claim for one in waiting_lessons(library)] == ["Migrations are generated"]


async def test_a_prompt_is_told_of_lessons_once_in_a_session_and_only_where_reviews_are_automatic(
    learned,
):
    with Library.open(learned.home) as library:
        hooks = HookDispatcher(Config(learned.home, learned.root), library, Caller(Actor.AGENT))
        event = {**PROMPT, "cwd": str(learned.root)}
        line = "1 lesson waits: db-migrations (correct: Migrations are generated)"
        first = json.loads(hooks.answer(event))
        assert first["systemMessage"] == f"Evolvable: {line}"
        assert first["hookSpecificOutput"]["additionalContext"].startswith(line)
        assert hooks.answer(event) == EMPTY_ANSWER
        assert json.loads(hooks.answer({**event, "session_id": "s2"})) == first
        assert hooks.answer({**event, "session_id": "s3", "cwd": "/"}) == EMPTY_ANSWER


async def test_the_line_names_three_lessons_and_says_what_each_does(place):
    with Store.open(place.home) as store:
        teach(
            store, "db-migrations", "Write database migrations.", body="By hand.\n\nThen apply it."
        )
    guard = [{"op": "add-guard", "old": "Then apply it.", "new": "Run alembic upgrade head."}]
    learn(
        place.home,
        place.root,
        (
            "Migrations are generated <b>\x1b[31mby alembic</b>.",
            edits(("By hand.", "With alembic revision.")),
        ),
        ("The migration is applied by alembic " + "and looked at " * 9, guard),
    )
    with Library.open(place.home) as library:
        line = lessons_line(waiting_lessons(library))
    assert line.startswith(
        "2 lessons wait: db-migrations (correct: Migrations are generated b [31mby alembic /b ), "
    )
    assert (
        line.endswith("…)")
        and "db-migrations (add: The migration is applied" in line
        and len(line) < 200
    )
