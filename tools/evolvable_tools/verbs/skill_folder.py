"""The folder of this machine in which a skill lies, and the variables by which its text names that
folder.

Clients replace such a variable when they open a skill themselves. Where the text comes from the
library, it is replaced only by a folder that holds the very version: else a program of one version
would run by the words of another.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from evolvable_store import Head
from evolvable_store.resource import Kind
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library

# Claude Code's, OpenClaw's, and what skills write without a client: not where the text itself says
# what it is.
_OF_SKILL = r"\$\{(?:CLAUDE_)?SKILL_DIR\}|\$(?:CLAUDE_)?SKILL_DIR\b|(?<![\w$])\{baseDir\}"
_OF_PLUGIN = r"\$\{CLAUDE_PLUGIN_ROOT\}|\$CLAUDE_PLUGIN_ROOT\b"
_VARIABLE = re.compile(f"(?P<plugin>{_OF_PLUGIN})|{_OF_SKILL}")
_NAMED = re.compile(f"(?:{_OF_PLUGIN}|{_OF_SKILL})/([\\w./-]+)")
_ASSIGNED = re.compile(r"\b((?:CLAUDE_)?SKILL_DIR|CLAUDE_PLUGIN_ROOT)=")
# Would end the words of a command that the path is put into.
_NO_PATH = re.compile(r"[\x00-\x1f\x7f`$\"]")

MAX_NAMED = 10
"""Files that are named where a variable stays."""


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """Where a skill lies. path: of a folder of this machine with the version that is served, ''
    where none is known.

    variable: one that names the folder and stays in the text, '' for none. files: of the skill,
    which the text names by it.
    """

    path: str
    variable: str = ""
    files: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """The files, as many as fit in a line."""
        return ", ".join([*self.files[:MAX_NAMED], *["..."] * (len(self.files) > MAX_NAMED)])


def place_text(
    library: Library,
    caller: Caller,
    head: Head,
    version: int,
    text: str | None,
    files: Iterable[str],
) -> tuple[str | None, SkillFolder | None]:
    """Return a document with the variables for its folder replaced where they can be, and that
    folder.

    text: of a document in Markdown, None for any other file. files: the paths of the skill's files.
    """
    if head.kind is not Kind.SKILL:
        return text, None
    used = _find_variables(text or "")
    folder = _find_folder(library, caller, head, version, exact=bool(used))
    path = folder.as_posix() if folder is not None else ""
    if text is None or not used:
        return text, SkillFolder(path) if path else None
    values = {variable: _find_value(variable, folder) for variable in used}
    text = _VARIABLE.sub(lambda match: values.get(match[0]) or match[0], text)
    stays = next((variable for variable, value in values.items() if not value), "")
    return text, SkillFolder(
        path, stays, _find_named_files(text, head.name, files) if stays else ()
    )


def _find_variables(text: str) -> list[str]:
    """Return the variables for a folder in a text, without those that the text gives a value
    itself.
    """
    if "SKILL_DIR" not in text and "CLAUDE_PLUGIN_ROOT" not in text and "{baseDir}" not in text:
        return []
    own = set(_ASSIGNED.findall(text))
    variables = dict.fromkeys(match[0] for match in _VARIABLE.finditer(text))
    return [variable for variable in variables if variable.strip("${}") not in own]


def _find_value(variable: str, folder: Path | None) -> str:
    """Return what a variable stands for, '' where that is not known."""
    if folder is None or not re.fullmatch(_OF_PLUGIN, variable):
        return folder.as_posix() if folder is not None else ""
    plugin = folder.parent.parent
    is_plugin = (
        folder.parent.name == "skills" and (plugin / ".claude-plugin" / "plugin.json").is_file()
    )
    return plugin.as_posix() if is_plugin else ""


def _find_folder(
    library: Library, caller: Caller, head: Head, version: int, *, exact: bool
) -> Path | None:
    """Return a folder that holds a version of a skill, for a caller that works on this machine.

    exact: its files are read and compared, and not only what it was last known to hold.
    """
    # A caller over the network works on another machine, where this folder is not.
    if caller.project is None or caller.address:
        return None
    candidates = _find_candidates(library, head, version)
    if exact:
        manifest = library.store.manifest(head, version)
        candidates = (path for path in candidates if library.working_copies.holds(path, manifest))
    return next(candidates, None)


def _find_candidates(library: Library, head: Head, version: int) -> Iterator[Path]:
    for folder, binding, _ in library.store.backend.bindings.places([head.id]):
        path = folder.path / binding.directory
        if binding.version == version and not _NO_PATH.search(str(path)) and os.path.isdir(path):
            yield path


def _find_named_files(text: str, name: str, files: Iterable[str]) -> tuple[str, ...]:
    """Return the files of a skill that its text names by a variable.

    All of them where it names none so.
    """
    paths = [path for path in files if path != "SKILL.md"]
    mentions = [
        mention.strip("./").removeprefix(f"skills/{name}/") for mention in _NAMED.findall(text)
    ]
    mentioned = [
        path
        for path in paths
        if any(path == mention or path.startswith(f"{mention}/") for mention in mentions)
    ]
    return tuple((mentioned or paths)[: MAX_NAMED + 1])
