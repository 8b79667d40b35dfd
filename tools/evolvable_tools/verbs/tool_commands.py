"""The commands of tools: how TOOL.md declares one, which versions a person approved, and the folder
that they run from.

A tool declares `metadata.run` in its TOOL.md. Nothing of it runs before a person approved that
version: its files, its argument list, and the program that the list names as it is on this machine.
"""

import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from evolvable_store import Document, Files, Head, parse_document, read_regular, regular_file
from evolvable_store.errors import InvalidArgument, NoSuchVersion, Refused
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_tools.approvals_lock import canonical_form
from evolvable_tools.authority import field_author, files_author, is_yours, out_of_force
from evolvable_tools.authors import FileAuthor
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library

APPROVALS_FILE = "approved-tools.jsonl"
"""In the home: one line of JSON for each approval and each withdrawal, only ever added."""

BUILDS = "built-tools"
"""The folder in the home that built versions lie in, each below the hash of its files."""

PYTHON, FOLDER = "{python}", "{tool}"
"""What an argument list may name: an interpreter, and the folder with the files of the tool."""

MAX_ARGUMENTS, MAX_ARGUMENT = 64, 2_000
"""Words of an argument list, and characters of one."""

MAX_SECONDS, DEFAULT_SECONDS = 300.0, 30.0
"""Seconds that a tool may declare as its timeout, and those of one that declares none."""

MAX_SCHEMA, MAX_DEPTH = 8_000, 8
"""Characters of a schema as JSON, and how deep it may nest.

The schema goes to the client with every list of tools, and is checked at every call.
"""

MAX_SEARCHED = 200
"""Versions of a tool among which the newest approved one is looked for."""

KEEP_SECONDS = 7 * 24 * 3600.0
"""How long a built folder that nobody uses stays."""

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_NUMBERS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems"),
)
_TEXTS = ("title", "description", "format")
_ANY = ("enum", "const", "default", "examples")
_FLAGS = ("uniqueItems",)
_SCHEMAS = ("anyOf", "oneOf", "allOf")
_OWN_FILE = re.compile(r"\{tool\}/(?P<path>[^{}]+)")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """How a tool is run. argv: its command. schema: of its input, an object."""

    argv: tuple[str, ...]
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    timeout_s: float = DEFAULT_SECONDS


def run_spec(ref: Ref, main: bytes) -> RunSpec | None:
    """Return how the tool with this TOOL.md is run, None where it declares no command.

    Raise InvalidArgument.
    """
    metadata = parse_document(main).fields.get("metadata")
    declared = metadata.get("run") if isinstance(metadata, dict) else None
    if declared is None:
        if isinstance(metadata, dict) and "mcp" in metadata:
            text = f"{ref} is a tool of another MCP server (metadata.mcp), which is not run here."
            raise InvalidArgument(
                text, "Connect the client to that server, or declare a command by metadata.run."
            )
        return None
    wrong = "; ".join(_find_spec_problems(declared))
    if wrong:
        raise InvalidArgument(
            f"{ref} cannot be run: {wrong}.", "docs/operators.md shows how a tool declares `run`."
        )
    assert isinstance(declared, dict)
    return RunSpec(
        tuple(declared["argv"]),
        declared.get("schema") or {"type": "object"},
        float(declared.get("timeout_s", DEFAULT_SECONDS)),
    )


def _find_spec_problems(declared: object) -> Iterator[str]:
    if not isinstance(declared, dict):
        yield "metadata.run is not a mapping"
        return
    unknown = [str(key)[:40] for key in declared if key not in ("argv", "schema", "timeout_s")]
    if unknown:
        yield f"metadata.run has the unknown keys {', '.join(map(ascii, sorted(unknown)))}"
    yield from _find_argv_problems(declared.get("argv"))
    seconds = declared.get("timeout_s", DEFAULT_SECONDS)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or not 0 < seconds <= MAX_SECONDS:
        yield f"timeout_s is not a number of seconds from 0 to {MAX_SECONDS:g}"
    schema = declared.get("schema")
    if schema is not None:
        yield from schema_problems(schema)


def _find_argv_problems(argv: object) -> Iterator[str]:
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        yield "argv is not a list of texts"
        return
    if len(argv) > MAX_ARGUMENTS or any(len(word) > MAX_ARGUMENT for word in argv):
        yield (
            f"argv has more than {MAX_ARGUMENTS} words, or one of more than {MAX_ARGUMENT:,} "
            "characters"
        )
    if any("\0" in word for word in argv):
        yield "argv has a zero byte"
    # A relative path would depend on the folder that the server was started in.
    program = argv[0]
    is_own = program == PYTHON or program.startswith(f"{FOLDER}/")
    is_relative = "/" in program and not os.path.isabs(program)
    if not is_own and (not program or "{" in program or is_relative):
        yield (
            f"argv begins neither with a program's name or absolute path, nor with {PYTHON} or "
            f"{FOLDER}/PATH"
        )


def schema_problems(schema: object) -> list[str]:
    """Return what is wrong with the schema of a tool's input.

    Only keywords that take bounded time are allowed: no references, and no patterns, which can take
    exponential time.
    """
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return ["schema is not a JSON schema of type object"]
    try:
        size = len(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError):
        return ["schema is no JSON"]
    if size > MAX_SCHEMA:
        return [f"schema has {size:,} characters, the limit is {MAX_SCHEMA:,}"]
    return list(_find_keyword_problems(schema, 0))


def _find_keyword_problems(schema: object, depth: int) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        yield f"schema has a part that is no schema, or nests deeper than {MAX_DEPTH}"
        return
    for name, value in schema.items():
        if not _is_allowed_keyword(name, value):
            yield f"schema has {ascii(str(name)[:40])}, which is not allowed there"
        elif name in ("items", "additionalProperties"):
            yield from _find_keyword_problems(value, depth + 1)
        elif name in (*_SCHEMAS, "properties"):
            for part in value.values() if isinstance(value, dict) else value:
                yield from _find_keyword_problems(part, depth + 1)


def _is_allowed_keyword(name: object, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
    return (
        (
            name == "type"
            and (value in _TYPES or (texts and bool(value) and set(value) <= set(_TYPES)))  # type: ignore[call-overload]
        )
        or (name in _NUMBERS and number and (name != "multipleOf" or value > 0))  # type: ignore[operator]
        or (name in _TEXTS and isinstance(value, str))
        or (name == "enum" and isinstance(value, list) and bool(value))
        or (name in _ANY and name != "enum")
        or (name in _FLAGS and isinstance(value, bool))
        or (name == "required" and texts)
        or (name in _SCHEMAS and isinstance(value, list) and bool(value))
        or (name == "properties" and isinstance(value, dict))
        or name in ("items", "additionalProperties")
    )


@dataclass(frozen=True)
class ToolVersion:
    """One version of a tool that can be run. digest: of all that decides what it does, which a
    person approves.

    program: what the first word of the argument list is on this machine, '' for a file of the tool
    or the interpreter.
    """

    ref: str
    version: int
    tree: str
    spec: RunSpec
    program: str
    digest: str
    description: str
    files: dict[str, int]


def tool_version(library: Library, head: Head, number: int) -> ToolVersion | None:
    """Return one version of a tool, None where it declares no command.

    Raise InvalidArgument, NoSuchVersion.
    """
    manifest = library.store.manifest(head, number)
    main = main_file(head.kind, head.name)
    if main not in manifest:
        return None
    data = library.store.blob(manifest[main].sha256)
    spec = run_spec(head.ref.at(number), data)
    if spec is None:
        return None
    program, sha256 = _find_program(spec.argv[0])
    own = _OWN_FILE.match(spec.argv[0])
    if own and own["path"] not in manifest:
        raise InvalidArgument(
            f"{head.ref.at(number)} names {spec.argv[0]}, and has no such file.", "Add the file."
        )
    description = parse_document(data).fields.get("description")
    return ToolVersion(
        ref=str(head.ref),
        version=number,
        tree=manifest.tree,
        spec=spec,
        program=program,
        # Files, argument list and program: a change of any of them needs a new approval.
        digest=hashlib.sha256(
            json.dumps([manifest.tree, list(spec.argv), program, sha256]).encode()
        ).hexdigest(),
        description=description if isinstance(description, str) else "",
        files={path: manifest[path].size for path in sorted(manifest)},
    )


def _find_program(word: str) -> tuple[str, str]:
    """Return where the program that a word names is, and the sha256 of its bytes; '' for what is
    not there.
    """
    if word.startswith((PYTHON, FOLDER)):
        return "", ""
    path = shutil.which(word)
    if path is None:
        return "", ""
    place = os.path.abspath(path)
    try:
        # The cache of the hash has these four facts as its key: a change of the file changes one.
        now = os.stat(place)
        return place, _hash_file(place, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
    except OSError:
        return place, ""


@lru_cache(maxsize=64)
def _hash_file(place: str, *_: int) -> str:
    with open(place, "rb", opener=regular_file) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def approved_digests(library: Library) -> frozenset[str]:
    """Return what a person approved and did not withdraw.

    With locked approvals only what their key signed counts.
    """
    return frozenset(digest for digest, yes in _read_decisions(library).items() if yes)


def _read_decisions(library: Library) -> dict[str, bool]:
    """Return by digest whether a person approved it last, or withdrew it."""
    try:
        lines = read_regular(library.store.home / APPROVALS_FILE).splitlines()
    except OSError:
        return {}
    approved: dict[str, bool] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            digest, action = str(entry["digest"]), str(entry["action"])
            signature = bytes.fromhex(str(entry.get("signature", "")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        # A withdrawal needs no signature: anybody may take a right away.
        needs_signature = library.lock is not None and action == "approve"
        if not needs_signature or _is_signed(library, digest, signature):
            approved[digest] = action == "approve"
    return approved


def _is_signed(library: Library, digest: str, signature: bytes) -> bool:
    lock = library.lock
    return lock is not None and lock.verify(_make_statement(digest), signature)


def _make_statement(digest: str) -> bytes:
    return canonical_form({"approve tool": digest})


def approve_tool(library: Library, caller: Caller, found: ToolVersion, *, via: str) -> None:
    """Record that a person approved a version of a tool.

    via: how they were asked. Raise Refused.
    """
    library.authorise(caller, f"Approving {found.ref}")
    signature = ""
    if library.lock and caller.signer:
        signature = caller.signer.sign(_make_statement(found.digest)).hex()
    _record_decision(library, found, "approve", via, signature)
    library.record(caller, "approve tool", f"{found.ref}@{found.version} digest {found.digest}")


def withdraw_tool(library: Library, caller: Caller, found: ToolVersion, *, via: str) -> None:
    """Record that a version of a tool may no longer run. Raise Refused."""
    library.authorise(caller, f"Withdrawing {found.ref}")
    _record_decision(library, found, "withdraw", via, "")
    library.record(caller, "withdraw tool", f"{found.ref}@{found.version} digest {found.digest}")


def _record_decision(
    library: Library, found: ToolVersion, action: str, via: str, signature: str
) -> None:
    entry = {"action": action, "digest": found.digest, "ref": found.ref, "version": found.version}
    entry |= {"at": library.store.now(), "via": via} | (
        {"signature": signature} if signature else {}
    )
    place = library.store.home / APPROVALS_FILE
    # O_NOFOLLOW: a link in place of the file is not written through.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    # One write with O_APPEND, so that lines of two processes do not mix.
    with open(os.open(place, flags, 0o600), "ab") as file:
        file.write(json.dumps(entry).encode("ascii") + b"\n")


def approved_version(
    library: Library, head: Head, approved: frozenset[str] | None = None
) -> ToolVersion | None:
    """Return the newest version of a tool that a person approved, None where there is none.

    A version that cannot be run is passed over: a change by somebody else does not stop the tool.
    """
    if head.kind is not Kind.TOOL or head.version is None:
        return None
    approved = approved_digests(library) if approved is None else approved
    if not approved:
        return None
    for number in range(head.version, max(0, head.version - MAX_SEARCHED), -1):
        try:
            candidate = tool_version(library, head, number)
        except (InvalidArgument, NoSuchVersion):
            continue
        if candidate is not None and candidate.digest in approved:
            return candidate
    return None


def runnable_tool(library: Library, caller: Caller, ref: Ref) -> ToolVersion:
    """Return the version of a tool that runs: the one that is named, else the newest that a person
    approved.

    For a person that is also one whose command and files are in force: their own. Raise Refused
    where no person approved it, InvalidArgument where it declares no command, NoSuchResource.
    """
    head = library.store.head(ref.at(None), caller.scopes)
    decided = _read_decisions(library)
    approved = frozenset(digest for digest, yes in decided.items() if yes)
    newest_approved = None if ref.version else approved_version(library, head, approved)
    if newest_approved is not None and newest_approved.version == head.latest:
        return newest_approved
    own = caller.decides and command_author(library, head, ref.version or head.latest) is None
    try:
        candidate = tool_version(library, head, ref.version or head.latest)
    except InvalidArgument:
        if newest_approved is not None:
            return newest_approved
        raise
    if candidate is not None:
        is_own = own and decided.get(candidate.digest) is not False
        if is_own or candidate.digest in approved:
            return candidate
    if newest_approved is not None:
        return newest_approved
    if candidate is None:
        raise InvalidArgument(
            f"{head.ref} declares no command.", "Its TOOL.md needs metadata.run with argv."
        )
    raise Refused(
        f"{candidate.ref}@{candidate.version} has not been approved to run on this machine:"
        f" {json.dumps(list(candidate.spec.argv), ensure_ascii=True)[:300]}.",
        f"Nothing was run. {out_of_force_line(library, head, candidate.version)}",
    )


def command_author(library: Library, head: Head, version: int) -> FileAuthor | None:
    """Return who changed the command of a version of a tool, or a file of it, None where it is the
    reader's own.
    """
    author = field_author(library, head, version, _read_command)
    return files_author(library, head, version) if is_yours(author) else author


def out_of_force_line(library: Library, head: Head, version: int) -> str:
    """Return what a person does so that the command of a version runs."""
    author = command_author(library, head, version)
    if author is None:
        return (
            f"A person reads its files and approves it at a terminal: evolvable approve {head.ref}"
        )
    return out_of_force(str(head.ref), "tool command", author)


def _read_command(document: Document) -> object:
    metadata = document.fields.get("metadata")
    return metadata.get("run") if isinstance(metadata, dict) else None


def build_version(library: Library, head: Head, number: int) -> Path:
    """Write the files of a version into a folder of its own below the home, read-only, and return
    the folder.

    The folder is named by the hash of the files. One that is there is checked byte by byte, and
    made again where it differs. Raise NoSuchVersion, OSError.
    """
    manifest = library.store.manifest(head, number)
    files = library.store.files_of(manifest)
    place = library.store.home / BUILDS
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink():
        raise Refused(
            f"{place} is a symbolic link.", "Remove it; built tools lie in the library's home only."
        )
    folder = place / manifest.tree
    if not _holds(folder, files):
        _prune(place)
        # Built aside and renamed: a tool never runs from a folder that is half written.
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=place))
        for path, file in files.items():
            target = draft / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.data)
            # Read-only, so that a tool cannot change the files that were approved.
            target.chmod(0o500 if file.data.startswith(b"#!") or file.mode & 0o111 else 0o400)
        _put_in_place(draft, folder, files)
    # The time of the last use, by which `_prune` removes folders.
    os.utime(folder)
    return folder


def _put_in_place(draft: Path, folder: Path, files: Files) -> None:
    """Give a draft its name.

    One that another caller built meanwhile stays, because a run may be using it.
    """
    try:
        draft.rename(folder)
        return
    except OSError:
        if _holds(folder, files):
            shutil.rmtree(draft, ignore_errors=True)
            return
    with suppress(FileNotFoundError):  # another caller was as fast
        folder.rename(folder.with_name(f".old-{secrets.token_hex(8)}"))
    try:
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not _holds(folder, files):
            raise


def _holds(folder: Path, files: Files) -> bool:
    """Return whether a folder holds exactly these files, and no links."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    paths = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if not _is_folder(path)
    }
    if paths.keys() != files.keys():
        return False
    return all(
        stat.S_ISREG(path.lstat().st_mode) and read_regular(path) == files[name].data
        for name, path in paths.items()
    )


def _is_folder(path: Path) -> bool:
    return stat.S_ISDIR(path.lstat().st_mode)


def _prune(place: Path) -> None:
    """Remove the built folders that nobody used for long, and what a build left over."""
    for old in place.iterdir():
        with suppress(FileNotFoundError):  # the draft of another caller, which has its name now
            if not old.is_symlink() and time.time() - old.stat().st_mtime > KEEP_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
