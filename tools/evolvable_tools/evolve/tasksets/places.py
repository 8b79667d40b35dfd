"""Where task sets are found: a file or a folder on disk, or an environment of the library."""

import stat
from pathlib import Path

from evolvable_store.errors import InvalidArgument, NoSuchResource, NotFound, Refused
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Kind, Ref, slugify
from evolvable_store.workingcopy.tree_reader import read_folder, read_single
from evolvable_tools.evolve.task import TaskSet
from evolvable_tools.evolve.tasksets.approvals import commands_of, is_approved, refuse_unapproved
from evolvable_tools.evolve.tasksets.reading import LINES, InvalidTaskSet, read_taskset
from evolvable_tools.evolve.tasksets.splitting import Ratios
from evolvable_tools.library import Caller, Library
from evolvable_tools.trust import Trust, trust_levels


class NoTaskSet(NotFound):
    """There is no file or folder at this place."""


def taskset_from_path(path: Path, ratios: Ratios | None = None) -> TaskSet:
    """Returns the task set of a folder, or of one file of lines. Raises NoTaskSet, InvalidTaskSet."""
    try:
        folder = stat.S_ISDIR(path.stat().st_mode)
        # The place itself may be a link; what lies in it may not lead elsewhere.
        reading = read_folder(path.resolve()) if folder else read_single(path.resolve(), LINES)
    except OSError as error:
        raise NoTaskSet(
            f"There is no task set at {path}: {error.strerror or error}.",
            f"Name a folder with {LINES}, a file of lines, or an environment of the library (environment:NAME).",
        ) from None
    name = slugify(path.resolve().name if folder else path.stem) or "tasks"
    if reading.left_out:
        raise InvalidTaskSet(name, [f"{where}: {why}" for where, why in reading.left_out.items()])
    return read_taskset(name, {where: file.data for where, file in reading.files.items()}, ratios)


def taskset_of(library: Library, caller: Caller, ref: Ref, ratios: Ratios | None = None) -> tuple[TaskSet, int]:
    """Returns the task set of an environment (its newest version, or the one named), and the version it is.

    Raises NoSuchResource, NoSuchVersion, InvalidArgument for another kind, InvalidTaskSet.
    """
    if ref.kind is not Kind.ENVIRONMENT:
        raise InvalidArgument(f"{ref} is no environment.", f"Write environment:{ref.name} if it is one.")
    library.take_in([ref.at(None)])
    try:
        head = library.store.head(ref.at(None), caller.scopes)
    except NoSuchResource as error:
        hint = "`evolvable taskset list` shows those there are, `evolvable import FOLDER --kind environment` adds one."
        raise NoSuchResource(str(error), hint) from None
    files = library.store.files(head, ref.version)
    taskset = read_taskset(head.name, {path: file.data for path, file in files.items()}, ratios)
    return taskset, ref.version or head.version or 0


def runs_commands(taskset: TaskSet) -> bool:
    """Returns whether measuring on this task set runs commands: scorers or setup."""
    return any(task.scorer.type == "command" or task.setup for task in taskset.tasks)


def refuse_unvouched(library: Library, caller: Caller, ref: Ref, taskset: TaskSet) -> None:
    """Raise Refused when a task set brings commands that no person wrote here or approved.

    What came from elsewhere is approved by the hash of its commands and files, whoever took it in.
    """
    if not commands_of(taskset) or is_approved(library.store.home, taskset):
        return
    head = library.store.head(ref.at(None), caller.scopes)
    if ref.version in (None, head.version):
        # That sessions did well with it vouches for nothing here: an agent tells that as well.
        trust = trust_levels(library, [head.id])[head.id]
        unvouched = trust in (Trust.AGENT, Trust.PROVEN)
        imported = trust in (Trust.IMPORT, Trust.LOCAL, Trust.UNTRUSTED)
    else:
        [past] = library.store.history(head, 1, below=(ref.version or 0) + 1)
        actor, principal = past.operation.actor, past.operation.principal
        unvouched = actor not in (Actor.HUMAN, Actor.IMPORT)
        imported = not unvouched and principal not in (Principal.PERSON, Principal.SCRIPT, None)
    if imported:
        refuse_unapproved(library.store.home, taskset, str(head.ref))
    if unvouched:
        raise Refused(
            f"{head.ref} brings commands of its own and was written by an agent; no person approved it yet.",
            "Nothing of it was run. A person reads its files and approves them at a terminal, where it is asked.",
        )
