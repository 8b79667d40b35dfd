"""Bounded edits of a program: what a candidate may change, of resources and of the agents that own
them.
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
"""The most edits of one candidate."""

ALL_KINDS = frozenset(Kind) - {Kind.ENVIRONMENT}
"""The kinds that may evolve: a task set that a program could change would measure nothing."""


class EditOperation(StrEnum):
    """Operation of an edit on the program."""

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
    """One edit. Which fields it needs depends on `op`.

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

    kinds: those that may be changed; all other and all frozen parts stay untouched. Raises
    InvalidEdit for the first edit that cannot be made, with its number and the reason.
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
    """Return the kind and the ref of a part; `pdf` and `skill:pdf` are one part.

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
            files = _new_files(parts, name, edit.files, exists=edit.op is EditOperation.RESTRUCTURE)
        case EditOperation.PRUNE if not edit.removed:
            _existing_part(parts, name)
            del parts[name]
            return
        case EditOperation.PRUNE:
            # Removing files is an edit of the resource that keeps the others.
            files = _edited_files(
                parts, name, ProgramEdit(EditOperation.EDIT, edit.ref, removed=edit.removed)
            )
        case _:
            if edit.op is not EditOperation.EDIT:
                # The second resource first: an edit of the first may need the name to be free.
                _split_or_merge(parts, name, edit, kinds)
            files = _edited_files(parts, name, edit)
    _put_part(parts, name, files)


def _check_editable(
    parts: Mapping[str, ProgramPart], kind: Kind, name: str, kinds: frozenset[Kind]
) -> None:
    if kind not in kinds or kind is Kind.ENVIRONMENT:
        allowed = (
            ", ".join(sorted(kind for kind in kinds if kind is not Kind.ENVIRONMENT)) or "nothing"
        )
        raise InvalidEdit(
            f"A resource of the kind {kind} may not be changed here.", f"What may be: {allowed}."
        )
    if name in parts and parts[name].is_frozen:
        raise InvalidEdit(
            "It is frozen.", 'Only a person may change it: its metadata says evolvable: "false".'
        )


def _new_files(
    parts: Mapping[str, ProgramPart], name: str, files: Mapping[str, str] | None, *, exists: bool
) -> dict[str, bytes]:
    if (name in parts) is not exists:
        what = "There is none of this name." if exists else "It is there already."
        raise InvalidEdit(what, "Create what is new, edit or restructure what is there.")
    if not files:
        raise InvalidEdit("It has no files.", "Give all its files, the main file among them.")
    return {check_path(path): text.encode("utf-8", "replace") for path, text in files.items()}


def _edited_files(
    parts: Mapping[str, ProgramPart], name: str, edit: ProgramEdit
) -> dict[str, bytes]:
    part = _existing_part(parts, name)
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
        _put_part(parts, other, _new_files(parts, other, edit.other_files, exists=False))
    else:
        _existing_part(parts, other)
        del parts[other]


def _existing_part(parts: Mapping[str, ProgramPart], name: str) -> ProgramPart:
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
    if edit.ref == edit.other:
        raise InvalidEdit("Both agents are the same.", "Name two.")
    agents = [ref for ref in (edit.ref, edit.other) if ref != MAIN]
    for ref in agents:
        kind, _ = parse_part_ref(ref)
        _check_editable(parts, kind, ref, kinds)
        if kind is not Kind.AGENT:
            raise InvalidEdit(f"{ref} is no agent.", f"Name agents, or {MAIN}.")
        # Only the new agent of an addition must not be there yet.
        if (edit.op is EditOperation.ADD_AGENT and ref == edit.ref) is (ref in parts):
            what = "is there already" if ref in parts else "is not part of the program"
            raise InvalidEdit(
                f"{ref} {what}.", "Agents are added once, and changed where they are."
            )
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
            data = agent_files.new_agent(
                edit.ref.partition(":")[2], owner, cards[edit.ref], edit.skills
            )
            _put_part(parts, edit.ref, {AGENT_FILE: data})
        case EditOperation.MERGE_AGENTS:
            gone = parts.pop(edit.other)
            remaining = None
            if edit.ref != MAIN:
                first_file, second_file = _main(parts[edit.ref]), _main(gone)
                skills = [
                    skill
                    for data in (first_file, second_file)
                    for skill in agent_files.owned_skills(parse_document(data))
                ]
                merged = agent_files.merged_agent(
                    first_file, second_file, cards[edit.ref], list(dict.fromkeys(skills))
                )
                _put_part(parts, edit.ref, {**parts[edit.ref].files, AGENT_FILE: merged})
        case _ if edit.ref != MAIN:
            _rewrite_agent(
                parts, edit.ref, cards, [*(_list_skills(parts, edit.ref) or ()), *edit.skills]
            )
    if remaining is not None:
        _rewrite_agent(parts, edit.other, cards, remaining)


def _list_skills(
    parts: Mapping[str, ProgramPart], ref: str, without: Sequence[str] = ()
) -> list[str] | None:
    """Return the skills that an agent's file names, also those that are not in the program; None
    for main.
    """
    if ref == MAIN:
        return None
    return [
        skill
        for skill in agent_files.owned_skills(parse_document(_main(parts[ref])))
        if skill not in without
    ]


def _rewrite_agent(
    parts: dict[str, ProgramPart], ref: str, cards: Mapping[str, AgentCard], skills: Sequence[str]
) -> None:
    data = agent_files.bounded_agent(
        _main(parts[ref]),
        cards.get(ref),
        list(dict.fromkeys(skills)),
    )
    _put_part(parts, ref, {**parts[ref].files, AGENT_FILE: data})


def _main(part: ProgramPart) -> bytes:
    if part.main is None:
        raise InvalidEdit(f"{part.ref} has no {AGENT_FILE}.", "An agent has one.")
    return part.main


def settle_owners(before: Program, after: Program, doer: Mapping[str, str]) -> Program:
    """Return the program with owners for the skills that edits of skills added, and without those
    that they removed.

    doer: for each added skill the agent that did the tasks which it answers. It owns the skill
    where it can be changed; a skill that was split from another has that one's owners. Nothing else
    changes owner.
    """
    parts, had = after.by_ref, {part.ref for part in before.parts}
    present = {part.ref for part in after.parts if part.kind is Kind.SKILL}
    for part in after.parts:
        if part.kind is not Kind.AGENT or part.is_frozen or part.main is None:
            continue
        owned = agent_files.owned_skills(parse_document(part.main))
        new = [ref for ref in sorted(present - had) if doer.get(ref) in (part.ref, *owned)]
        # A listed skill that was never in the program belongs to the user's library, and stays.
        remaining = [ref for ref in owned if ref in present or ref not in had]
        if list(owned) != [*remaining, *(ref for ref in new if ref not in remaining)]:
            _rewrite_agent(parts, part.ref, {}, [*remaining, *new])
    return make_program(parts.values())
