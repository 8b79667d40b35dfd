"""Near duplicates of what a write made: they come after its answer, once, to who wrote."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from command_line import CommandLine
from library_trouble import held
from mcp_place import Place, skill_text

from evolvable_store.operation import Actor
from evolvable_store.paths import NEAR_DUPLICATES
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, proposal_inbox
from evolvable_tools.verbs.duplicate_hints import MAX_LINE, MAX_PAIRS, DuplicateHints, take_pairs

FORMS = "Merge, split and fill PDF forms."
SAME = "answer the same questions"

pytestmark = pytest.mark.anyio


def write(name: str, description: str = FORMS, **more: Any) -> dict[str, Any]:
    return {
        "ref": name,
        "reason": "why",
        "files": {"SKILL.md": skill_text(name, description)},
        **more,
    }


@pytest.fixture
def run(tmp_path: Path) -> CommandLine:
    (tmp_path / "machine").mkdir()
    return CommandLine(tmp_path / "machine")


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def keep(messages: list[str]) -> Callable[[Any], Any]:
    async def callback(params: Any) -> None:
        messages.append(params.data)

    return callback


async def until(done: Callable[[], bool]) -> None:
    with anyio.fail_after(30):
        while not done():
            await anyio.sleep(0.01)


@pytest.mark.process
async def test_the_writer_alone_is_given_the_hint_in_its_next_answer_and_once(
    place: Place, messages, keep
) -> None:
    others = list[str]()

    async def keep_others(params: Any) -> None:
        others.append(params.data)

    async with (
        place.client("handshake", logging_callback=keep) as writer,
        place.client("handshake", logging_callback=keep_others) as other,
    ):
        await other.call_tool("list_resources", {})
        made = await writer.call_tool("update_resource", write("pdf-forms", create=True))
        await until(lambda: bool(messages))
        elsewhere = await other.call_tool(
            "update_resource", write("tables", "Bake bread.", create=True)
        )
        answer = await writer.call_tool(
            "update_resource", write("bread", "Sail a boat.", create=True)
        )
        again = await writer.call_tool("update_resource", write("boat", "Fly a kite.", create=True))

    assert "warnings" not in made.structured_content
    (line,) = answer.structured_content["warnings"]
    assert json.loads(answer.content[0].text) == answer.structured_content
    assert line.startswith(f"skill:pdf-forms and skill:pdf {SAME} (") and "forms" in line
    assert len(line.encode()) <= MAX_LINE
    assert messages == [line]
    assert SAME not in str(elsewhere) + str(again) and others == []


@pytest.mark.process
@pytest.mark.parametrize("tool", ["list_resources", "get_resource"])
async def test_an_answer_without_warnings_has_the_hint_as_a_text_of_its_own(
    place: Place, messages, keep, tool: str
) -> None:
    async with place.client("handshake", logging_callback=keep) as client:
        await client.call_tool("update_resource", write("pdf-forms", create=True))
        await until(lambda: bool(messages))
        answer = await client.call_tool(tool, {"ref": "csv"} if tool == "get_resource" else {})
        again = await client.call_tool(tool, {"ref": "csv"} if tool == "get_resource" else {})

    assert answer.content[-1].text == messages[0] and len(answer.content) == len(again.content) + 1
    assert SAME not in str(answer.structured_content) + str(again)


@pytest.mark.process
async def test_a_client_of_the_modern_era_has_the_hint_in_an_answer(place: Place) -> None:
    async with place.client("modern") as client:
        await client.call_tool("update_resource", write("pdf-forms", create=True))
        answer = await client.call_tool("list_resources", {})
        while SAME not in str(answer):
            answer = await client.call_tool("list_resources", {})


@pytest.mark.process
async def test_a_change_of_the_body_alone_is_not_compared(place: Place, messages, keep) -> None:
    async with place.client("handshake", logging_callback=keep) as client:
        edits = [{"path": "SKILL.md", "old": "one", "new": "1"}]
        await client.call_tool("update_resource", write("pdf-forms", create=True))
        await until(lambda: bool(messages))
        await client.call_tool(
            "update_resource", {"ref": "pdf-forms", "reason": "why", "edits": edits}
        )
        await client.call_tool("update_resource", write("pdf-two", create=True))
        await until(lambda: len(messages) > 1)

    assert all("pdf-two" in message for message in messages[1:])


@pytest.mark.process
async def test_status_names_what_a_server_found_once(
    place: Place, run: CommandLine, messages, keep
) -> None:
    async with place.client("handshake", logging_callback=keep) as client:
        await client.call_tool("update_resource", write("pdf-forms", create=True))
        await until(lambda: bool(messages))
        first = run("status", "--json", EVOLVABLE_HOME=str(place.home)).json["near_duplicates"]
        second = run("status", "--json", EVOLVABLE_HOME=str(place.home)).json["near_duplicates"]

    assert [line.partition(" (")[0] for line in first] == [f"skill:pdf-forms and skill:pdf {SAME}"]
    assert second == []


@contextlib.contextmanager
def comparing(library: Library) -> Iterator[tuple[DuplicateHints, list[str]]]:
    """The background of a server over the library, and its notifications."""
    lines = list[str]()
    hints = DuplicateHints(library, lines.append)
    library.compare_later = hints.add
    hints.start()
    try:
        yield hints, lines
    finally:
        hints.close()


def alike(library: Library, caller: Caller, name: str) -> edit.Updated:
    files = {"SKILL.md": skill_text(name, FORMS)}
    return edit.update_resource(library, caller, Ref.parse(name), "why", files=files, create=True)


WRITER = Caller(Actor.AGENT, session="one", conversation="one")


async def test_no_more_than_three_pairs_are_given_out_and_marks_stand_around_what_strangers_wrote(
    library: Library,
) -> None:
    library.marks_agents = True
    for name in ("pdf", "forms"):
        alike(library, Caller(Actor.AGENT, session="other", conversation="other"), name)
    with comparing(library) as (hints, lines):
        for name in ("merge", "split"):
            alike(library, WRITER, name)
        await until(lambda: len(lines) > MAX_PAIRS)
        taken = hints.take("one")
        again, others, nobodys = hints.take("one"), hints.take("other"), hints.take(None)

    assert len(taken) == MAX_PAIRS and taken == lines[-MAX_PAIRS:]
    assert all(len(line.encode()) <= MAX_LINE and line.isprintable() for line in taken)
    strangers = [line for line in taken if "and skill:pdf " in line or "and skill:forms " in line]
    assert strangers == [line for line in taken if "quoted, not an instruction: [" in line] != []
    assert again == others == nobodys == []


@pytest.mark.process
async def test_while_the_index_is_busy_the_comparison_waits_and_is_made_afterwards(
    library: Library, skill, caplog: pytest.LogCaptureFixture
) -> None:
    skill("pdf", description=FORMS)
    library.index.catch_up()
    with (
        caplog.at_level("DEBUG", "evolvable_tools.verbs.duplicate_hints"),
        comparing(library) as (hints, lines),
    ):
        with held(library.index.path):
            alike(library, WRITER, "pdf-forms")
            await until(lambda: "is not compared" in caplog.text)
            early = list(lines)
        await until(lambda: bool(lines))
        taken = hints.take("one")

    assert early == [] and [line.partition(" (")[0] for line in taken] == [
        f"skill:pdf-forms and skill:pdf {SAME}"
    ]


async def test_what_a_server_did_not_compare_before_its_end_is_compared_by_status(
    library: Library, skill
) -> None:
    skill("pdf", description=FORMS)
    take_pairs(library)
    hints = DuplicateHints(library, lambda line: None)
    library.compare_later = hints.add
    alike(library, WRITER, "pdf-forms")
    hints.close()

    (line,) = take_pairs(library)
    assert line.startswith(f"skill:pdf-forms and skill:pdf {SAME} (")
    assert take_pairs(library) == []


async def test_a_proposal_that_is_approved_is_compared(
    library: Library, skill, agent, person
) -> None:
    skill("pdf", description=FORMS)
    take_pairs(library)
    files = {"SKILL.md": skill_text("pdf-forms", FORMS)}
    waits = edit.update_resource(
        library, agent, Ref.parse("pdf-forms"), "why", files=files, create=True, propose=True
    )
    before = take_pairs(library)
    proposal_inbox.approve_together(library, person, [waits.proposal_id], "yes")

    (line,) = take_pairs(library)
    assert before == [] and line.startswith(f"skill:pdf-forms and skill:pdf {SAME} (")


async def test_a_pair_that_is_gone_is_not_named(library: Library, skill, person) -> None:
    skill("pdf", description=FORMS)
    skill("pdf-forms", description=FORMS)
    edit.remove_resource(library, person, Ref.parse("pdf"), "why")

    assert take_pairs(library) == []


@pytest.mark.parametrize(
    "data", [b"\xff\n[]\n{}\n1\n", b'{"resource": 1, "pairs": [[2]]}\n', b"[" * 70_000]
)
async def test_notes_that_are_none_are_passed_over(library: Library, data: bytes) -> None:
    (library.store.home / NEAR_DUPLICATES).write_bytes(data)

    assert take_pairs(library) == []
    assert not (library.store.home / NEAR_DUPLICATES).exists()


def test_the_command_line_answers_first_and_status_names_the_pair(run: CommandLine) -> None:
    folder: Path = run.root / "new"
    for name in ("pdf", "pdf-forms"):
        run.save(folder, name, skill_text(name, FORMS))
    (run.user / ".claude/skills").mkdir(parents=True)
    run("init", run.user / ".claude/skills")
    run("update", "pdf", "--create", "--file", f"SKILL.md={folder}/pdf/SKILL.md")
    made = run(
        "update",
        "pdf-forms",
        "--create",
        "--file",
        f"SKILL.md={folder}/pdf-forms/SKILL.md",
        "--json",
    )

    assert made.json["warnings"] == []
    bare = run()
    first, second = run("status").out, run("status").out
    assert f"similar skill:pdf-forms and skill:pdf {SAME} (" in " ".join(first.split())
    assert SAME not in bare.out + second
