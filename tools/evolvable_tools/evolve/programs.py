"""Programs as they are kept and taken: out of a library, into an artefact and back, and what sets two apart."""

import base64
import binascii
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evolvable_store.errors import InvalidArgument
from evolvable_store.objects import File, make_manifest
from evolvable_store.resource import Kind, Ref
from evolvable_tools.evolve.program import Part, Program
from evolvable_tools.library import Caller, Library

MAX_DIFF = 60_000
"""Characters of a diff that is shown."""


@dataclass(frozen=True, slots=True)
class Pin:
    """Which version a part was taken from, and its tree there, which the modes of files are a part of."""

    ref: str
    version: int
    tree: str


def part_of(kind: Kind, name: str, files: Mapping[str, bytes]) -> Part:
    """Returns a part of these files. Raises InvalidPath or TooLarge for what no resource may hold."""
    tree = make_manifest({path: File(data) for path, data in files.items()}).tree
    return Part(kind, name, dict(files), tree)


def program_of(parts: Iterable[Part]) -> Program:
    """Returns the program of these parts in their order. Raises InvalidArgument when two have one ref."""
    ordered = sorted(parts, key=lambda part: part.ref)
    for one, other in zip(ordered, ordered[1:], strict=False):
        if one.ref == other.ref:
            raise InvalidArgument(f"A program has two parts {one.ref}.", "One of each is allowed.")
    return Program(tuple(ordered))


def taken(library: Library, caller: Caller, refs: Sequence[Ref]) -> tuple[Program, list[Pin]]:
    """Returns the program of these resources as they are (or in the version named), and where each was taken from.

    Raises NoSuchResource, NoSuchVersion.
    """
    parts, pins = [], []
    for ref in refs:
        head = library.store.head(ref.at(None), caller.scopes)
        library.take_in([head.ref])
        head = library.store.head(ref.at(None), caller.scopes)
        files = library.store.files(head, ref.version)
        part = part_of(head.kind, head.name, {path: file.data for path, file in files.items()})
        parts.append(part)
        pins.append(
            Pin(str(head.ref), ref.version or head.version or 0, library.store.manifest(head, ref.version).tree)
        )
    return program_of(parts), pins


def to_json(program: Program) -> bytes:
    """Returns a program as it is kept: equal programs are equal bytes."""
    parts = [
        {
            "kind": part.kind.value,
            "name": part.name,
            "files": {path: base64.b64encode(part.files[path]).decode("ascii") for path in sorted(part.files)},
        }
        for part in program.parts
    ]
    return json.dumps({"parts": parts}, sort_keys=True, separators=(",", ":")).encode("ascii")


def from_json(data: bytes) -> Program:
    """Returns the program that `to_json` wrote. Raises InvalidArgument for anything else."""
    try:
        parts = json.loads(data)["parts"]
        return program_of(
            part_of(
                Kind(part["kind"]),
                part["name"],
                {path: base64.b64decode(text, validate=True) for path, text in part["files"].items()},
            )
            for part in parts
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise InvalidArgument("This is no program.", "It was written by something else, or is damaged.") from None


def size_of(program: Program) -> int:
    """Returns the bytes of all files."""
    return sum(len(data) for part in program.parts for data in part.files.values())


def changed(before: Program, after: Program) -> list[str]:
    """Returns the refs of the parts that are not the same in both."""
    one, other = ({part.ref: part.tree for part in program.parts} for program in (before, after))
    return sorted(ref for ref in {*one, *other} if one.get(ref) != other.get(ref))


def diff(before: Program, after: Program, most: int | None = MAX_DIFF) -> str:
    """Returns the unified diff of all files, shortened to `most` characters; None: all of it."""
    texts = [_texts(program) for program in (before, after)]
    lines: list[str] = []
    for path in sorted({*texts[0], *texts[1]}):
        old, new = texts[0].get(path), texts[1].get(path)
        if old != new:
            names = ("/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}")
            lines += difflib.unified_diff((old or "").splitlines(), (new or "").splitlines(), *names, lineterm="")
    text = "\n".join(lines)
    return text if most is None or len(text) <= most else text[:most] + "\n[cut]"


def _texts(program: Program) -> dict[str, str]:
    return {
        f"{part.kind}/{part.name}/{path}": data.decode("utf-8", "replace") if b"\0" not in data else "[not text]"
        for part in program.parts
        for path, data in part.files.items()
    }
