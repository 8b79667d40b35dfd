"""The tool that has the agent of a skill do a task by the client's model, listed only on request.

It is a tool of its own, because `load_skill` reads: clients that run without a person refuse what
does more.
"""

from dataclasses import replace
from typing import Annotated

import mcp_types as types
from mcp.server.mcpserver import Context
from pydantic import Field

from evolvable_server.mcp import delegated_work, resources
from evolvable_server.mcp.call import CallSessions, caller_of
from evolvable_server.mcp.sampling import sampling_model
from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.tools import AnyRef, Number, add_tool, declare_tools, footer
from evolvable_tools import Caller, Library
from evolvable_tools.verbs import load_delegate, load_skill, use_delegate


class DelegationTools:
    """The tool over one library, for one caller."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions) -> None:
        self._library, self._caller, self._sessions = library, caller, sessions

    def delegate_skill(
        self,
        ref: AnyRef,
        task: Annotated[str, Field(description="what is to be done, at most 50,000 characters")],
        ctx: Context,
        version: Annotated[Number | None, Field(description="default: the newest", ge=1)] = None,
        search_id: Annotated[
            str | None, Field(description="from find_skill, when it led here")
        ] = None,
    ) -> types.CallToolResult:
        """Have the agent that a skill names do a task by the model that you lend (MCP sampling), in
        at most 20 turns without tools. Returns what the agent wrote, and the use_id to report the
        outcome with.
        """
        model = delegated_work.check_request(sampling_model(ctx), task)
        caller = caller_of(self._caller, ctx, self._sessions)
        self._library.note_session(caller)
        # The delegate reads the skill. So the client must not count as having read it.
        reader = replace(caller, conversation="")
        task_type = _find_task_type(self._library, task)
        loaded = load_skill(
            self._library, reader, ref, version=version, search_id=search_id, task_type=task_type
        )
        loaded = resources.redact_loaded(self._library, self._caller, loaded)
        delegation = load_delegate(self._library, caller, loaded, task_type)
        work = delegated_work.run_delegate(
            self._library, model, delegation, loaded.text or "", task
        )
        # After the work: a run that failed is no use of the agent.
        if delegation is not None:
            use_delegate(self._library, caller, delegation)
        return delegated_work.as_result(delegated_work.result_text(work) + footer(loaded), loaded)


def _find_task_type(library: Library, task: str) -> str:
    """Return the task type of a task, '' where its words tell none."""
    # Late: it reads the words of all signals.
    from evolvable_tools.outcomes import task_label

    return task_label(library, task)


def add_delegation(
    server: LibraryServer, library: Library, caller: Caller, sessions: CallSessions
) -> None:
    """Add the tool to the server."""
    for spec in declare_tools(DelegationTools(library, caller, sessions), "delegation"):
        add_tool(server, spec)
