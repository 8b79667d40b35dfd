"""Contracts: one document with the purpose and the call of many resources.

CONTRACT.md is a version of `environment:contracts`. Each entry is a heading with a ref and version,
and lines of a key and a JSON value. So no text of a resource can begin a line, an entry or a
document of its own.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolvable_store import Head, summarize
from evolvable_store.errors import InvalidArgument, NoSuchFile, NoSuchResource
from evolvable_store.resource import USER_SCOPE, Kind, Ref, main_file
from evolvable_tools import NOBODYS, Caller, Library, authorships, bound_text
from evolvable_tools.verbs import (
    Updated,
    argument_schema,
    main_document,
    plain_arguments,
    update_resource,
)

CONTRACTS = Ref(Kind.ENVIRONMENT, "contracts", USER_SCOPE)
FILE = "CONTRACT.md"

MAX_ENTRIES = 2_000
MAX_TOKENS = 150
"""Tokens of one entry, at `BYTES_A_TOKEN`."""

BYTES_A_TOKEN = 3
"""UTF-8 bytes that are counted as one token.

English text has more of them in a token, so the count is an upper one.
"""

_ENVIRONMENT = b"""\
---
name: contracts
description: The contract of resources that save_contract writes. \
CONTRACT.md says what each is for and how to call it.
---

`load_contract` reads CONTRACT.md, and says which entries are no longer as the library is.
"""

_ACTIONS: Mapping[Kind, str] = {
    Kind.SKILL: "load",
    Kind.PROMPT: "fill",
    Kind.AGENT: "work as",
    Kind.TOOL: "run",
    Kind.ENVIRONMENT: "score",
    Kind.MEMORY: "read",
}
_KEYS = (
    "hash",
    "name",
    "use",
    "actions",
    "arguments",
    "preconditions",
    "allowed-tools",
    "constraints",
)
# `_fit_to_limit` shortens further where an entry is still too long.
_LIMITS = {"use": 200, "preconditions": 80, "allowed-tools": 80, "constraints": 100}
"""The most characters of each text."""

_HASH = 16  # characters of a tree's hash that an entry shows
_HEADER = "# Contract\n\nformat: 1\nentries: {}\nsha256: {}\n"
_DOCUMENT = re.compile(
    r"# Contract\n\nformat: 1\nentries: ([0-9]{1,6})\nsha256: ([0-9a-f]{64})\n((?:\n.*)?)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class ContractEntry:
    """The entry of one version. values: by key, in the order of the document."""

    ref: str
    version: int
    values: dict[str, Any]
    state: str = ""
    """`current`; `drifted` where the resource has another content now; `unknown` where it is not
    there.
    """


@dataclass(frozen=True)
class LoadedContract:
    """A contract that was read back.

    drifted, unknown: the refs of such entries, each with its version.
    """

    ref: str
    version: int
    sha256: str
    entries: list[ContractEntry] = field(default_factory=list)
    drifted: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def save_contract(
    library: Library,
    caller: Caller,
    *,
    kind: Kind | None = None,
    refs: Sequence[Ref] = (),
    reason: str = "",
) -> Updated:
    """Write the contract of these resources, or of all of a kind, as a version of
    `environment:contracts`.

    Without either it is of everything that the caller sees. Raise NoSuchResource, InvalidArgument
    for too many.
    """
    if kind is not None and refs:
        raise InvalidArgument("A contract is of a kind or of refs.", "Name one of them.")
    heads = [library.store.head(ref.at(None), caller.scopes) for ref in refs]
    if not heads:
        every = library.store.heads(kind)
        heads = [head for head in every if head.version and head.scope in caller.scopes]
    chosen = {str(head.ref): head for head in heads if str(head.ref) != str(CONTRACTS)}
    if len(chosen) > MAX_ENTRIES:
        raise InvalidArgument(
            f"{len(chosen):,} resources are too many.", f"A contract has at most {MAX_ENTRIES:,}."
        )
    text = contract_of(library, chosen.values())
    existing = library.store.head_or_none(CONTRACTS)
    now = library.latest(existing)[0].version if existing is not None and existing.version else None
    new = now is None
    main = {main_file(Kind.ENVIRONMENT, CONTRACTS.name): _ENVIRONMENT} if new else {}
    subject = ", ".join(map(str, refs)) or (f"every {kind}" if kind else "everything")
    stated_reason = reason or f"contract of {subject}"[:500]
    files = main | {FILE: text.encode()}
    return update_resource(
        library, caller, CONTRACTS, stated_reason, files=files, expected_version=now, create=new
    )


def contract_of(library: Library, heads: Iterable[Head]) -> str:
    """Return the contract of these resources, sorted by their refs; it is written nowhere."""
    return render_contract(
        [_make_entry(library, head) for head in sorted(heads, key=lambda head: str(head.ref))]
    )


def load_contract(library: Library, caller: Caller, version: int | None = None) -> LoadedContract:
    """Return the entries of the contract, each compared with the library as it is now.

    Raise NoSuchResource where none was saved, NoSuchVersion, InvalidArgument for a document that is
    no contract.
    """
    head = library.store.head_or_none(CONTRACTS) or _refuse_unsaved()
    if FILE not in library.store.manifest(head, version):
        raise NoSuchFile(f"{head.ref} has no {FILE}.", "save_contract writes it.")
    data = library.store.file(head, FILE, version).data
    parsed = parse_contract(data.decode("utf-8", "replace"))
    entries = [_compare(library, caller, entry) for entry in parsed]
    names = {
        state: [f"{entry.ref}@{entry.version}" for entry in entries if entry.state == state]
        for state in _STATES
    }
    digest = hashlib.sha256(data).hexdigest()
    return LoadedContract(
        str(head.ref), version or head.latest, digest, entries, names["drifted"], names["unknown"]
    )


_STATES = ("drifted", "unknown")


def _refuse_unsaved() -> Head:
    raise NoSuchResource("No contract was saved.", "save_contract writes one.")


def _compare(library: Library, caller: Caller, entry: ContractEntry) -> ContractEntry:
    head = library.store.head_or_none(Ref.parse(entry.ref), caller.scopes)
    if head is None or head.version is None:
        state = "unknown"
    else:
        state = "current" if head.tree.startswith(entry.values["hash"]) else "drifted"
    return ContractEntry(entry.ref, entry.version, entry.values, state)


def _make_entry(library: Library, head: Head) -> ContractEntry:
    number = head.version or head.latest
    document = main_document(library, head, number)
    summary, fields = summarize(document), document.fields
    metadata = fields.get("metadata")
    metadata_fields: Mapping[str, object] = metadata if isinstance(metadata, dict) else {}
    schema = argument_schema(library, head, number, document)
    authorship = authorships(library, [head.id]).get(head.id, NOBODYS)
    more = [
        "only a person may change it" if summary.frozen else "",
        "a person approves each version before it runs" if head.kind is Kind.TOOL else "",
        "nobody whom the user trusts answers for it" if authorship.is_marked else "",
    ]
    texts = {
        "use": summary.description,
        "preconditions": metadata_fields.get("preconditions", fields.get("compatibility")),
        "allowed-tools": fields.get("allowed-tools"),
        "constraints": "; ".join(
            filter(None, (_join_text(metadata_fields.get("constraints")), *more))
        ),
    }
    bounded = {
        key: bound_text(_join_text(text), trusted=False, limit=_LIMITS[key])
        for key, text in texts.items()
    }
    values: dict[str, Any] = {
        "hash": head.tree[:_HASH],
        "name": head.name,
        "actions": [_ACTIONS[head.kind]],
    }
    if (arguments := plain_arguments(schema))["properties"]:
        values["arguments"] = arguments
    values |= {key: text for key, text in bounded.items() if text}
    ordered = {key: values[key] for key in _KEYS if key in values}
    return _fit_to_limit(ContractEntry(str(head.ref), number, ordered))


def _join_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def _fit_to_limit(entry: ContractEntry) -> ContractEntry:
    """Return the entry within MAX_TOKENS: the arguments become their number, then texts become
    shorter or go.
    """
    values = dict(entry.values)
    while tokens_of(_render(ContractEntry(entry.ref, entry.version, values))) > MAX_TOKENS:
        arguments = values.get("arguments")
        if isinstance(arguments, dict) and "properties" in arguments:
            # The number alone: get_info has the arguments.
            values["arguments"] = {"count": len(arguments["properties"])}
            continue
        longest = max(
            _LIMITS.keys() & values.keys(), key=lambda key: len(str(values[key]).encode())
        )
        text = str(values[longest])
        if len(text) > 20:
            values[longest] = f"{text[: len(text) * 3 // 4].rstrip()}…"
        else:
            del values[longest]
    return ContractEntry(entry.ref, entry.version, values)


def tokens_of(text: str) -> int:
    """Return an upper estimate of the tokens of a text."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


def render_contract(entries: Sequence[ContractEntry]) -> str:
    """Return the document with these entries."""
    body = "".join(f"\n{_render(entry)}" for entry in entries)
    return _HEADER.format(len(entries), hashlib.sha256(body.encode()).hexdigest()) + body


def _render(entry: ContractEntry) -> str:
    lines = (f"- {key}: {json_line(value)}\n" for key, value in entry.values.items())
    return f"## {entry.ref}@{entry.version}\n\n{''.join(lines)}"


def json_line(value: object) -> str:
    """Return a value as JSON on one line, in which every character can be printed."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return "".join(char if char.isprintable() else _escape_char(char) for char in text)


def _escape_char(char: str) -> str:
    return json.dumps(char)[1:-1]


def parse_contract(text: str) -> list[ContractEntry]:
    """Return the entries of a document.

    Raise InvalidArgument unless `render_contract` writes exactly this text.
    """
    document = _DOCUMENT.fullmatch(text)
    hint = "save_contract writes a new one."
    # The hash first: it is quick, and tells of a change by hand with a plain message.
    if document is None or _hash_body(document[3]) != document[2]:
        raise InvalidArgument("CONTRACT.md was changed, or is no contract.", hint)
    try:
        entries = list(_parse_entries(document[3]))
        same = render_contract(entries) == text
    except (ValueError, RecursionError, LookupError):
        same = False
    if not same:
        raise InvalidArgument("CONTRACT.md is not as save_contract writes it.", hint)
    return entries


def _hash_body(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "replace")).hexdigest()


def _parse_entries(body: str) -> Iterator[ContractEntry]:
    for part in body.removeprefix("\n## ").split("\n\n## ") if body else ():
        heading, _, rest = part.partition("\n\n")
        ref = Ref.parse(heading)
        pairs = (
            line.removeprefix("- ").partition(": ") for line in rest.removesuffix("\n").split("\n")
        )
        values = {key: json.loads(value) for key, _, value in pairs}
        has_known_keys = values.keys() <= set(_KEYS) and isinstance(values["hash"], str)
        if not has_known_keys or ref.version is None:
            raise ValueError("an entry has other lines")
        yield ContractEntry(str(ref.at(None)), ref.version, values)
