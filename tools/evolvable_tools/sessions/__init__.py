"""The session: a client's transcript as redacted spans, each with the origin of its text.

Begin with `read_session`, which gives a `Session` of `Span`s, and `list_sessions`. `Origin` says
who wrote a span. Code that decides anything by a text asks it first. A transcript is hostile input.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.sessions.copies import keys_of, mark_copies
    from evolvable_tools.sessions.opencode import stored_state
    from evolvable_tools.sessions.parser import read_session
    from evolvable_tools.sessions.session import (
        SKILL_TOOL,
        SUBAGENT_TOOLS,
        UNTRUSTED,
        NoTranscript,
        Origin,
        Session,
        Span,
        TranscriptNotRead,
        UnreadableMessages,
    )
    from evolvable_tools.sessions.session_list import (
        ListedSession,
        SessionPage,
        find_transcript,
        is_transcript_path,
        list_sessions,
        transcript_files,
    )
    from evolvable_tools.sessions.taint import command_line
else:
    __getattr__ = late_names(
        __name__,
        {
            "copies": "keys_of mark_copies",
            "opencode": "stored_state",
            "parser": "read_session",
            "session": (
                "NoTranscript Origin SKILL_TOOL SUBAGENT_TOOLS Session Span TranscriptNotRead "
                "UNTRUSTED UnreadableMessages"
            ),
            "session_list": (
                "ListedSession SessionPage find_transcript is_transcript_path list_sessions "
                "transcript_files"
            ),
            "taint": "command_line",
        },
    )

__all__ = [
    "ListedSession",
    "NoTranscript",
    "Origin",
    "SKILL_TOOL",
    "SUBAGENT_TOOLS",
    "Session",
    "SessionPage",
    "Span",
    "TranscriptNotRead",
    "UNTRUSTED",
    "UnreadableMessages",
    "command_line",
    "find_transcript",
    "is_transcript_path",
    "keys_of",
    "list_sessions",
    "mark_copies",
    "read_session",
    "stored_state",
    "transcript_files",
]
