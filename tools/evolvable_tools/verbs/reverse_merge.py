"""Plan how changes are taken back: each resource as it was before them, with what others changed
since.

A reverse merge: its base is the content after the changes, one side the content now, the other the
content before.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evolvable_store import Actor, Change, Files, Head, MergeResult, Overlap, Store, make_manifest
from evolvable_store.resource import Kind, Ref, is_plugins
from evolvable_store.workingcopy import merge_back, name_overlaps
from evolvable_tools.authors import version_authorship
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.secret_leaks import is_env_file
from evolvable_tools.untrusted_text import AnswerMarks

MAX_SIDES = 8_000
"""Characters of the two sides of a conflict that are shown."""


@dataclass(frozen=True, slots=True)
class UndoConflict:
    """A resource that an undo left alone, and why.

    sides: the lines that overlap, as a diff from what is there now to what was there before; ''
    where none do.
    """

    ref: str
    reason: str
    sides: str = ""


@dataclass(frozen=True, slots=True)
class RevertStep:
    """What takes the changes of one resource back, from version `expected`, 0 for none.

    version: the one to return to, None for a removal. merged: the content where later changes stay;
    `version` then says nothing. undone: the version before and after each of the changes that were
    merged out, oldest first.
    """

    ref: Ref
    expected: int
    version: int | None = None
    merged: Files | None = None
    undone: tuple[tuple[int, int], ...] = ()

    def content(self, store: Store) -> Files:
        """Return the content that it leads to, none for a removal."""
        if self.merged is not None:
            return self.merged
        head = store.head_or_none(self.ref) if self.version is not None else None
        return store.files(head, self.version) if head is not None else {}


def approvals_led_to(library: Library, session: str | None) -> dict[int, set[Ref]]:
    """Return the operations that approved what a session led to and were made in another, with its
    resources.
    """
    if session is None:
        return {}
    own = {operation.id for operation in library.store.operations(limit=10_000, session=session)}
    led_to: dict[int, set[Ref]] = defaultdict(set)
    for proposal in library.store.backend.proposals.approved_in_session(session):
        if proposal.operation is not None and proposal.operation not in own:
            led_to[proposal.operation].add(proposal.ref)
    return led_to


def plan_revert(
    library: Library,
    caller: Caller,
    undid: Sequence[int],
    session: str | None = None,
    *,
    proposed: bool = False,
) -> tuple[list[RevertStep], list[UndoConflict]]:
    """Return what takes these operations back, and which resources have to be left alone.

    caller: only a person changes what is frozen. session: of an operation that approved proposals
    of several sessions, only what this one led to is taken back. proposed: a person decides on it,
    not the caller.
    """
    library.take_in({change.ref for change in library.store.backend.changes_of(undid)})
    backs, conflicts = list[RevertStep](), list[UndoConflict]()
    led_to, by_resource = approvals_led_to(library, session), defaultdict[Ref, list[Change]](list)
    for change in library.store.backend.changes_of(undid):
        if change.ref in led_to.get(change.operation, {change.ref}):
            by_resource[change.ref].append(change)
    for changes in by_resource.values():
        head = library.store.head_or_none(changes[0].ref)
        step = _plan_step(library, caller, head, changes) if head is not None else None
        if step is None or head is None:
            continue
        is_forbidden = head.frozen and caller.actor is not Actor.HUMAN and not proposed
        if isinstance(step, UndoConflict):
            conflicts.append(step)
        elif is_forbidden:
            frozen = 'it is frozen (metadata evolvable: "false"); only a person may change it.'
            conflicts.append(UndoConflict(str(head.ref), frozen))
        else:
            backs.append(step)
    return backs, conflicts


def _plan_step(
    library: Library, caller: Caller, head: Head, changes: Sequence[Change]
) -> RevertStep | UndoConflict | None:
    """Return what takes the changes of one resource back, what is in the way, or None where nothing
    is left to do.
    """
    store, first, last = library.store, changes[0], changes[-1]
    every = store.backend.changes_to(head.id, first.sequence - 1)
    own = {change.sequence for change in changes}
    since = [change for change in every if change.sequence not in own]
    if not since:
        has_content = first.before or last.after
        return RevertStep(head.ref, last.after or 0, first.before) if has_content else None
    later = f"operation {since[-1].operation} changed it since"
    if head.version is None and not first.before:
        return UndoConflict(
            str(head.ref), f"{later}; it is removed already, so nothing is left to take back."
        )
    if is_plugins(head.scope):
        return UndoConflict(
            str(head.ref), f"{later}, and nothing but its plugin writes its versions."
        )
    content = _ContentOfVersions(store, head)
    now = content.files(head.version)
    begun, runs = now, _find_runs(every, own)
    # The newest change first: each step takes one run out of what the step before left.
    for run in reversed(runs):
        before, after = run[0].before, run[-1].after
        if after is None and now and now != content.files(before):
            back = next((change for change in since if change.sequence > run[-1].sequence), None)
            if back is not None and content.files(back.after) != content.files(before):
                why = (
                    f"{later}: it is there again with another content, which stays. Version "
                    f"{before} is kept."
                )
                return UndoConflict(str(head.ref), why)
            continue  # it is back already, and was changed then
        merged = _take_out(head, content.files(after), now, content.files(before))
        if merged is None or merged.conflicts:
            in_way = _find_last_in_way(content, since, merged)
            later = f"operation {in_way.operation} changed it since"
            return _describe_conflict(library, caller, head, later, merged, run)
        now = merged.files
    if now == begun:
        return None
    expected = head.version or 0
    if not now:
        # What somebody brought back on purpose does not go with what made it first.
        if any(change.before is None for change in since):
            return _describe_conflict(library, caller, head, later, None, runs[0])
        return RevertStep(head.ref, expected)
    if first.before and make_manifest(now).tree == store.version(head, first.before).tree:
        return RevertStep(head.ref, expected, first.before)
    undone = tuple((run[0].before, run[-1].after or 0) for run in runs if run[0].before)
    return RevertStep(head.ref, expected, None, now, undone)


class _ContentOfVersions:
    """The files of the versions of one resource."""

    def __init__(self, store: Store, head: Head) -> None:
        self._store, self._head = store, head

    def files(self, version: int | None) -> Files:
        """Return the files of a version, none for None."""
        return self._store.files(self._head, version) if version else {}


def _find_runs(every: Iterable[Change], own: set[int]) -> list[list[Change]]:
    """Return the changes that are taken back, oldest first, those together that follow
    one another.
    """
    runs = list[list[Change]]()
    joined = False
    for change in every:
        if change.sequence in own:
            if joined:
                runs[-1].append(change)
            else:
                runs.append([change])
        joined = change.sequence in own
    return runs


def _find_last_in_way(
    content: _ContentOfVersions, since: Sequence[Change], merged: MergeResult | None
) -> Change:
    """Return the last of these changes that changed a file in conflict, of all where the whole is
    in the way.
    """
    paths = merged.conflicts if merged is not None else ()
    for change in reversed(since):
        before, after = content.files(change.before), content.files(change.after)
        if any(before.get(path) != after.get(path) for path in paths):
            return change
    return since[-1]


def _take_out(head: Head, after: Files, now: Files, before: Files) -> MergeResult | None:
    """Return what is there now without the changes from `before` to `after`; None where the whole
    is in the way.
    """
    # Nobody changed it since, or it is back already: no merge is needed.
    if now in (after, before):
        return MergeResult(dict(before), ())
    return merge_back(head, after, now, before) if now and before else None


def _describe_conflict(
    library: Library,
    caller: Caller,
    head: Head,
    later: str,
    merged: MergeResult | None,
    run: Sequence[Change],
) -> UndoConflict:
    """Return what is in the way, and what a person can do about it that takes nobody's line."""
    if merged is None and head.version is None:
        removal = later.replace("changed", "removed")
        return UndoConflict(str(head.ref), f"{removal}. Undo that first; then take this back.")
    if merged is None:
        why = (
            f"{later}, and what it changed stays. Take out by an edit what is not wanted "
            "of the rest."
        )
        return UndoConflict(str(head.ref), why)
    where = name_overlaps(merged)
    why = (
        f"{later} in the same place: {where}. It is left as it is. Settle these lines by an edit "
        f"of {head.ref}."
    )
    return UndoConflict(str(head.ref), why, _describe_sides(library, caller, head, merged, run))


def _describe_sides(
    library: Library, caller: Caller, head: Head, merged: MergeResult, run: Sequence[Change]
) -> str:
    """Return both sides of each overlap; for an agent between marks, where one is not the user's.

    Nobody but a person reads those of an environment: they may be of a sealed test.
    """
    if caller.actor is not Actor.HUMAN and head.kind is Kind.ENVIRONMENT:
        return ""
    before = run[0].before or 0
    overlaps = [overlap for overlap in merged.overlaps if not is_env_file(overlap.path)]
    text = both_sides(overlaps, f"@{head.version}", f"@{before}, before the change")
    if caller.actor is Actor.HUMAN or not text:
        return text
    whys = (
        version_authorship(library, head, number, caller).why
        for number in (head.version, before)
        if number
    )
    why = next(filter(None, whys), "")
    return AnswerMarks(True).block(text, f"both sides of {head.ref}", why) if why else text


def both_sides(overlaps: Iterable[Overlap], ours: str, theirs: str) -> str:
    """Return both sides of each overlap as a diff.

    ours, theirs: what stands behind the path of each side.
    """
    parts = list[str]()
    for overlap in overlaps:
        parts.append(
            f"--- {overlap.path}{ours}, line {overlap.ours_line}\n+++ {overlap.path}{theirs}\n"
        )
        parts += [*_prefix_lines("-", overlap.ours), *_prefix_lines("+", overlap.theirs)]
    text = "".join(parts)
    if len(text) <= MAX_SIDES:
        return text
    return f"{text[:MAX_SIDES]}\n... cut here; history shows the versions.\n"


def _prefix_lines(sign: str, text: str) -> list[str]:
    return [f"{sign}{line}\n" for line in text.removesuffix("\n").split("\n")] if text else []
