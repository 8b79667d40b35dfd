"""Merge of runs: their finalists as one program, which has to prove itself like any other candidate."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from evolvable_store.frontmatter import parse_document
from evolvable_store.validation import main_path
from evolvable_tools.evolve import programs
from evolvable_tools.evolve.program import Part, Program
from evolvable_tools.evolve.proposing import built
from evolvable_tools.evolve.run import Run

ALIKE = 0.9
"""The similarity of texts from which on two parts are named as doubles; both stay, as nobody measured either alone."""


MOST_WORDS = 2_000
"""Words of a part that are compared."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The union of several programs. told: what was decided for whom, and which parts say nearly the same."""

    program: Program
    told: tuple[str, ...]


class Union:
    """The builder behind Improve in the iteration of a merge: there is nothing to propose, only to put together."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def __call__(self, program: Program, changes: Sequence[tuple[str, Program]]) -> Program:
        """Returns the merge of the finalists, written down as the candidate of this iteration."""
        run = self._run
        if (done := run.state.step.get("built")) is not None:
            return run.program(done["candidate"])
        merged, names = merge(changes), ", ".join(name for name, _ in changes)
        run.mask.check(program, merged.program)  # before anything of it is kept; Improve looks again
        built(run, [program], merged.program, list(merged.told) or [f"union of {names}"], f"merge of the runs {names}")
        return merged.program


def merge(finalists: Sequence[tuple[str, Program]]) -> Merged:
    """Returns the union of these programs, the highest scoring first: of parts with one name or one description the
    first is kept.
    """
    kept: dict[str, tuple[str, Part]] = {}
    told: list[str] = []
    for run, program in finalists:
        for part in program.parts:
            twin = _twin(part, kept)
            if twin is None:
                kept[part.ref] = (run, part)
            elif twin[1].tree != part.tree:
                told.append(f"{part.ref} of run {run} gives way to {twin[1].ref} of run {twin[0]}")
    parts = [part for _, part in kept.values()]
    told += [f"{one.ref} and {other.ref} say nearly the same" for one, other in _doubles(parts)]
    return Merged(programs.program_of(parts), tuple(told))


def _twin(part: Part, kept: dict[str, tuple[str, Part]]) -> tuple[str, Part] | None:
    if part.ref in kept:
        return kept[part.ref]
    said = _description(part)
    same = (one for one in kept.values() if one[1].kind is part.kind and said and _description(one[1]) == said)
    return next(same, None)


def _doubles(parts: Sequence[Part]) -> list[tuple[Part, Part]]:
    pairs = [(one, other) for number, one in enumerate(parts) for other in parts[number + 1 :]]
    return [(one, other) for one, other in pairs if one.kind is other.kind and _likeness(one, other) >= ALIKE]


def _likeness(one: Part, other: Part) -> float:
    first, second = (_text(part).casefold().split()[:MOST_WORDS] for part in (one, other))
    compared = SequenceMatcher(None, first, second, autojunk=False)
    return compared.ratio() if compared.real_quick_ratio() >= ALIKE else 0.0


def _description(part: Part) -> str:
    path = main_path(part.kind, part.name, part.files)
    return (
        ""
        if not path
        else " ".join(str(parse_document(part.files[path]).fields.get("description", "")).casefold().split())
    )


def _text(part: Part) -> str:
    path = main_path(part.kind, part.name, part.files)
    return part.files[path].decode("utf-8", "replace") if path else ""
