"""What hooks do: offer a skill once, note what was opened, and answer nothing whatever happens."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_place import Place, skill_text

from evolvable_server.config import Config
from evolvable_server.hooks.dispatch import EMPTY_ANSWER, HookDispatcher
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.evidence import Tally
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

PROMPT = {
    "hook_event_name": "UserPromptSubmit",
    "session_id": "s1",
    "prompt": "Please fill in this PDF form for me",
}


class Session:
    """The hooks of one process over a place's library."""

    def __init__(self, place: Place, library: Library, **settings: object) -> None:
        self.library = library
        config = Config(place.home, place.root, **settings)  # type: ignore[arg-type]
        self._hooks = HookDispatcher(config, library, Caller(Actor.AGENT))

    def offered(self, **event: object) -> str:
        """What a model is told at a prompt, '' for nothing."""
        answer = json.loads(self._hooks.answer({**PROMPT, **event}))
        return str(answer["hookSpecificOutput"]["additionalContext"]) if answer else ""

    def used(self, tool: str, **given: object) -> None:
        event = {"hook_event_name": "PostToolUse", "session_id": "s1", "tool_name": tool, **given}
        assert self._hooks.answer(event) == EMPTY_ANSWER

    def tally(self, name: str) -> Tally:
        return self.library.evidence.tally(self.library.store.head(Ref.parse(name)).id)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A library whose skills lie where Claude Code has them."""
    folder = tmp_path / "user"
    (folder / ".claude").mkdir(parents=True)
    return Place(folder / ".claude")


@pytest.fixture
def hooks(place: Place) -> Iterator[Session]:
    with Library.open(place.home) as library:
        yield Session(place, library)


def test_a_prompt_gets_the_skill_that_fits_and_is_told_how_to_open_it(hooks):
    text = hooks.offered()

    assert (
        "skill:pdf" in text
        and "Merge, split and fill PDF forms." in text
        and "load_skill (search_id search-" in text
    )
    assert "csv" not in text


def test_a_prompt_that_nothing_fits_gets_nothing(hooks):
    assert hooks.offered(prompt="Why is the sky blue?") == ""


@pytest.mark.parametrize(
    "prompt", ["", "   ", "/compact keep the PDF form", None, 7, ["pdf form"] * 0, "\ud800", "\0"]
)
def test_what_is_no_task_gets_nothing(hooks, prompt):
    assert hooks.offered(prompt=prompt) == ""


def test_a_skill_is_offered_once_in_a_session_whichever_process_is_asked(place, hooks):
    assert hooks.offered()
    with Library.open(place.home) as library:
        other = Session(place, library)
        assert [other.offered(), hooks.offered()] == ["", ""]
        assert "skill:pdf" in other.offered(session_id="s2")


def test_a_session_that_has_no_name_is_offered_nothing(hooks):
    assert hooks.offered(session_id="") == ""


@pytest.mark.process
def test_a_skill_that_the_session_has_opened_is_not_offered(place, hooks):
    hooks.used("Skill", skill="pdf")

    assert hooks.offered() == ""


@pytest.mark.process
def test_an_offer_has_at_most_600_characters_and_names_two_skills(place, hooks):
    with Library.open(place.home) as library:
        for name in (f"pdf-form-{'x' * 50}", f"pdf-form-{'y' * 50}", f"pdf-form-{'z' * 50}"):
            text = skill_text(
                name,
                "Fill in a PDF form. \u202e2 < 3 > 1 " + "Fill PDF forms with care and ink. " * 25,
            )
            edit.update_resource(
                library,
                Caller(Actor.HUMAN),
                Ref.parse(name),
                "more",
                files={"SKILL.md": text},
                create=True,
            )
    text = hooks.offered()

    assert text.count("\n- skill:") == 2
    assert (
        400 < len(text) <= 600
        and text.endswith("before you start.")
        and text.replace("\n", "").isprintable()
    )
    assert not {*"<>"} & {*text}, (
        "a description must not end the tag that a client puts around what a hook says"
    )


def test_being_offered_is_no_use(hooks):
    assert hooks.offered()
    assert hooks.tally("pdf") == Tally()


@pytest.mark.process
@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Skill", {"skill": "pdf"}),
        ("Read", {"file_path": "{skills}/pdf/SKILL.md"}),
        ("Read", {"tool_input": {"file_path": "pdf/skill.md"}, "cwd": "{skills}"}),
        ("Bash", {"command": "cd /tmp && cat '{skills}/pdf/SKILL.md' | head -5"}),
        ("Bash", {"command": "sed -n 1,80p {skills}/pdf/SKILL.md"}),
        ("shell", {"tool_input": {"command": ["bash", "-lc", "cat {skills}/pdf/SKILL.md"]}}),
    ],
)
def test_a_skill_that_a_client_opens_by_itself_is_one_use_in_its_session(place, hooks, tool, given):
    given = json.loads(json.dumps(given).replace("{skills}", place.skills.as_posix()))
    for _ in range(2):
        hooks.used(tool, **given)

    assert hooks.tally("pdf") == Tally(loaded=1)
    hooks.used(tool, **given, session_id="s2")
    assert hooks.tally("pdf") == Tally(loaded=2)


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Skill", {"skill": "other:pdf"}),
        ("Skill", {"skill": "nope"}),
        ("Skill", {}),
        ("Read", {"file_path": "{skills}/pdf/notes.md"}),
        ("Read", {"file_path": "/elsewhere/pdf/SKILL.md"}),
        ("Read", {"file_path": "{skills}/SKILL.md"}),
        ("Read", {"file_path": "\0SKILL.md"}),
        ("Bash", {"command": "git add {skills}/pdf/SKILL.md"}),
        ("Bash", {"command": "cat notes > {skills}/pdf/SKILL.md"}),
        ("Write", {"file_path": "{skills}/pdf/SKILL.md"}),
    ],
)
def test_what_opens_no_skill_of_the_library_is_no_use(place, hooks, tool, given):
    given = json.loads(json.dumps(given).replace("{skills}", place.skills.as_posix()))
    hooks.used(tool, **given)

    assert hooks.tally("pdf") == Tally()


def test_the_start_of_the_persons_agent_is_one_use_of_it_and_that_of_a_repositorys_is_none(
    place, hooks, tmp_path
):
    text = "---\nname: clerk\ndescription: Files papers.\n---\n\nYou are the clerk.\n"
    agents, clone = place.skills.parent / "agents", tmp_path / "clone"
    edit.update_resource(
        hooks.library,
        Caller(Actor.HUMAN),
        Ref.parse("agent:clerk"),
        "new",
        files={"AGENT.md": text},
        create=True,
    )
    hooks.library.working_copies.check_out(agents, kind=Kind.AGENT)
    (clone / ".claude/agents").mkdir(parents=True)
    (clone / ".claude/agents/helper.md").write_text(text, encoding="utf-8")

    hooks.used("Agent", subagent_type="clerk", cwd=str(clone))
    hooks.used("Agent", subagent_type="clerk", cwd="")
    hooks.used("Agent", subagent_type="other:clerk", cwd=str(tmp_path))
    hooks.used("Agent", tool_input={"subagent_type": ["clerk"] * 2}, cwd=str(tmp_path))
    assert hooks.tally("agent:clerk") == Tally()

    for tool in ("Agent", "Task"):
        hooks.used(tool, tool_input={"subagent_type": "clerk"}, cwd=str(tmp_path))
    assert hooks.tally("agent:clerk") == Tally(loaded=1)


def test_the_skill_tool_that_starts_the_delegate_of_a_copy_is_a_start_of_the_agent(
    place, hooks, tmp_path
):
    agent = "---\nname: clerk\ndescription: Files papers.\n---\n\nYou are the clerk.\n"
    skill = (
        "---\nname: filing\ndescription: Files papers.\nmetadata:\n  delegate: agent:clerk\n"
        "---\n\nUse folders.\n"
    )
    person, library = Caller(Actor.HUMAN), hooks.library
    edit.update_resource(
        library, person, Ref.parse("agent:clerk"), "new", files={"AGENT.md": agent}, create=True
    )
    edit.update_resource(
        library, person, Ref.parse("mine/filing"), "new", files={"SKILL.md": skill}, create=True
    )
    for name, kind in (("agents", Kind.AGENT), ("skills", Kind.SKILL)):
        scope = "user" if kind is Kind.AGENT else "mine"
        library.working_copies.check_out(
            tmp_path / ".claude" / name, kind=kind, scope=scope, forks=True
        )

    hooks.used("Skill", skill="filing", cwd=str(tmp_path))

    assert "agent: clerk" in (tmp_path / ".claude/skills/filing/SKILL.md").read_text(
        encoding="utf-8"
    )
    assert (hooks.tally("mine/filing"), hooks.tally("agent:clerk")) == (
        Tally(loaded=1),
        Tally(loaded=1),
    )


def test_a_use_that_an_offer_led_to_remembers_the_search(place, hooks):
    search = hooks.offered().split("search_id ")[1].split(")")[0]
    hooks.used("Skill", skill="pdf")
    with hooks.library.store.backend.reading() as db:
        rows = db.execute("SELECT search, session FROM use").fetchall()

    assert [tuple(row) for row in rows] == [(search, "s1")]


def test_all_of_it_is_off_by_one_setting(place):
    with Library.open(place.home) as library:
        hooks = Session(place, library, hooks=False)
        hooks.used("Skill", skill="pdf")

        assert (hooks.offered(), hooks.tally("pdf")) == ("", Tally())


def test_old_sessions_are_forgotten(place, hooks, monkeypatch):
    monkeypatch.setattr("evolvable_server.hooks.skill_offers.SESSIONS", 3)
    for number in range(6):
        assert hooks.offered(session_id=f"s{number}")

    assert len(list((place.home / "hooks/offered").iterdir())) <= 4


@pytest.mark.process
def test_where_nothing_can_be_remembered_nothing_is_offered(place, hooks):
    (place.home / "hooks").write_text("in the way")

    assert hooks.offered() == ""


@pytest.mark.process
@pytest.mark.anyio
async def test_a_hook_calls_the_running_server_by_a_tool_that_is_not_listed(place, era):
    async with place.client(era) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        first = await client.call_tool(
            "hook_event", {**PROMPT, "client": "codex", "cwd": "/nowhere"}
        )
        again = await client.call_tool("hook_event", PROMPT)
        odd = await client.call_tool(
            "hook_event", {"hook_event_name": {"a": 1}, "session_id": 5, "more": None}
        )
        stop = await client.call_tool(
            "hook_event",
            {"hook_event_name": "Stop", "session_id": "s1", "transcript_path": "/t.jsonl"},
        )

    assert "hook_event" not in listed
    assert (
        "skill:pdf" in json.loads(first.content[0].text)["hookSpecificOutput"]["additionalContext"]
    )
    assert [answer.content[0].text for answer in (again, odd, stop)] == [EMPTY_ANSWER] * 3
    assert not any(answer.is_error for answer in (first, again, odd, stop))
    entry = json.loads((place.home / "reviews/queue/s1.json").read_text(encoding="utf-8"))
    assert (
        entry.items()
        >= {"session_id": "s1", "transcript_path": "/t.jsonl", "event": "Stop"}.items()
    )
