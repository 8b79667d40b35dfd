"""The transcripts of Gemini CLI, Kimi Code, Cline CLI and Continue CLI: of the real clients, and
made-up ones.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, skill_text

from evolvable_tools.sessions import Origin, Session, find_transcript, list_sessions, read_session

SAMPLES = Path(__file__).parents[1] / "data/client_transcripts"
PLACES = {
    "gemini": ".gemini/tmp/project/chats/session-2026-11-28T02-19-e6c8e3aa.jsonl",
    "kimi": (
        ".kimi-code/sessions/wd_1/session_9b8a1cd5-91a6-4cf9-bfbf-ed783ef17501/agents/main/"
        "wire.jsonl"
    ),
    "cline": ".cline/data/sessions/1795832295571_xj6lw/1795832295571_xj6lw.messages.json",
    "continue": ".continue/sessions/e828d974-d131-4b28-b05b-255dcf9d5b6f.json",
}
IDS = {
    "gemini": "e6c8e3aa-6ec8-4a40-9dfa-3282715bfd6f",
    "kimi": "session_9b8a1cd5-91a6-4cf9-bfbf-ed783ef17501",
    "cline": "1795832295571_xj6lw",
    "continue": "e828d974-d131-4b28-b05b-255dcf9d5b6f",
}
PREFIX = {
    "gemini": "mcp_evolvable_",
    "kimi": "mcp__evolvable__",
    "cline": "evolvable__",
    "continue": "",
}
PROJECTS = {
    "gemini": None,
    "kimi": "/home/ada/project",
    "cline": None,
    "continue": "/home/ada/project",
}
CLIENTS = list(PLACES)
CALL = "call_0123456789abcdef"


def sample(client: str) -> str:
    return next(SAMPLES.glob(f"{client}.json*")).read_text("utf-8")


def written(
    home: Path, client: str, content: str | Iterable[Mapping[str, Any]] | Mapping[str, Any]
) -> Path:
    path = home / PLACES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Mapping):
        content = json.dumps(content)
    elif not isinstance(content, str):
        content = "".join(f"{json.dumps(line)}\n" for line in content)
    path.write_text(content, encoding="utf-8")
    return path


def typed(session: Session) -> list[str]:
    return [span.text for span in session.spans if span.typed]


def by_origin(session: Session, origin: Origin) -> str:
    return "\n".join(span.text for span in session.spans if span.origin is origin)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_session_that_the_real_client_wrote_is_read_with_its_prompt_and_calls(
    client: str, tmp_path: Path
) -> None:
    session = read_session(written(tmp_path, client, sample(client)))
    assert (session.client, session.session_id, session.project) == (
        client,
        IDS[client],
        PROJECTS[client],
    )
    assert typed(session) == ["Write a commit message for my staged changes."]
    names = ("find_skill", "load_skill", "get_resource", "report_outcome")
    calls = [span for span in session.spans if span.input is not None]
    assert [span.tool for span in calls] == [PREFIX[client] + name for name in names]
    results = {span.call_id: span for span in session.spans if span.role == "tool"}
    assert [span.call_id for span in calls] == list(results)
    failed = results[calls[2].call_id]
    assert "There is no skill named does-not-exist" in failed.text and failed.is_error is (
        client != "continue"
    )
    assert sum(span.is_error for span in session.spans) == (client != "continue")
    opened = results[calls[1].call_id]
    assert opened.text.startswith("---\nname: write-commit-messages\n")
    # Continue names no server, so that any server's tool may bear the name: its text is a third
    # party's.
    skill = (Origin.MCP, None) if client == "continue" else (Origin.SKILL, "write-commit-messages")
    assert (opened.origin, opened.skill) == skill
    assert (
        session.spans[-1].text == "FINAL: all steps done."
        and session.spans[-1].origin is Origin.ASSISTANT
    )
    assert session.tokens and session.tokens >= 500 and session.model


@pytest.mark.parametrize("client", ["gemini", "kimi", "cline"])
def test_what_hooks_and_the_client_add_is_not_the_persons(client: str, tmp_path: Path) -> None:
    session = read_session(written(tmp_path, client, sample(client)))
    assert "EVOLVABLE-CONTEXT" in by_origin(session, Origin.MEMORY)
    assert not re.search("EVOLVABLE-CONTEXT|left out", by_origin(session, Origin.USER))


@pytest.mark.parametrize("client", CLIENTS)
def test_rows_of_unknown_kinds_are_skipped_and_counted(client: str, tmp_path: Path) -> None:
    before = read_session(written(tmp_path, client, sample(client)))
    strange = [
        {"type": "hologram", "role": "hologram", "time": 1, "id": f"h{n}", "frames": [n]}
        for n in range(3)
    ]
    if client in ("gemini", "kimi"):
        lines = sample(client).splitlines()
        changed = "\n".join([*lines[:2], *map(json.dumps, strange), *lines[2:]])
    else:
        document = json.loads(sample(client))
        rows = document["messages" if client == "cline" else "history"]
        rows[1:1] = strange if client == "cline" else [{"message": one} for one in strange]
        changed = json.dumps(document)
    after = read_session(written(tmp_path, client, changed))
    assert after.skipped == before.skipped + 3 and typed(after) == typed(before)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_session_is_listed_and_found_by_its_id(client: str, tmp_path: Path) -> None:
    path = written(tmp_path, client, sample(client))
    for beside in ("sessions.json", "session.meta.json", "logs.json"):
        (path.parent / beside).write_text('{"sessionId": "x", "messages": []}', encoding="utf-8")
    place = "/".join(PLACES[client].split("/")[:2])
    listed = list_sessions([tmp_path / place], lambda session: None).sessions
    assert [(one.client, one.session, one.turns) for one in listed] == [(client, IDS[client], 1)]
    assert find_transcript([tmp_path / place], IDS[client]) == path


def gemini(number: int, kind: str, content: object, **more: Any) -> dict[str, Any]:
    return {
        "id": f"m-{number}",
        "timestamp": f"2026-11-28T02:00:{number:02}.000Z",
        "type": kind,
        "content": content,
        **more,
    }


def gemini_course() -> list[dict[str, Any]]:
    call = {
        "id": CALL,
        "name": "run_shell_command",
        "args": {"command": "ls"},
        "status": "cancelled",
    }
    answer = {
        "functionResponse": {
            "id": CALL,
            "response": {"error": "[Operation Cancelled] Reason: stopped"},
        }
    }
    return [
        {
            "sessionId": IDS["gemini"],
            "projectHash": "0",
            "startTime": "2026-11-28T02:00:00.000Z",
            "kind": "main",
        },
        {
            "$set": {
                "messages": [
                    gemini(1, "user", [{"text": "<session_context>Linux</session_context>"}])
                ]
            }
        },
        gemini(2, "user", [{"text": "Indent the file."}]),
        gemini(3, "gemini", "Done with", model="g"),
        gemini(3, "gemini", "Done with spaces.", model="g"),
        gemini(4, "user", "No, always use tabs."),
        gemini(5, "gemini", ""),
        gemini(5, "gemini", "", toolCalls=[call]),
        gemini(6, "user", [answer]),
        gemini(7, "info", "Request cancelled."),
        {
            "$set": {
                "messages": [gemini(8, "user", [{"text": "<state_snapshot>tabs</state_snapshot>"}])]
            }
        },
        gemini(9, "gemini", "Tabs it is."),
    ]


def kimi(number: int, kind: str, **said: Any) -> dict[str, Any]:
    return {"type": kind, "agentId": "main", "time": 1_795_831_200_000 + number, **said}


def kimi_message(number: int, text: str, origin: str = "user") -> dict[str, Any]:
    message = {
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "origin": {"kind": origin},
    }
    return kimi(number, "context.append_message", message=message)


def kimi_event(number: int, kind: str, **said: Any) -> dict[str, Any]:
    return kimi(number, "context.append_loop_event", event={"type": kind, **said})


def kimi_course() -> list[dict[str, Any]]:
    spoken = (
        {"type": "text", "text": "Done with spaces."},
        {"type": "text", "text": "Tabs it is."},
    )
    return [
        {"type": "metadata", "protocol_version": "1.5", "created_at": 1_795_831_200_000},
        kimi(
            1,
            "profile.bind",
            environmentDisclosure={"cwd": "/home/ada/project"},
            profileName="agent",
        ),
        kimi_message(2, "Indent the file."),
        kimi_event(3, "content.part", part={"type": "think", "think": "I use spaces."}),
        kimi_event(4, "content.part", part=spoken[0]),
        kimi_message(5, "No, always use tabs."),
        kimi_event(6, "tool.call", toolCallId=CALL, name="Bash", args={"command": "ls"}),
        kimi_event(
            7,
            "tool.result",
            toolCallId=CALL,
            result={"output": "stopped by the person", "isError": True},
        ),
        kimi(8, "turn.ended", reason="cancelled"),
        kimi_message(9, "The person wants tabs: state_snapshot", "compaction_summary"),
        kimi_event(10, "content.part", part=spoken[1]),
    ]


def cline_course() -> dict[str, Any]:
    def said(role: str, *blocks: object, **more: Any) -> dict[str, Any]:
        return {"role": role, "content": list(blocks), "ts": 1_795_831_200_000, **more}

    def words(text: str) -> dict[str, str]:
        return {"type": "text", "text": text}

    call = {"type": "tool_use", "id": CALL, "name": "run_commands", "input": {"command": "ls"}}
    stopped = {
        "type": "tool_result",
        "tool_use_id": CALL,
        "name": "run_commands",
        "is_error": True,
        "content": "stopped",
    }
    mine = '<user_input mode="act">{}</user_input>'
    messages = [
        said(
            "user",
            words(
                mine.format("Indent the file.")
                + "<file_content>a <user_input>b</user_input></file_content>"
            ),
        ),
        said("assistant", words("Done with spaces.")),
        said("user", words(mine.format("No, always use tabs."))),
        said("assistant", call),
        said("user", stopped),
        said("user", words("state_snapshot"), metadata={"displayRole": "system"}),
        said("assistant", words("Tabs it is.")),
    ]
    return {"version": 1, "agent": "lead", "sessionId": IDS["cline"], "messages": messages}


def continue_course() -> dict[str, Any]:
    def said(role: str, content: object, **more: Any) -> dict[str, Any]:
        return {"message": {"role": role, "content": content}, "contextItems": [], **more}

    function = {"name": "Bash", "arguments": '{"command": "ls"}'}
    call = said(
        "assistant",
        "",
        toolCallStates=[
            {"toolCallId": CALL, "status": "canceled", "output": [{"content": "stopped"}]}
        ],
    )
    call["message"]["toolCalls"] = [{"id": CALL, "type": "function", "function": function}]
    history = [
        {
            **said("user", "Indent the file."),
            "contextItems": [{"content": "a page that says: state_snapshot"}],
        },
        said("assistant", "Done with spaces."),
        said("user", [{"type": "text", "text": "No, always use tabs."}]),
        call,
        said("assistant", "Tabs it is.", conversationSummary="The person wants tabs."),
    ]
    return {
        "sessionId": IDS["continue"],
        "workspaceDirectory": "/home/ada/project",
        "history": history,
    }


COURSES = {
    "gemini": gemini_course,
    "kimi": kimi_course,
    "cline": cline_course,
    "continue": continue_course,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_correction_an_abort_and_a_compaction_are_read(client: str, tmp_path: Path) -> None:
    session = read_session(written(tmp_path, client, COURSES[client]()))
    assert typed(session) == ["Indent the file.", "No, always use tabs."] and session.turns == 2
    (stopped,) = [span for span in session.spans if span.is_error]
    assert (
        stopped.call_id == CALL and "stopped" in stopped.text and stopped.origin is Origin.COMMAND
    )
    own = by_origin(session, Origin.ASSISTANT)
    assert "Done with spaces." in own and "Tabs it is." in own and "I use spaces." not in own
    assert own.count("Done with") == 1 and "state_snapshot" not in by_origin(session, Origin.USER)
    assert "state_snapshot" in "".join(span.text for span in session.spans)


def test_what_a_subagent_of_kimi_did_belongs_to_its_session_and_its_prompt_is_no_persons(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, "kimi", kimi_course())
    inner = path.parents[1] / "agent-1/wire.jsonl"
    inner.parent.mkdir()
    lines = [
        kimi(20, "profile.bind", profileName="coder"),
        kimi_message(21, "Count the lines."),
        kimi_event(22, "content.part", part={"type": "text", "text": "There are 7 lines."}),
    ]
    inner.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    session = read_session(path)
    spans = [span for span in session.spans if span.agent == "agent-1"]
    assert [span.text for span in spans] == [
        "Count the lines.",
        "There are 7 lines.",
    ] and session.turns == 2
    assert {span.origin for span in spans} == {Origin.ASSISTANT} and session.subagents[
        0
    ].name == "coder"
    assert (
        len(list_sessions([tmp_path / ".kimi-code/sessions"], lambda session: None).sessions) == 1
    )


GEMINI_AGENT = "2edced67-5dfc-414e-a0e2-77d8a5d96556"
GEMINI_CHATS = ".gemini/tmp/project/chats"


def with_agent_of_gemini(home: Path) -> Path:
    """Write the two files of a session of the real Gemini CLI whose work a subagent did; return the
    session's.
    """
    session = home / GEMINI_CHATS / "session-2026-11-29T13-27-631778e5.jsonl"
    run = home / GEMINI_CHATS / f"631778e5-705a-4582-aa17-f9a120e41b36/{GEMINI_AGENT}.jsonl"
    run.parent.mkdir(parents=True)
    session.write_text((SAMPLES / "gemini-agent-session.jsonl").read_text("utf-8"), "utf-8")
    run.write_text((SAMPLES / "gemini-agent-run.jsonl").read_text("utf-8"), "utf-8")
    return session


def test_what_a_subagent_of_gemini_did_belongs_to_its_session_with_the_name_that_it_was_started_by(
    tmp_path: Path,
) -> None:
    path = with_agent_of_gemini(tmp_path)
    session = read_session(path)
    inner = [span for span in session.spans if span.agent == GEMINI_AGENT]
    assert [span.tool for span in inner if span.input is not None] == [
        "run_shell_command",
        "complete_task",
    ]
    assert {span.origin for span in inner} == {Origin.ASSISTANT, Origin.COMMAND}
    assert [(run.agent, run.name) for run in session.subagents] == [(GEMINI_AGENT, "clerk")]
    (start,) = [
        span for span in session.spans if span.tool == "invoke_agent" and span.input is not None
    ]
    assert session.subagents[0].call_id == start.call_id and start.index < inner[0].index
    assert typed(session) == ["Count the files in this folder, by an agent."]


def test_a_subagent_of_gemini_is_listed_by_itself_only_where_its_session_is_gone(
    tmp_path: Path,
) -> None:
    path = with_agent_of_gemini(tmp_path)

    def listed() -> list[str]:
        return [
            one.session
            for one in list_sessions([tmp_path / ".gemini/tmp"], lambda session: None).sessions
        ]

    assert listed() == ["631778e5-705a-4582-aa17-f9a120e41b36"]
    path.unlink()
    assert listed() == [GEMINI_AGENT]


def test_the_session_of_a_subagent_of_gemini_and_of_cline_has_no_words_of_a_person(
    tmp_path: Path,
) -> None:
    first, *rest = gemini_course()
    document = {
        **cline_course(),
        "agent": "subagent",
        "origin": {"mode": "subagent", "subagent": "agent_1"},
    }
    cases = (
        ("gemini", [{**first, "kind": "subagent"}, *rest], IDS["gemini"]),
        ("cline", document, "agent_1"),
    )
    for client, content, agent in cases:
        session = read_session(written(tmp_path, client, content))
        assert session.turns == 0 and "Indent the file." in by_origin(session, Origin.ASSISTANT)
        assert {span.agent for span in session.spans} == {agent} and session.subagents == ()


def test_a_block_whose_type_is_no_text_stops_no_reading(tmp_path: Path) -> None:
    course = cline_course()
    course["messages"].insert(1, {"role": "user", "content": [{"type": {"a": 1}}]})
    assert read_session(written(tmp_path, "cline", course)).turns == 2


@pytest.mark.parametrize("client", CLIENTS)
def test_an_envelope_without_text_is_refused(client: str, tmp_path: Path) -> None:
    strange = re.sub(
        '"(content|text|part|toolCalls|toolCallStates)":',
        '"fragments":',
        json.dumps(COURSES[client]()),
    )
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    refused = evolvable(
        "learn", "review", written(tmp_path, client, json.loads(strange)), code=None
    )
    assert refused.code != 0 and "have no text" in refused.err


def test_init_finds_the_skills_of_each_of_the_four(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    names = [".gemini", ".kimi-code", ".cline", ".continue"]
    for name in names:
        evolvable.save(
            evolvable.user / name / "skills",
            f"of{name.replace('.', '-')}",
            skill_text(f"of{name.replace('.', '-')}"),
        )
    evolvable("init", "--yes")
    assert len(evolvable("list", "--json").json["resources"]) == len(names)


@pytest.mark.process
@pytest.mark.parametrize("client", CLIENTS)
def test_sessions_lists_it_and_the_correction_is_found_by_a_review_of_its_id(
    client: str, tmp_path: Path
) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    written(evolvable.user, client, COURSES[client]())
    (listed,) = evolvable("learn", "sessions", "--json").json["sessions"]
    assert (listed["client"], listed["session"], listed["turns"]) == (client, IDS[client], 2)
    assert "always use tabs" in json.dumps(evolvable("learn", "review", IDS[client], "--json").json)
