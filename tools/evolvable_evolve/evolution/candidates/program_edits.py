"""Bounded edits of a program: the changes of resources, and of the agents that own them, that a
candidate may have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_evolve.evolution.candidates import agent_files
from evolvable_evolve.evolution.candidates.agent_files import AGENT_FILE, MAIN, AgentCard
from evolvable_evolve.evolution.candidates.programs import (
    Program,
    ProgramPart,
    make_part,
    make_program,
    skill_owners,
)
from evolvable_store import check_path, parse_document
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_tools import TextEdit, edit_text

# With more at once a gain could not be attributed to any of them.
MAX_EDITS = 4
"""Edits of one candidate at most."""

ALL_KINDS = frozenset(Kind) - {Kind.ENVIRONMENT}
"""The kinds that may evolve: a task set that a program could change would measure nothing."""


class EditOperation(StrEnum):
    """The operation of an edit."""

    CREATE = "create"
    """Adds a resource that is not there, with all its files."""

    EDIT = "edit"
    """Changes passages, or adds and removes files; all other text stays."""

    SPLIT = "split"
    """Moves a part of a resource into a new one, `other`."""

    MERGE = "merge"
    """Takes another resource, `other`, into this one; the other goes."""

    PRUNE = "prune"
    """Removes a resource, or the files named."""

    RESTRUCTURE = "restructure"
    """Writes a resource again: all its files are given."""

    ADD_AGENT = "add-agent"
    """Splits an agent from `other`, which hands it `skills`.

    Made by code alone, as the two below.
    """

    MERGE_AGENTS = "merge-agents"
    """Takes the agent `other` into this one, or into main; the other goes."""

    MOVE_OWNERSHIP = "move-ownership"
    """Moves `skills` from the agent `other` to this one; either may be main."""


AGENT_OPERATIONS = frozenset(
    {EditOperation.ADD_AGENT, EditOperation.MERGE_AGENTS, EditOperation.MOVE_OWNERSHIP}
)
"""Edits of the structure, of at most two agents each."""


@dataclass(frozen=True, slots=True)
class ProgramEdit:
    """One edit. The fields that it needs depend on `op`.

    files: whole files of `ref`, by path. changes: passages of files of `ref`. removed: paths of
    `ref` that go. other, other_files: the second resource of a split or a merge, and the files of
    the new one in a split. skills, cards: of an edit of agents, the refs that change owner, and the
    cards of the agents that it touches, by ref.
    """

    op: EditOperation
    ref: str
    changes: tuple[TextEdit, ...] = ()
    files: Mapping[str, str] | None = None
    removed: tuple[str, ...] = ()
    other: str = ""
    other_files: Mapping[str, str] | None = None
    skills: tuple[str, ...] = ()
    cards: Mapping[str, AgentCard] | None = None


class InvalidEdit(EvolvableError):
    """An edit cannot be made as it is written. The program stays as it was."""


def apply_edits(
    program: Program,
    edits: Sequence[ProgramEdit],
    *,
    kinds: frozenset[Kind] = ALL_KINDS,
    max_edits: int = MAX_EDITS,
) -> Program:
    """Return the program after the edits, in their order.

    kinds: those that may be changed. Other parts and frozen ones stay untouched. Raises InvalidEdit
    for the first edit that cannot be made, with its number and the reason.
    """
    if not 1 <= len(edits) <= max_edits:
        raise InvalidEdit(
            f"There are {len(edits)} edits.", f"Between 1 and {max_edits} are allowed."
        )
    parts = program.by_ref
    for number, edit in enumerate(edits, 1):
        try:
            _apply(parts, edit, kinds)
        except EvolvableError as error:
            raise InvalidEdit(
                f"Edit {number} ({edit.op} {ascii(edit.ref[:80])}): {error}", error.hint
            ) from None
    return make_program(parts.values())


def parse_part_ref(text: str) -> tuple[Kind, str]:
    """Return the kind and the ref of a part. `pdf` and `skill:pdf` are one part.

    Raises InvalidRef, InvalidEdit.
    """
    ref = Ref.parse(text)
    name = f"{ref.kind}:{ref.name}"
    if ref.version is not None or ref.scope not in (None, USER_SCOPE):
        raise InvalidEdit("A part is named without scope and version.", f"Write {name}.")
    return ref.kind, name


def _apply(parts: dict[str, ProgramPart], edit: ProgramEdit, kinds: frozenset[Kind]) -> None:
    if edit.op in AGENT_OPERATIONS:
        _apply_to_agents(parts, edit, kinds)
        return
    kind, name = parse_part_ref(edit.ref)
    _check_editable(parts, kind, name, kinds)
    match edit.op:
        case EditOperation.CREATE | EditOperation.RESTRUCTURE:
            exists = edit.op is EditOperation.RESTRUCTURE
            files = _encode_files(parts, name, edit.files, exists=exists)
        case EditOperation.PRUNE if not edit.removed:
            _find_part(parts, name)
            del parts[name]
            return
        case EditOperation.PRUNE:
            # The removal of files is an edit that keeps the others.
            removal = ProgramEdit(EditOperation.EDIT, edit.ref, removed=edit.removed)
            files = _edit_files(parts, name, removal)
        case _:
            if edit.op is not EditOperation.EDIT:
                # The second resource first: an edit of the first may need the name to be free.
                _split_or_merge(parts, name, edit, kinds)
            files = _edit_files(parts, name, edit)
    _put_part(parts, name, files)


def _check_editable(
    parts: Mapping[str, ProgramPart], kind: Kind, name: str, kinds: frozenset[Kind]
) -> None:
    editable = kinds - {Kind.ENVIRONMENT}
    if kind not in editable:
        text = f"A resource of the kind {kind} may not be changed here."
        raise InvalidEdit(text, f"What may be: {', '.join(sorted(editable)) or 'nothing'}.")
    if name in parts and parts[name].is_frozen:
        raise InvalidEdit(
            "It is frozen.", 'Only a person may change it: its metadata says evolvable: "false".'
        )


def _encode_files(
    parts: Mapping[str, ProgramPart], name: str, files: Mapping[str, str] | None, *, exists: bool
) -> dict[str, bytes]:
    """Return all files of a part. exists: whether the part must be there, or must not."""
    if (name in parts) is not exists:
        what = "There is none of this name." if exists else "It is there already."
        raise InvalidEdit(what, "Create what is new, edit or restructure what is there.")
    if not files:
        raise InvalidEdit("It has no files.", "Give all its files, the main file among them.")
    return {check_path(path): text.encode("utf-8", "replace") for path, text in files.items()}


def _edit_files(parts: Mapping[str, ProgramPart], name: str, edit: ProgramEdit) -> dict[str, bytes]:
    """Return the files of a part after an edit."""
    part = _find_part(parts, name)
    files = dict(part.files)
    if not (edit.changes or edit.files or edit.removed):
        raise InvalidEdit("It changes nothing.", "Give changes, files or removed.")
    for path in edit.removed:
        if files.pop(path, None) is None:
            raise InvalidEdit(
                f"It has no file {ascii(path[:80])}.",
                f"Its files: {', '.join(sorted(part.files))}.",
            )
    for change in edit.changes:
        files[change.path] = edit_text(files, change, name)
    files |= {
        check_path(path): text.encode("utf-8", "replace")
        for path, text in (edit.files or {}).items()
    }
    return files


def _split_or_merge(
    parts: dict[str, ProgramPart], name: str, edit: ProgramEdit, kinds: frozenset[Kind]
) -> None:
    """Add the second resource of a split, or remove that of a merge."""
    if not edit.other:
        raise InvalidEdit("It names no other resource.", "Give the second one as other.")
    kind, other = parse_part_ref(edit.other)
    if other == name:
        raise InvalidEdit("Both resources are the same.", "Name two.")
    _check_editable(parts, kind, other, kinds)
    if edit.op is EditOperation.SPLIT:
        _put_part(parts, other, _encode_files(parts, other, edit.other_files, exists=False))
    else:
        _find_part(parts, other)
        del parts[other]


def _find_part(parts: Mapping[str, ProgramPart], name: str) -> ProgramPart:
    """Return a part. Raises InvalidEdit where there is none of this name."""
    if name not in parts:
        raise InvalidEdit(
            "There is none of this name.",
            f"The program has: {', '.join(sorted(parts)) or 'nothing'}.",
        )
    return parts[name]


def _put_part(parts: dict[str, ProgramPart], name: str, files: Mapping[str, bytes]) -> None:
    kind, _, own = name.partition(":")
    parts[name] = make_part(Kind(kind), own, files)
    # A frozen resource could never be evolved again, and only a person decides that.
    if parts[name].is_frozen:
        raise InvalidEdit(
            "It would freeze the resource.", "Only a person freezes one: leave out evolvable."
        )


def _apply_to_agents(
    parts: dict[str, ProgramPart], edit: ProgramEdit, kinds: frozenset[Kind]
) -> None:
    """Add an agent, merge two, or move skills between two."""
    _check_agents(parts, edit, kinds)
    owned = skill_owners(make_program(parts.values())).get(edit.other, frozenset())
    if foreign := sorted(set(edit.skills) - owned):
        raise InvalidEdit(
            f"{edit.other} does not own {', '.join(foreign)}.", "Only an owner gives a skill away."
        )
    cards = edit.cards or {}
    remaining = _list_skills(parts, edit.other, without=edit.skills)
    match edit.op:
        case EditOperation.ADD_AGENT:
            owner = parts[edit.other].main if edit.other != MAIN else None
            name = edit.ref.partition(":")[2]
            data = agent_files.new_agent(name, owner, cards[edit.ref], edit.skills)
            _put_part(parts, edit.ref, {AGENT_FILE: data})
        case EditOperation.MERGE_AGENTS:
            gone = parts.pop(edit.other)
            remaining = None
            if edit.ref != MAIN:
                _merge_agent(parts, edit.ref, gone, cards)
        case _ if edit.ref != MAIN:
            skills = [*(_list_skills(parts, edit.ref) or ()), *edit.skills]
            _rewrite_agent(parts, edit.ref, cards, skills)
    if remaining is not None:
        _rewrite_agent(parts, edit.other, cards, remaining)


def _check_agents(
    parts: Mapping[str, ProgramPart], edit: ProgramEdit, kinds: frozenset[Kind]
) -> None:
    """Raise InvalidEdit unless the edit names two agents, or one and main, that it may change."""
    if edit.ref == edit.other:
        raise InvalidEdit("Both agents are the same.", "Name two.")
    for ref in (edit.ref, edit.other):
        if ref == MAIN:
            continue
        kind, _ = parse_part_ref(ref)
        _check_editable(parts, kind, ref, kinds)
        if kind is not Kind.AGENT:
            raise InvalidEdit(f"{ref} is no agent.", f"Name agents, or {MAIN}.")
        is_new = edit.op is EditOperation.ADD_AGENT and ref == edit.ref
        if is_new is (ref in parts):
            what = "is there already" if ref in parts else "is not part of the program"
            raise InvalidEdit(
                f"{ref} {what}.", "Agents are added once, and changed where they are."
            )


def _merge_agent(
    parts: dict[str, ProgramPart], ref: str, gone: ProgramPart, cards: Mapping[str, AgentCard]
) -> None:
    """Take the skills and the instructions of another agent, which is gone, into this one."""
    first_file, second_file = _read_main(parts[ref]), _read_main(gone)
    first, second = parse_document(first_file), parse_document(second_file)
    skills = [*agent_files.owned_skills(first), *agent_files.owned_skills(second)]
    skills = list(dict.fromkeys(skills))
    merged = agent_files.merged_agent(first_file, second_file, cards[ref], skills)
    _put_part(parts, ref, {**parts[ref].files, AGENT_FILE: merged})


def _list_skills(
    parts: Mapping[str, ProgramPart], ref: str, without: Sequence[str] = ()
) -> list[str] | None:
    """Return the skills that an agent's file names, None for main.

    Those that are not in the program are listed too.
    """
    if ref == MAIN:
        return None
    owned = agent_files.owned_skills(parse_document(_read_main(parts[ref])))
    return [skill for skill in owned if skill not in without]


def _rewrite_agent(
    parts: dict[str, ProgramPart], ref: str, cards: Mapping[str, AgentCard], skills: Sequence[str]
) -> None:
    main, card = _read_main(parts[ref]), cards.get(ref)
    data = agent_files.bounded_agent(main, card, list(dict.fromkeys(skills)))
    _put_part(parts, ref, {**parts[ref].files, AGENT_FILE: data})


def _read_main(part: ProgramPart) -> bytes:
    if part.main is None:
        raise InvalidEdit(f"{part.ref} has no {AGENT_FILE}.", "An agent has one.")
    return part.main


def settle_owners(before: Program, after: Program, doer: Mapping[str, str]) -> Program:
    """Return the program in which the skills that edits added have owners, and no agent owns a
    skill that they removed.

    doer: for each added skill the agent that did the tasks which it answers, or the skill that it
    was split from. That agent, or the owners of that skill, own it where they may be changed. No
    other skill changes owner.
    """
    parts, old_refs = after.by_ref, {part.ref for part in before.parts}
    present = {part.ref for part in after.parts if part.kind is Kind.SKILL}
    for part in after.parts:
        if part.kind is not Kind.AGENT or part.is_frozen or part.main is None:
            continue
        owned = agent_files.owned_skills(parse_document(part.main))
        new = [ref for ref in sorted(present - old_refs) if doer.get(ref) in (part.ref, *owned)]
        # A listed skill that was never in the program belongs to the user's library, and stays.
        remaining = [ref for ref in owned if ref in present or ref not in old_refs]
        if list(owned) != [*remaining, *(ref for ref in new if ref not in remaining)]:
            _rewrite_agent(parts, part.ref, {}, [*remaining, *new])
    return make_program(parts.values())
