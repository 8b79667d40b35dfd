"""Which commands of task sets a person approved: by hash, so that what is changed afterwards is asked about again."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from evolvable_store.errors import Refused
from evolvable_tools.evolve.task import Task, TaskSet

FILE = "approved-commands.jsonl"
"""The file of approvals, in the folder of all runs: one line of JSON each, which are only ever added."""

_PLACEHOLDERS = ("{python}", "{taskset}")


class Unapproved(Refused):
    """A task set brings commands, and no person approved them."""


def commands_of(taskset: TaskSet) -> list[tuple[str, ...]]:
    """Return the commands that a task set brings: scorers and setup, each once.

    A scorer that it only names is the person's own command, and none of these.
    """
    return sorted({command for task in taskset.tasks for command in _commands(task)})


def _commands(task: Task) -> Iterator[tuple[str, ...]]:
    yield from task.setup
    argv = task.scorer.args.get("argv") if task.scorer.type == "command" else None
    if isinstance(argv, list | tuple):
        yield tuple(str(part) for part in argv)


def approval_digest(taskset: TaskSet) -> str:
    """Return the sha256 of everything that decides what its commands do.

    That is their arguments, the programs that they start as they are on this machine, and all files of the task set.
    """
    commands = [[list(command), *program_of(command[0])] for command in commands_of(taskset)]
    return hashlib.sha256(json.dumps([taskset.digest, _files(taskset), commands]).encode()).hexdigest()


def is_approved(home: Path, taskset: TaskSet) -> bool:
    """Return whether a person approved the commands of this task set as they are now."""
    wanted = approval_digest(taskset)
    try:
        lines = (home / "evolve" / FILE).read_bytes().splitlines()
    except OSError:
        return False
    return any(_digest(line) == wanted for line in lines)


def approve(home: Path, taskset: TaskSet, *, via: str) -> None:
    """Record that a person approved the commands of a task set. via: how they were asked."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    said = {"digest": approval_digest(taskset), "name": taskset.name, "at": at, "via": via}
    place = home / "evolve" / FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "ab") as file:
        file.write(json.dumps(said).encode("ascii") + b"\n")


def refuse_unapproved(home: Path, taskset: TaskSet, what: str) -> None:
    """Raise Unapproved where a task set brings commands that no person approved."""
    if commands_of(taskset) and not is_approved(home, taskset):
        shown = "; ".join(" ".join(command)[:200] for command in commands_of(taskset)[:3])
        raise Unapproved(
            f"{what} brings commands of its own, and no person approved them yet: {shown}.",
            "Nothing of it was run. A person reads its files and approves them at a terminal, where it is asked.",
        )


def program_of(word: str) -> tuple[str, str]:
    """Return where the program of a command is and the sha256 of its bytes; '' for what is not there."""
    if word.startswith(_PLACEHOLDERS):
        return word, ""
    found = shutil.which(word)
    if found is None:
        return "", ""
    place = Path(found).resolve()
    try:
        with place.open("rb") as file:
            return str(place), hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return str(place), ""


def _files(taskset: TaskSet) -> list[list[str]]:
    return [[path, hashlib.sha256(data).hexdigest()] for path, data in sorted(taskset.files.items())]


def _digest(line: bytes) -> str:
    try:
        said = json.loads(line)
    except ValueError:
        return ""
    return str(said.get("digest", "")) if isinstance(said, dict) else ""
