"""Find tasks that say nothing of a program: it was made from them, repeats them, or is in them."""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evolvable_evolve.evolution.candidates import LeakCorpus, Program
from evolvable_evolve.evolution.task import Split, Task, TaskSet, task_fixtures
from evolvable_evolve.evolution.tasks.session_files import ARCHIVE
from evolvable_evolve.evolution.tasks.session_import import (
    SESSION_SOURCE,
    sessions_behind_proposals,
)
from evolvable_store import read_regular
from evolvable_store.resource import Ref
from evolvable_tools import Library

MARK = 40
"""The fewest characters of a line that counts as a skill's own; shorter lines occur anywhere."""

_MIN_COPY = 60  # bytes from which on equal files are copies
_COPIED = 0.5, 2  # share of a skill's own lines, and their least number, that make a text a copy
_MAX_UNPACKED = 64 * 2**20  # bytes of an archive; a larger one is not unpacked
_MAX_RULES = 2**20  # bytes of a file of rules that is read
_MAX_FOLDERS = 500

_CLIENT_FOLDERS = (
    ".claude",
    ".codex",
    ".agents",
    ".copilot",
    ".gemini",
    ".qwen",
    ".factory",
    ".kimi",
    ".config/opencode",
)
_RULES = ("CLAUDE.md", "AGENTS.md", "GEMINI.md", "QWEN.md")


@dataclass(frozen=True)
class SkillCopies:
    """Marks of a program's skills, wherever they are: their names, their files, their own lines."""

    names: frozenset[str]
    hashes: frozenset[bytes]
    lines: frozenset[str]

    @classmethod
    def of(cls, program: Program) -> "SkillCopies":
        """Return the marks of the parts of a program."""
        files = [data for part in program.parts for data in part.files.values()]
        texts = [text for part in program.parts for text in part.texts.values()]
        lines = [line.strip() for text in texts for line in text.splitlines()]
        return cls(
            frozenset(part.name for part in program.parts),
            frozenset(hashlib.sha256(data).digest() for data in files if len(data) >= _MIN_COPY),
            frozenset(line for line in lines if len(line) >= MARK),
        )

    def is_file_of(self, data: bytes) -> bool:
        """Return whether bytes are a file of the program."""
        return len(data) >= _MIN_COPY and hashlib.sha256(data).digest() in self.hashes

    def is_copy(self, data: bytes) -> bool:
        """Return whether bytes are a file of the program, or a text with half of its own lines."""
        if self.is_file_of(data):
            return True
        text_lines = {line.strip() for line in data.decode("utf-8", "replace").splitlines()}
        share, least = _COPIED
        return len(self.lines & text_lines) >= max(least, share * len(self.lines))


def find_taught(
    library: Library, taskset: TaskSet, refs: Sequence[Ref], program: Program
) -> dict[str, str]:
    """Return the open tasks that the program was made from or repeats, with the reasons.

    A fork of a session among the evidence has only its own prompts, and those are no evidence.
    """
    learned = {"-".join(session.split()) for session in sessions_behind_proposals(library, refs)}
    reasons = {}
    copies = SkillCopies.of(program)
    texts = [text for part in program.parts for text in part.texts.values()]
    for task in taskset.tasks:
        # Nothing reads a test task before the verdict.
        if task.split is Split.TEST:
            continue
        is_from_session = task.source.startswith(SESSION_SOURCE)
        if is_from_session and task.source.removeprefix(SESSION_SOURCE) in learned:
            reasons[task.id] = "taught: its session is among the evidence of the skill"
        elif any(copies.is_file_of(data) for _, data in _iter_workspace(task, taskset)):
            reasons[task.id] = "taught: a file of it stands in the skill"
        elif _repeats(task, texts):
            reasons[task.id] = "taught: its expected answer stands in the skill"
    return reasons


def _repeats(task: Task, texts: Sequence[str]) -> bool:
    """Return whether a text has the expected answer of a task.

    Commands and prompts are no answers.
    """
    answers = replace(task, prompt="", scorer=replace(task.scorer, args={}))
    corpus = LeakCorpus([answers])
    return any(corpus.leaks(text) for text in texts)


def find_exposed(taskset: TaskSet, program: Program) -> dict[str, str]:
    """Return the open tasks whose files have the skill, by name or as a copy, with the reasons.

    Both arms would have the skill there.
    """
    copies, reasons = SkillCopies.of(program), dict[str, str]()
    open_tasks = [task for task in taskset.tasks if task.split is not Split.TEST]
    for task in open_tasks:
        for path, data in _iter_workspace(task, taskset):
            folders = Path(path).parts[:-1]
            is_skill_folder = "skills" in folders and bool(copies.names.intersection(folders))
            if is_skill_folder or copies.is_copy(data):
                reasons[task.id] = f"its files hold the skill: {path}"
                break
    return reasons


def _iter_workspace(task: Task, taskset: TaskSet) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a task's workspace, with those of a packed project."""
    for path, data in task_fixtures(task, taskset.files).items():
        yield path, data
        if path.rpartition("/")[2] == ARCHIVE:
            yield from _iter_unpacked(data)


def _iter_unpacked(data: bytes) -> Iterator[tuple[str, bytes]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            # The sizes in the index, so that an archive that unpacks to gigabytes is never opened.
            if sum(entry.file_size for entry in entries) <= _MAX_UNPACKED:
                for entry in entries:
                    if not entry.is_dir():
                        yield entry.filename, archive.read(entry)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError):
        return


def find_copies(program: Program, home: Path) -> list[str]:
    """Return the paths of copies of the program in the clients' folders below a home.

    A skill is found by its name or its content, a file of rules by its content. Transcripts and
    other records of clients are not read.
    """
    copies, paths = SkillCopies.of(program), list[Path]()
    for folder in (home / name for name in _CLIENT_FOLDERS):
        paths += [folder / name for name in _RULES if _is_copy_at(copies, folder / name)]
        for path in _list_subfolders(folder / "skills"):
            if path.name in copies.names or _is_copy_at(copies, path / "SKILL.md"):
                paths.append(path)
    return list(map(str, paths))


def _list_subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())[:_MAX_FOLDERS]
    except OSError:
        return []


def _is_copy_at(copies: SkillCopies, path: Path) -> bool:
    try:
        return copies.is_copy(read_regular(path, _MAX_RULES))
    except OSError:
        return False
