"""Bounded edits of a program: few, each of one kind, and nothing outside of what may evolve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store.errors import EvolvableError, InvalidPath, InvalidRef, TooLarge
from evolvable_store.frontmatter import is_frozen
from evolvable_store.paths import check_path
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.validation import main_path
from evolvable_tools.evolve.program import Part, Program
from evolvable_tools.evolve.programs import part_of, program_of

MAX_EDITS = 4
"""Edits of one candidate."""

ALL_KINDS = frozenset(Kind) - {Kind.ENVIRONMENT}
"""What may evolve at all: a task set that a program could change would measure nothing."""


class Op(StrEnum):
    """What an edit does to the program."""

    CREATE = "create"
    """Adds a resource that is not there, with all its files."""

    EDIT = "edit"
    """Changes passages, or adds files; what is not named stays."""

    SPLIT = "split"
    """Moves a part of a resource into a new one, `other`."""

    MERGE = "merge"
    """Takes another resource, `other`, into this one; the other goes."""

    PRUNE = "prune"
    """Removes a resource, or the files named."""

    RESTRUCTURE = "restructure"
    """Writes a resource anew: all its files are given."""


@dataclass(frozen=True, slots=True)
class Change:
    """One passage of a file, which stands there exactly once, and what stands there instead."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit. Which fields it needs depends on `op`.

    files: whole files of `ref`, by path. changes: passages of files of `ref`. removed: paths of `ref` that go. other,
    other_files: the second resource of a split or a merge, and the files of the new one in a split.
    """

    op: Op
    ref: str
    changes: tuple[Change, ...] = ()
    files: Mapping[str, str] | None = None
    removed: tuple[str, ...] = ()
    other: str = ""
    other_files: Mapping[str, str] | None = None
    summary: str = ""


class BadEdit(EvolvableError):
    """An edit cannot be made as it is written. The program is as it was."""


def applied(
    program: Program, edits: Sequence[Edit], *, kinds: frozenset[Kind] = ALL_KINDS, max_edits: int = MAX_EDITS
) -> Program:
    """Returns the program after the edits, in their order.

    kinds: what may be changed; the rest of the program is passed on untouched, and so is what is frozen. Raises BadEdit
    for the first edit that cannot be made, with its number and why.
    """
    if not 1 <= len(edits) <= max_edits:
        raise BadEdit(f"There are {len(edits)} edits.", f"Between 1 and {max_edits} are allowed.")
    parts = {part.ref: part for part in program.parts}
    for number, edit in enumerate(edits, 1):
        try:
            _apply(parts, edit, kinds)
        except (InvalidPath, InvalidRef, TooLarge, BadEdit) as error:
            raise BadEdit(f"Edit {number} ({edit.op} {ascii(edit.ref[:80])}): {error.text}", error.hint) from None
    return program_of(parts.values())


def parsed_ref(text: str) -> Ref:
    """Returns the ref of a part: a kind and a name, nothing else. Raises InvalidRef, BadEdit."""
    ref = Ref.parse(text)
    if ref.version is not None or ref.scope not in (None, USER_SCOPE):
        raise BadEdit("A part is named without scope and version.", f"Write {ref.kind}:{ref.name}.")
    return ref


def _apply(parts: dict[str, Part], edit: Edit, kinds: frozenset[Kind]) -> None:
    ref = parsed_ref(edit.ref)
    _permit(parts, ref, kinds)
    # Written anew, so that `pdf` and `skill:pdf` are one part.
    name = f"{ref.kind}:{ref.name}"
    if edit.op is Op.CREATE:
        _put(parts, ref, _whole(parts, name, edit.files, there=False))
    elif edit.op is Op.RESTRUCTURE:
        _put(parts, ref, _whole(parts, name, edit.files, there=True))
    elif edit.op is Op.EDIT:
        _put(parts, ref, _changed(parts, name, edit))
    elif edit.op is Op.PRUNE:
        _prune(parts, ref, name, edit)
    else:
        _with_other(parts, ref, name, edit, kinds)


def _permit(parts: Mapping[str, Part], ref: Ref, kinds: frozenset[Kind]) -> None:
    if ref.kind not in kinds or ref.kind is Kind.ENVIRONMENT:
        allowed = ", ".join(sorted(kind for kind in kinds if kind is not Kind.ENVIRONMENT)) or "nothing"
        raise BadEdit(f"A resource of the kind {ref.kind} may not be changed here.", f"What may be: {allowed}.")
    part = parts.get(f"{ref.kind}:{ref.name}")
    if part is not None and is_frozen_part(part):
        raise BadEdit("It is frozen.", 'Only a person may change it: its metadata says evolvable: "false".')


def is_frozen_part(part: Part) -> bool:
    """Returns whether only a person may change a part."""
    path = main_path(part.kind, part.name, part.files)
    return bool(path) and is_frozen(part.files[path])


def _whole(parts: Mapping[str, Part], name: str, files: Mapping[str, str] | None, *, there: bool) -> dict[str, bytes]:
    if (name in parts) is not there:
        what = "There is none of this name." if there else "It is there already."
        raise BadEdit(what, "Create what is new, edit or restructure what is there.")
    if not files:
        raise BadEdit("It has no files.", "Give all its files, the main file among them.")
    return {check_path(path): text.encode("utf-8", "replace") for path, text in files.items()}


def _changed(parts: Mapping[str, Part], name: str, edit: Edit) -> dict[str, bytes]:
    part = _there(parts, name)
    files = dict(part.files)
    if not (edit.changes or edit.files or edit.removed):
        raise BadEdit("It changes nothing.", "Give changes, files or removed.")
    for path in edit.removed:
        if files.pop(path, None) is None:
            raise BadEdit(f"It has no file {ascii(path[:80])}.", f"Its files: {', '.join(sorted(part.files))}.")
    for change in edit.changes:
        files[change.path] = _replaced(files, change)
    files |= {check_path(path): text.encode("utf-8", "replace") for path, text in (edit.files or {}).items()}
    return files


def _replaced(files: Mapping[str, bytes], change: Change) -> bytes:
    if change.path not in files:
        raise BadEdit(f"It has no file {ascii(change.path[:80])}.", f"Its files: {', '.join(sorted(files))}.")
    try:
        text = files[change.path].decode("utf-8")
    except UnicodeDecodeError:
        raise BadEdit(f"{change.path} is no text.", "Give the whole file instead.") from None
    count = text.count(change.old) if change.old else 0
    if count != 1:
        shown = ascii(change.old[:60])
        raise BadEdit(f"{shown} stands {count} times in {change.path}.", "Quote a passage that stands there once.")
    return text.replace(change.old, change.new).encode("utf-8", "replace")


def _prune(parts: dict[str, Part], ref: Ref, name: str, edit: Edit) -> None:
    part = _there(parts, name)
    if not edit.removed:
        del parts[name]
        return
    _put(parts, ref, _changed({name: part}, name, Edit(Op.EDIT, edit.ref, removed=edit.removed)))


def _with_other(parts: dict[str, Part], ref: Ref, name: str, edit: Edit, kinds: frozenset[Kind]) -> None:
    if not edit.other:
        raise BadEdit("It names no other resource.", "Give the second one as other.")
    other = parsed_ref(edit.other)
    second = f"{other.kind}:{other.name}"
    if second == name:
        raise BadEdit("Both resources are the same.", "Name two.")
    _permit(parts, other, kinds)
    if edit.op is Op.SPLIT:
        first = _changed(parts, name, edit)
        _put(parts, other, _whole(parts, second, edit.other_files, there=False))
        _put(parts, ref, first)
    else:
        _there(parts, second)
        first = _changed(parts, name, edit)
        del parts[second]
        _put(parts, ref, first)


def _there(parts: Mapping[str, Part], name: str) -> Part:
    if name not in parts:
        raise BadEdit("There is none of this name.", f"The program has: {', '.join(sorted(parts)) or 'nothing'}.")
    return parts[name]


def _put(parts: dict[str, Part], ref: Ref, files: Mapping[str, bytes]) -> None:
    part = part_of(ref.kind, ref.name, files)
    if is_frozen_part(part):
        raise BadEdit("It would freeze the resource.", "Only a person freezes one: leave out evolvable.")
    parts[part.ref] = part
