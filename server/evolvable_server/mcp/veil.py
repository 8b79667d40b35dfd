"""What clients are shown of task sets: the agent behind one may be the one that thinks for a run of evolution.

Whatever it reads goes through here, be it a file, a difference, or what was proposed.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from evolvable_store.errors import NoSuchResource, Refused
from evolvable_store.operation import Head
from evolvable_store.resource import Kind, Ref
from evolvable_tools.library import Caller, Library
from evolvable_tools.secret_leaks import check_served, is_env_file

if TYPE_CHECKING:
    from evolvable_tools.verbs.load import Loaded
    from evolvable_tools.verbs.proposal_inbox import WaitingProposal
    from evolvable_tools.verbs.versions import History

_LINES, _FOLDER = "tasks.jsonl", "tasks/"

NO_DIFF = (
    "(not shown to agents: it touches the tasks of a task set. A person sees it with `evolvable history` and `evolvable"
    " inbox`.)\n"
)
"""What stands in the place of a difference."""


def file_seen(library: Library, head: Head, path: str, version: int | None) -> bytes:
    """Returns a file as a client is shown it. Raises NoSuchVersion, NoSuchFile."""
    if is_env_file(path) and (entry := library.store.manifest(head, version).get(path)) is not None:
        check_served(library, None, head.ref, version or head.latest, path, entry.sha256)
    data = library.store.file(head, path, version).data
    if not _is_task_set(library, head, version):
        return data
    from evolvable_tools.evolve.tasks.holdout import redact_file  # late: a server answers before anybody evolves

    return redact_file(path, {name: file.data for name, file in library.store.files(head, version).items()})


def loaded_seen(library: Library, caller: Caller, loaded: "Loaded") -> "Loaded":
    """Returns a loaded document as a client is shown it."""
    ref = Ref.parse(loaded.ref)
    if ref.kind is not Kind.ENVIRONMENT or loaded.text is None:
        return loaded  # of what is no text only the size is shown
    head = _head(library, caller, ref)
    data = file_seen(library, head, loaded.path, loaded.version)
    return replace(loaded, text=data.decode("utf-8", "replace"), size=len(data))


def history_seen(library: Library, caller: Caller, past: "History") -> "History":
    """Returns a history as a client is shown it."""
    ref = Ref.parse(past.ref)
    if not past.diff or ref.kind is not Kind.ENVIRONMENT:
        return past
    return replace(past, diff=NO_DIFF) if _ever_task_set(library, _head(library, caller, ref)) else past


def proposals_seen(library: Library, caller: Caller, waiting: "Iterable[WaitingProposal]") -> "list[WaitingProposal]":
    """Returns proposals as a client is shown them."""
    return [
        replace(one, diff=NO_DIFF)
        if one.diff and Ref.parse(one.ref).kind is Kind.ENVIRONMENT and _touches_tasks(library, caller, one)
        else one
        for one in waiting
    ]


def check_copy(library: Library, caller: Caller, source: Ref, target: Ref) -> None:
    """Raises Refused when a task set would be copied to where nothing of it is hidden. Raises NoSuchResource."""
    if source.kind is not Kind.ENVIRONMENT or target.kind is Kind.ENVIRONMENT:
        return
    if _is_task_set(library, library.store.head(source.at(None), caller.scopes), source.version):
        raise Refused(
            f"{source} is a task set; it is copied to another environment only.", "Write the files that are needed."
        )


def _head(library: Library, caller: Caller, ref: Ref) -> Head:
    return library.store.head_or_none(ref.at(None), caller.scopes) or library.store.head(ref.at(None), caller.scopes)


def _is_task_set(library: Library, head: Head, version: int | None) -> bool:
    return head.kind is Kind.ENVIRONMENT and _holds_tasks(library.store.manifest(head, version))


def _ever_task_set(library: Library, head: Head) -> bool:
    return any(_holds_tasks(library.store.manifest(head, number)) for number in range(1, head.latest + 1))


def _touches_tasks(library: Library, caller: Caller, one: "WaitingProposal") -> bool:
    if _holds_tasks(one.files):
        return True
    try:
        return _ever_task_set(library, _head(library, caller, Ref.parse(one.ref)))
    except NoSuchResource:
        return False


def _holds_tasks(paths: Iterable[str]) -> bool:
    return any(path == _LINES or path.startswith(_FOLDER) for path in paths)
