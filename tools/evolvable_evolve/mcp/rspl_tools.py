"""The tools of the group `rspl`, listed only on request, and the approved tools of the library as
tools of MCP.

A tool of the library with the name `add` is listed as `tool_add` where the group `tools` is on:
with its own schema, in the newest version that a person approved. A change of its files changes
nothing here before it is approved too.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.mcpserver import Context
from pydantic import Field

from evolvable_evolve import contracts, rspl, variables
from evolvable_evolve.agent_runs import AgentHost
from evolvable_evolve.run_launcher import choose_sandbox
from evolvable_server import Config, commands_of_role, file_status
from evolvable_server.mcp import (
    ANNOTATIONS,
    AnyRef,
    KindText,
    Notifier,
    Number,
    Propose,
    Reason,
    RefText,
    add_tool,
    declare_tools,
    error_result,
    one_of,
)
from evolvable_server.mcp.call import CallSessions, caller_of
from evolvable_server.mcp.server import LibraryServer
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library, bound_text, verbs
from evolvable_tools.verbs import (
    APPROVALS_FILE,
    Effect,
    ToolVersion,
    Updated,
    approved_digests,
    approved_version,
)

PREFIX = "tool_"
"""Beginning of the names of the library's tools in the list of MCP tools."""

# Most clients put the description of every tool into the context of the model.
MAX_TOOLS = 100
"""Tools of the library that are listed, by name."""

# Each is a sandbox with processes of its own.
MAX_RUNNING = 8
"""Tools that one server runs at a time; further calls wait."""

MAX_TOOL_DESCRIPTION = 500
"""Characters of the description of one tool of the library."""

LOOK_SECONDS = 0.5
"""Seconds between two looks at the file of approvals, which another process writes."""


def run_host(config: Config) -> rspl.RunHost:
    """Return the host that runs resources in this process."""
    scorers = commands_of_role(config, "scorers", person=False)
    return rspl.RunHost(dict(os.environ), choose_sandbox(config), scorers, AgentHost(config))


class RsplTools:
    """The tools over one library, for one caller."""

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, host: rspl.RunHost
    ) -> None:
        self._library, self._caller, self._sessions, self._host = library, caller, sessions, host

    def get_info(self, ref: AnyRef, ctx: Context) -> verbs.ResourceInfo:
        """Say what a resource is: description, metadata, what run_resource takes, trust, what it
        was copied from.
        """
        return verbs.get_info(self._library, self._who(ctx), ref)

    def get_state(self, ref: AnyRef, ctx: Context) -> verbs.ResourceState:
        """Say how a resource stands: its head, what hosts see, folders, uses, and proposals that
        wait.
        """
        return verbs.get_state(self._library, self._who(ctx), ref)

    def get_variables(
        self,
        ref: AnyRef,
        ctx: Context,
        ids: Annotated[list[str] | None, Field(description="only these; default all")] = None,
    ) -> variables.Variables:
        """Read the variables of a resource: its description, each section below a ## heading, each
        file.
        """
        return variables.get_variables(self._library, self._who(ctx), ref, ids or ())

    def set_variables(
        self,
        ref: AnyRef,
        values: Annotated[
            dict[str, str], Field(description="id from get_variables -> its whole new text")
        ],
        expected_version: Annotated[Number, Field(description="the version you read", ge=0)],
        reason: Reason,
        ctx: Context,
        propose: Propose = False,
    ) -> Updated:
        """Set variables of a resource in one new version; every other variable stays as it is.
        Frozen ones are refused.
        """
        return variables.set_variables(
            self._library, self._who(ctx), ref, values, expected_version, reason, propose=propose
        )

    def save_contract(
        self,
        ctx: Context,
        kind: Annotated[KindText | None, one_of(Kind, "of every resource of this kind")] = None,
        refs: Annotated[list[RefText] | None, Field(description="instead: of these")] = None,
        reason: Annotated[str, Field(description="why; kept in the history", max_length=2000)] = "",
    ) -> Updated:
        """Write CONTRACT.md into environment:contracts: what each resource is for, its arguments,
        what it asks for.
        """
        return contracts.save_contract(
            self._library, self._who(ctx), kind=kind, refs=refs or (), reason=reason
        )

    def load_contract(
        self,
        ctx: Context,
        version: Annotated[
            Number | None, Field(description="of environment:contracts; default the newest", ge=1)
        ] = None,
    ) -> contracts.LoadedContract:
        """Read the contract, with the entries that drifted or are unknown by now."""
        return contracts.load_contract(self._library, self._who(ctx), version)

    def build_resource(self, ref: AnyRef, ctx: Context) -> rspl.BuiltResource:
        """Write the files of a version into a read-only folder that is named by their hash, and
        return its path.
        """
        return rspl.build_resource(self._library, self._who(ctx), ref)

    async def run_resource(
        self,
        ref: AnyRef,
        ctx: Context,
        given: Annotated[
            dict[str, Any] | None, Field(description="the input; get_info has its schema")
        ] = None,
    ) -> rspl.ResourceRun:
        """Run a resource: the command of a tool in the sandbox (only a version that a person
        approved), or a prompt filled in. An environment scores {task, output} of a train task. An
        agent does {task, executor} within what the person allows to callers. Other kinds give the
        document to work by.
        """
        caller = self._who(ctx)
        return await rspl.run_resource(self._library, caller, ref, given or {}, self._host)

    def _who(self, ctx: Context) -> Caller:
        caller = caller_of(self._caller, ctx, self._sessions)
        self._library.note_session(caller)
        return caller


def add_rspl(
    server: LibraryServer, library: Library, caller: Caller, sessions: CallSessions, config: Config
) -> None:
    """Add the tools of the group `rspl`."""
    for spec in declare_tools(RsplTools(library, caller, sessions, run_host(config)), "rspl"):
        add_tool(server, spec)


class ApprovedTools:
    """The approved tools of one library, as tools of MCP."""

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, host: rspl.RunHost
    ) -> None:
        self._library, self._caller, self._sessions, self._host = library, caller, sessions, host
        self._running = anyio.CapacityLimiter(MAX_RUNNING)

    async def list_tools(self) -> list[types.Tool]:
        """Return the tools that a person approved, by name."""
        tools = await anyio.to_thread.run_sync(self._find_approved)
        return [_make_tool(tool) for tool in tools.values()]

    def _find_approved(self) -> dict[str, ToolVersion]:
        """Return the approved tools by their names. Of two with one name the nearer scope wins."""
        approved, tools = approved_digests(self._library), dict[str, ToolVersion]()
        for scope in self._caller.scopes if approved else ():
            for head in self._library.store.heads(Kind.TOOL, scope):
                name = f"{PREFIX}{head.name}"
                if name not in tools and (tool := approved_version(self._library, head, approved)):
                    tools[name] = tool
        return {name: tools[name] for name in sorted(tools)[:MAX_TOOLS]}

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: Context[Any, Any] | None
    ) -> types.CallToolResult:
        """Run an approved tool. An error of the product becomes a text for the model."""
        caller = self._caller
        if context is not None:
            caller = caller_of(self._caller, context, self._sessions)
        try:
            # Bounds the sandboxes that run at a time for one client.
            async with self._running:
                # Looked up at each call: an approval may have been withdrawn since the client
                # listed the tools.
                tools = await anyio.to_thread.run_sync(self._find_approved)
                tool = tools.get(name)
                if tool is None:
                    return error_result(
                        f"There is no tool {name} any more. List the tools again, or go on "
                        "without it."
                    )
                ref = Ref.parse(tool.ref).at(tool.version)
                run = await rspl.run_tool(self._library, caller, ref, arguments, self._host)
        except EvolvableError as error:
            return error_result(error.text)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=run.text)],
            structured_content=run.value if isinstance(run.value, dict) else None,
        )

    async def watch(self, notifier: Notifier) -> None:
        """Notify clients whenever a person approves or withdraws a tool, until it is cancelled."""
        path: Path = self._library.store.home / APPROVALS_FILE
        # The file is polled: `evolvable rspl withdraw` runs in another process.
        last_status = file_status(path)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (status := file_status(path)) != last_status:
                last_status = status
                await notifier.tools_changed()


def _make_tool(tool: ToolVersion) -> types.Tool:
    ref = Ref.parse(tool.ref)
    return types.Tool(
        name=f"{PREFIX}{ref.name}",
        title=f"{tool.ref}@{tool.version}",
        description=bound_text(tool.description, trusted=False, limit=MAX_TOOL_DESCRIPTION),
        input_schema=dict(tool.spec.schema),
        annotations=ANNOTATIONS[Effect.WRITES],
    )


def add_approved_tools(
    server: LibraryServer, library: Library, caller: Caller, sessions: CallSessions, config: Config
) -> ApprovedTools:
    """Add the approved tools of the library to a server, and return them: the group `tools`."""
    tools = ApprovedTools(library, caller, sessions, run_host(config))
    server.approved_tools = tools
    return tools
