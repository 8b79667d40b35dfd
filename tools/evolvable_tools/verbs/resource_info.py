"""The description and the state of a resource: the operators get_info and get_state."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evolvable_store import Actor, Document, Head, parse_document, summarize
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_store.storage import OPEN
from evolvable_tools.authority import find_powers_out, out_of_force, short_ref
from evolvable_tools.authors import version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.delegates import delegate_author, delegate_of
from evolvable_tools.library import Library
from evolvable_tools.untrusted_text import AnswerMarks, bound_text
from evolvable_tools.verbs import tool_commands
from evolvable_tools.verbs.edit import COPY_OF
from evolvable_tools.verbs.prompts import prompt_arguments

MAX_PARAMETERS = 40
"""Entries of a resource's metadata that are shown."""

MAX_PARAMETER = 200
"""Characters of one such entry."""


@dataclass(frozen=True)
class ResourceInfo:
    """What a resource is. label: `1.0.N` for version N. main: its main file. tree: the hash of all
    of its files.

    evolvable: whether others than a person may change it. parameters: its metadata. arguments: the
    JSON schema of what `run` takes. author, by: whose the version is, as in Match. copied_from: the
    version that its first version copies, '' for none. run: what `run` does with it. notice: what
    the marks around its texts mean, '' where there are none.
    """

    ref: str
    kind: str
    name: str
    version: int
    label: str
    description: str
    evolvable: bool
    main: str
    tree: str
    files: int
    author: str
    by: str
    run: str
    parameters: dict[str, str]
    arguments: dict[str, Any]
    copied_from: str = ""
    notice: str = ""


@dataclass(frozen=True)
class ResourceState:
    """How a resource stands. head: its version, None where it was removed. stable: the version that
    hosts see.

    approved: of a tool the newest version that a person approved to run. directories: where it lies
    in watched folders, with the version there. uses: how often it was loaded. rated: how many uses
    have an outcome that counts. proposals: those that wait for a person.
    """

    ref: str
    head: int | None
    latest: int
    label: str
    stable: int | None
    approved: int | None
    directories: dict[str, int | None] = field(default_factory=dict)
    uses: int = 0
    rated: int = 0
    proposals: list[int] = field(default_factory=list)


# Names of arguments are the author's words and reach an agent unmarked, so they are kept plain.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

RUNS: Mapping[Kind, str] = {
    Kind.SKILL: "load its document, to work by it",
    Kind.PROMPT: "fill in its arguments",
    Kind.AGENT: "return its instructions, for a caller that works as it",
    Kind.TOOL: "run its command in the sandbox, once a person approved it",
    Kind.ENVIRONMENT: "score an output of one of its train tasks",
    Kind.MEMORY: "read it",
}
"""Kind -> what the operator `run` does."""


def version_label(number: int) -> str:
    """Return the label of a version, as Autogenesis writes versions: 1.0.N."""
    return f"1.0.{number}"


def get_info(library: Library, caller: Caller, ref: Ref) -> ResourceInfo:
    """Return what a resource is, in its newest version or the one that is named.

    Raise NoSuchResource, NoSuchVersion.
    """
    head = library.store.head_or_none(ref.at(None), caller.scopes) or library.store.head(
        ref.at(None), caller.scopes
    )
    number = ref.version or head.latest
    manifest = library.store.manifest(head, number)
    document = main_document(library, head, number)
    authorship = version_authorship(library, head, number, caller)
    schema, summary = argument_schema(library, head, number, document), summarize(document)
    marks = AnswerMarks(caller.actor is not Actor.HUMAN and authorship.is_marked)
    description = marks.description(summary.description)
    return ResourceInfo(
        ref=str(head.ref),
        kind=head.kind,
        name=head.name,
        version=number,
        label=version_label(number),
        description=description if marks.on else bound_text(description),
        evolvable=not summary.frozen,
        main=main_file(head.kind, head.name),
        tree=manifest.tree,
        files=len(manifest),
        author=str(authorship.kind),
        by=authorship.by,
        run=RUNS[head.kind],
        parameters={name: marks.line(text) for name, text in _list_parameters(document).items()},
        arguments=plain_arguments(schema) if marks.on else schema,
        copied_from=copied_from(library, head),
        notice=marks.notice,
    )


def lines_out_of_force(library: Library, head: Head) -> list[str]:
    """Return a line for each kind of field of the newest version that is out of force, with what
    puts it in force.
    """
    lines, number = list[str](), head.latest
    if head.version is None:
        return lines
    if (powers := find_powers_out(library, head, number)) is not None:
        lines.append(powers.line)
    if delegate_of(library, head, number) is not None:
        author = delegate_author(library, head, number)
        if author is not None:
            lines.append(out_of_force(short_ref(head), "delegate", author))
    if head.kind is Kind.TOOL and (author := tool_commands.command_author(library, head, number)):
        lines.append(out_of_force(short_ref(head), "tool command", author))
    return lines


def main_document(library: Library, head: Head, number: int) -> Document:
    """Return the main file of a version, an empty one where it has none."""
    manifest = library.store.manifest(head, number)
    path = main_file(head.kind, head.name)
    return parse_document(library.store.blob(manifest[path].sha256) if path in manifest else b"")


def _list_parameters(document: Document) -> dict[str, str]:
    metadata = document.fields.get("metadata")
    texts = metadata.items() if isinstance(metadata, dict) else ()
    return {
        bound_text(str(name), trusted=False, limit=80): bound_text(
            str(value), trusted=False, limit=MAX_PARAMETER
        )
        for name, value in list(texts)[:MAX_PARAMETERS]
        if name not in ("run", "mcp")
    }


def argument_schema(
    library: Library, head: Head, number: int, document: Document
) -> dict[str, Any]:
    """Return the JSON schema of what `run` takes of a version; of a tool that cannot be run an
    empty object.
    """
    if head.kind is Kind.PROMPT:
        arguments = prompt_arguments(document)
        properties = {
            argument.name: {"type": "string"}
            | ({"examples": list(argument.values)} if argument.values else {})
            for argument in arguments
        }
        return _make_object_schema(
            properties, [argument.name for argument in arguments if argument.required]
        )
    if head.kind is Kind.ENVIRONMENT:
        return _make_object_schema(
            {"task": {"type": "string"}, "output": {"type": "string"}}, ["task", "output"]
        )
    if head.kind is Kind.TOOL:
        try:
            tool = tool_commands.tool_version(library, head, number)
        except EvolvableError:
            tool = None
        return dict(tool.spec.schema) if tool else _make_object_schema({}, [])
    return _make_object_schema({}, [])


def plain_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names and types of a schema's arguments, without any text of its author."""
    declared = schema.get("properties")
    items = declared.items() if isinstance(declared, Mapping) else ()
    valid = {name: value for name, value in items if _NAME.fullmatch(name)}
    types = {name: value.get("type") for name, value in valid.items() if isinstance(value, Mapping)}
    properties = {name: {"type": kind} if kind else {} for name, kind in types.items()}
    return _make_object_schema(
        properties, [name for name in schema.get("required", ()) if name in properties]
    )


def _make_object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def copied_from(library: Library, head: Head) -> str:
    """Return the version that the first version of a resource was made as a copy of, ''
    for none.
    """
    first = library.store.operation(library.store.version(head, 1).operation)
    if any(text.startswith("proposal ") for text in first.intent.evidence):
        return ""  # the evidence of an approved proposal has texts of its author
    sources = (
        text.removeprefix(COPY_OF) for text in first.intent.evidence if text.startswith(COPY_OF)
    )
    try:
        return next((str(Ref.parse(text)) for text in sources), "")
    except EvolvableError:
        return ""


def get_state(library: Library, caller: Caller, ref: Ref) -> ResourceState:
    """Return how a resource stands. Raise NoSuchResource."""
    store = library.store
    head = store.head_or_none(ref.at(None), caller.scopes) or store.head(
        ref.at(None), caller.scopes
    )
    channel = store.backend.channel.of(head.id) if head.kind is Kind.SKILL else None
    approved = tool_commands.approved_version(library, head)
    folders = {folder.id: folder.path for folder in library.folders()}
    bound = store.backend.bindings.of_resources([head.id])
    tally = library.evidence.tally(head.id)
    return ResourceState(
        ref=str(head.ref),
        head=head.version,
        latest=head.latest,
        label=version_label(head.latest),
        stable=channel.visible_version if channel else None,
        approved=approved.version if approved else None,
        directories={
            str(folders[binding.folder] / binding.directory): binding.version
            for binding in bound
            if binding.folder in folders
        },
        uses=tally.loaded,
        rated=tally.succeeded + tally.failed + tally.partial,
        proposals=[
            proposal.id
            for proposal in store.backend.proposals.about(head.ref)
            if proposal.state == OPEN
        ],
    )
