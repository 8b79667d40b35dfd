"""Bring a proposal onto what there is now: merged three ways where its base has moved, or both
sides where they meet.

A person is shown the difference of the merged content from the head, and approves that content.
Nobody approves what was proposed against a version that is no longer the head.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from evolvable_store import (
    Files,
    Head,
    MergeResult,
    Overlap,
    broken_rules,
    changed_lines,
    find_problems,
    merge_files,
)
from evolvable_store.errors import Conflict
from evolvable_store.storage import Proposal
from evolvable_store.workingcopy import name_overlaps
from evolvable_tools.authors import AuthorKind, Authorship, authorships, version_base
from evolvable_tools.file_edits import append_line, decode_text
from evolvable_tools.library import Library
from evolvable_tools.secret_leaks import is_env_file
from evolvable_tools.verbs.reverse_merge import both_sides


@dataclass(frozen=True, slots=True)
class RebasedContent:
    """What a proposal leads to now.

    version: the head that it was merged with, 0 for none. files: every change of both sides; in
    `conflicts`, the paths where both changed the same, with the lines of the proposal. overlaps:
    these lines, where they are text. current_files: the same files with the lines that are there
    now. merged: whether another content than that of its base is there now.
    """

    version: int
    files: Files
    conflicts: tuple[str, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    current_files: Files = field(default_factory=dict)
    merged: bool = False


def rebased_content(
    library: Library, proposal: Proposal, head: Head | None, now: Files
) -> RebasedContent:
    """Return what a proposal leads to from `now`: the head's files, or what was approved together
    with it.

    A line that was added, such as a fact, is added to what there is now. Raises Conflict for a
    removal of what changed since.
    """
    version = (head.version if head else None) or 0
    theirs = library.store.files_of(proposal.manifest)
    base = library.store.files(head, proposal.base) if head is not None and proposal.base else {}
    if now == base:
        return RebasedContent(version, theirs)
    # A line that is added needs no merge: it is put behind what there is now.
    again = _add_line(proposal, now)
    if again is not None:
        return RebasedContent(version, again, merged=True)
    if proposal.removes:
        raise Conflict(
            f"{proposal.ref} was at version {proposal.base} when its removal was proposed and is "
            f"at {version} now.",
            f"Reject it. To remove it as it is now, run: evolvable remove {proposal.ref}",
        )
    if not now:
        return RebasedContent(version, theirs, tuple(sorted(theirs)), merged=True)
    merged, conflicts = merge_files(base, now, theirs), set[str]()
    # Two sound sides can merge into an unsound file, such as frontmatter with a key twice.
    breaks_rules = not merged.conflicts and _breaks_rules(proposal, merged.files)
    if breaks_rules and not _breaks_rules(proposal, theirs):
        conflicts = {
            path
            for path, file in merged.files.items()
            if file not in (now.get(path), theirs.get(path))
        }
    conflicts |= set(merged.conflicts)
    current_files = merge_files(base, theirs, now).files if conflicts else {}
    return RebasedContent(
        version, merged.files, tuple(sorted(conflicts)), merged.overlaps, current_files, merged=True
    )


def rebase_on_head(library: Library, proposal: Proposal) -> tuple[RebasedContent, Files]:
    """Return what a proposal leads to, as `rebased_content` does, and the head's files."""
    head = library.store.head_or_none(proposal.ref)
    now = library.store.files(head) if head is not None and head.version else {}
    return rebased_content(library, proposal, head, now), now


def last_stood_for(
    library: Library, head: Head | None, version: int, now: Files
) -> tuple[int, Files]:
    """Return what a merged proposal is compared with, and its version.

    That is `now`, or what a person stood for before a stranger changed it. An approval of the
    merged text covers all of it, so the difference that the person reads has to show all of it too.
    """
    if head is None or not version:
        return version, now
    if not _is_strangers(authorships(library, [head.id]).get(head.id)):
        return version, now
    base = version_base(library, head, version) or 0
    return base, library.store.files(head, base) if base else {}


def _is_strangers(authorship: Authorship | None) -> bool:
    """Return whether a text has something of somebody else than the person and the
    person's agent.
    """
    return authorship is not None and bool(
        authorship.pulled or (authorship.why and authorship.kind is not AuthorKind.AGENT)
    )


def rebase(
    library: Library,
    proposal: Proposal,
    head: Head | None,
    now: Files,
    settled: Mapping[str, str | bytes | None],
) -> RebasedContent:
    """Return what a proposal leads to, as `rebased_content` does.

    settled: the files that a person decided on. A conflict there is dealt with. Raises Conflict
    where both sides changed the same in any other file.
    """
    found = rebased_content(library, proposal, head, now)
    if any(path not in settled for path in found.conflicts):
        raise Conflict(conflict_text(proposal, found), way_out(proposal.id))
    return found


def way_out(proposal: int) -> str:
    """Return what a person can do about a proposal that is in conflict with the head."""
    return (
        f"`evolvable inbox edit {proposal}` settles the lines, `evolvable inbox take {proposal}` "
        f"takes those of the proposal, `evolvable inbox reject {proposal}` keeps what is there. "
        "In a client: approve with files."
    )


def conflict_text(proposal: Proposal, found: RebasedContent) -> str:
    """Return in a sentence where a proposal and what there is now changed the same."""
    if not found.version:
        return (
            f"{proposal.ref} was removed since proposal {proposal.id} was made from version "
            f"{proposal.base}."
        )
    where = name_overlaps(MergeResult({}, found.conflicts, found.overlaps))
    since = f"{proposal.ref} changed since in the same places as proposal {proposal.id}"
    return f"{since}: {where} of version {found.version}."


def conflict_sides(found: RebasedContent) -> str:
    """Return both sides of each conflict, what is there now before what is proposed; of no file of
    secrets.
    """
    overlaps = [overlap for overlap in found.overlaps if not is_env_file(overlap.path)]
    return both_sides(overlaps, f"@{found.version}", ", as proposed")


def taken_files(found: RebasedContent) -> dict[str, bytes | None]:
    """Return the files in conflict as a person has them who takes the lines of the proposal."""
    return {
        path: found.files[path].data if path in found.files else None for path in found.conflicts
    }


def texts_to_edit(found: RebasedContent, now: Files) -> dict[str, str]:
    """Return the text files that differ from what is there now, as they would be approved, for a
    person to edit.

    Where both sides changed the same lines, both stand there between the marks that git uses. No
    text with such marks is approved.
    """
    texts = {}
    for path in sorted({*found.files, *found.conflicts}):
        file, old = found.files.get(path), (found.current_files or now).get(path)
        text = decode_text(file.data) if file else ""
        if path in found.conflicts and found.version:
            before = decode_text(old.data) if old else ""
            text = _add_marks(before, text) if before is not None and text is not None else None
        if text is not None and (path in found.conflicts or file != now.get(path)):
            texts[path] = text
    return texts


@dataclass(frozen=True, slots=True)
class MergePart:
    """A part of a merged text: `both` where both sides are equal, else the lines there now and
    those proposed.
    """

    both: str = ""
    now: str = ""
    proposed: str = ""


def parts_to_settle(found: RebasedContent, now: Files) -> dict[str, list[MergePart]]:
    """Return by path the parts of each text file in conflict, in order.

    Joined they are the whole text.
    """
    parts = {}
    for path in found.conflicts if found.version else ():
        file, old = found.files.get(path), (found.current_files or now).get(path)
        before, text = (decode_text(side.data) if side else "" for side in (old, file))
        if before is not None and text is not None:
            parts[path] = _split_parts(before, text)
    return parts


def _split_parts(ours: str, theirs: str) -> list[MergePart]:
    before, after = _split_lines(ours), _split_lines(theirs)
    result, done, offset = list[MergePart](), 0, 0
    for start, end, count in changed_lines(ours, theirs):
        offset += start - done
        if start > done:
            result.append(MergePart("".join(before[done:start])))
        ours_lines = "".join(before[start:end])
        theirs_lines = "".join(after[offset : offset + count])
        result.append(MergePart("", ours_lines, theirs_lines))
        done, offset = end, offset + count
    if before[done:]:
        result.append(MergePart("".join(before[done:])))
    return result


def _add_marks(ours: str, theirs: str) -> str:
    """Return a text with git's marks around the lines in which two differ."""
    marked = (
        part.both
        or f"<<<<<<< now\n{end_with_newline(part.now)}=======\n"
        f"{end_with_newline(part.proposed)}>>>>>>> proposed\n"
        for part in _split_parts(ours, theirs)
    )
    return "".join(marked)


def end_with_newline(text: str) -> str:
    """Return lines of which the last one has an end too."""
    return text if text.endswith("\n") or not text else f"{text}\n"


def _split_lines(text: str) -> list[str]:
    *whole, last = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, last] if last else lines


def _add_line(proposal: Proposal, now: Files) -> Files | None:
    """Return the files with the line that a proposal adds; None when that is not what it does."""
    adds = json.loads(proposal.grounds or "{}").get("adds")
    if not isinstance(adds, dict):
        return None
    if "fact" in adds:
        from evolvable_tools.verbs.memory_facts import add_fact  # late: 13 ms, for a stemmer

        day = date.fromisoformat(str(adds["day"]))
        return add_fact(now, proposal.name, str(adds["fact"]), day).files
    return append_line(now, str(adds["path"]), str(adds["line"])) if now else None


def _breaks_rules(proposal: Proposal, files: Files) -> bool:
    return bool(broken_rules(find_problems(proposal.kind, proposal.name, files)))
