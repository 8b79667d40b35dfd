"""A proposal on a base that has moved: merged with what happened since, made anew, or said to be impossible."""

import json
from datetime import date

from evolvable_store.errors import Conflict, EvolvableError
from evolvable_store.objects import File, Files
from evolvable_store.operation import Head
from evolvable_store.storage.proposals import Proposal
from evolvable_store.validation import blocking_problems, find_problems
from evolvable_tools.library import Library


def rebased(library: Library, proposal: Proposal, head: Head | None, now: Files) -> Files:
    """Returns the content that a proposal leads to, from `now`: the head's files, or what was approved with it.

    A line that was added, such as a fact, is added to what there is now. Raises Conflict when it cannot be.
    """
    store = library.store
    theirs = store.files_of(proposal.manifest)
    base = store.files(head, proposal.base) if head is not None and proposal.base else {}
    if now == base:
        return theirs
    again = _added(proposal, now)
    if again is not None:
        return again
    if not proposal.base or not now or proposal.removes:
        at = (head.version if head else None) or 0
        raise Conflict(
            f"{proposal.ref} was at version {proposal.base} when this was proposed and is at {at} now.",
            "Reject it, and propose the change anew.",
        )
    from evolvable_store.merge import merge_files  # late: most proposals are never rebased

    merged = merge_files(base, now, theirs)
    if merged.conflicts or _made_wrong(proposal, merged.files, theirs):
        raise Conflict(
            f"{proposal.ref} changed since in the same places: {', '.join(merged.conflicts) or 'its frontmatter'}.",
            "Reject it, and propose the change anew from the head.",
        )
    return merged.files


def cannot_be(library: Library, proposal: Proposal, head: Head | None) -> str:
    """Returns why a proposal that waits can no longer be made, '' when it can."""
    try:
        rebased(library, proposal, head, library.store.files(head) if head and head.version else {})
    except EvolvableError as error:
        return error.text
    return ""


def _added(proposal: Proposal, now: Files) -> Files | None:
    """Returns the files with the line that a proposal adds; None when that is not what it does."""
    adds = json.loads(proposal.grounds or "{}").get("adds")
    if not isinstance(adds, dict):
        return None
    if "fact" in adds:
        from evolvable_tools.memory import add_fact

        return add_fact(now, proposal.name, str(adds["fact"]), date.fromisoformat(str(adds["day"]))).files
    theirs = str(adds["line"])
    path, text = str(adds["path"]), now[adds["path"]].data.decode("utf-8", "replace") if adds["path"] in now else ""
    if not now or theirs in text.split("\n"):
        return now or None
    return {**now, path: File(f"{text.rstrip(chr(10))}\n{theirs}\n".lstrip("\n").encode())}


def _made_wrong(proposal: Proposal, merged: Files, theirs: Files) -> bool:
    wrong = [
        bool(blocking_problems(find_problems(proposal.kind, proposal.name, files), strict=True))
        for files in (merged, theirs)
    ]
    return wrong == [True, False]
