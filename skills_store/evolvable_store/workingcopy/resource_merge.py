"""Merge what a person saved in a directory with the versions that were made meanwhile.

Files are merged by lines. The rules of the resource decide whether the result may be the next version.
"""

from evolvable_store.agent_grants import read_grants
from evolvable_store.frontmatter import parse_document
from evolvable_store.merge import MergeResult, merge_files
from evolvable_store.objects import Files
from evolvable_store.operation import Head
from evolvable_store.resource import Kind
from evolvable_store.validation import broken_rules, find_problems, main_path


def merge_resource(head: Head, base: Files, ours: Files, theirs: Files) -> MergeResult:
    """Return the merge; a conflict where it would be invalid though both sides are valid.

    Of an agent also where it would grant what one of the sides does not: a merge never adds up what each side allowed.

    Args:
        head: The resource.
        base: The version that both sides began with.
        ours: The files that the library has now.
        theirs: The files that the person saved, which win where both sides changed the same lines.
    """
    merged = merge_files(base, ours, theirs)
    main = main_path(head.kind, head.name, merged.files)
    if main in merged.conflicts or not main:
        return merged
    wrong = [bool(broken_rules(find_problems(head.kind, head.name, files))) for files in (merged.files, ours, theirs)]
    too_wide = (
        head.kind is Kind.AGENT and main in ours and main in theirs and _adds_up(main, merged.files, ours, theirs)
    )
    if wrong != [True, False, False] and not too_wide:
        return merged
    return MergeResult({**merged.files, main: theirs[main]}, tuple(sorted({*merged.conflicts, main})))


def _adds_up(main: str, merged: Files, ours: Files, theirs: Files) -> bool:
    """Return whether the merged agent would grant what one of the sides does not."""
    of_merged, *sides = (read_grants(parse_document(files[main].data)) for files in (merged, ours, theirs))
    return any(of_merged.widened(side) for side in sides)
