"""Reviews through the server: a hand-off to the calling agent, a person who decides, and off that
means off.
"""

import json
from datetime import UTC, datetime, timedelta

import mcp_types as types
import pytest
from labelled_sessions import labelled
from samples import teach
from transcripts import LoadSkill, Run, User, session_id, write_claude_code

from evolvable_store.store import Store
from evolvable_tools.library import Library
from evolvable_tools.verbs import proposal_inbox

pytestmark = [pytest.mark.process, pytest.mark.anyio]
SESSION = next(one for one in labelled() if one.name == "alembic")


class Person:
    """Answers every question the same way, and remembers what was asked."""

    def __init__(self, action):
        self.action, self.asked = action, []

    async def __call__(self, context, params):
        self.asked.append(params.message)
        return types.ElicitResult(
            action=self.action, content={} if self.action == "accept" else None
        )


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


async def handed_in(client, path):
    """Reviews a session and hands in one edit; returns what became of it."""
    begun = await call(client, "review_session", transcript_path=str(path))
    assert begun["state"] == "begun"
    assert "submit_review with review_id" in begun["packet"]["how_to_answer"]
    quote = "We always generate migrations with alembic revision"
    span = next(one["id"] for one in begun["packet"]["data"]["evidence"] if quote in one["text"])
    edit = {"op": "text", "old": "By hand.", "new": "With alembic revision."}
    claim, target = "Migrations are generated.", "skill:db-migrations"
    candidate = {"kind": "skill-edit", "target": target, "claim": claim, "edits": [edit]}
    candidate["evidence"] = [{"span": span, "quote": quote}]
    return await call(client, "submit_review", review_id=begun["review_id"], candidates=[candidate])


@pytest.fixture
def reviewed(place):
    with Store.open(place.home) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    return SESSION.write(place.root)


async def test_a_session_goes_in_and_what_a_person_accepts_is_found_next_time(place, era, reviewed):
    person = Person("accept")
    async with place.client(era, elicitation_callback=person) as client:
        done = await handed_in(client, reviewed)
        (proposal,) = done["proposals"]
        listed = await call(client, "review_inbox")
        assert [one["grounds"]["evidence"][0]["origin"] for one in listed["proposals"]] == ["user"]
        decided = await call(
            client, "review_inbox", action="approve", proposal_id=proposal["proposal_id"]
        )
        text = (await client.call_tool("load_skill", {"ref": "db-migrations"})).content[0].text
    assert decided["decided"][0]["version"] == 2
    assert "With alembic revision." in text
    (asked,) = person.asked
    assert (
        asked.startswith("Approve 1 proposed change?") and "We always generate migrations" in asked
    )
    assert "+With alembic revision." in asked


@pytest.mark.parametrize("answer", ["decline", pytest.param(None, marks=pytest.mark.nightly)])
async def test_an_agent_alone_decides_nothing(place, era, reviewed, answer):
    person = Person(answer) if answer else None
    async with place.client(era, elicitation_callback=person) as client:
        done = await handed_in(client, reviewed)
        number = done["proposals"][0]["proposal_id"]
        refused = await client.call_tool(
            "review_inbox", {"action": "approve", "proposal_id": number}
        )
    assert refused.is_error
    assert "waits in the inbox" in refused.content[0].text
    with Library.open(place.home) as library:
        assert [one.proposal_id for one in proposal_inbox.list_waiting(library)] == [number]


async def test_reviews_that_are_off_say_so_and_write_nothing(place, monkeypatch, reviewed):
    off = {**place.environment, "EVOLVABLE_REVIEW": "off"}
    monkeypatch.setattr(type(place), "environment", off)
    async with place.client("modern") as client:
        said = await call(client, "review_session", transcript_path=str(reviewed))
        hook = {"hook_event_name": "Stop", "session_id": "s", "transcript_path": str(reviewed)}
        answer = await client.call_tool("hook_event", hook)
    assert said["state"] == "off"
    assert answer.content[0].text == "{}"
    assert not (place.home / "reviews").exists()


async def test_the_memory_prompt_and_a_compressed_history(place):
    messages = [
        {"role": "user", "content": f"Look at src/{n}.py " + "word " * 50} for n in range(30)
    ]
    async with place.client("modern") as client:
        prompt = await client.get_prompt("memory")
        short = await call(client, "compress_history", messages=messages, keep=3, max_tokens=100)
        older = await client.read_resource(short["older"])
    assert "Nothing is known of the user" in prompt.messages[0].content.text
    assert len(short["messages"]) == 4
    assert json.loads(older.contents[0].text)["references"] == [f"src/{n}.py" for n in range(27)]


@pytest.mark.nightly
async def test_1200_turns_with_8_links_each_are_compressed_as_they_grow_and_each_link_is_found(
    place,
):
    address = (
        "https://docs.example.org/project/area-{}/section-{}/a-page-with-a-name-of-some-length.html"
    )
    messages = []
    async with place.client("modern", within=300) as client:
        for turn in range(1_200):
            links = " ".join(address.format(turn, number) for number in range(8))
            messages.append({"role": "user", "content": f"Step {turn}: {links}"})
            messages.append({"role": "assistant", "content": "Read. " + "so " * 60})
            if turn % 50 == 49:
                short = await call(client, "compress_history", messages=messages, max_tokens=32_000)
                messages = short["messages"]
                assert short["tokens_after"] <= 32_000 and not short["over"]
        older = await client.read_resource(short["older"])
    found = {
        *json.loads(older.contents[0].text)["urls"],
        *json.dumps(messages).replace('"', " ").split(),
    }
    assert {address.format(turn, number) for turn in range(1_200) for number in range(8)} <= found


def test_the_command_line_reviews_a_queue_and_decides_about_several(tmp_path):
    from command_line import CommandLine

    evolvable = CommandLine(tmp_path)
    evolvable("init", evolvable.root / "none", code=None)
    with Store.open(evolvable.home, create=True) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    path = SESSION.write(evolvable.project)
    hook = json.dumps({"session_id": SESSION.session_id, "transcript_path": str(path)})
    from evolvable_store.review_queue import enqueue

    assert enqueue(str(evolvable.home), json.loads(hook))
    queued = evolvable("review", "--queue", "--json").json["reviews"]
    assert [one["state"] for one in queued] == ["begun"]
    assert evolvable("review", "--queue").out.startswith("No session waits")

    begun = evolvable("review", "--json").json
    quote = "We always generate migrations with alembic revision"
    span = next(one["id"] for one in begun["packet"]["data"]["evidence"] if quote in one["text"])
    fact = {
        "kind": "preference",
        "claim": "Migrations are generated.",
        "text": "Always generate migrations with alembic.",
    }
    edit = {
        "kind": "skill-edit",
        "claim": "Migrations are generated with alembic.",
        "target": "skill:db-migrations",
    }
    edit["edits"] = [{"op": "text", "old": "By hand.", "new": "With alembic."}]
    evidence = [{"span": span, "quote": quote}]
    candidates = [one | {"evidence": evidence} for one in (fact, edit)]
    answer = {"review_id": begun["review_id"], "candidates": candidates}
    (evolvable.project / "answer.json").write_text(json.dumps(answer))
    done = evolvable("review", "--answer", evolvable.project / "answer.json")
    assert "2 proposals" in done.out and "evolvable inbox" in done.out

    shown = evolvable("inbox", "show", 2).out
    assert f"user, turn 2: “{quote}”" in shown
    assert "evolvable undo" in evolvable("inbox", "approve", "--session", SESSION.session_id).out
    assert "With alembic." in evolvable("load", "db-migrations").out
    undone = evolvable("undo", "--session", SESSION.session_id, "--yes").out
    assert "memory:USER removed" in undone or "memory:USER" in undone
    assert "By hand." in evolvable("load", "db-migrations").out


def test_a_queued_session_puts_down_what_it_used_once(tmp_path):
    from command_line import CommandLine

    from evolvable_store.review_queue import enqueue

    evolvable = CommandLine(tmp_path)
    skill = evolvable.user / ".claude/skills/db-migrations/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(
        "---\nname: db-migrations\ndescription: Write database migrations.\n---\n\nBy hand.\n"
    )
    evolvable("init", skill.parent.parent)
    events = [
        User("Make the migration."),
        LoadSkill("db-migrations", "By hand."),
        Run("pytest", "1 passed"),
    ]
    path = write_claude_code(
        evolvable.project, events, start=datetime.now(UTC) + timedelta(seconds=1)
    )
    hook = {"session_id": session_id("session"), "transcript_path": str(path)}

    for _ in range(2):
        assert enqueue(str(evolvable.home), hook)
        evolvable("review", "--queue")

    (its,) = evolvable("stats", "skill:db-migrations", "--json").json["resources"]
    assert (its["loaded"], its["used"]) == (1, 1)
