"""How work ended and what was used in it: the signals of sessions, their ingestion, and
the report.

Begin with `record_uses`, which records a finished session, and `stats`, the report. `detection` has
the rules that read a session (`calls_of`, `corrects`, `is_check`).
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.outcomes.detection import (
        ToolCall,
        accepts,
        calls_of,
        closing_verdict,
        commits,
        corrects,
        ended_badly,
        is_check,
        is_passed_check,
        only_looks,
        pair_calls,
        reports_failure,
        states,
        undoes,
        unquoted_text,
        was_refused,
        wishes_skill,
    )
    from evolvable_tools.outcomes.ingest import own_part, record_uses
    from evolvable_tools.outcomes.learning import (
        MAX_TASK,
        ListedTask,
        correct_task,
        list_learned,
        reassign_task,
        remove_learned,
    )
    from evolvable_tools.outcomes.past_sessions import (
        PastSessions,
        count_transcripts,
        learn_from_past,
    )
    from evolvable_tools.outcomes.shell_commands import (
        COMMAND_TOOLS,
        MAX_COMMAND,
        VIEWERS,
        git_command,
        named_files,
        normalize_command,
        read_files,
        simple_commands,
    )
    from evolvable_tools.outcomes.shell_tokens import read_tokens
    from evolvable_tools.outcomes.task_types import (
        BUILT_IN_TEXT,
        TASK_TYPES,
        VOCABULARY_FILE,
        task_label,
    )
    from evolvable_tools.outcomes.usage_report import (
        MAX_DAYS,
        AgentUtility,
        ResourceStats,
        Share,
        Stats,
        stats,
        verdict_words,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "detection": (
                "ToolCall accepts calls_of closing_verdict commits corrects ended_badly "
                "reports_failure is_check is_passed_check only_looks pair_calls states undoes "
                "unquoted_text was_refused wishes_skill"
            ),
            "ingest": "own_part record_uses",
            "learning": (
                "ListedTask MAX_TASK correct_task list_learned reassign_task remove_learned"
            ),
            "past_sessions": "PastSessions count_transcripts learn_from_past",
            "shell_commands": (
                "COMMAND_TOOLS MAX_COMMAND VIEWERS git_command named_files normalize_command "
                "read_files simple_commands"
            ),
            "shell_tokens": "read_tokens",
            "task_types": "BUILT_IN_TEXT TASK_TYPES VOCABULARY_FILE task_label",
            "usage_report": "AgentUtility MAX_DAYS ResourceStats Share Stats stats verdict_words",
        },
    )

__all__ = [
    "AgentUtility",
    "BUILT_IN_TEXT",
    "COMMAND_TOOLS",
    "ListedTask",
    "MAX_COMMAND",
    "MAX_DAYS",
    "MAX_TASK",
    "PastSessions",
    "ResourceStats",
    "Share",
    "Stats",
    "TASK_TYPES",
    "ToolCall",
    "VIEWERS",
    "VOCABULARY_FILE",
    "accepts",
    "calls_of",
    "closing_verdict",
    "commits",
    "correct_task",
    "corrects",
    "count_transcripts",
    "ended_badly",
    "reports_failure",
    "git_command",
    "is_check",
    "is_passed_check",
    "learn_from_past",
    "list_learned",
    "named_files",
    "normalize_command",
    "only_looks",
    "own_part",
    "pair_calls",
    "read_files",
    "reassign_task",
    "read_tokens",
    "record_uses",
    "remove_learned",
    "simple_commands",
    "states",
    "stats",
    "task_label",
    "undoes",
    "unquoted_text",
    "verdict_words",
    "was_refused",
    "wishes_skill",
]
