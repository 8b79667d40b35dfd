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
"""What the names of the library's tools begin with in the list of MCP tools."""

# Most clients put the description of every tool into the context of the model.
MAX_TOOLS = 100
"""Tools of the library that are listed, by name."""

# Each is a sandbox with processes of its own.
MAX_RUNNING = 8
"""Tools that one server runs at a time; further calls wait."""

MAX_TOOL_DESCRIPTION = 500

LOOK_SECONDS = 0.5
"""How often the file of approvals is looked at: another process writes it."""


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
        return await rspl.run_resource(
            self._library,
            self._who(ctx),
            ref,
            given or {},
            self._host,
        )

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
        found = await anyio.to_thread.run_sync(self._find_approved)
        return [_as_tool(tool) for tool in found.values()]

    def _find_approved(self) -> dict[str, ToolVersion]:
        """Return the approved tools by their names; of two with one name that of the
        nearer scope.
        """
        approved, found = approved_digests(self._library), dict[str, ToolVersion]()
        for scope in self._caller.scopes if approved else ():
            for head in self._library.store.heads(Kind.TOOL, scope):
                name = f"{PREFIX}{head.name}"
                if name not in found and (tool := approved_version(self._library, head, approved)):
                    found[name] = tool
        return {name: found[name] for name in sorted(found)[:MAX_TOOLS]}

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: Context[Any, Any] | None
    ) -> types.CallToolResult:
        """Run an approved tool; whatever goes wrong is an error text for the model."""
        caller = (
            caller_of(self._caller, context, self._sessions)
            if context is not None
            else self._caller
        )
        try:
            # Bounds the sandboxes that run at a time for one client.
            async with self._running:
                # Looked up at each call: an approval may have been withdrawn since the client
                # listed the tools.
                found = (await anyio.to_thread.run_sync(self._find_approved)).get(name)
                if found is None:
                    return error_result(
                        f"There is no tool {name} any more. List the tools again, or go on "
                        "without it."
                    )
                ref = Ref.parse(found.ref).at(found.version)
                ran = await rspl.run_tool(self._library, caller, ref, arguments, self._host)
        except EvolvableError as error:
            return error_result(error.text)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=ran.text)],
            structured_content=ran.value if isinstance(ran.value, dict) else None,
        )

    async def watch(self, notifier: Notifier) -> None:
        """Notify clients whenever a person approves or withdraws a tool, for as long as the server
        runs.
        """
        place: Path = self._library.store.home / APPROVALS_FILE
        # The file is polled: `evolvable rspl withdraw` runs in another process.
        last_status = file_status(place)
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (now := file_status(place)) != last_status:
                last_status = now
                await notifier.tools_changed()


def _as_tool(found: ToolVersion) -> types.Tool:
    ref = Ref.parse(found.ref)
    return types.Tool(
        name=f"{PREFIX}{ref.name}",
        title=f"{found.ref}@{found.version}",
        description=bound_text(found.description, trusted=False, limit=MAX_TOOL_DESCRIPTION),
        input_schema=dict(found.spec.schema),
        annotations=ANNOTATIONS[Effect.WRITES],
    )


def add_approved_tools(
    server: LibraryServer, library: Library, caller: Caller, sessions: CallSessions, config: Config
) -> ApprovedTools:
    """Add the approved tools of the library, as the group `tools` asks for."""
    server.approved_tools = found = ApprovedTools(library, caller, sessions, run_host(config))
    return found
