"""A transcript whose messages yield no text is refused with a sentence, at every door; it is never
an empty session.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from transcripts import Raw, Says, User, session_id, write_claude_code, write_codex

from evolvable_evolve.evolution.tasks import session_import
from evolvable_store.review_queue import enqueue
from evolvable_tools.library import Library
from evolvable_tools.sessions.parser import outline, read_session
from evolvable_tools.sessions.session import NoTranscript, UnreadableMessages
from evolvable_tools.sessions.session_list import list_sessions

FOREIGN = session_id("foreign")


def foreign_line(
    kind: str, role: str, *parts: Mapping[str, Any], number: int = 0
) -> dict[str, Any]:
    """A line as no known client writes it: the envelope of Claude Code, the text in fragments."""
    about = {
        "uuid": session_id(f"{kind}{number}"),
        "parentUuid": None,
        "sessionId": FOREIGN,
        "cwd": "/home/dev/project",
    }
    at = {
        "timestamp": f"2026-11-28T02:17:{number:02}.000Z",
        "version": "0.24.4",
        "gitBranch": "master",
    }
    return {**about, **at, "type": kind, "message": {"role": role, "fragments": list(parts)}}


CHAT = [
    foreign_line("user", "user", {"text": "No, always use tabs in this project."}, number=1),
    {**foreign_line("system", "system", number=2), "subtype": "ui_telemetry", "message": None},
    foreign_line(
        "assistant",
        "model",
        {"functionCall": {"id": "call_1", "name": "shell", "args": {}}},
        number=3,
    ),
    foreign_line(
        "tool_result",
        "user",
        {"functionResponse": {"id": "call_1", "response": {"output": "1"}}},
        number=4,
    ),
    foreign_line("assistant", "model", {"text": "Done."}, number=5),
]


def written(path: Path, lines: Iterable[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def test_the_lines_of_a_client_with_messages_in_another_form_are_refused_with_a_sentence(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "chat.jsonl", CHAT)
    for read in (read_session, outline):
        with pytest.raises(UnreadableMessages, match="3 of its 3 messages") as refused:
            read(path)
        assert "'chat.jsonl'" in refused.value.text and "Nothing was reviewed" in refused.value.text


def test_messages_of_which_most_cannot_be_read_are_refused_and_a_few_are_left_out(
    tmp_path: Path,
) -> None:
    known = [Raw(json.dumps(CHAT[0]).encode()), User("Use tabs."), Says("I do."), Says("Done.")]
    assert read_session(write_claude_code(tmp_path, known)).turns == 1

    unknown = [
        *(Raw(json.dumps({**line, "uuid": f"{n}"}).encode()) for n, line in enumerate(CHAT * 2)),
        *known,
    ]
    with pytest.raises(UnreadableMessages, match="7 of its 10 messages"):
        read_session(write_claude_code(tmp_path, unknown))


@pytest.mark.parametrize(
    "lines",
    [
        [
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "assistant", "parts": [{"text": "y"}]},
        ],
        [{"role": "user", "content": {"markdown": "x"}}],
        [
            {
                "type": "response_item",
                "payload": {"type": "message", "role": "user", "parts": [{"text": "x"}]},
            }
        ],
        [
            {
                "type": "response_item",
                "payload": {"type": "message", "role": "user", "content": [{"markdown": "x"}]},
            }
        ],
        [
            {
                "type": "user",
                "sessionId": "a",
                "message": {"role": "user", "content": [{"type": "markdown", "md": "x"}]},
            }
        ],
        [{"type": "user", "sessionId": "a", "message": "x"}],
        [{"type": "user", "sessionId": "a", "message": {"role": "user", "content": 7}}],
    ],
)
def test_a_known_envelope_around_unknown_messages_is_refused_in_every_format(
    tmp_path: Path, lines: list[Any]
) -> None:
    with pytest.raises(UnreadableMessages, match=r"\d of its \d messages"):
        read_session(written(tmp_path / "x.jsonl", lines))


@pytest.mark.parametrize(
    "lines",
    [
        [{"type": "session_meta", "payload": {"id": "a", "cwd": "/home/dev"}}],
        [{"type": "summary", "summary": "x", "sessionId": "a"}],
        [{"type": "user", "sessionId": "a", "message": {"role": "user", "content": ""}}],
        [{"type": "system", "sessionId": "a", "content": "x"}],
    ],
)
def test_a_session_in_which_nobody_said_anything_yet_is_no_session_without_faults(
    tmp_path: Path, lines: list[Any]
) -> None:
    with pytest.raises(UnreadableMessages, match="no message with a text"):
        read_session(written(tmp_path / "x.jsonl", lines))


@pytest.mark.parametrize(
    "block", [{"type": "thinking", "thinking": "hm"}, {"type": "image", "source": {}}]
)
def test_thoughts_and_images_beside_a_persons_words_are_known_to_hold_no_text(
    tmp_path: Path, block: Any
) -> None:
    silent = {
        "type": "assistant",
        "sessionId": "a",
        "message": {"role": "assistant", "content": [block]},
    }
    lines = [Raw(json.dumps({**silent, "uuid": f"{n}"}).encode()) for n in range(5)]
    assert read_session(write_claude_code(tmp_path, [User("Look at it."), *lines])).turns == 1


def test_no_door_takes_a_transcript_whose_messages_cannot_be_read(
    library: Library, tmp_path: Path
) -> None:
    chat = written(tmp_path / ".claude/projects/p/chat.jsonl", CHAT)
    read = write_codex(tmp_path, [User("Use tabs.")])

    listed = list_sessions(
        [tmp_path / ".claude", tmp_path / ".codex"], lambda session: None
    ).sessions
    assert [one.path for one in listed] == [str(read)]
    draft = session_import.draft_from_sessions(library, [chat])
    [(why, count)] = draft.left_out.items()
    assert "no text that can" in why and (count, draft.sessions) == (1, 0)


def test_the_commands_and_the_queue_say_which_transcript_they_refuse(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable("init", "--yes")
    chat = written(tmp_path / "chat.jsonl", CHAT)

    refused = evolvable("review", chat, code=None)
    assert refused.code != 0
    assert "'chat.jsonl'" in refused.err and "a transcript of claude-code" in refused.err
    assert enqueue(str(evolvable.home), {"session_id": FOREIGN, "transcript_path": str(chat)})
    (queued,) = evolvable("review", "--queue", "--json").json["reviews"]
    assert "no text that can" in queued["why"] and queued["review_id"] is None
    shown = evolvable("taskset", "from-sessions", chat, "--dry-run", "--no-try").out
    assert "no text that can" in shown


def test_broken_lines_alone_are_no_transcript(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"type": "user", "message"\n\xff\xfe\n')
    with pytest.raises(NoTranscript, match="nothing in it is a message"):
        read_session(path)
