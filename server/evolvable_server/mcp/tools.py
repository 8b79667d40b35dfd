"""The tools over a library, and how a tool is declared: a registry entry, and a function whose
signature is its schema.

A tool's docstring is its description. Clients strip most of a schema, so limits of arguments are in
their descriptions. Results are complete in their structured form; documents are plain text.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import mcp_types as types
from mcp.server.mcpserver import Context
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetPydanticSchema
from pydantic_core.core_schema import no_info_after_validator_function, str_schema

from evolvable_server.config import SELF_CHECK
from evolvable_server.environment import is_review_process
from evolvable_server.mcp import delegated_work, resources
from evolvable_server.mcp.argument_forms import FileMap
from evolvable_server.mcp.brief_answers import listing_answer
from evolvable_server.mcp.call import CallSessions, caller_of
from evolvable_server.mcp.results import optional_fields
from evolvable_server.mcp.sampling import sampling_model
from evolvable_server.mcp.server import LibraryServer
from evolvable_store.resource import Kind, Ref, check_scope, parse_kind
from evolvable_store.storage import Outcome, Usage
from evolvable_tools import Caller, Library, TextEdit, found_answer, marks, verbs
from evolvable_tools import enclose as enclosed
from evolvable_tools.retrieval import MODES
from evolvable_tools.verbs import TOOLS, Effect, Tool, propose_undo, revert_or_propose

_READS = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_WRITES = types.ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_REMOVES = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
_RUNS = types.ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)

ANNOTATIONS = dict(zip(Effect, (_READS, _WRITES, _REMOVES, _RUNS, _RUNS), strict=True))
"""Effect -> annotations.

`codex exec` refuses a tool whose hints destructive or open world are true.
"""

# Results that a tool makes itself: documents are plain text, and some answers choose their fields.
# The SDK makes no schema of them.
_RESULTS = (str, str | list[str], types.CallToolResult)

# Above the 150,000 characters at which a document is cut, so that Claude Code shows all of it.
_UNCUT = {"anthropic/maxResultSizeChars": 200_000}
_META: Mapping[str, dict[str, Any]] = {
    "find_skill": {
        "anthropic/alwaysLoad": True,
        "anthropic/searchHint": "find a skill, guide or how-to for a task",
    },
    "load_skill": _UNCUT,
    "get_resource": _UNCUT,
}


MAX_SEARCHES = 200
"""The newest searches, whose task types are remembered."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A declared tool: its entry in the registry, and the function whose signature is
    its schema.
    """

    tool: Tool
    function: Callable[..., Any]


def declare_tools(tools: object, toolset: str) -> list[ToolSpec]:
    """Return the registry's tools of a toolset; `tools` has a method of each one's name."""
    return [
        ToolSpec(tool, getattr(tools, tool.name))
        for tool in TOOLS.values()
        if tool.toolset == toolset
    ]


_JSON_SCHEMA_NAMES = {"ge": "minimum", "le": "maximum"}


def plain_schema(schema: Any) -> Any:
    """Return a generated schema as it is listed: standard keywords, and without titles.

    pydantic writes a limit under its own name where a validator stands before the number. An
    argument that is null by default is listed as one that may be left out, not as a choice of two
    types.
    """
    if isinstance(schema, list):
        return [plain_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: part for name, part in schema.items() if name != "title"}
    for part in plain.get("$defs", {}).values():
        part.pop("description", None)  # the argument says it
    if "default" in plain and plain["default"] is None:
        del plain["default"]
        options = [part for part in plain.pop("anyOf", ()) if part != {"type": "null"}]
        plain = (options[0] if len(options) == 1 else {"anyOf": options} if options else {}) | plain
    # An argument may be called like a keyword, so their names are not read as such.
    arguments = {name: plain_schema(part) for name, part in plain.pop("properties", {}).items()}
    plain = {_JSON_SCHEMA_NAMES.get(name, name): plain_schema(part) for name, part in plain.items()}
    return plain | ({"properties": arguments} if arguments else {})


def add_tool(server: LibraryServer, spec: ToolSpec) -> None:
    """Add a tool to the server, described by its function's docstring on one line."""
    # structured_output=True makes the SDK refuse a result type that it cannot read (a dataclass
    # with slots). Otherwise it would send text alone without saying so.
    server.add_tool(
        spec.function,
        title=spec.tool.title,
        annotations=ANNOTATIONS[spec.tool.effect],
        structured_output=inspect.signature(spec.function).return_annotation not in _RESULTS,
        meta=_META.get(spec.tool.name),
    )
    # Unknown arguments are refused (see LibraryServer.call_tool); the schema says so.
    added = server._tool_manager.get_tool(spec.tool.name)
    assert added is not None
    added.parameters = plain_schema(added.parameters) | {"additionalProperties": False}
    added.fn_metadata.output_schema = optional_fields(added.fn_metadata.output_schema)
    added.description = " ".join(added.description.split())


def _refuse_bool(value: Any) -> Any:
    # A bool is an int in Python; a model that writes true means something else.
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    return value


def _make_text_schema(parse: Callable[[str], Any]) -> GetPydanticSchema:
    """Return the schema of an argument: a text in the listing, the parsed value in the function."""
    return GetPydanticSchema(lambda *_: no_info_after_validator_function(parse, str_schema()))


# Some clients send an empty text for an argument that is left out.
_EMPTY_IS_NONE = BeforeValidator(lambda value: value or None)

Number = Annotated[int, BeforeValidator(_refuse_bool)]
RefText = Annotated[Ref, _make_text_schema(Ref.parse)]
KindText = Annotated[Kind, _make_text_schema(parse_kind)]
ScopeText = Annotated[str, _make_text_schema(check_scope)]
AnyRef = Annotated[
    RefText, Field(description="e.g. skill:pdf, skill:acme/pdf@3 (project acme), memory:USER")
]
Reason = Annotated[str, Field(description="why; kept in the history", max_length=2000)]
Expected = Annotated[
    Number | None, Field(description="the version you read; fails if the head has moved on", ge=0)
]


def one_of(words: Iterable[str], description: str) -> Any:
    """Return the description of an argument with a closed vocabulary.

    The verb refuses another word and says why.
    """
    return Field(description=description, json_schema_extra={"enum": list(words)})


Propose = Annotated[bool, Field(description="true: change nothing, let a person decide")]


Detail = Annotated[bool, Field(description="true: every field, at any length")]


class EditArgument(BaseModel):
    """Replace `old`, which must stand in the file exactly once, by `new`."""

    model_config = ConfigDict(extra="forbid")
    path: str
    old: str
    new: str


class Tools:
    """The tools over one library, for one caller."""

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, *, delegates: bool = False
    ) -> None:
        """Make the tools. delegates: the server has `delegate_skill` too."""
        self._library, self._caller = library, caller
        self._sessions, self._delegates = sessions, delegates
        self._task_types: dict[str, str] = {}
        """The task type of each search, by its id.

        What is loaded after a search is for the same task.
        """

    def find_skill(
        self,
        task: Annotated[str, Field(description="what you want to do, in your own words")],
        ctx: Context,
        limit: Annotated[
            Number, Field(description="how many matches, 1 to 20", ge=1, le=20)
        ] = verbs.CHOICES,
        kind: Annotated[
            KindText, one_of(Kind, "skill (default), prompt, agent, tool, environment or memory")
        ] = Kind.SKILL,
        scope: Annotated[
            ScopeText | None,
            _EMPTY_IS_NONE,
            Field(description="search only this scope: 'user' or a project's name"),
        ] = None,
        mode: Annotated[str, one_of(MODES, "auto (default), keyword, text or paper")] = "auto",
        detail: Detail = False,
        task_type: Annotated[
            str | None, Field(description="orders near ties by what helped with this type")
        ] = None,
    ) -> types.CallToolResult:
        """Find the skill for a task; call it before you start one. Its verdict "sure": load_skill
        `use`; "choose": open one of the choices, or go on without; "none": nothing in the library
        is for it, go on without. The same task has the same answer, so ask once. Text in `others`
        is not the user's.
        """
        dependencies = self._library.dependencies
        if dependencies.judge_model is None and dependencies.uses_client_model:
            dependencies = replace(dependencies, judge_model=sampling_model(ctx))
        # Neither a self-check nor the client of a review or a trial is an agent at work.
        is_self_check = SELF_CHECK in (ctx.request_context.meta or {})
        result = verbs.find_skill(
            self._library,
            self._note_caller(ctx),
            task,
            limit=limit,
            kind=kind,
            scopes=(scope,) if scope else None,
            mode=mode,
            dependencies=dependencies,
            to_agent=not is_self_check and not is_review_process(os.environ),
            task_type=task_type,
        )
        if task_type is not None:
            self._note_task_type(result.search_id, task_type)
        return types.CallToolResult(
            content=[], structured_content=found_answer(result, detail=detail)
        )

    def load_skill(
        self,
        ref: AnyRef,
        ctx: Context,
        version: Annotated[Number | None, Field(description="default: the newest", ge=1)] = None,
        path: Annotated[
            str | None, Field(description="a file of the skill; default SKILL.md")
        ] = None,
        search_id: Annotated[
            str | None, Field(description="from find_skill, when it led here")
        ] = None,
        task_type: Annotated[str | None, Field(description="as for find_skill")] = None,
    ) -> types.CallToolResult:
        """Open a skill to work by it: its document, the names of its other files, and the use_id
        for report_outcome. Where it begins with an agent to run, or to work as, do that. Files are
        cut at 150,000 characters.
        """
        caller = self._note_caller(ctx)
        task_type = task_type or self._task_types.get(search_id or "")
        loaded = verbs.load_skill(
            self._library,
            caller,
            ref,
            version=version,
            path=path,
            search_id=search_id,
            task_type=task_type,
        )
        loaded = resources.redact_loaded(self._library, caller, loaded)
        delegation = verbs.load_delegate(self._library, caller, loaded, task_type)
        text = document(loaded, enclose=True)
        if delegation is not None:
            starts = delegated_work.starts_subagent(delegation, ctx)
            if not starts:
                verbs.use_delegate(self._library, caller, delegation)
            lends = self._delegates and sampling_model(ctx) is not None
            opening = delegated_work.opening_of(delegation, loaded, starts=starts, lends=lends)
            text = f"{opening}\n\n---\n\n{text}"
        return delegated_work.as_result(text, loaded)

    def report_outcome(
        self,
        outcome: Annotated[
            str, one_of(Outcome, "succeeded, failed, partial, abandoned or unknown")
        ],
        ctx: Context,
        use_id: Annotated[
            str | None, Field(description="from load_skill; or give ref instead")
        ] = None,
        ref: Annotated[
            RefText | None, Field(description="instead of use_id: e.g. skill:pdf@3")
        ] = None,
        usage: Annotated[
            str | None, one_of(Usage, "used, partially_used, ignored or inapplicable")
        ] = None,
        task_type: Annotated[
            str | None, Field(description="a word or two, at most 80 characters")
        ] = None,
        evidence: Annotated[
            str | None, Field(description="how you know, at most 2,000 characters")
        ] = None,
    ) -> verbs.EvidenceSummary:
        """Report how a task ended in which you loaded a skill, so that the library learns what
        helps. It counts where this session loaded that version.
        """
        return report(
            self._library,
            self._note_caller(ctx),
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
        kind: Annotated[
            KindText | None,
            _EMPTY_IS_NONE,
            one_of(Kind, "skill, prompt, agent, tool, environment or memory"),
        ] = None,
        query: Annotated[
            str | None, Field(description="only those whose name or description has this text")
        ] = None,
        scope: Annotated[
            ScopeText | None,
            _EMPTY_IS_NONE,
            Field(description="'user' or a project's name; default: all you can see"),
        ] = None,
        limit: Annotated[Number, Field(description="1 to 200", ge=1, le=200)] = 25,
        cursor: Annotated[str | None, Field(description="next_cursor of the page before")] = None,
        detail: Detail = False,
    ) -> types.CallToolResult:
        """List what the library holds, by name, page by page.

        To find a skill for a task, use find_skill.
        """
        listing = verbs.list_resources(
            self._library,
            self._note_caller(ctx),
            kind=kind,
            query=query,
            scope=scope,
            limit=limit,
            cursor=cursor,
        )
        return types.CallToolResult(
            content=[], structured_content=listing_answer(listing, limit=limit, detail=detail)
        )

    def get_resource(
        self,
        ref: AnyRef,
        ctx: Context,
        version: Annotated[Number | None, Field(description="default: the newest", ge=1)] = None,
        path: Annotated[
            str | None, Field(description="a file of it; default its main file")
        ] = None,
    ) -> str | list[str]:
        """Read a file of any version of a resource, such as before a change.

        To work by a skill, use load_skill.
        """
        caller = self._note_caller(ctx)
        loaded = verbs.get_resource(self._library, caller, ref, version=version, path=path)
        return blocks(resources.redact_loaded(self._library, caller, loaded))

    def resource_history(
        self,
        ref: AnyRef,
        ctx: Context,
        from_version: Annotated[
            Number | None, Field(description="with it: the diff from here", ge=0)
        ] = None,
        to_version: Annotated[
            Number | None, Field(description="diff to here, default the newest", ge=1)
        ] = None,
        limit: Annotated[
            Number, Field(description="how many versions, 1 to 100", ge=1, le=100)
        ] = 20,
    ) -> "verbs.History":
        """Show the versions of a resource: when, by whom and why it changed. With from_version or
        to_version also the diff. Works for removed resources too.
        """
        history = verbs.resource_history(
            self._library,
            self._note_caller(ctx),
            ref,
            from_version=from_version,
            to_version=to_version,
            limit=limit,
        )
        return resources.redact_history(self._library, self._caller, history)

    def update_resource(
        self,
        ref: AnyRef,
        reason: Reason,
        ctx: Context,
        files: Annotated[
            FileMap,
            Field(
                description="whole new texts, merged with what others changed since; null "
                "deletes the file"
            ),
        ] = None,
        edits: Annotated[
            list[EditArgument] | None,
            Field(description="[{path, old, new}]: `old` must stand in the file exactly once"),
        ] = None,
        expected_version: Expected = None,
        create: Annotated[bool, Field(description="true for a new resource")] = False,
        copy_of: Annotated[
            RefText | None,
            _EMPTY_IS_NONE,
            Field(description="with create: start as a copy of this ref"),
        ] = None,
        propose: Propose = False,
    ) -> "verbs.Updated":
        """Change a resource by edits or whole files, or create one: makes a new version, which undo
        takes back. A whole file that is there needs expected_version unless you read or wrote it in
        this session. A new skill needs SKILL.md with the frontmatter keys name (as in the ref) and
        description. Limits: 5 MB a file, 16 MB and 500 files in all.
        """
        if copy_of:
            resources.check_copy(self._library, self._caller, copy_of, ref)
        return verbs.update_resource(
            self._library,
            self._note_caller(ctx),
            ref,
            reason,
            files=files,
            edits=[TextEdit(edit.path, edit.old, edit.new) for edit in edits or ()],
            expected_version=expected_version,
            create=create,
            copy_of=copy_of,
            propose=propose,
        )

    def restore_resource(
        self,
        ref: AnyRef,
        version: Annotated[Number, Field(description="the version whose content comes back", ge=1)],
        reason: Reason,
        ctx: Context,
        expected_version: Expected = None,
        propose: Propose = False,
    ) -> "verbs.Updated":
        """Bring an old version of a resource, or a removed resource, back as a new version. To take
        back one operation, use undo.
        """
        return verbs.restore_resource(
            self._library,
            self._note_caller(ctx),
            ref,
            version,
            reason,
            expected_version=expected_version,
            propose=propose,
        )

    def remove_resource(
        self,
        ref: AnyRef,
        reason: Reason,
        ctx: Context,
        expected_version: Expected = None,
        propose: Propose = False,
    ) -> "verbs.Updated":
        """Remove a resource that is no longer wanted. Its versions stay, and restore_resource
        brings it back. The removal of what others made waits for a person.
        """
        return verbs.remove_resource(
            self._library,
            self._note_caller(ctx),
            ref,
            reason,
            expected_version=expected_version,
            propose=propose,
        )

    def undo(
        self,
        reason: Reason,
        ctx: Context,
        operation: Annotated[
            Number | None, Field(description="the operation to take back", ge=1)
        ] = None,
        session: Annotated[
            str | None, Field(description="instead: take back all that this session did")
        ] = None,
        propose: Propose = False,
    ) -> "verbs.Undone":
        """Take back one operation, or all that a session changed. Later changes stay; where they
        overlap, a resource is left alone and listed under conflicts. What others did, or more than
        five resources, waits for a person.
        """
        take_back = propose_undo if propose else revert_or_propose
        return take_back(
            self._library, self._note_caller(ctx), reason, operation=operation, session=session
        )

    def _note_task_type(self, search_id: str, task_type: str) -> None:
        self._task_types[search_id] = task_type
        if len(self._task_types) > MAX_SEARCHES:
            del self._task_types[next(iter(self._task_types))]

    def _note_caller(self, ctx: Context) -> Caller:
        caller = caller_of(self._caller, ctx, self._sessions)
        self._library.note_session(caller)
        return caller


report = verbs.report_outcome


def blocks(loaded: verbs.Loaded) -> str | list[str]:
    """Return a document as `document` does, with the reader's own changes as a block of its own.

    An untrusted document is a block of its own too, between two marks.
    """
    provenance = [loaded.provenance] if loaded.provenance else []
    if not loaded.marked or loaded.text is None:
        return [document(loaded), *provenance] if provenance else document(loaded)
    before, after = marks(f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.notice)
    return [before, _render_content(loaded), f"{after}{footer(loaded)}", *provenance]


def document(loaded: verbs.Loaded, *, enclose: bool = False) -> str:
    """Return a loaded document as one text: its content, then the other files, then the use_id.

    enclose: a content that is not trusted stands between marks that say so.
    """
    content = _render_content(loaded)
    if enclose and loaded.marked and loaded.text is not None:
        content = enclosed(
            content, f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.notice
        )
    return content + footer(loaded)


def _render_content(loaded: verbs.Loaded) -> str:
    if loaded.text is None:
        return (
            f"{loaded.path} of {loaded.ref}@{loaded.version} is not text ({loaded.size:,} bytes)."
        )
    if len(loaded.text) > verbs.MAX_TEXT:
        return (
            f"{loaded.text[: verbs.MAX_TEXT]}\n\n[cut: {verbs.MAX_TEXT:,} of {len(loaded.text):,} "
            "characters]"
        )
    return loaded.text


def footer(loaded: verbs.Loaded) -> str:
    """Return the lines after a document: its version, its rated uses, its other files and the
    use_id.
    """
    ref = f"{loaded.ref}@{loaded.version}"
    parts = ["", f"\n\n---\n{ref} · {loaded.path}"]
    if loaded.folder is not None and loaded.folder.path:
        parts.append(f"folder: {loaded.folder.path}")
    if loaded.reported or loaded.verified:
        parts.append(f"(rated uses: {loaded.verified} verified, {loaded.reported} reported)")
    if loaded.delegate is not None:
        parts.append(f"(delegate: {delegated_work.status_text(loaded.delegate)})")
    others = [
        f"- {path} ({size:,} bytes)" for path, size in loaded.files.items() if path != loaded.path
    ]
    if others:
        parts.append("Other files (read one by its path):\n" + "\n".join(others))
    if loaded.folder is not None and loaded.folder.variable:
        which = f" Read by load_skill: {loaded.folder.names}" if loaded.folder.files else ""
        parts.append(
            f"{loaded.folder.variable}: no folder that can be read here holds this version.{which}"
        )
    if loaded.use_id:
        parts.append(f"use_id: {loaded.use_id} (report_outcome with it when the task is done)")
    return "\n".join(parts)
