"""How a tool is declared, and made: a function whose signature is its schema and whose docstring is its description.

The client's own model as a thinker, where the client lends it (MCP sampling).

Only in the handshake era, in which a request to the client can be made in the middle of a call. In the modern era the
call would have to end and be made again with the answer; who calls then chooses by itself.

The tools of the MCP surface: each is a verb of evolvable_tools under the same name, with its limits in words.

Clients strip most of a schema, so what an argument may be stands in its description. Results are complete in their
structured form; documents are plain text.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import anyio
import anyio.from_thread
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from evolvable_server.mcp import resources
from evolvable_server.mcp.server import CallSessions, LibraryServer, caller_of
from evolvable_store.resource import Ref, check_scope, parse_kind
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.library import Caller, Library
from evolvable_tools.llm import (
    LanguageModel,
    ProviderError,
    Request,
    instructions_with_schema,
    parse_answer,
    printable_line,
)
from evolvable_tools.untrusted_text import enclose as enclosed
from evolvable_tools.untrusted_text import marks
from evolvable_tools.verbs import edit, load, search, versions
from evolvable_tools.verbs.proposal_inbox import propose_undo, revert_or_propose

READ = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
READ_WRITE = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
DESTRUCTIVE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)
"""Takes away, takes back or replaces what others did. `codex exec` refuses such tools."""

OPEN_WORLD = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
"""Executes commands, asks models and may spend money."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that is not made yet. Its name is the function's."""

    function: Callable[..., Any]
    title: str
    annotations: ToolAnnotations
    structured: bool = True
    meta: dict[str, Any] | None = None


def add_tool(server: LibraryServer, tool: ToolSpec) -> None:
    """Makes a tool of the server; what a client shows of it is its docstring on one line."""
    # structured=True makes the SDK refuse a result type it cannot read (a dataclass with slots), instead of
    # silently sending text alone.
    server.add_tool(
        tool.function,
        title=tool.title,
        annotations=tool.annotations,
        structured_output=tool.structured,
        meta=tool.meta,
    )
    # Unknown arguments are refused (see LibraryServer.call_tool); the schema says so.
    added = server._tool_manager.get_tool(tool.function.__name__)
    assert added is not None
    added.parameters["additionalProperties"] = False
    added.description = " ".join(added.description.split())


TIMEOUT = 60.0
"""Seconds for an answer; a person may have to allow it first."""

_ELSE = "Choose by yourself, or give the server another provider."


def sampling_model(ctx: Context, timeout: float = TIMEOUT) -> LanguageModel | None:
    """Returns the client's model for the time of this call; None when the client does not lend it.

    It may think only on a worker thread of anyio, as functions of tools run on.
    """
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        return None
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or not ctx.session.can_send_request:
        return None
    return SamplingModel(ctx, timeout)


class SamplingModel:
    """The model of the client that made a call. `timeout`: seconds for an answer."""

    def __init__(self, ctx: Context, timeout: float = TIMEOUT) -> None:
        self._ctx, self._timeout = ctx, timeout
        params = ctx.session.client_params
        self.name = f"sampling:{printable_line(params.client_info.name) if params else 'client'}"

    def think(self, request: Request) -> dict[str, Any]:
        """Returns the client's answer. Raises ProviderError."""
        try:
            result = anyio.from_thread.run(partial(self._sample, request))
        except MCPError as error:
            raise ProviderError(f"{self.name} did not answer: {printable_line(str(error))}", _ELSE) from None
        except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ProviderError(f"{self.name} cannot be asked from here: {printable_line(str(error))}", _ELSE) from None
        except ValidationError:
            raise ProviderError(f"{self.name} answered with something that is no message.", _ELSE) from None
        if not isinstance(result.content, TextContent):
            raise ProviderError(f"{self.name} answered with {result.content.type} and not with text.", _ELSE)
        return parse_answer([result.content.text], request.schema, self.name)

    async def _sample(self, request: Request) -> CreateMessageResult:
        # create_message would do the same and warn that sampling is deprecated, at each call.
        asked = SamplingMessage(role="user", content=TextContent(type="text", text=request.data))
        params = CreateMessageRequestParams(
            messages=[asked], system_prompt=instructions_with_schema(request), max_tokens=request.max_tokens
        )
        answer: CreateMessageResult = await self._ctx.session.send_request(
            CreateMessageRequest(params=params),
            CreateMessageResult,
            request_read_timeout_seconds=self._timeout,
            metadata=ServerMessageMetadata(related_request_id=self._ctx.request_id),
        )
        return answer


MAX_TEXT = 150_000
"""Characters of a document in one result."""


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return value


Number = Annotated[int, BeforeValidator(_no_bool)]
RefText = Annotated[str, Field(description="e.g. skill:pdf, skill:pdf@3, memory:USER, skill:acme/pdf (project acme)")]
Reason = Annotated[str, Field(description="why, in a sentence; kept in the history", max_length=2000)]
Expected = Annotated[
    Number | None, Field(description="the version you read; the call fails if the head has moved on", ge=0)
]

Propose = Annotated[bool, Field(description="true: change nothing, let a person decide")]


class EditArgument(BaseModel):
    """Replace `old`, which must stand in the file exactly once, by `new`."""

    model_config = ConfigDict(extra="forbid")
    path: str
    old: str
    new: str


class Tools:
    """The tools over one library, for one caller."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions) -> None:
        self._library, self._caller, self._sessions = library, caller, sessions

    def find_skill(
        self,
        task: Annotated[str, Field(description="what you want to do, in your own words")],
        ctx: Context,
        limit: Annotated[Number, Field(description="how many matches, 1 to 20", ge=1, le=20)] = 5,
        kind: Annotated[
            str, Field(description="skill (default), prompt, agent, tool, environment or memory")
        ] = "skill",
        scope: Annotated[str | None, Field(description="search only this scope: 'user' or a project's name")] = None,
        mode: Annotated[str, Field(description="auto (default), keyword, text or paper")] = "auto",
    ) -> search.FoundSkills:
        """Find the skills that fit a task, best first, each with how sure the match is and why. Call this before you
        start a task. none_fits=true means that nothing in the library is for it: go on without. choose_between: the
        search is not sure, choose yourself. Then load_skill."""
        scopes = (check_scope(scope),) if scope else None
        means = self._library.means
        if means.thinker is None and means.client_thinks:
            means = replace(means, thinker=sampling_model(ctx))
        return search.find_skill(
            self._library,
            self._who(ctx),
            task,
            limit=limit,
            kind=parse_kind(kind),
            scopes=scopes,
            mode=mode,
            means=means,
        )

    def load_skill(
        self,
        ref: RefText,
        ctx: Context,
        version: Annotated[Number | None, Field(description="default: the newest", ge=1)] = None,
        path: Annotated[str | None, Field(description="a file of the skill; default SKILL.md")] = None,
        search_id: Annotated[str | None, Field(description="from find_skill, when it led here")] = None,
    ) -> str:
        """Open a skill to work by it: its document, then the names and sizes of its other files, then the use_id to
        report the outcome with. Long files are cut at 150,000 characters."""
        loaded = load.load_skill(
            self._library, self._who(ctx), Ref.parse(ref), version=version, path=path, search_id=search_id
        )
        return document(resources.redact_loaded(self._library, self._caller, loaded), enclose=True)

    def report_outcome(
        self,
        outcome: Annotated[str, Field(description="succeeded, failed, partial, abandoned or unknown")],
        ctx: Context,
        use_id: Annotated[str | None, Field(description="from load_skill; or give ref instead")] = None,
        ref: Annotated[str | None, Field(description="instead of use_id: e.g. skill:pdf@3")] = None,
        usage: Annotated[str | None, Field(description="used, partially_used, ignored or inapplicable")] = None,
        task_type: Annotated[str | None, Field(description="a word or two, at most 80 characters")] = None,
        evidence: Annotated[str | None, Field(description="how you know, at most 2,000 characters")] = None,
    ) -> load.EvidenceSummary:
        """Tell what came of a task in which a skill was loaded; it counts where this session loaded that version.
        Returns what is known of that skill so far."""
        return report(
            self._library,
            self._who(ctx),
            outcome=outcome,
            use_id=use_id,
            ref=Ref.parse(ref) if ref is not None else None,
            usage=usage,
            task_type=task_type,
            evidence=evidence,
        )

    def list_resources(
        self,
        ctx: Context,
        kind: Annotated[str | None, Field(description="skill, prompt, agent, tool, environment or memory")] = None,
        query: Annotated[str | None, Field(description="only those whose name or description has this text")] = None,
        scope: Annotated[str | None, Field(description="'user' or a project's name; default: all you can see")] = None,
        limit: Annotated[Number, Field(description="1 to 200", ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Field(description="next_cursor of the page before")] = None,
    ) -> search.Listing:
        """List what the library holds, by name, page by page. To find something for a task use find_skill."""
        return search.list_resources(
            self._library,
            self._who(ctx),
            kind=parse_kind(kind) if kind else None,
            query=query,
            scope=check_scope(scope) if scope else None,
            limit=limit,
            cursor=cursor,
        )

    def get_resource(
        self,
        ref: RefText,
        ctx: Context,
        version: Annotated[Number | None, Field(description="default: the newest", ge=1)] = None,
        path: Annotated[str | None, Field(description="a file of it; default its main file")] = None,
    ) -> str | list[str]:
        """Read any file of any version of a resource, without counting it as a use. Versions are kept for ever."""
        loaded = load.get_resource(self._library, self._who(ctx), Ref.parse(ref), version=version, path=path)
        return blocks(resources.redact_loaded(self._library, self._caller, loaded))

    def resource_history(
        self,
        ref: RefText,
        ctx: Context,
        from_version: Annotated[Number | None, Field(description="with it: the diff from here", ge=0)] = None,
        to_version: Annotated[Number | None, Field(description="diff to here, default the newest", ge=1)] = None,
        limit: Annotated[Number, Field(description="how many versions, 1 to 100", ge=1, le=100)] = 20,
    ) -> versions.History:
        """Show the versions of a resource, newest first: when, by whom, why, which files. With from_version or
        to_version also the unified diff. Works for removed resources too."""
        past = versions.resource_history(
            self._library,
            self._who(ctx),
            Ref.parse(ref),
            from_version=from_version,
            to_version=to_version,
            limit=limit,
        )
        return resources.redact_history(self._library, self._caller, past)

    def update_resource(
        self,
        ref: RefText,
        reason: Reason,
        ctx: Context,
        files: Annotated[
            dict[str, str | None] | None, Field(description="path -> whole new text; null deletes the file")
        ] = None,
        edits: Annotated[
            list[EditArgument] | None,
            Field(description="[{path, old, new}]: `old` must stand in the file exactly once"),
        ] = None,
        expected_version: Expected = None,
        create: Annotated[bool, Field(description="true for a new resource")] = False,
        copy_of: Annotated[str | None, Field(description="with create: start as a copy of this ref")] = None,
        propose: Propose = False,
    ) -> edit.Updated:
        """Change a resource, or create one: makes a new version from the head by replacing whole files, by edits, or
        both. Equal content makes no version. A new skill needs SKILL.md with the frontmatter keys name (equal to the
        ref's name) and description. Limits: 5 MB a file, 16 MB and 500 files in all."""
        if copy_of:
            resources.check_copy(self._library, self._caller, Ref.parse(copy_of), Ref.parse(ref))
        return edit.update_resource(
            self._library,
            self._who(ctx),
            Ref.parse(ref),
            reason,
            files=files,
            edits=[TextEdit(e.path, e.old, e.new) for e in edits or ()],
            expected_version=expected_version,
            create=create,
            copy_of=Ref.parse(copy_of) if copy_of else None,
            propose=propose,
        )

    def restore_resource(
        self,
        ref: RefText,
        version: Annotated[Number, Field(description="the version whose content comes back", ge=1)],
        reason: Reason,
        ctx: Context,
        expected_version: Expected = None,
        propose: Propose = False,
    ) -> edit.Updated:
        """Bring an old version's content back as a new version; also brings a removed resource back."""
        return edit.restore_resource(
            self._library,
            self._who(ctx),
            Ref.parse(ref),
            version,
            reason,
            expected_version=expected_version,
            propose=propose,
        )

    def remove_resource(
        self,
        ref: RefText,
        reason: Reason,
        ctx: Context,
        expected_version: Expected = None,
        propose: Propose = False,
    ) -> edit.Updated:
        """Remove a resource from the library's present. Its versions stay, and restore_resource brings it back. The
        removal of what others made, or of more than five resources, waits for a person."""
        return edit.remove_resource(
            self._library, self._who(ctx), Ref.parse(ref), reason, expected_version=expected_version, propose=propose
        )

    def undo(
        self,
        reason: Reason,
        ctx: Context,
        operation: Annotated[Number | None, Field(description="the operation to take back", ge=1)] = None,
        session: Annotated[str | None, Field(description="instead: take back all that this session did")] = None,
        propose: Propose = False,
    ) -> versions.Undone:
        """Take back one operation, or everything a session changed, in one new operation. Resources that somebody
        changed since are left alone and listed under conflicts. What others did, or more than five resources, waits for
        a person."""
        back = propose_undo if propose else revert_or_propose
        return back(self._library, self._who(ctx), reason, operation=operation, session=session)

    def _who(self, ctx: Context) -> Caller:
        request = ctx.request_context
        session = self._sessions.of(request.meta, getattr(request.request, "headers", None))
        caller = caller_of(self._caller, ctx, session)
        self._library.note_session(caller)
        return caller


report = load.report_outcome
# Inside the class the name `usage` is an argument.


def blocks(loaded: load.Loaded) -> str | list[str]:
    """Return a document as `document` does; one that is not trusted as a block of its own between two marks."""
    if not loaded.marked or loaded.text is None:
        return document(loaded)
    before, after = marks(f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.trust)
    return [before, _content(loaded), f"{after}{_footer(loaded)}"]


def document(loaded: load.Loaded, *, enclose: bool = False) -> str:
    """Return a loaded document as one text: its content, then the other files, then the use_id.

    enclose: a content that is not trusted stands between marks that say so.
    """
    content = _content(loaded)
    if enclose and loaded.marked and loaded.text is not None:
        content = enclosed(content, f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.trust)
    return content + _footer(loaded)


def _content(loaded: load.Loaded) -> str:
    if loaded.text is None:
        return f"{loaded.path} of {loaded.ref}@{loaded.version} is not text ({loaded.size:,} bytes)."
    if len(loaded.text) > MAX_TEXT:
        return f"{loaded.text[:MAX_TEXT]}\n\n[cut: {MAX_TEXT:,} of {len(loaded.text):,} characters]"
    return loaded.text


def _footer(loaded: load.Loaded) -> str:
    ref = f"{loaded.ref}@{loaded.version}"
    parts = [""]
    parts.append(f"\n\n---\n{ref} · {loaded.path}")
    if loaded.trust:
        parts.append(f"({loaded.trust})")
    if loaded.reported or loaded.verified:
        parts.append(f"(known ends of uses: {loaded.verified} verified, {loaded.reported} reported)")
    others = [f"- {path} ({size:,} bytes)" for path, size in loaded.files.items() if path != loaded.path]
    if others:
        parts.append("Other files (read one by its path):\n" + "\n".join(others))
    if loaded.use_id:
        parts.append(f"use_id: {loaded.use_id} (report_outcome with it when the task is done)")
    return "\n".join(parts)


_WHOLE = {"anthropic/maxResultSizeChars": 200_000}


def library_tools(library: Library, caller: Caller, sessions: CallSessions) -> list[ToolSpec]:
    """Returns the tools over a library, in the order in which a client shows them."""
    tools = Tools(library, caller, sessions)
    hint = {"anthropic/alwaysLoad": True, "anthropic/searchHint": "find a skill, guide or how-to for a task"}
    return [
        ToolSpec(tools.find_skill, "Find a skill", READ, meta=hint),
        ToolSpec(tools.load_skill, "Load a skill", READ_WRITE, structured=False, meta=_WHOLE),
        ToolSpec(tools.report_outcome, "Report an outcome", READ_WRITE),
        ToolSpec(tools.list_resources, "List resources", READ),
        ToolSpec(tools.get_resource, "Get a resource", READ, structured=False, meta=_WHOLE),
        ToolSpec(tools.resource_history, "History of a resource", READ),
        ToolSpec(tools.update_resource, "Update or create a resource", READ_WRITE),
        ToolSpec(tools.restore_resource, "Restore a version", READ_WRITE),
        ToolSpec(tools.remove_resource, "Remove a resource", DESTRUCTIVE),
        ToolSpec(tools.undo, "Undo", DESTRUCTIVE),
    ]
