"""Backward elimination: what is left of a search's trials tries to leave out edits that later ones made needless.

One pass over the accepted candidates, oldest first, before the sealed test. A program without the edits of one of them
is measured as any candidate is.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher

from evolvable_evolve.evolution import search_operators
from evolvable_evolve.evolution.candidates import Program, make_part, make_program
from evolvable_evolve.evolution.composition import selection_tasks, trials_left
from evolvable_evolve.evolution.ledger import CandidateDecision
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_store import File, Files, merge_files


def next_elimination(run: RunContext) -> str:
    """Return the accepted candidate whose edits are tried to be left out next, '' when none is.

    One pass, oldest first, while trials are left. The last one was just compared. Edits that others build on stay.
    """
    state = run.state
    if state.best not in state.candidates or trials_left(run) < len(selection_tasks(run)) // 2:
        return ""
    accepted = [one for one in state.candidates.values() if one.decision is CandidateDecision.ADMITTED]
    for one in sorted(accepted, key=lambda one: one.iteration)[:-1]:
        if one.digest not in state.eliminated and leave_out(run, one.digest) is not None:
            return one.digest
    return ""


def leave_out(run: RunContext, digest: str) -> Program | None:
    """Return the best program without the edits of one accepted candidate; None where later edits overlap them."""
    made = run.program(digest)
    before, best = run.program(run.state.candidates[digest].parents[0]), run.program(run.state.best)
    parts = []
    for ref in sorted({*before.by_ref, *made.by_ref, *best.by_ref}):
        base, ours, theirs = (one.by_ref.get(ref) for one in (made, best, before))
        if base == theirs:
            kept = ours
        elif base == ours:
            kept = theirs
        elif base is None or ours is None or theirs is None:
            return None
        else:
            files = [{path: File(data) for path, data in one.files.items()} for one in (base, ours, theirs)]
            left = _undo_files(*files)
            if left is None:
                return None
            kept = make_part(ours.kind, ours.name, {path: file.data for path, file in left.items()})
        parts += [kept] if kept is not None else []
    found = make_program(parts)
    return None if found.digest in run.state.candidates or not found.parts else found


async def build_without(run: RunContext, program: Program, changes: Sequence[str]) -> Program:
    """Return the best program without the edits of the named candidate, recorded as the candidate of the iteration."""
    if (done := run.state.step.get("built")) is not None:
        return run.program(done["candidate"])
    [digest] = changes
    after = leave_out(run, digest)
    if after is None:
        return program
    run.mask.check(program, after)
    name = run.state.candidates[digest].name
    search_operators.record_candidate(run, program, after, [f"leave out what {name} changed"], f"without {name}")
    return after


def _undo_files(made: Files, best: Files, before: Files) -> dict[str, File] | None:
    """Return the best files without what changed from `before` to `made`; None where later edits overlap it."""
    merged = merge_files(made, best, before)
    files = dict(merged.files)
    for path in merged.conflicts:
        sides = [side.get(path) for side in (made, best, before)]
        try:
            texts = [one.data.decode() for one in sides if one is not None]
        except UnicodeDecodeError:
            return None
        undone = undo_text(*texts) if len(texts) == len(sides) else None
        if undone is None:
            return None
        files[path] = File(undone.encode(), best[path].mode)
    return files


def undo_text(made: str, best: str, before: str) -> str | None:
    """Return the best text without what changed from `before` to `made`, found by its own lines.

    A merge refuses this where a later edit wrote directly beside the lines. Here each changed stretch must stand in the
    best text exactly once, as it was written; None where one does not, or where only lines were deleted.
    """
    new, old, now = (text.splitlines(keepends=True) for text in (made, before, best))
    for change, start, end, low, high in SequenceMatcher(None, new, old, autojunk=False).get_opcodes():
        if change == "equal":
            continue
        wanted = new[start:end]
        found = [at for at in range(len(now) - len(wanted) + 1) if now[at : at + len(wanted)] == wanted]
        if not wanted or len(found) != 1:
            return None
        now[found[0] : found[0] + len(wanted)] = old[low:high]
    return "".join(now)
