"""The variables of a program: the texts of its parts that an optimizer may rewrite, under stable ids."""

from collections.abc import Mapping, Sequence

from evolvable_store.objects import File
from evolvable_tools.evolve.candidates.programs import Program, ProgramPart, make_part, make_program
from evolvable_tools.evolve.run_context import RunContext
from evolvable_tools.verbs.variables import ResourceVariable, apply_variables, list_variables

FILE = "file"


def program_variables(run: RunContext, program: Program) -> list[ResourceVariable]:
    """Return the variables of a program that the run may change, those of a part in the order of its files.

    Frozen parts and sections have none.
    """
    found = []
    for part in program.parts:
        if part.kind in run.mask.kinds and part.ref not in run.mask.fixed and not part.is_frozen:
            found += [one for one in list_variables(part, _files(part)) if one.evolvable]
    return found


def smallest_variables(variables: Sequence[ResourceVariable]) -> list[ResourceVariable]:
    """Return variables that do not overlap and together cover most: sections, else whole files; descriptions last."""
    divided = {file_of(one.id) for one in variables if one.role == "section"}
    found = [one for one in variables if (one.role == FILE) is not (file_of(one.id) in divided)]
    return sorted(found, key=lambda one: one.role == "description")


def file_of(variable: str) -> str:
    """Return the id of the file that a variable is in."""
    return variable.partition("#")[0]


def overlap(one: str, other: str) -> bool:
    """Return whether two variables have text in common: they are one, or one is the file of the other."""
    return one == other or (file_of(one) == file_of(other) and not ("#" in one and "#" in other))


def set_program_variables(program: Program, values: Mapping[str, str]) -> Program:
    """Return the program with these variables set. Raises InvalidArgument, Refused as `apply_variables`."""
    parts = []
    for part in program.parts:
        own = {one: value for one, value in values.items() if one.startswith(f"{part.ref}/")}
        if own:
            after = apply_variables(part, _files(part), own)
            part = make_part(part.kind, part.name, {path: file.data for path, file in after.items()})
        parts.append(part)
    return make_program(parts)


def _files(part: ProgramPart) -> dict[str, File]:
    return {path: File(data) for path, data in part.files.items()}
