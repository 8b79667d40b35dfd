"""Executors: programs that run a task under a program. Each is a module of its own, imported when
it is asked for.

Begin with `Executor`, the protocol. `run_command` and `open_workspace` are what most of them need.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.executors.agent_cli import CLIENTS
    from evolvable_evolve.evolution.executors.base import (
        STRICT_JSON,
        UNCONFINED,
        WORK_DIR,
        CommandHost,
        Executor,
        WorkspaceError,
        load_schema,
        open_workspace,
        parse_strict_json,
        remove_stale_workspaces,
        remove_tree,
        run_command,
        start_problem,
        write_below,
    )
    from evolvable_evolve.evolution.executors.command_executor import check_named_executor
    from evolvable_evolve.evolution.executors.installation import CanaryFailed, run_canary
    from evolvable_evolve.evolution.executors.tool_runs import (
        ToolSandbox,
        encode_input,
        run_tool_command,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "agent_cli": "CLIENTS",
            "base": (
                "CommandHost Executor STRICT_JSON UNCONFINED WORK_DIR WorkspaceError load_schema "
                "open_workspace parse_strict_json remove_stale_workspaces remove_tree run_command "
                "start_problem write_below"
            ),
            "command_executor": "check_named_executor",
            "installation": "CanaryFailed run_canary",
            "tool_runs": "ToolSandbox encode_input run_tool_command",
        },
    )

__all__ = [
    "CLIENTS",
    "CanaryFailed",
    "CommandHost",
    "Executor",
    "STRICT_JSON",
    "ToolSandbox",
    "UNCONFINED",
    "WORK_DIR",
    "WorkspaceError",
    "check_named_executor",
    "encode_input",
    "load_schema",
    "open_workspace",
    "parse_strict_json",
    "remove_stale_workspaces",
    "remove_tree",
    "run_canary",
    "run_command",
    "run_tool_command",
    "start_problem",
    "write_below",
]
