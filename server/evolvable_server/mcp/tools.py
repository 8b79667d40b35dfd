"""The tools over a library, and how a tool is declared: a registry entry, and a function whose signature is its schema.

A tool's docstring describes it and its arguments. Clients strip most of a schema, so limits of arguments are in their
descriptions. Results are complete in their structured form; documents are plain text.

The client's own model is used for MCP sampling in the handshake protocol versions alone, where a server may send a
request during a call. In the modern version the call would end and be repeated with the answer; there the caller
chooses.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import anyio
import anyio.from_thread
import mcp_types as types
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetPydanticSchema, ValidationError
from pydantic_core.core_schema import no_info_after_validator_function, str_schema

from evolvable_server.mcp import resources
from evolvable_server.mcp.server import CallSessions, LibraryServer, caller_of
from evolvable_store.resource import Kind, Ref, check_scope, parse_kind
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
from evolvable_tools.verbs.registry import TOOLS, Effect, Tool

_READS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_WRITES = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
_REMOVES = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
)
_RUNS = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)

ANNOTATIONS = dict(zip(Effect, (_READS, _WRITES, _REMOVES, _RUNS, _RUNS), strict=True))
"""Effect -> annotations. `codex exec` refuses a tool whose hints destructive or open world are true."""

_WHOLE = {"anthropic/maxResultSizeChars": 200_000}
_META: Mapping[str, dict[str, Any]] = {
    "find_skill": {"anthropic/alwaysLoad": True, "anthropic/searchHint": "find a skill, guide or how-to for a task"},
    "load_skill": _WHOLE,
    "get_resource": _WHOLE,
}


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A declared tool: its entry in the registry, and the function whose signature is its schema."""

    tool: Tool
    function: Callable[..., Any]


_ARGUMENT = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)


def declare_tools(tools: object, toolset: str) -> list[ToolSpec]:
    """Return the registry's tools of a toolset; `tools` has a method of each one's name."""
    return [ToolSpec(tool, getattr(tools, tool.name)) for tool in TOOLS.values() if tool.toolset == toolset]


def add_tool(server: LibraryServer, spec: ToolSpec) -> None:
    """Add a tool to the server. The docstring of its function describes it, and in `Args` its arguments."""
    # structured_output=True makes the SDK refuse a result type that it cannot read (a dataclass with slots). Otherwise
    # it would send text alone without saying so.
    server.add_tool(
        spec.function,
        title=spec.tool.title,
        annotations=ANNOTATIONS[spec.tool.effect],
        structured_output=inspect.signature(spec.function).return_annotation not in (str, str | list[str]),
        meta=_META.get(spec.tool.name),
    )
    # Unknown arguments are refused (see LibraryServer.call_tool); the schema says so.
    added = server._tool_manager.get_tool(spec.tool.name)
    assert added is not None
    added.parameters["additionalProperties"] = False
    text, _, arguments = inspect.cleandoc(added.description).partition("\n\nArgs:\n")
    added.description = " ".join(text.split())
    for name, said in _ARGUMENT.findall(arguments):
        added.parameters["properties"][name]["description"] = " ".join(said.split())


TIMEOUT = 60.0
"""Seconds for an answer; a person may have to allow it first."""

_ELSE = "Choose by yourself, or give the server another provider."


def sampling_model(ctx: Context, timeout: float = TIMEOUT) -> LanguageModel | None:
    """Return the client's model for the time of this call; None when the client does not lend it.

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
        """Return the client's answer. Raises ProviderError."""
        try:
            result = anyio.from_thread.run(partial(self._sample, request))
        except MCPError as error:
            raise ProviderError(f"{self.name} did not answer: {printable_line(str(error))}", _ELSE) from None
        except (RuntimeError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ProviderError(f"{self.name} cannot be asked from here: {printable_line(str(error))}", _ELSE) from None
        except ValidationError:
            raise ProviderError(f"{self.name} answered with something that is no message.", _ELSE) from None
        if not isinstance(result.content, types.TextContent):
            raise ProviderError(f"{self.name} answered with {result.content.type} and not with text.", _ELSE)
        return parse_answer([result.content.text], request.schema, self.name)

    async def _sample(self, request: Request) -> types.CreateMessageResult:
        # create_message would do the same and warn that sampling is deprecated, at each call.
        asked = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=request.data))
        params = types.CreateMessageRequestParams(
            messages=[asked], system_prompt=instructions_with_schema(request), max_tokens=request.max_tokens
        )
        answer: types.CreateMessageResult = await self._ctx.session.send_request(
            types.CreateMessageRequest(params=params),
            types.CreateMessageResult,
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


def _text_for(parse: Callable[[str], Any]) -> GetPydanticSchema:
    """Return what makes an argument a text in the schema, and the parsed value in the function."""
    return GetPydanticSchema(lambda *_: no_info_after_validator_function(parse, str_schema()))


_EMPTY_IS_NONE = BeforeValidator(lambda value: value or None)

Number = Annotated[int, BeforeValidator(_no_bool)]
RefText = Annotated[Ref, _text_for(Ref.parse)]
KindText = Annotated[Kind, _text_for(parse_kind)]
ScopeText = Annotated[str, _text_for(check_scope)]
AnyRef = Annotated[
    RefText, Field(description="e.g. skill:pdf, skill:pdf@3, memory:USER, skill:acme/pdf (project acme)")
]
Reason = Annotated[str, Field(description="why, in a sentence; kept in the history", max_length=2000)]
FromOne = Annotated[Number | None, Field(ge=1)]
FromZero = Annotated[Number | None, Field(ge=0)]
Scope = Annotated[ScopeText | None, _EMPTY_IS_NONE]
Expected = Annotated[FromZero, Field(description="the version you read; the call fails if the head has moved on")]
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
        task: str,
        ctx: Context,
        limit: Annotated[Number, Field(ge=1, le=20)] = 5,
        kind: KindText = Kind.SKILL,
        scope: Scope = None,
        mode: str = "auto",
    ) -> search.FoundSkills:
        """Find the skills that fit a task, best first, each with how sure the match is and why. Call this before you
        start a task. none_fits=true means that nothing in the library is for it: go on without. choose_between: the
        search is not sure, choose yourself. Then load_skill.

        Args:
            task: what you want to do, in your own words
            limit: how many matches, 1 to 20
            kind: skill (default), prompt, agent, tool, environment or memory
            scope: search only this scope: 'user' or a project's name
            mode: auto (default), keyword, text or paper
        """
        means = self._library.means
        if means.thinker is None and means.client_thinks:
            means = replace(means, thinker=sampling_model(ctx))
        return search.find_skill(
            self._library,
            self._who(ctx),
            task,
            limit=limit,
            kind=kind,
            scopes=(scope,) if scope else None,
            mode=mode,
            means=means,
        )

    def load_skill(
        self, ref: AnyRef, ctx: Context, version: FromOne = None, path: str | None = None, search_id: str | None = None
    ) -> str:
        """Open a skill to work by it: its document, then the names and sizes of its other files, then the use_id to
        report the outcome with. Long files are cut at 150,000 characters.

        Args:
            version: default: the newest
            path: a file of the skill; default SKILL.md
            search_id: from find_skill, when it led here
        """
        loaded = load.load_skill(self._library, self._who(ctx), ref, version=version, path=path, search_id=search_id)
        return document(resources.redact_loaded(self._library, self._caller, loaded), enclose=True)

    def report_outcome(
        self,
        outcome: str,
        ctx: Context,
        use_id: str | None = None,
        ref: RefText | None = None,
        usage: str | None = None,
        task_type: str | None = None,
        evidence: str | None = None,
    ) -> load.EvidenceSummary:
        """Report the outcome of a task in which a skill was loaded; it counts where this session loaded that version.
        Returns the evidence for that skill so far.

        Args:
            outcome: succeeded, failed, partial, abandoned or unknown
            use_id: from load_skill; or give ref instead
            ref: instead of use_id: e.g. skill:pdf@3
            usage: used, partially_used, ignored or inapplicable
            task_type: a word or two, at most 80 characters
            evidence: how you know, at most 2,000 characters
        """
        return report(
            self._library,
            self._who(ctx),
            outcome=outcome,
            use_id=use_id,
            ref=ref,
            usage=usage,
            task_type=task_type,
            evidence=evidence,
        )

    def list_resources(
        self,
        ctx: Context,
        kind: Annotated[KindText | None, _EMPTY_IS_NONE] = None,
        query: str | None = None,
        scope: Scope = None,
        limit: Annotated[Number, Field(ge=1, le=200)] = 50,
        cursor: str | None = None,
    ) -> search.Listing:
        """List what the library holds, by name, page by page. To find something for a task use find_skill.

        Args:
            kind: skill, prompt, agent, tool, environment or memory
            query: only those whose name or description has this text
            scope: 'user' or a project's name; default: all you can see
            limit: 1 to 200
            cursor: next_cursor of the page before
        """
        return search.list_resources(
            self._library, self._who(ctx), kind=kind, query=query, scope=scope, limit=limit, cursor=cursor
        )

    def get_resource(
        self, ref: AnyRef, ctx: Context, version: FromOne = None, path: str | None = None
    ) -> str | list[str]:
        """Read any file of any version of a resource, without counting it as a use. Versions are kept permanently.

        Args:
            version: default: the newest
            path: a file of it; default its main file
        """
        loaded = load.get_resource(self._library, self._who(ctx), ref, version=version, path=path)
        return blocks(resources.redact_loaded(self._library, self._caller, loaded))

    def resource_history(
        self,
        ref: AnyRef,
        ctx: Context,
        from_version: FromZero = None,
        to_version: FromOne = None,
        limit: Annotated[Number, Field(ge=1, le=100)] = 20,
    ) -> versions.History:
        """Show the versions of a resource, newest first: when, by whom, why, which files. With from_version or
        to_version also the unified diff. Works for removed resources too.

        Args:
            from_version: with it: the diff from here
            to_version: diff to here, default the newest
            limit: how many versions, 1 to 100
        """
        past = versions.resource_history(
            self._library, self._who(ctx), ref, from_version=from_version, to_version=to_version, limit=limit
        )
        return resources.redact_history(self._library, self._caller, past)

    def update_resource(
        self,
        ref: AnyRef,
        reason: Reason,
        ctx: Context,
        files: dict[str, str | None] | None = None,
        edits: list[EditArgument] | None = None,
        expected_version: Expected = None,
        create: bool = False,
        copy_of: Annotated[RefText | None, _EMPTY_IS_NONE] = None,
        propose: Propose = False,
    ) -> edit.Updated:
        """Change a resource, or create one: makes a new version from the head by replacing whole files, by edits, or
        both. Equal content makes no version. A new skill needs SKILL.md with the frontmatter keys name (equal to the
        ref's name) and description. Limits: 5 MB a file, 16 MB and 500 files in all.

        Args:
            files: path -> whole new text; null deletes the file
            edits: [{path, old, new}]: `old` must stand in the file exactly once
            create: true for a new resource
            copy_of: with create: start as a copy of this ref
        """
        if copy_of:
            resources.check_copy(self._library, self._caller, copy_of, ref)
        return edit.update_resource(
            self._library,
            self._who(ctx),
            ref,
            reason,
            files=files,
            edits=[TextEdit(e.path, e.old, e.new) for e in edits or ()],
            expected_version=expected_version,
            create=create,
            copy_of=copy_of,
            propose=propose,
        )

    def restore_resource(
        self,
        ref: AnyRef,
        version: Annotated[Number, Field(ge=1)],
        reason: Reason,
        ctx: Context,
        expected_version: Expected = None,
        propose: Propose = False,
    ) -> edit.Updated:
        """Bring an old version's content back as a new version; also brings a removed resource back.

        Args:
            version: the version whose content comes back
        """
        return edit.restore_resource(
            self._library, self._who(ctx), ref, version, reason, expected_version=expected_version, propose=propose
        )

    def remove_resource(
        self,
        ref: AnyRef,
        reason: Reason,
        ctx: Context,
        expected_version: Expected = None,
        propose: Propose = False,
    ) -> edit.Updated:
        """Remove a resource from the library's present. Its versions stay, and restore_resource brings it back. The
        removal of what others made, or of more than five resources, waits for a person."""
        return edit.remove_resource(
            self._library, self._who(ctx), ref, reason, expected_version=expected_version, propose=propose
        )

    def undo(
        self,
        reason: Reason,
        ctx: Context,
        operation: FromOne = None,
        session: str | None = None,
        propose: Propose = False,
    ) -> versions.Undone:
        """Take back one operation, or everything a session changed, in one new operation. Resources that somebody
        changed since are left alone and listed under conflicts. What others did, or more than five resources, waits for
        a person.

        Args:
            operation: the operation to take back
            session: instead: take back all that this session did
        """
        back = propose_undo if propose else revert_or_propose
        return back(self._library, self._who(ctx), reason, operation=operation, session=session)

    def _who(self, ctx: Context) -> Caller:
        caller = caller_of(self._caller, ctx, self._sessions)
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
        parts.append(f"(rated uses: {loaded.verified} verified, {loaded.reported} reported)")
    others = [f"- {path} ({size:,} bytes)" for path, size in loaded.files.items() if path != loaded.path]
    if others:
        parts.append("Other files (read one by its path):\n" + "\n".join(others))
    if loaded.use_id:
        parts.append(f"use_id: {loaded.use_id} (report_outcome with it when the task is done)")
    return "\n".join(parts)
