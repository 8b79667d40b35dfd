"""A program: versions of resources that are evaluated together, how it is stored, and how two
differ.
"""

import base64
import difflib
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from evolvable_evolve.evolution.candidates import agent_files
from evolvable_store import File, is_frozen, main_path, make_manifest, parse_document
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library, decode_text


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """One resource of a program with all its files; `tree` is the hash of their manifest."""

    kind: Kind
    name: str
    files: Mapping[str, bytes]
    tree: str

    @property
    def ref(self) -> str:
        """The ref of the part, such as `skill:pdf`."""
        return f"{self.kind}:{self.name}"

    @property
    def main_path(self) -> str:
        """The path of the main file, '' where there is none."""
        return main_path(self.kind, self.name, self.files)

    @property
    def main(self) -> bytes | None:
        """The main file, None where there is none."""
        return self.files.get(self.main_path)

    @property
    def texts(self) -> dict[str, str]:
        """The files as text, by path."""
        return {path: data.decode("utf-8", "replace") for path, data in self.files.items()}

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(map(len, self.files.values()))

    @property
    def description(self) -> str:
        """The description in the main file; '' without one."""
        value = parse_document(self.main).fields.get("description") if self.main is not None else ""
        return value if isinstance(value, str) else ""

    @property
    def is_frozen(self) -> bool:
        """Whether only a person may change the part."""
        return self.main is not None and is_frozen(self.main)


@dataclass(frozen=True, slots=True)
class Program:
    """Parts in the order of their refs, one of each.

    A program without parts is the arm without skills. answers_once: its first answer counts, also
    under an executor that answers in rounds.
    """

    parts: tuple[ProgramPart, ...] = ()
    answers_once: bool = False

    @property
    def digest(self) -> str:
        """The sha256 that names the program: equal digests are equal bytes."""
        lines = [f"{part.ref} {part.tree}" for part in self.parts]
        # Only where it is set, so that the digests of older programs stay.
        if self.answers_once:
            lines.append("answers once")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def by_ref(self) -> dict[str, ProgramPart]:
        """The parts by their refs."""
        return {part.ref: part for part in self.parts}

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(part.size for part in self.parts)


MAX_DIFF = 60_000
"""Characters of a diff for people and models at most."""


@dataclass(frozen=True, slots=True)
class ProgramPin:
    """The version that a part was taken from, and its tree there.

    The modes of files are a part of the tree.
    """

    ref: str
    version: int
    tree: str


def make_part(kind: Kind, name: str, files: Mapping[str, bytes]) -> ProgramPart:
    """Return a part of these files.

    Raises InvalidPath or TooLarge for files that no resource may hold.
    """
    tree = make_manifest({path: File(data) for path, data in files.items()}).tree
    return ProgramPart(kind, name, dict(files), tree)


def make_program(parts: Iterable[ProgramPart]) -> Program:
    """Return the program of these parts in their order.

    Raises InvalidArgument when two have one ref.
    """
    # Sorted, so that programs of the same parts have one digest.
    ordered = sorted(parts, key=lambda part: part.ref)
    for current, following in zip(ordered, ordered[1:], strict=False):
        if current.ref == following.ref:
            raise InvalidArgument(
                f"A program has two parts {current.ref}.", "One of each is allowed."
            )
    return Program(tuple(ordered))


def load_program(
    library: Library, caller: Caller, refs: Sequence[Ref]
) -> tuple[Program, list[ProgramPin]]:
    """Return the program of these resources, and the pin of each part.

    A ref with a version gives that version, another one the head.

    Raises NoSuchResource, NoSuchVersion.
    """
    parts, pins = [], []
    for ref in refs:
        # Saved files become versions first, so that the head below has them.
        library.take_in([library.store.head(ref.at(None), caller.scopes).ref])
        head = library.store.head(ref.at(None), caller.scopes)
        files = library.store.files(head, ref.version)
        contents = {path: file.data for path, file in files.items()}
        parts.append(make_part(head.kind, head.name, contents))
        tree = library.store.manifest(head, ref.version).tree
        pins.append(ProgramPin(str(head.ref), ref.version or head.version or 0, tree))
    return make_program(parts), pins


def program_to_json(program: Program) -> bytes:
    """Return a program as JSON for storage. Equal programs give equal bytes."""
    parts = []
    for part in program.parts:
        files = {
            path: base64.b64encode(part.files[path]).decode("ascii") for path in sorted(part.files)
        }
        parts.append({"kind": part.kind.value, "name": part.name, "files": files})
    # Left out where it is false, so that programs stored by earlier versions are the same bytes.
    once = {"answers_once": True} if program.answers_once else {}
    text = json.dumps({"parts": parts, **once}, sort_keys=True, separators=(",", ":"))
    return text.encode("ascii")


def program_from_json(data: bytes) -> Program:
    """Return the program that `program_to_json` wrote. Raises InvalidArgument for anything else."""
    try:
        parts = []
        content = json.loads(data)
        for part in content["parts"]:
            files = {
                path: base64.b64decode(text, validate=True) for path, text in part["files"].items()
            }
            parts.append(make_part(Kind(part["kind"]), part["name"], files))
        return replace(make_program(parts), answers_once=content.get("answers_once") is True)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidArgument(
            "This is no program.", "It was written by something else, or is damaged."
        ) from None


def changed_parts(before: Program, after: Program) -> list[str]:
    """Return the refs of the parts that are not the same in both."""
    old_parts = {(part.ref, part.tree) for part in before.parts}
    new_parts = {(part.ref, part.tree) for part in after.parts}
    return sorted({ref for ref, _ in old_parts ^ new_parts})


def diff_programs(before: Program, after: Program, most: int | None = MAX_DIFF) -> str:
    """Return the unified diff of all files.

    most: the characters that it is shortened to, None for all of it. Every file whose bytes differ
    is in it. A file that is not text is shown by its size and sha256.
    """
    old, new = _list_files(before), _list_files(after)
    changed = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    text = "\n".join(
        line for path in changed for line in _diff_file(path, old.get(path), new.get(path))
    )
    return text if most is None or len(text) <= most else text[:most] + "\n[cut]"


def _list_files(program: Program) -> dict[str, bytes]:
    return {
        f"{part.kind}/{part.name}/{path}": part.files[path]
        for part in program.parts
        for path in part.files
    }


def _diff_file(path: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Yield the lines of the diff of a file without their ends.

    old, new: None where there is no file.
    """
    yield "--- /dev/null" if old is None else f"--- a/{path}"
    yield "+++ /dev/null" if new is None else f"+++ b/{path}"
    before, after = _list_diff_lines(old), _list_diff_lines(new)
    if _is_text(old) and _is_text(new):
        # Without the two lines of names that difflib begins with.
        lines: Iterable[str] = islice(difflib.unified_diff(before, after), 2, None)
    else:
        # Not line by line, because a text could hold the line that stands for a binary file.
        hunk = f"@@ -{min(len(before), 1)},{len(before)} +{min(len(after), 1)},{len(after)} @@\n"
        lines = [hunk, *(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    for line in lines:
        yield line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _is_text(data: bytes | None) -> bool:
    return data is None or decode_text(data) is not None


def _list_diff_lines(data: bytes | None) -> list[str]:
    """Return the lines of a file as a diff shows them, with their ends.

    Only LF ends a line, so that no part of a line is hidden.
    """
    if data is None:
        return []
    text = decode_text(data)
    if text is None:
        return [f"[not text: {len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()}]\n"]
    return list(io.StringIO(text, newline="\n"))


def skill_owners(program: Program) -> dict[str, frozenset[str]]:
    """Return which skills of a program each of its agents owns, by the agents' files alone.

    Main owns the rest.
    """
    agents = {
        part.ref: part.main
        for part in program.parts
        if part.kind is Kind.AGENT and part.main is not None
    }
    skills = [part.ref for part in program.parts if part.kind is Kind.SKILL]
    return agent_files.ownership(agents, skills)
