"""The transcripts of Qwen Code and Droid: what the real clients wrote, and made-up sessions of
every other course.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from evolvable_tools.sessions import Origin, Session, list_sessions, read_session

SAMPLES = Path(__file__).parents[1] / "data/client_transcripts"
IDS = {
    "qwen": "2fe44596-5123-4758-83a6-426abf032796",
    "droid": "c4822796-5cae-465b-bb6f-abc91b1e08fb",
}
PREFIX = {"qwen": "mcp__evolvable__", "droid": "evolvable___"}
PROJECT = "/home/ada/project"


def written(path: Path, lines: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def qwen(number: int, kind: str, *parts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    by = {"user": "real_user", "assistant": "assistant_output"}.get(kind, kind)
    about = {
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "sessionId": IDS["qwen"],
        "cwd": PROJECT,
        "type": kind,
    }
    message = {"role": "model" if kind == "assistant" else "user", "parts": list(parts)}
    at = {"timestamp": f"2026-11-28T02:00:{number:02}.000Z", "provenance": by}
    return {**about, **at, **({"message": message} if parts else {}), **more}


def droid(number: int, role: str, *blocks: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    about = {"type": "message", "id": f"00000000-0000-4000-8000-{number:012}"}
    message = {"role": role, "content": list(blocks), **more}
    return {**about, "timestamp": f"2026-11-28T02:00:{number:02}.000Z", "message": message}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def by_origin(session: Session, origin: Origin) -> str:
    return "\n".join(span.text for span in session.spans if span.origin is origin)


@pytest.mark.parametrize("client", ["qwen", "droid"])
def test_the_session_that_the_real_client_wrote_is_read_with_its_prompt_calls_and_error(
    client: str,
) -> None:
    session = read_session(SAMPLES / f"{client}.jsonl")
    assert (session.client, session.session_id, session.project) == (client, IDS[client], PROJECT)
    assert [span.text for span in session.spans if span.typed] == [
        "Write a commit message for my staged changes."
    ]
    calls = [span.tool for span in session.spans if span.input is not None]
    assert calls[1:] == [
        PREFIX[client] + name
        for name in ("find_skill", "load_skill", "get_resource", "report_outcome")
    ]
    (failed,) = [span for span in session.spans if span.is_error]
    assert (
        failed.tool == f"{PREFIX[client]}get_resource"
        and "There is no skill named does-not-exist" in failed.text
    )
    assert any(
        span.origin is Origin.SKILL and span.skill == "write-commit-messages"
        for span in session.spans
    )
    assert (
        session.spans[-1].text == "FINAL: all steps done."
        and session.spans[-1].origin is Origin.ASSISTANT
    )
    assert not any(span.origin is Origin.MCP for span in session.spans)


def test_what_a_hook_adds_to_a_prompt_of_qwen_is_not_the_persons() -> None:
    session = read_session(SAMPLES / "qwen.jsonl")
    assert "EVOLVABLE-CONTEXT" in by_origin(session, Origin.MEMORY)
    assert "EVOLVABLE-CONTEXT" not in by_origin(session, Origin.USER)


def test_lines_of_unknown_kinds_are_skipped_and_counted(tmp_path: Path) -> None:
    for client in IDS:
        lines = [
            json.loads(line)
            for line in (SAMPLES / f"{client}.jsonl").read_text("utf-8").splitlines()
        ]
        before = read_session(SAMPLES / f"{client}.jsonl").skipped
        strange = [{"type": "hologram", "sessionId": IDS[client], "frames": [n]} for n in range(3)]
        assert read_session(
            written(tmp_path / f"{client}.jsonl", [*lines[:2], *strange, *lines[2:]])
        ).skipped == (before + 3)


def qwen_course() -> list[dict[str, Any]]:
    command = {
        "functionCall": {
            "id": "call_0123456789abcdef",
            "name": "run_shell_command",
            "args": {"command": "ls"},
        }
    }
    refused = {"error": "[Operation Cancelled] Reason: User did not allow tool call"}
    answer = {"id": "call_0123456789abcdef", "name": "run_shell_command", "response": refused}
    summary = [
        {"role": "user", "parts": [{"text": "<state_snapshot>Goal: indent.</state_snapshot>"}]}
    ]
    return [
        qwen(1, "user", {"text": "Indent the file."}),
        qwen(
            2,
            "assistant",
            {"text": "I use spaces.", "thought": True},
            {"text": "Done with spaces."},
            model="q",
        ),
        qwen(3, "user", {"text": "No, always use tabs."}, subtype="mid_turn_user_message"),
        qwen(4, "assistant", command),
        qwen(
            5, "tool_result", {"functionResponse": answer}, toolCallResult={"status": "cancelled"}
        ),
        qwen(6, "system", subtype="chat_compression", systemPayload={"compressedHistory": summary}),
        qwen(
            7,
            "user",
            {"text": "A task ended: use spaces"},
            subtype="notification",
            provenance="system",
        ),
        qwen(8, "assistant", {"text": "Tabs it is."}),
    ]


def test_a_correction_an_abort_and_a_compaction_of_qwen_are_read(tmp_path: Path) -> None:
    session = read_session(written(tmp_path / f"{IDS['qwen']}.jsonl", qwen_course()))
    assert [span.text for span in session.spans if span.typed] == [
        "Indent the file.",
        "No, always use tabs.",
    ]
    (refused,) = [span for span in session.spans if span.is_error]
    assert refused.tool == "run_shell_command" and "User did not allow" in refused.text
    own = by_origin(session, Origin.ASSISTANT)
    assert "state_snapshot" in own and "I use spaces." not in own and "Tabs it is." in own
    assert "A task ended" in by_origin(session, Origin.MEMORY) and session.model == "q"


def test_a_subagent_of_qwen_is_read_from_its_own_file_and_its_prompt_is_no_persons(
    tmp_path: Path,
) -> None:
    project = tmp_path / ".qwen/projects/-home-ada-project"
    chat = written(project / f"chats/{IDS['qwen']}.jsonl", qwen_course())
    folder = project / f"subagents/{IDS['qwen']}"
    about = {"isSidechain": True, "agentId": "clerk-1", "agentName": "clerk"}
    lines = [
        qwen(21, "user", {"text": "Count the lines."}, **about),
        qwen(22, "assistant", {"text": "There are 7 lines."}, **about),
    ]
    written(folder / "agent-clerk-1.jsonl", lines)
    launch = {"agentId": "clerk-1", "agentType": "clerk", "toolUseId": "call_fedcba9876543210"}
    (folder / "agent-clerk-1.meta.json").write_text(json.dumps(launch), encoding="utf-8")

    session = read_session(chat)
    inner = [span for span in session.spans if span.agent == "clerk-1"]
    assert [span.text for span in inner] == ["Count the lines.", "There are 7 lines."]
    assert {span.origin for span in inner} == {Origin.ASSISTANT} and session.turns == 2
    assert [(run.name, run.call_id) for run in session.subagents] == [
        ("clerk", "call_fedcba9876543210")
    ]
    listed = list_sessions([tmp_path / ".qwen/projects"], lambda session: None).sessions
    assert [(one.client, one.session, one.turns) for one in listed] == [("qwen", IDS["qwen"], 2)]


def droid_course() -> list[dict[str, Any]]:
    call = {
        "type": "tool_use",
        "id": "call_0123456789abcdef",
        "name": "Execute",
        "input": {"command": "ls"},
    }
    stopped = {"type": "tool_result", "tool_use_id": call["id"], "is_error": True}
    return [
        {"type": "session_start", "id": IDS["droid"], "version": 2, "cwd": PROJECT},
        droid(
            1,
            "user",
            words("<system-reminder>Today is Monday.</system-reminder>"),
            visibility="llm_only",
        ),
        droid(2, "user", words("Indent the file.")),
        droid(3, "assistant", words("Done with spaces."), modelId="custom:stub"),
        droid(4, "user", words("No, always use tabs.")),
        droid(5, "assistant", call),
        droid(6, "user", {**stopped, "content": "Tool execution cancelled by user"}),
        {
            "type": "compaction_state",
            "id": "c",
            "summaryText": "The person wants tabs.",
            "summaryTokens": 5,
        },
        {"type": "agent_turn_outcome", "turnId": "t", "reason": "cancelled"},
        droid(7, "assistant", words("Tabs it is.")),
    ]


def test_a_correction_an_abort_and_a_compaction_of_droid_are_read(tmp_path: Path) -> None:
    session = read_session(written(tmp_path / f"{IDS['droid']}.jsonl", droid_course()))
    assert [span.text for span in session.spans if span.typed] == [
        "Indent the file.",
        "No, always use tabs.",
    ]
    (stopped,) = [span for span in session.spans if span.is_error]
    assert stopped.tool == "Execute" and stopped.text == "Tool execution cancelled by user"
    assert (
        "The person wants tabs." in by_origin(session, Origin.ASSISTANT)
        and session.model == "custom:stub"
    )
    assert "Today is Monday." in by_origin(session, Origin.MEMORY)
    assert session.skipped == 1


def test_the_session_of_a_subagent_of_droid_has_no_words_of_a_person(tmp_path: Path) -> None:
    first, *rest = droid_course()
    called = {
        **first,
        "callingSessionId": "11111111-0000-4000-8000-000000000001",
        "callingToolUseId": "call_1",
    }
    session = read_session(written(tmp_path / f"{IDS['droid']}.jsonl", [called, *rest]))
    assert session.turns == 0 and "Indent the file." in by_origin(session, Origin.ASSISTANT)
    assert {span.agent for span in session.spans} == {IDS["droid"]}


@pytest.mark.parametrize(
    ("noted", "names"),
    [
        (
            {"childSessionId": IDS["droid"], "parentToolUseId": "call_1", "subagentType": "clerk"},
            ["clerk"],
        ),
        ({"childSessionId": "another", "parentToolUseId": "call_1", "subagentType": "clerk"}, []),
        ({"childSessionId": IDS["droid"], "subagentType": ["clerk"]}, []),
        ("odd", []),
    ],
)
def test_the_name_of_a_subagent_of_droid_is_what_the_client_noted_at_its_start(
    noted: Any, names: list[str], tmp_path: Path
) -> None:
    first, *rest = droid_course()
    home = tmp_path / ".factory"
    path = home / f"sessions/-home-ada-project/{IDS['droid']}.jsonl"
    written(path, [{**first, "callingSessionId": "11111111-0000-4000-8000-000000000001"}, *rest])
    (home / "task-invocations.json").write_text(
        json.dumps({"invocations": [noted]}), encoding="utf-8"
    )
    session = read_session(path)
    assert [run.name for run in session.subagents] == names
    assert {span.agent for span in session.spans} == {IDS["droid"]}


@pytest.mark.parametrize("client", ["qwen", "droid"])
def test_the_envelope_of_either_client_without_text_is_refused(client: str, tmp_path: Path) -> None:
    course = json.dumps({"qwen": qwen_course, "droid": droid_course}[client]())
    strange = json.loads(
        course.replace('"parts"', '"fragments"').replace('"content"', '"fragments"')
    )
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    refused = evolvable("review", written(tmp_path / f"{client}.jsonl", strange), code=None)
    assert refused.code != 0 and "have no text" in refused.err


@pytest.mark.process
@pytest.mark.parametrize("client", ["qwen", "droid"])
def test_the_correction_of_a_session_is_found_by_a_review_of_its_file(
    client: str, tmp_path: Path
) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    course = {"qwen": qwen_course, "droid": droid_course}[client]()
    shown = evolvable("review", written(tmp_path / f"{IDS[client]}.jsonl", course), "--json").json
    assert "always use tabs" in json.dumps(shown)
