"""Who did what in a finished session: the session itself, agents of the library, and subagents of
others.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from earned import client, seen
from transcripts import Event, LoadSkill, Run, Says, Subagent, User, session_id, write_claude_code

from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.evidence import Grade, Outcome
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.outcomes.usage_report import stats
from evolvable_tools.sessions.parser import read_session
from evolvable_tools.verbs import edit, load

CLERK = Ref.parse("agent:clerk")
TEXT = "You are the clerk.\n\nFile every paper."
HEAD = "name: clerk\ndescription: Files papers.\n"
FAILED, PASSED = Run("pytest -q", "1 failed", code=1), Run("pytest -q", "1 passed")
PRELOADED = LoadSkill("filing", "Use `filer sort`.")
SESSION = session_id("session")


def clerk(head: str = HEAD, text: str = TEXT) -> str:
    return f"---\n{head}---\n\n{text}\n"


@pytest.fixture
def home(library, person, skill, tmp_path):
    """A home of Claude Code with the library's skill and agent, and a project that the library does
    not follow.
    """
    skill("filing", "Use `filer sort`.", metadata="metadata:\n  delegate: agent:clerk\n")
    edit.update_resource(library, person, CLERK, "new", files={"AGENT.md": clerk()}, create=True)
    place = tmp_path / "ada"
    (place / "project").mkdir(parents=True)
    library.working_copies.check_out(place / ".claude/skills")
    library.working_copies.check_out(place / ".claude/agents", kind=Kind.AGENT)
    return place


@pytest.fixture
def took(library, home):
    """Takes in a session in the project; returns its executions by executor."""

    def take(*events: Event):
        path = write_claude_code(
            home, events, project=str(home / "project"), start=datetime.now(UTC)
        )
        record_uses(library, read_session(path))
        return {
            one.executor: one
            for one in library.store.backend.observations.executions(session=SESSION)
        }

    return take


def run(*events: Event, name: str = "clerk", system: str = TEXT, noted: bool = True) -> Subagent:
    return Subagent(
        "File the paper.",
        [*events, Says("Filed.")],
        "Filed.",
        name=name,
        system=system,
        noted=noted,
    )


def of(library, name):
    (line,) = stats(library, client("other"), Ref.parse(name)).resources
    return line


def used(execution, library):
    """The resources of an execution by name: whether it used each."""
    heads = library.store.backend.heads_by_id(use.resource for use in execution.uses)
    return {heads[use.resource].name: use.used for use in execution.uses}


def test_a_subagents_run_is_a_use_of_its_agent_and_what_it_used_is_its_own(library, took):
    found = took(User("file it"), run(PRELOADED, Run("filer sort a.txt", "ok"), FAILED, PASSED))

    assert list(found) == ["main", "agent:clerk"]
    main, agent = found["main"], found["agent:clerk"]
    assert (agent.agent, agent.version) == (library.store.head(CLERK).id, 1)
    assert (agent.outcome, agent.spans > 5, main.spans > 2) == (Outcome.SUCCEEDED, True, True)
    assert used(main, library) == {"clerk": True}
    assert used(agent, library) == {"filing": True}
    assert (of(library, "agent:clerk").used, of(library, "filing").used) == (1, 1)


def test_a_skill_loaded_before_its_agent_was_started_is_used_by_that_agent(library, took):
    found = took(User("file it"), LoadSkill("filing", "Use it."), run(), User("it works"))

    assert used(found["main"], library) == {"filing": True, "clerk": True}
    assert used(found["agent:clerk"], library) == {"filing": True}
    (credited,) = found["agent:clerk"].uses
    assert (credited.how, credited.outcome) == (("delegated",), Outcome.SUCCEEDED)


@pytest.mark.parametrize("typed", [False, True])
def test_a_skill_in_a_fork_is_used_by_the_agent_that_the_skill_tool_started(library, took, typed):
    events = [Run("filer sort a.txt", "ok"), FAILED, PASSED, Says("Filed.")]
    fork = Subagent(
        "Use `filer sort`.",
        events,
        "Filed.",
        name="clerk",
        system=TEXT,
        noted=True,
        skill="filing",
        typed=typed,
    )

    found = took(User("file it"), fork)

    assert used(found["main"], library) == {"clerk": True}
    assert used(found["agent:clerk"], library) == {"filing": True}
    (credited,) = found["agent:clerk"].uses
    assert credited.outcome == Outcome.SUCCEEDED and {"preloaded", "delegated"} <= {*credited.how}
    assert (of(library, "agent:clerk").used, of(library, "filing").used) == (1, 1)


def test_a_skill_in_a_fork_of_a_builtin_agent_is_used_by_that_one(library, took):
    fork = Subagent(
        "Use `filer sort`.",
        [Run("filer sort a", "ok"), FAILED, PASSED],
        "x",
        noted=True,
        skill="filing",
    )

    found = took(User("file it"), fork)

    assert used(found["main"], library) == {} and used(
        found["subagent:general-purpose"], library
    ) == {"filing": True}


@pytest.mark.parametrize(
    "other",
    [
        run(PRELOADED, system="You are somebody else."),
        run(PRELOADED, system=f"{TEXT}\n\nAnd obey the repository."),
        run(PRELOADED, system=f"{TEXT}\n\n# Persistent Agent Memory\n\nYou have one."),
        run(PRELOADED, name="clerks"),
        run(PRELOADED, name="main"),
        run(PRELOADED, name="plugin:clerk"),
        run(PRELOADED, name="agent:clerk"),
    ],
)
def test_another_agent_of_the_same_name_is_no_use_of_the_persons_agent(library, took, other):
    found = took(User("file it"), other, User("it works"))

    assert list(found) == ["main", f"subagent:{other.name}"]
    assert (found[f"subagent:{other.name}"].agent, used(found["main"], library)) == (None, {})
    assert of(library, "agent:clerk").used == 0


def test_the_version_is_the_one_whose_text_the_client_gave(library, person, took):
    edit.update_resource(
        library, person, CLERK, "more", edits=[TextEdit("AGENT.md", "every", "each")]
    )
    edit.update_resource(
        library,
        person,
        CLERK,
        "memory",
        edits=[TextEdit("AGENT.md", HEAD, f"{HEAD}memory: user\n")],
    )

    found = took(User("file it"), run())
    assert found["agent:clerk"].version == 1

    text = TEXT.replace("every", "each")
    longer = run(system=f"{text}\n\n# Persistent Agent Memory\n\nYou have one.")
    assert took(User("file it"), longer, User("go on"))["agent:clerk"].version == 3


def test_a_client_that_notes_no_prompt_is_believed_unless_the_project_may_have_that_agent(
    library, home, took
):
    """A cloned repository brings `.claude/agents`; Claude Code starts its agent and not the
    person's.
    """
    assert took(User("file it"), run(system=""))["agent:clerk"].version == 1

    theirs = home / "project/.claude/agents/team/any.md"
    theirs.parent.mkdir(parents=True)
    for hostile in (
        clerk(),
        '---\nname: "\\x63lerk"\ndescription: x\n---\nx\n',
        "---\nname: &a {b: *a}\n---\nx\n",
    ):
        theirs.write_text(hostile, encoding="utf-8")
        more = [User("go on")] * (len(hostile) + 1)
        assert "agent:clerk" not in took(User("file it"), run(system=""), *more), hostile
    theirs.write_text(clerk("name: other\n", "Another."), encoding="utf-8")
    assert "agent:clerk" in took(User("file it"), run(system=""), *[User("go on")] * 200)


def test_the_start_is_known_by_the_calls_result_where_nothing_lies_beside_the_file(took):
    assert "agent:clerk" in took(User("file it"), run(noted=False))


def test_a_transcript_that_the_server_did_not_see_counts_nothing(library, took):
    """trust.md, rule 6: a forged transcript gains nothing."""
    found = took(User("file it"), run(PRELOADED, FAILED, PASSED))

    assert {one.grade for one in found.values()} == {Grade.HISTORY}
    assert {one.link for one in found.values()} == {None}
    assert {use.grade for one in found.values() for use in one.uses} == {Grade.HISTORY}
    line = of(library, "agent:clerk")
    assert (line.helped.n, line.maturity, line.not_counted) == (0, "Budding", 1)


def test_what_the_server_saw_and_served_is_verified_for_the_agent_and_for_its_skill(library, took):
    seen(library, SESSION)
    for ref in (CLERK, Ref.parse("filing")):
        load.load_skill(library, client(SESSION), ref)

    found = took(User("file it"), run(PRELOADED, FAILED, PASSED))

    assert {name: one.grade for name, one in found.items()} == {
        "main": Grade.VERIFIED,
        "agent:clerk": Grade.VERIFIED,
    }
    assert found["agent:clerk"].link == f"client-{SESSION}"
    assert found["agent:clerk"].uses[0].grade is Grade.VERIFIED


def test_a_session_that_grows_replaces_its_executions_and_since_leaves_older_ones_out(
    library, took
):
    took(User("file it"), run())
    assert list(took(User("file it"), run(), User("again"), Says("Done."))) == [
        "main",
        "agent:clerk",
    ]

    log = library.store.backend.observations
    assert log.executions("2999-01-01T00:00:00Z") == []
    assert [one.executor for one in log.executions("2020-01-01T00:00:00Z")] == [
        "main",
        "agent:clerk",
    ]
    assert list(log.faults()) == []


def test_an_agent_that_ran_is_taught_no_task(library, took):
    """Learned tasks are of skills: a search for skills never finds an agent by them."""
    seen(library, SESSION)
    load.load_skill(library, client(SESSION), CLERK)

    took(User("File the paper of the tax office please."), run(FAILED, PASSED))

    assert library.store.backend.learned.tasks_of([library.store.head(CLERK).id]) == {}


def test_a_note_beside_a_transcript_may_hold_anything(library, home, took):
    path = write_claude_code(
        home, [User("file it"), run()], project=str(home / "project"), start=datetime.now(UTC)
    )
    beside = next(path.with_suffix("").rglob("*.meta.json"))
    for data in (
        b"\xff",
        b"[]",
        b'{"agentType": 7, "toolUseId": {}}',
        b"x" * 70_000,
        b'{"agentType": "' + b"a" * 500,
    ):
        beside.write_bytes(data)
        assert [one.name for one in read_session(path).subagents] == ["clerk"]


def test_names_of_subagents_are_kept_without_secrets_and_few_are_told_apart(took):
    token = f"ghp_{'a1B2' * 9}"
    many = [run(name=f"kind-{number}", noted=False, system="") for number in range(120)]

    found = took(User("go"), Subagent("x", [Says("y")], "z", name=token, noted=True), *many)

    assert token not in "".join(found) and len(found) <= 103


def test_the_project_may_be_gone_and_then_only_the_prompt_tells(library, home, took):
    write = {"project": str(home / "gone"), "start": datetime.now(UTC)}
    for system, expected in (("", "subagent:clerk"), (TEXT, "agent:clerk")):
        path = write_claude_code(
            home, [User("go"), run(system=system), *[User("on")] * len(system)], **write
        )
        record_uses(library, read_session(path))
        found = library.store.backend.observations.executions(session=SESSION)
        assert [one.executor for one in found] == ["main", expected]
    assert Path(path).exists()


def copilot_session(project: Path, name: str) -> list[dict[str, object]]:
    """The events of a session of Copilot CLI in which a subagent did the work, as they are from now
    on.
    """
    start = datetime.now(UTC)
    begun = {"toolCallId": "call_0123456789", "agentName": name}
    task = {
        "toolCallId": "call_0123456789",
        "name": "task",
        "arguments": {"agent_type": name, "prompt": "File it."},
    }
    test = {"toolCallId": "call_{}", "name": "bash", "arguments": {"command": "pytest -q"}}
    events: list[tuple[str, str, dict[str, object]]] = [
        ("", "session.start", {"sessionId": SESSION, "context": {"cwd": str(project)}}),
        (
            "",
            "user.message",
            {"content": "File the paper.", "transformedContent": "File the paper."},
        ),
        ("", "assistant.message", {"content": "", "toolRequests": [task], "model": "m"}),
        ("a-1", "subagent.started", begun),
    ]
    for number, (passed, said) in enumerate(((False, "1 failed"), (True, "1 passed"))):
        call = {**test, "toolCallId": f"call_987654321{number}"}
        end = {
            "success": True,
            "result": {"content": f"{said}\n<exited with exit code {int(not passed)}>"},
        }
        events.append(
            ("a-1", "assistant.message", {"content": "", "toolRequests": [call], "model": "m"})
        )
        events.append(("a-1", "tool.execution_complete", {"toolCallId": call["toolCallId"], **end}))
    ended = {"toolCallId": "call_0123456789", "success": True, "result": {"content": "Filed."}}
    events.append(("", "tool.execution_complete", ended))
    return [
        {
            "type": kind,
            "data": data,
            "id": f"00000000-0000-4000-8000-{number:012}",
            "parentId": None,
            "timestamp": (start + timedelta(seconds=number)).isoformat(),
            **({"agentId": agent} if agent else {}),
        }
        for number, (agent, kind, data) in enumerate(events)
    ]


def test_a_subagent_of_copilot_is_a_use_of_the_agent_of_its_name(library, home, tmp_path):
    path = tmp_path / "events.jsonl"
    lines = copilot_session(home / "project", "clerk")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    record_uses(library, read_session(path))

    found = {
        one.executor: one for one in library.store.backend.observations.executions(session=SESSION)
    }
    assert set(found) == {"main", "agent:clerk"}
    assert found["agent:clerk"].agent == library.store.head(CLERK).id
    assert found["agent:clerk"].outcome is Outcome.SUCCEEDED and used(found["main"], library) == {
        "clerk": True
    }
    assert of(library, "agent:clerk").used == 1


def test_a_subagent_of_codex_has_the_name_of_its_role_and_is_never_an_agent_of_the_library(
    library, home, tmp_path
):
    spawn = {"thread_spawn": {"agent_role": "clerk"}}
    meta = {"id": SESSION, "cwd": str(home / "project"), "source": {"subagent": spawn}}
    words = [{"type": "output_text", "text": "I file the paper."}]
    message = {"type": "message", "role": "assistant", "content": words}
    lines = [
        {"timestamp": "2026-11-29T02:00:00Z", "type": kind, "payload": payload}
        for kind, payload in (("session_meta", meta), ("response_item", message))
    ]
    path = tmp_path / f"rollout-{SESSION}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    record_uses(library, read_session(path))

    (found,) = library.store.backend.observations.executions(session=SESSION)
    assert (found.executor, found.agent) == ("subagent:clerk", None)
