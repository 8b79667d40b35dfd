"""The skills and agents of a library as a client sees them: by the name, the file or the prompt
that a session has.
"""

import os
from functools import cached_property
from pathlib import Path

from evolvable_store import (
    NO_FRONTMATTER,
    Document,
    Head,
    Severity,
    parse_document,
    regular_file,
    summarize,
)
from evolvable_store.errors import EvolvableError, TryAgain
from evolvable_store.resource import USER_SCOPE, Kind, main_file
from evolvable_store.storage import Binding, WatchedFolder
from evolvable_tools.library import Library


class SkillLocator:
    """The skills of one library's folders, as a client that works in `cwd` sees them.

    home: what `~` stands for; without it, paths that begin so mean nothing.
    """

    def __init__(self, library: Library, cwd: str | None, home: Path | None = None) -> None:
        folders = [
            folder for folder in library.working_copies.folders() if folder.kind is Kind.SKILL
        ]
        self._bindings = {
            folder.path: library.working_copies.bindings.of_folder(folder) for folder in folders
        }
        self._cwd, self._home = cwd or "", home
        self._own = [folder.path for folder in folders if folder.scope == USER_SCOPE]
        self._client_folders = _find_claude_folders(folders, self._cwd)
        self._folders_at: dict[str, str] = {}

    def by_name(self, name: str) -> Binding | None:
        """Return what Claude Code's skill of this name is; None for a plugin's (with a colon) or
        another's.
        """
        if ":" in name:
            return None
        for folder in self._client_folders:
            if (binding := self._bindings[folder.path].get(name)) is not None:
                return binding
            # A link in the person's own folder to a skill of another; a name in a transcript may be
            # any text.
            is_own = folder.scope == USER_SCOPE
            if not is_own or "/" in name or name in ("", ".", ".."):
                continue
            linked = self.by_path(f"{folder.path}/{name}/{main_file(Kind.SKILL, name)}")
            if linked is not None:
                return linked[0]
        return None

    def by_own_name(self, name: str) -> Binding | None:
        """Return the skill of this name in a folder of the person's, for a client other than Claude
        Code.
        """
        bindings = (self._bindings[path].get(name) for path in self._own)
        return next((binding for binding in bindings if binding is not None), None)

    def by_path(self, path: str) -> tuple[Binding, str] | None:
        """Return the skill that a file lies in, and the file's path below it; None when it lies in
        none.
        """
        if path == "~" or path.startswith(("~/", "$HOME/")):
            if self._home is None:
                return None
            path = f"{self._home}/{path.partition('/')[2]}"
        # No path is longer, and a text from a transcript may be.
        if not path or "\0" in path or len(path) > 4096 or not (os.path.isabs(path) or self._cwd):
            return None
        real = Path(self._resolve(os.path.join(self._cwd, path))) if self._bindings else Path()
        for folder, bindings in self._bindings.items():
            parts = real.relative_to(folder).parts if real.is_relative_to(folder) else ()
            for length in range(1, len(parts)):
                binding = bindings.get("/".join(parts[:length]))
                if binding is not None:
                    return binding, "/".join(parts[length:])
        return None

    def _resolve(self, path: str) -> str:
        """Return os.path.realpath.

        A folder that many files lie in is looked at once.
        """
        folder, name = os.path.split(path)
        # A link has to be resolved itself; of other files only the folder.
        if name in ("", ".", "..") or os.path.islink(path):
            return os.path.realpath(path)
        if folder not in self._folders_at:
            self._folders_at[folder] = os.path.realpath(folder)
        return os.path.join(self._folders_at[folder], name)


MAX_AGENT_FILES = 500
"""Files and folders in the agents of one project that are looked at."""

MAX_AGENT_HEAD = 64 * 1024
"""Bytes of each of them that are read."""

MEMORY_HEADING = "\n\n# Persistent Agent Memory"
"""What Claude Code puts behind the text of an agent that has a memory of its own."""


class AgentLocator:
    """The agents of one library's folders, as Claude Code that works in `cwd` starts them by the
    name in their head.
    """

    def __init__(self, library: Library, cwd: str | None) -> None:
        self._library, self._cwd = library, cwd or ""
        self._folders = [
            folder for folder in library.working_copies.folders() if folder.kind is Kind.AGENT
        ]

    def by_prompt(self, name: str, prompt: str) -> tuple[int, int] | None:
        """Return the resource and the version whose text is the system prompt that a subagent of
        this name was given.

        None where no agent of this name has that text: a file of the same name in a repository is
        another agent. prompt: without secrets.
        """
        for head in self._heads_by_name.get(name, ()):
            # The newest first: a subagent mostly runs the version of the present.
            for version in range(head.latest, max(0, head.latest - _VERSIONS_TRIED), -1):
                if self._is_text_of(head, version, prompt):
                    return head.id, version
        return None

    def by_name(self, name: str) -> Head | None:
        """Return the agent that Claude Code starts by this name.

        None for one that the library does not have. None too where a folder of the project that is
        not watched may have one of this name.
        """
        heads = self._heads_by_name.get(name, ())
        # A name with a colon is of a plugin.
        if not heads or ":" in name or not self._cwd or not os.path.isdir(self._cwd):
            return None
        followed = {folder.path for folder in self._folders}
        here = Path(os.path.realpath(self._cwd))
        places = (
            Path(os.path.realpath(above / ".claude" / "agents")) for above in (here, *here.parents)
        )
        # Another folder may have an agent of this name, which Claude Code would start instead.
        if any(_may_have_agent(place, name) for place in places if place not in followed):
            return None
        return heads[0]

    @cached_property
    def _heads_by_name(self) -> dict[str, list[Head]]:
        """By name in the head of the file: the agents of the project before the user's."""
        heads_by_name: dict[str, list[Head]] = {}
        for folder in _find_claude_folders(self._folders, self._cwd, "agents"):
            bindings = self._library.working_copies.bindings.of_folder(folder)
            heads = self._library.store.backend.heads_by_id(
                [binding.resource for binding in bindings.values()]
            )
            for head in heads.values():
                if head.version is not None:
                    name = summarize(self._read_document(head, head.latest)).name
                    heads_by_name.setdefault(name, []).append(head)
        return heads_by_name

    def _read_document(self, head: Head, version: int) -> Document:
        try:
            data = self._library.store.file(head, main_file(head.kind, head.name), version).data
        except TryAgain:
            raise
        except EvolvableError:
            data = b""
        return parse_document(data)

    def _is_text_of(self, head: Head, version: int, prompt: str) -> bool:
        document = self._read_document(head, version)
        text, prompt_text = self._library.redact(document.body).strip(), prompt.strip()
        if not text or "memory" not in document.fields:
            return bool(text) and prompt_text == text
        return prompt_text == text or prompt_text.startswith(f"{text}{MEMORY_HEADING}")


_VERSIONS_TRIED = 20  # versions of an agent that a prompt is compared with


def _may_have_agent(place: Path, name: str) -> bool:
    """Return whether an agent of this name may lie in a folder outside of the library; True in
    doubt.
    """
    count = 0
    for folder, _, files in os.walk(place):
        for file in (os.path.join(folder, file) for file in files):
            count += 1
            if count > MAX_AGENT_FILES:
                return True
            if file.casefold().endswith(".md") and _may_be_named(Path(file), name):
                return True
        count += 1  # the folder itself
    return False


def _may_be_named(file: Path, name: str) -> bool:
    if not file.is_file():
        return False
    try:
        with open(file, "rb", opener=regular_file) as opened:
            data = opened.read(MAX_AGENT_HEAD)
    except OSError:
        return True
    document = parse_document(data)
    # Another parser may read such a head in another way, and find the name.
    has_defects = any(
        defect.severity is not Severity.WARNING and defect is not NO_FRONTMATTER
        for defect in document.defects
    )
    return has_defects or name.encode() in data or summarize(document).name == name


def _find_claude_folders(
    folders: list[WatchedFolder], cwd: str, last: str = "skills"
) -> list[WatchedFolder]:
    """Return the folders whose skills, or agents, Claude Code knows by name: those of the project
    before the user's.
    """
    native = [folder for folder in folders if folder.path.parts[-2:] == (".claude", last)]
    here = Path(os.path.realpath(cwd)) if cwd else None
    around = [
        folder
        for folder in native
        if here is not None and here.is_relative_to(folder.path.parent.parent)
    ]
    users = [folder for folder in native if folder.scope == USER_SCOPE and folder not in around]
    # The deepest of those that hold the working directory is the project's own.
    return sorted(around, key=lambda folder: -len(folder.path.parts)) + users
