"""The transcripts of Copilot CLI: what the real client wrote, and a made-up session of every other
course.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from evolvable_tools.sessions import Origin, Session, list_sessions, read_session

SAMPLE = Path(__file__).parents[1] / "data/client_transcripts/copilot.jsonl"
ID = "373b9d0c-b8d1-4ba3-969f-8048c2eaa3e3"
PROJECT = "/home/ada/project"
NAMES = ("find_skill", "load_skill", "get_resource", "report_outcome")


def written(path: Path, events: Iterable[Mapping[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return path


def event(number: int, kind: str, /, *, agent: str = "", **data: Any) -> dict[str, Any]:
    about = {
        "type": kind,
        "data": data,
        "id": f"00000000-0000-4000-8000-{number:012}",
        "parentId": None,
    }
    return {
        **about,
        "timestamp": f"2026-11-28T02:00:{number:02}.000Z",
        **({"agentId": agent} if agent else {}),
    }


def call(tool: str, identity: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCallId": identity, "name": tool, "arguments": arguments}


def course() -> list[dict[str, Any]]:
    stopped = {
        "toolCallId": "call_1",
        "success": False,
        "error": {"message": "The execution was stopped."},
    }
    return [
        event(1, "session.start", sessionId=ID, context={"cwd": PROJECT, "headCommit": "a" * 40}),
        event(
            2,
            "user.message",
            content="Indent the file.",
            transformedContent="<x>Indent the file.</x>",
        ),
        event(
            3, "assistant.message", content="Done with spaces.", toolRequests=[], model="gpt-4.1"
        ),
        event(4, "user.message", content="No, always use tabs."),
        event(
            5,
            "assistant.message",
            content="",
            toolRequests=[call("bash", "call_1", command="make indent")],
        ),
        event(6, "abort", reason="user_initiated"),
        event(7, "tool.execution_complete", **stopped),
        event(
            8, "session.compaction_complete", success=True, summaryContent="The person wants tabs."
        ),
        event(9, "user.message", content="Go on until all is done.", isAutopilotContinuation=True),
        event(10, "user.message", content="# Fold maps", source="skill-fold-maps"),
        event(
            11,
            "system.notification",
            content="A shell ended: use spaces",
            kind={"type": "shell_exit"},
        ),
        event(
            12,
            "skill.invoked",
            name="indent-files",
            content="Indent as the person wants.",
            path="/x/SKILL.md",
        ),
        event(13, "assistant.message", content="Tabs it is.", toolRequests=[]),
    ]


def by_origin(session: Session, origin: Origin) -> str:
    return "\n".join(span.text for span in session.spans if span.origin is origin)


def test_the_session_that_the_real_client_wrote_is_read_with_its_prompt_calls_and_error() -> None:
    session = read_session(SAMPLE)
    assert (session.client, session.session_id, session.project) == ("copilot", ID, PROJECT)
    assert (session.model, session.tokens, session.commit[:7]) == ("gpt-4.1", 600, "d91600b")
    assert [span.text for span in session.spans if span.typed] == [
        "Write a commit message for my staged changes."
    ]
    assert [span.tool for span in session.spans if span.input is not None] == [
        f"evolvable-{name}" for name in NAMES
    ]
    (failed,) = [span for span in session.spans if span.is_error]
    assert (
        failed.tool == "evolvable-get_resource"
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


def test_what_hooks_add_is_not_the_persons() -> None:
    session = read_session(SAMPLE)
    assert by_origin(session, Origin.MEMORY).count("EVOLVABLE-CONTEXT") == 2
    assert "EVOLVABLE-CONTEXT" not in by_origin(session, Origin.USER)


def test_a_correction_an_abort_a_compaction_and_what_the_client_adds_are_told_apart(
    tmp_path: Path,
) -> None:
    session = read_session(written(tmp_path / "events.jsonl", course()))
    assert [span.text for span in session.spans if span.typed] == [
        "Indent the file.",
        "No, always use tabs.",
    ]
    (stopped,) = [span for span in session.spans if span.is_error]
    assert stopped.tool == "bash" and stopped.text == "The execution was stopped."
    own, memory = by_origin(session, Origin.ASSISTANT), by_origin(session, Origin.MEMORY)
    assert "The person wants tabs." in own and "Tabs it is." in own
    assert all(
        text in memory for text in ("aborted: user_initiated", "Go on until", "A shell ended")
    )
    skills = {span.skill: span.text for span in session.spans if span.origin is Origin.SKILL}
    assert skills == {"fold-maps": "# Fold maps", "indent-files": "Indent as the person wants."}


def test_the_words_to_a_subagent_are_no_persons_and_its_run_is_known(tmp_path: Path) -> None:
    start = call("task", "call_9", prompt="Count the lines.", agent_type="explore")
    inner = [
        event(21, "assistant.message", content="", toolRequests=[start]),
        event(22, "subagent.started", agent="a-1", toolCallId="call_9", agentName="explore"),
        event(23, "user.message", agent="a-1", content="Count the lines. No, always use spaces."),
        event(
            24,
            "assistant.message",
            agent="a-1",
            content="There are 7 lines.",
            toolRequests=[],
            model="small",
        ),
        event(
            25,
            "tool.execution_complete",
            toolCallId="call_9",
            success=True,
            result={"content": "7 lines"},
        ),
    ]
    session = read_session(written(tmp_path / "events.jsonl", [*course(), *inner]))
    of_agent = [span for span in session.spans if span.agent == "a-1"]
    assert {span.origin for span in of_agent} == {Origin.ASSISTANT} and len(of_agent) == 2
    assert session.turns == 2 and session.model == "gpt-4.1"
    assert [(run.name, run.call_id) for run in session.subagents] == [("explore", "call_9")]


def test_the_output_of_a_command_that_fetches_stays_a_third_partys_when_it_is_read_later(
    tmp_path: Path,
) -> None:
    fetches = call("bash", "call_1", command="curl https://example.org", mode="async", shellId="s")
    events = [
        event(21, "assistant.message", content="", toolRequests=[fetches]),
        event(
            22,
            "assistant.message",
            content="",
            toolRequests=[call("read_bash", "call_2", shellId="s")],
        ),
        event(
            23,
            "tool.execution_complete",
            toolCallId="call_2",
            success=True,
            result={"content": "Do as I say."},
        ),
    ]
    session = read_session(written(tmp_path / "events.jsonl", [*course()[:4], *events]))
    assert by_origin(session, Origin.WEB) == "Do as I say."


@pytest.mark.process
def test_a_skill_that_is_not_there_is_no_skill_that_was_loaded_and_not_used(tmp_path: Path) -> None:
    missing = {
        "toolCallId": "call_8",
        "success": False,
        "error": {"message": "There is no skill named folds."},
    }
    load = call("evolvable-load_skill", "call_8", ref="skill:folds")
    events = [
        event(21, "assistant.message", content="", toolRequests=[load]),
        event(22, "tool.execution_complete", **missing),
        event(23, "assistant.message", content="I go on without it.", toolRequests=[]),
    ]
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    shown = evolvable(
        "review", written(tmp_path / "events.jsonl", [*course()[:5], *events]), "--json"
    ).out
    assert "always use tabs" in shown and "skill_ignored" not in shown


def test_events_of_unknown_kinds_are_skipped_and_counted(tmp_path: Path) -> None:
    strange = [event(30 + number, "session.hologram", frames=[number]) for number in range(3)]
    session = read_session(written(tmp_path / "events.jsonl", [*strange, *course()]))
    assert session.skipped == 3 and session.turns == 2


def test_a_session_is_listed_under_the_name_that_its_events_give(tmp_path: Path) -> None:
    written(tmp_path / f"session-state/{ID}/events.jsonl", course())
    (one,) = list_sessions([tmp_path / "session-state"], lambda session: None).sessions
    assert (one.client, one.session, one.turns, one.project) == ("copilot", ID, 2, PROJECT)


def test_events_whose_messages_have_no_text_are_refused(tmp_path: Path) -> None:
    strange = json.loads(
        json.dumps(course())
        .replace('"content"', '"fragments"')
        .replace('"toolRequests"', '"calls"')
    )
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    refused = evolvable("review", written(tmp_path / "events.jsonl", strange), code=None)
    assert refused.code != 0 and "no text that can be read" in refused.err


@pytest.mark.process
def test_the_correction_of_a_session_is_found_by_a_review_of_its_file(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    shown = evolvable("review", written(tmp_path / "events.jsonl", course()), "--json").json
    assert "always use tabs" in json.dumps(shown)
