"""What an agent is shown of a task set over MCP: no answers, and nothing of the sealed test."""

import json
from pathlib import Path

import pytest
from mcp import Client
from mcp_place import Place

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

pytestmark = [pytest.mark.process, pytest.mark.anyio]

PERSON, LETTERS = Caller(Actor.HUMAN), Ref.parse("environment:letters")
ABOUT = "---\nname: letters\ndescription: Letters to friends.\n---\n\nLetters.\n"


def letter(split: str, **more: object) -> dict:
    word = f"{split}word"
    return {
        "id": split,
        "prompt": f"Ask {word}.",
        "expected": f"secret {word}",
        "split": split,
    } | more


LINES = [
    letter(
        "train",
        scorer={
            "type": "regex",
            "args": {"pattern": "pattern-trainword", "good": ["good-trainword"]},
        },
    ),
    letter("val", files="desks/val"),
    letter("test", files="desks/test"),
]
FILES = {
    "ENVIRONMENT.md": ABOUT,
    "tasks.jsonl": "\n".join(map(json.dumps, LINES)),
    "desks/val/a.txt": "valdesk",
    "desks/test/a.txt": "testdesk",
}
SECRETS = ("secret", "pattern-", "good-", "testword", "testdesk")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    with Library.open(made.home) as library:
        edit.update_resource(library, PERSON, LETTERS, "first", files=FILES, create=True)
        more = "\n".join(map(json.dumps, [*LINES, letter("test", id="t2", expected="secret 2")]))
        edit.update_resource(
            library, PERSON, LETTERS, "more", files={"tasks.jsonl": more, "notes.md": "By hand."}
        )
    return made


async def said(client: Client, tool: str, **arguments: object) -> str:
    result = await client.call_tool(tool, arguments)
    return "\n".join(
        [block.text for block in result.content] + [json.dumps(result.structured_content)]
    )


async def test_an_agent_sees_training_tasks_without_their_answers_and_of_the_test_nothing(place):
    paths = ["tasks.jsonl", "desks/test/a.txt", "desks/val/a.txt", "notes.md"]
    async with place.client("modern") as client:
        got = [
            await said(client, "get_resource", ref="environment:letters", path=path)
            for path in paths
        ]
        got += [
            await said(client, "load_skill", ref="environment:letters@1", path=path)
            for path in paths[:3]
        ]
        for path in paths:
            got.append(
                (await client.read_resource(f"environment://letters/{path}")).contents[0].text
            )
        got.append(
            await said(client, "resource_history", ref="environment:letters", from_version=1)
        )
        got.append(await said(client, "find_skill", task="secret testword", kind="environment"))

    whole = "\n".join(got)
    assert not [secret for secret in SECRETS if secret in whole.replace("secret testword", "")]
    assert (
        "Ask trainword." in got[0]
        and "Ask valword." in got[0]
        and "2 tasks of the sealed test" in got[0]
    )
    assert "1 task of the sealed test" in got[4]
    assert "Not shown to agents" in got[1] and "valdesk" in got[2] and "By hand." in got[3]
    assert "not shown to agents" in got[-2]


async def test_no_way_around_by_a_copy_or_by_proposing_that_it_goes(place):
    async with place.client("modern") as client:
        copy = {"create": True, "copy_of": "environment:letters", "reason": "to read it"}
        refused = await said(client, "update_resource", ref="skill:copy", **copy)
        made = await said(client, "update_resource", ref="environment:copy", **copy)
        got = await said(client, "get_resource", ref="environment:copy", path="tasks.jsonl")
        broken = {
            "edits": [{"path": "tasks.jsonl", "old": '"id": "train"', "new": '"id": "tr ain"'}]
        }
        await said(client, "update_resource", ref="environment:copy", reason="broken", **broken)
        after = await said(client, "get_resource", ref="environment:copy", path="tasks.jsonl")
        asked = {
            "files": {"tasks.jsonl": None},
            "reason": "away",
            "propose": True,
            "expected_version": 2,
        }
        await said(client, "update_resource", ref="environment:letters", **asked)
        shown = await said(client, "review_inbox", action="show", proposal_id=1)

    assert "to another environment only" in refused and '"environment:copy"' in made
    assert "not shown to agents" in shown
    assert not [
        secret
        for secret in SECRETS
        for text in (refused, made, got, after, shown)
        if secret in text
    ]


async def test_a_task_in_a_folder_of_its_own_is_shown_without_what_tells_its_answer(place):
    files = {"ENVIRONMENT.md": ABOUT.replace("letters", "folders")}
    for split in ("train", "val", "test"):
        files[f"tasks/{split}/task.json"] = json.dumps({"split": split, "tags": ["kind"]})
        files[f"tasks/{split}/prompt.md"] = f"Ask {split}word."
        files[f"tasks/{split}/expected.txt"] = f"secret {split}word"
        files[f"tasks/{split}/files/a.txt"] = f"{split}desk"
    with Library.open(place.home) as library:
        edit.update_resource(
            library, PERSON, Ref.parse("environment:folders"), "first", files=files, create=True
        )

    async with place.client("modern") as client:
        got = {
            path: await said(client, "get_resource", ref="environment:folders", path=path)
            for path in files
        }

    assert not [secret for secret in SECRETS if secret in "\n".join(got.values())]
    assert (
        "Ask trainword." in got["tasks/train/prompt.md"] and "kind" in got["tasks/train/task.json"]
    )
    assert "valdesk" in got["tasks/val/files/a.txt"]


async def test_both_sides_of_a_conflict_show_nothing_of_a_sealed_test(place):
    guess = "\n".join(
        [
            *map(json.dumps, LINES[:2]),
            json.dumps(letter("guess")),
            json.dumps(letter("guess", id="g2")),
        ]
    )
    asked = {
        "files": {"tasks.jsonl": guess},
        "reason": "better",
        "propose": True,
        "expected_version": 2,
    }
    async with place.client("modern") as client:
        await said(client, "update_resource", ref="environment:letters", **asked)
    with Library.open(place.home) as library:
        before = library.store.operations(limit=1)[0].id
        text = library.store.file(library.store.head(LETTERS), "tasks.jsonl").data.decode()
        for word in ("secret testword, new", "secret testword, newer"):
            files = {"tasks.jsonl": text.replace("secret testword", word)}
            edit.update_resource(library, PERSON, LETTERS, "better", files=files)

    async with place.client("modern") as client:
        got = [
            await said(client, "review_inbox", action="show", proposal_id=1),
            await said(client, "review_inbox"),
        ]
        got += [
            await said(client, "undo", operation=before + 1, reason="back", propose=p)
            for p in (True, False)
        ]

    assert "in the same places as proposal 1" in got[0]
    assert "in the same place: tasks.jsonl" in got[2]
    assert not [secret for secret in SECRETS for text in got if secret in text]
