"""The MCP server: tools, resources, prompts, questions to the person, notifications.

Begin with `declare_tools` and `add_tool`, the tools as functions. `evolvable_server.mcp.server` has
`LibraryServer`, `evolvable_server.mcp.call` what is known of one call: its caller, connection and
permissions. `FastStart` answers first, before the SDK is imported.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_server.mcp.delegation_tools import add_delegation
    from evolvable_server.mcp.elicitation import ConfirmationGate, cut_line, has_answer, may_ask
    from evolvable_server.mcp.fast_start import (
        FastStart,
        FastStartState,
        StdioDescriptors,
        can_start_fast,
        claim_stdio,
        is_pollable,
        write_all,
        write_nonblocking,
    )
    from evolvable_server.mcp.lazy_tools import add_lazy_tools
    from evolvable_server.mcp.lesson_gate import LessonGate
    from evolvable_server.mcp.look_gates import add_approvals
    from evolvable_server.mcp.notifications import ClientLog, Notifier, add_logs, add_notifications
    from evolvable_server.mcp.prompts_and_skills import SkillsExtension, add_prompts
    from evolvable_server.mcp.resources import add_resources
    from evolvable_server.mcp.results import error_result
    from evolvable_server.mcp.sdk_import import defer_modules, light_sdk
    from evolvable_server.mcp.tools import (
        ANNOTATIONS,
        AnyRef,
        KindText,
        Number,
        Propose,
        Reason,
        RefText,
        add_tool,
        declare_tools,
        one_of,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "delegation_tools": "add_delegation",
            "elicitation": "ConfirmationGate cut_line has_answer may_ask",
            "fast_start": (
                "FastStart FastStartState StdioDescriptors can_start_fast claim_stdio "
                "is_pollable write_all write_nonblocking"
            ),
            "lazy_tools": "add_lazy_tools",
            "lesson_gate": "LessonGate",
            "look_gates": "add_approvals",
            "notifications": "ClientLog Notifier add_logs add_notifications",
            "prompts_and_skills": "SkillsExtension add_prompts",
            "resources": "add_resources",
            "results": "error_result",
            "sdk_import": "defer_modules light_sdk",
            "tools": (
                "ANNOTATIONS AnyRef KindText Number Propose Reason RefText add_tool "
                "declare_tools one_of"
            ),
        },
    )

__all__ = [
    "ANNOTATIONS",
    "AnyRef",
    "ClientLog",
    "ConfirmationGate",
    "FastStart",
    "FastStartState",
    "KindText",
    "LessonGate",
    "Notifier",
    "Number",
    "Propose",
    "Reason",
    "RefText",
    "SkillsExtension",
    "StdioDescriptors",
    "add_approvals",
    "add_delegation",
    "add_lazy_tools",
    "add_logs",
    "add_notifications",
    "add_prompts",
    "add_resources",
    "add_tool",
    "can_start_fast",
    "claim_stdio",
    "cut_line",
    "declare_tools",
    "defer_modules",
    "error_result",
    "has_answer",
    "is_pollable",
    "light_sdk",
    "may_ask",
    "one_of",
    "write_all",
    "write_nonblocking",
]
