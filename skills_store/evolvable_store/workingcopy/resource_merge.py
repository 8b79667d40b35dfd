"""Merge a person's files with versions that were made meanwhile; take changes out of a head.

Files are merged by lines. The rules of the resource decide whether the result may be the next
version.
"""

from evolvable_store.agent_grants import read_grants
from evolvable_store.frontmatter import parse_document
from evolvable_store.merge import MergeResult, Overlap, merge_files
from evolvable_store.objects import Files
from evolvable_store.operation import Head
from evolvable_store.resource import Kind
from evolvable_store.validation import broken_rules, find_problems, main_path

# The message goes to a model and to a terminal.
MOST_NAMED = 5
"""Overlapping places that a message names; it counts the rest."""


def merge_resource(head: Head, base: Files, ours: Files, theirs: Files) -> MergeResult:
    """Return the merge of both sides.

    An invalid result of two valid sides is a conflict. So is an agent that would be granted more
    than one of the sides grants: a merge never adds up the grants. In both cases the whole main
    file is that of `theirs`.

    Args:
        head: The resource.
        base: The version that both sides began with.
        ours: The files that the library has now.
        theirs: The files that the person saved, which win where both sides changed the same lines.
    """
    return _check_merge(head, merge_files(base, ours, theirs), ours, theirs, most_grants=1)


def merge_back(head: Head, after: Files, now: Files, before: Files) -> MergeResult:
    """Return `now` without the changes from `before` to `after`.

    Later changes that overlap with them are a conflict. So is an agent that would be granted more
    than either side grants. Grants of `before` come back.
    """
    return _check_merge(head, merge_files(after, now, before), now, before, most_grants=2)


def _check_merge(
    head: Head, merged: MergeResult, ours: Files, theirs: Files, *, most_grants: int
) -> MergeResult:
    """Return the merge, with the main file of `theirs` where the rules refuse the merged one.

    most_grants: how many sides have to lack a grant of the merged agent for it to be refused.
    """
    main = main_path(head.kind, head.name, merged.files)
    # The person's own main file is never judged here.
    if not main or merged.files[main] == theirs.get(main):
        return merged
    # Only a result that is wrong where both sides are right is the merge's fault.
    wrong = [
        bool(broken_rules(find_problems(head.kind, head.name, files)))
        for files in (merged.files, ours, theirs)
    ]
    is_wrong = wrong == [True, False, False]
    is_agent = head.kind is Kind.AGENT and main in ours and main in theirs
    too_wide = is_agent and _count_widened(main, merged.files, ours, theirs) >= most_grants
    if main not in theirs or not (is_wrong or too_wide):
        return merged
    overlaps = tuple(overlap for overlap in merged.overlaps if overlap.path != main)
    conflicts = tuple(sorted({*merged.conflicts, main}))
    return MergeResult({**merged.files, main: theirs[main]}, conflicts, overlaps)


def _count_widened(main: str, merged: Files, ours: Files, theirs: Files) -> int:
    """Return how many of the sides do not grant all that the merged agent would grant."""
    of_merged, *sides = (
        read_grants(parse_document(files[main].data)) for files in (merged, ours, theirs)
    )
    return sum(bool(of_merged.list_added_grants(side)) for side in sides)


def name_overlaps(merged: MergeResult) -> str:
    """Return the conflicts of a merge as a text: each file with its overlapping lines in `ours`."""
    places = []
    for path in merged.conflicts:
        here = [overlap for overlap in merged.overlaps if overlap.path == path]
        lines = [_name_lines(overlap) for overlap in here[:MOST_NAMED]]
        more = [f"{len(here) - MOST_NAMED} more"] if len(here) > MOST_NAMED else []
        where = ", ".join([*lines, *more]) if here else "the whole file"
        places.append(f"{path} ({where})")
    more = [f"{len(places) - MOST_NAMED} more files"] if len(places) > MOST_NAMED else []
    return ", ".join([*places[:MOST_NAMED], *more])


def _name_lines(overlap: Overlap) -> str:
    first, last = overlap.ours_line, overlap.ours_line + count_lines(overlap.ours) - 1
    if last < first:
        return f"lines removed before line {first}"
    return f"line {first}" if first == last else f"lines {first} to {last}"


def count_lines(text: str) -> int:
    """Return how many lines a text has; only a line feed ends one."""
    return text.count("\n") + (text[-1:] not in ("", "\n"))
