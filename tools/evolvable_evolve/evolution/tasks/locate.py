"""Find and write task sets, record approvals of their commands, and guard a run's files."""

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.task import (
    RegisteredScorer,
    Split,
    SplitRatios,
    Task,
    TaskSet,
    named_files,
)
from evolvable_evolve.evolution.tasks.reader import (
    ALIKE,
    ENVIRONMENT_FILE,
    FOLDER,
    LINES,
    InvalidTaskSet,
    is_unassigned,
    read_alike,
    read_taskset,
    task_folders,
)
from evolvable_store import Actor, Head, Principal, find_frontmatter, read_regular
from evolvable_store.errors import (
    EvolvableError,
    InvalidArgument,
    NoSuchResource,
    NotFound,
    Refused,
)
from evolvable_store.resource import Kind, Ref, slugify
from evolvable_store.workingcopy import read_folder, read_single
from evolvable_tools import (
    AuthorKind,
    Caller,
    Library,
    authorships,
    version_authorship,
    version_base,
)
from evolvable_tools.llm import NamedCommands, parse_json

APPROVALS_FILE = "approved-commands.jsonl"
"""The file of approvals in the folder of all runs, one line of JSON each; lines are only added."""

# They are replaced when a command runs, so they name no program yet.
_PLACEHOLDERS = ("{python}", "{taskset}")


class CommandsUnapproved(Refused):
    """A task set brings commands that no person approved."""


def list_commands(taskset: TaskSet) -> list[tuple[str, ...]]:
    """Return the commands that a task set brings: scorers, public checks and setup, each once.

    A scorer that it names only is the person's own command, and not one of these.
    """
    return sorted({command for task in taskset.tasks for command in _task_commands(task)})


def _task_commands(task: Task) -> Iterator[tuple[str, ...]]:
    yield from task.setup
    if task.public:
        yield task.public.argv
    argv = task.scorer.args.get("argv") if task.scorer.type == "command" else None
    if isinstance(argv, list | tuple):
        yield tuple(str(part) for part in argv)


def approval_digest(taskset: TaskSet) -> str:
    """Return the sha256 of everything that decides the effect of its commands.

    That is their arguments, the programs on this machine that they start, and all files of the task
    set.
    """
    # With the program's bytes: a replaced interpreter is not what the person approved.
    commands = [[list(command), *program_of(command[0])] for command in list_commands(taskset)]
    files = [
        [path, hashlib.sha256(data).hexdigest()] for path, data in sorted(taskset.files.items())
    ]
    return hashlib.sha256(json.dumps([taskset.digest, files, commands]).encode()).hexdigest()


def is_approved(home: Path, taskset: TaskSet) -> bool:
    """Return whether a person approved the commands of this task set as they are now."""
    digest = approval_digest(taskset)
    try:
        lines = read_regular(home / "evolve" / APPROVALS_FILE).splitlines()
    except OSError:
        return False
    # A damaged line approves nothing, and does not hide the others.
    records = [parse_json(line.decode("utf-8", "replace")) for line in lines]
    return any(isinstance(record, dict) and record.get("digest") == digest for record in records)


def approve(home: Path, taskset: TaskSet, *, via: str) -> None:
    """Record that a person approved the commands of a task set. via: how they were asked."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    record = {"digest": approval_digest(taskset), "name": taskset.name, "at": at, "via": via}
    place = home / "evolve" / APPROVALS_FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    # O_APPEND: lines of two processes do not overwrite each other.
    descriptor = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "ab") as file:
        file.write(json.dumps(record).encode("ascii") + b"\n")


def refuse_unapproved(home: Path, taskset: TaskSet, what: str) -> None:
    """Raise CommandsUnapproved where a task set brings commands that no person approved."""
    if list_commands(taskset) and not is_approved(home, taskset):
        commands = "; ".join(" ".join(command)[:200] for command in list_commands(taskset)[:3])
        raise CommandsUnapproved(
            f"{what} brings commands of its own, and no person approved them yet: {commands}.",
            "Nothing of it was run. A person reads its files and approves them at a terminal, "
            "where it is asked.",
        )


def program_of(word: str) -> tuple[str, str]:
    """Return the path of a command's program and the sha256 of its bytes, '' for a missing one."""
    if word.startswith(_PLACEHOLDERS):
        return word, ""
    program = shutil.which(word)
    if program is None:
        return "", ""
    path = Path(program).resolve()
    try:
        with path.open("rb") as file:
            return str(path), hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return str(path), ""


def scorer_names(tasks: Sequence[Task]) -> dict[str, str]:
    """Return the names of the registered scorers that tasks use, each with its first task's id."""
    first_tasks: dict[str, str] = {}
    for task in tasks:
        if task.scorer.type == "command" and "name" in task.scorer.args:
            first_tasks.setdefault(str(task.scorer.args["name"]), task.id)
    return first_tasks


def registered_scorers(
    tasks: Sequence[Task], named_commands: NamedCommands | None
) -> dict[str, RegisteredScorer]:
    """Return the scorers that tasks name, as the person registered them.

    named_commands: the person's commands, None where nothing is registered. Raise Refused for a
    name that is not registered, and for a command that would run files of the task set: those are
    not approved.
    """
    scorers = dict[str, RegisteredScorer]()
    for name, task_id in scorer_names(tasks).items():
        try:
            scorers |= named_scorers([name], named_commands)
        except Refused as error:
            text = f"Task {task_id} names the scorer {ascii(name)}. {error}"
            raise Refused(text, error.hint) from None
    return scorers


def named_scorers(
    names: Iterable[str], named_commands: NamedCommands | None
) -> dict[str, RegisteredScorer]:
    """Return the scorers of these names, as the person registered them.

    Raise Refused as `registered_scorers`.
    """
    commands = named_commands or NamedCommands("scorer")
    scorers = dict[str, RegisteredScorer]()
    for name in names:
        words = commands.get(name).words
        # A registered command is trusted with any task set, so it must not run files of one.
        if any("{taskset}" in word for word in words):
            text = (
                f"The scorer {name} names files of a task set ({{taskset}}), and a registered "
                "scorer gets none."
            )
            raise Refused(
                text,
                "Write such a command as `argv` in the task set, where it is approved with "
                "its files.",
            )
        scorers[name] = RegisteredScorer(name, words, _hash_command(words))
    return scorers


def refuse_changed(
    found: Mapping[str, RegisteredScorer], recorded: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise Refused where a scorer is not the one that a run recorded when it began."""
    for name, scorer in found.items():
        if scorer.sha256 != recorded.get(name, {}).get("sha256"):
            hint = "Start a new run, or have the person register the command as it was."
            raise Refused(
                f"The scorer {name} is another command now than when the run began.", hint
            )


def _hash_command(words: Sequence[str]) -> str:
    # With the files that the command names: they decide its effect too.
    files = [
        [str(path), hashlib.sha256(path.read_bytes()).hexdigest()] for path in named_files(words)
    ]
    parts = json.dumps([list(words), program_of(words[0]), files])
    return hashlib.sha256(parts.encode()).hexdigest()


class TaskSetNotFound(NotFound):
    """There is no file or folder at this place."""


def read_taskset_path(path: Path, ratios: SplitRatios | None = None) -> TaskSet:
    """Return the task set of a folder, or of one file of lines.

    Raises TaskSetNotFound, InvalidTaskSet.
    """
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
        # The place itself may be a link; links below it may not lead elsewhere.
        reading = read_folder(path.resolve()) if is_folder else read_single(path.resolve(), LINES)
    except OSError as error:
        raise TaskSetNotFound(
            f"There is no task set at {path}: {error.strerror or error}.",
            f"Name a folder with {LINES}, a file of lines, or an environment of the library "
            "(environment:NAME).",
        ) from None
    name = slugify(path.resolve().name if is_folder else path.stem) or "tasks"
    if reading.left_out:
        problems = [f"{where}: {why}" for where, why in reading.left_out.items()]
        raise InvalidTaskSet(name, problems)
    return read_taskset(name, {where: file.data for where, file in reading.files.items()}, ratios)


def load_taskset(
    library: Library, caller: Caller, ref: Ref, ratios: SplitRatios | None = None
) -> tuple[TaskSet, int]:
    """Return the task set of an environment, and its version: the named one, else the newest.

    Its field `alike` counts only where a person stands for it; else it is empty.

    Raises NoSuchResource, NoSuchVersion, InvalidArgument for another kind, InvalidTaskSet.
    """
    if ref.kind is not Kind.ENVIRONMENT:
        raise InvalidArgument(
            f"{ref} is no environment.", f"Write environment:{ref.name} if it is one."
        )
    # Saved files become versions first, so that the head below has them.
    library.take_in([ref.at(None)])
    try:
        head = library.store.head(ref.at(None), caller.scopes)
    except NoSuchResource as error:
        hint = (
            "`evolvable evolve taskset list` shows them, `evolvable import FOLDER --kind "
            "environment` adds one."
        )
        raise NoSuchResource(str(error), hint) from None
    files = library.store.files(head, ref.version)
    version = ref.version or head.version or 0
    data = {path: file.data for path, file in files.items()}
    alike = read_alike(head.name, data)
    # An agent that wrote "all-kinds" would enlarge its own effective n.
    is_trusted = not alike or _is_persons_word(library, head, version, alike)
    return read_taskset(head.name, data, ratios, alike=alike if is_trusted else ""), version


def _is_persons_word(library: Library, head: Head, version: int, alike: str) -> bool:
    """Return whether a person stands for the field `alike` of a version, in it or in an older one.

    It is the same for every reader, because the groups rest on it, and with them a run.
    """
    authorship = version_authorship(library, head, version)
    author = authorship.of(ENVIRONMENT_FILE)
    is_agents = author.kind is AuthorKind.AGENT
    is_unvouched = author.kind is AuthorKind.MEMBER and bool(author.why)
    # An imported set is the word of its author.
    if authorship.stands or not (is_agents or is_unvouched):
        return True
    base = version_base(library, head, version)
    if base is None:
        return False
    older = library.store.files(head, base).get(ENVIRONMENT_FILE)
    # An agent's edit of other parts leaves the person's word as it was.
    return older is not None and read_alike(head.name, {ENVIRONMENT_FILE: older.data}) == alike


def needs_commands(taskset: TaskSet) -> bool:
    """Return whether measuring on this task set runs commands: scorers, public checks or setup."""
    return any(task.scorer.type == "command" or task.setup or task.public for task in taskset.tasks)


def refuse_untrusted(library: Library, caller: Caller, ref: Ref, taskset: TaskSet) -> None:
    """Raise Refused when a task set brings commands that no person wrote here or approved.

    An imported set is approved by the hash of its commands and files, no matter who imported it.
    """
    if not list_commands(taskset) or is_approved(library.store.home, taskset):
        return
    # A person who accepted such tasks in the inbox has not approved that their commands run.
    if any(task.source.startswith("session:") for task in taskset.tasks):
        refuse_unapproved(library.store.home, taskset, str(ref))
    head = library.store.head(ref.at(None), caller.scopes)
    if ref.version in (None, head.version):
        # Good outcomes of sessions do not count here, because an agent reports those as well.
        authorship = authorships(library, [head.id], caller)[head.id]
        is_agents = authorship.kind in (AuthorKind.AGENT, AuthorKind.MEMBER)
        unvouched = not authorship.stands and is_agents
        imported = not authorship.stands and not is_agents
    else:
        # An older version has the author of its own operation.
        [past] = library.store.history(head, 1, below=(ref.version or 0) + 1)
        actor, principal = past.operation.actor, past.operation.principal
        unvouched = actor not in (Actor.HUMAN, Actor.IMPORT)
        imported = not unvouched and principal not in (Principal.PERSON, Principal.SCRIPT, None)
    if imported:
        refuse_unapproved(library.store.home, taskset, str(head.ref))
    if unvouched:
        raise Refused(
            f"{head.ref} brings commands of its own and was written by an agent; no person "
            "approved it yet.",
            "Nothing of it was run. A person reads its files and approves them at a terminal, "
            "where it is asked.",
        )


_RECORD = "task.json"


def _split_task_lines(taskset: TaskSet) -> list[str]:
    # With their ends, so that unchanged lines are written back as they were.
    return re.split(r"(?<=\n)", taskset.files[LINES].decode("utf-8-sig"))


def _read_folder_records(taskset: TaskSet) -> dict[str, dict[str, Any]]:
    """Return the records of folders of tasks by their paths, an empty one where there is none."""
    paths = [f"{FOLDER}{name}/{_RECORD}" for name in task_folders(taskset.files)]
    files = taskset.files
    return {
        path: json.loads(files[path].decode("utf-8-sig")) if path in files else {} for path in paths
    }


def count_unassigned(taskset: TaskSet) -> int:
    """Return how many tasks do not name their split themselves."""
    if LINES in taskset.files:
        return sum(
            is_unassigned(json.loads(line)) for line in _split_task_lines(taskset) if line.strip()
        )
    return sum(map(is_unassigned, _read_folder_records(taskset).values()))


def render_splits(taskset: TaskSet) -> dict[str, bytes]:
    """Return the files that change when every task names its split.

    Everything else stays as it is.
    """
    splits = {task.id: task.split for task in taskset.tasks}
    if LINES in taskset.files:
        lines = [_render_line(line, splits) for line in _split_task_lines(taskset)]
        return {LINES: "".join(lines).encode()}
    changed = {}
    for path, record in _read_folder_records(taskset).items():
        if is_unassigned(record):
            assigned = record | {"split": splits[record.get("id", path.split("/")[1])]}
            changed[path] = (json.dumps(assigned, ensure_ascii=False, indent=1) + "\n").encode()
    return changed


def render_alike(taskset: TaskSet, answer: str) -> dict[str, bytes]:
    """Return ENVIRONMENT.md of a task set with a person's answer on tasks that read alike."""
    about = taskset.files.get(ENVIRONMENT_FILE, b"")
    place = find_frontmatter(about)
    # A set without a head gets one, because the answer has no other place.
    if place is None:
        head = (
            f"---\nname: {taskset.name}\ndescription: Tasks of {taskset.name}.\n"
            f"{ALIKE}: {answer}\n---\n"
        )
        return {ENVIRONMENT_FILE: head.encode() + about}
    begin, end = place.start, place.end
    # A second answer replaces the first.
    lines = [
        line
        for line in about[begin:end].splitlines(keepends=True)
        if not line.startswith(f"{ALIKE}:".encode())
    ]
    lines.append(f"{ALIKE}: {answer}\n".encode())
    return {ENVIRONMENT_FILE: about[:begin] + b"".join(lines) + about[end:]}


def _render_line(line: str, splits: Mapping[str, Split]) -> str:
    if not line.strip() or not is_unassigned(record := json.loads(line)):
        return line
    # The line keeps its own end, so that a file from Windows stays one.
    end = line[len(line.rstrip("\r\n")) :]
    return json.dumps({**record, "split": splits[record["id"]]}, ensure_ascii=False) + end


def write_files(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write files of a task set to the place that it was read from, each as a whole.

    Return the folder or the file. Raises InvalidArgument when the place cannot be written.
    """
    path = path.resolve()
    for name, data in files.items():
        target = path / name if path.is_dir() else path
        try:
            # Beside the target, so that the rename stays on one file system.
            descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.chmod(draft, target.stat().st_mode & 0o777 if target.exists() else 0o644)
            os.replace(draft, target)
        except OSError as error:
            hint = "Copy the task set to a place of your own."
            raise InvalidArgument(
                f"{target} cannot be written: {error.strerror or error}.", hint
            ) from None
    return path


# Reading the set from the library for every trial would cost more than short trials do.
RECHECK_SECONDS = 2.0
"""Seconds for which the library's task set counts as unchanged after it was read."""


class IntegrityGuard:
    """Returns why no trial counts now, because files of the run were changed, or ''.

    files: the files that the executor's command may run, with their right content. place: the
    folder of those whose path is not absolute. ref: the version of the environment, None for tasks
    that the run keeps itself. It may be called as often as trials end.
    """

    def __init__(
        self,
        library: Library,
        caller: Caller,
        ref: Ref | None,
        files: Mapping[str, bytes],
        place: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._ref, self._clock = library.store, ref, clock
        # Its versions stay readable, also when somebody removes it from the library meanwhile.
        self._head: Head | None = None
        if ref is not None:
            self._head = library.store.head(ref.at(None), caller.scopes)
        self._files = {place / path: hashlib.sha256(data).digest() for path, data in files.items()}
        # By path, the times, size and inode at which the content was right.
        self._checked: dict[Path, tuple[int, ...]] = {}
        self._first_hashes, self._checked_at = self._read_stored_hashes(), clock()

    def __call__(self) -> str:
        """Return in words which file or tasks were changed, or ''."""
        for path, sha256 in self._files.items():
            if self._is_changed(path, sha256):
                more = "What the run has of the task set is written again when it is continued."
                return f"{path} was changed, which this run measures with. {more}"
        if self._clock() - self._checked_at >= RECHECK_SECONDS:
            # A version never changes, but a purge or a damaged disk may change what is read.
            try:
                now = self._read_stored_hashes()
            except (EvolvableError, OSError) as error:
                return f"{self._ref} cannot be read any more: {error}"
            self._checked_at = self._clock()
            if now != self._first_hashes:
                return f"the tasks, splits or scorers of {self._ref} were changed in the library."
        return ""

    def _is_changed(self, path: Path, sha256: bytes) -> bool:
        try:
            status = path.stat()
            # The change time too: a program can set the modification time back.
            state = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
            if self._checked.get(path) == state:
                return False
            if hashlib.sha256(path.read_bytes()).digest() != sha256:
                return True
        except OSError:
            return True
        self._checked[path] = state
        return False

    def _read_stored_hashes(self) -> dict[str, bytes]:
        if self._head is None or self._ref is None:
            return {}
        files = self._store.files(self._head, self._ref.version)
        return {path: hashlib.sha256(file.data).digest() for path, file in files.items()}
