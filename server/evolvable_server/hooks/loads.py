"""PostToolUse: which skill of the library a client opened by itself, with its own skill tool or by reading the file."""

import os
import re
from pathlib import Path

from evolvable_server.hooks.events import Event
from evolvable_server.hooks.offered import Offered
from evolvable_store.bindings import Binding, Folder
from evolvable_store.resource import Kind
from evolvable_tools.library import Caller, Library
from evolvable_tools.usage import note_load

_READING = re.compile(
    r"""(?:^|[;&|(]|\s)(?:cat|head|tail|less|more|nl|bat|sed\s+-n)\s   # a program that only reads, at its beginning
        [^;&|<>\n]*?(?P<quote>["']?)(?P<path>[^\s"';&|<>]*SKILL\.md)(?P=quote)(?=$|[\s;&|)])""",
    re.VERBOSE,
)

_COMMANDS = ("Bash", "shell", "exec_command", "local_shell")


def note(library: Library, caller: Caller, event: Event, offered: Offered) -> list[str]:
    """Notes each skill that this use of a tool opened, once in a session; returns their directories.

    A directory that no folder of the library holds is not ours, and nothing is noted of it.
    """
    noted = []
    for binding in _opened(library, event):
        if binding.version is None or caller.session is None:
            continue
        search = offered.search_of(caller.session, binding.resource)
        if note_load(library, caller, binding.resource, binding.version, search_id=search):
            noted.append(binding.directory)
    return noted


def _opened(library: Library, event: Event) -> list[Binding]:
    folders = [folder for folder in library.working_copies.folders() if folder.kind is Kind.SKILL]
    if event.tool_name == "Skill":
        # A name with a colon is a skill of a plugin, which comes from the plugin's own folder.
        found = [(folder, event.skill) for folder in _seen_by_claude(folders, event.cwd) if ":" not in event.skill]
    elif event.tool_name == "Read":
        found = _placed(folders, event.file_path, event.cwd)
    elif event.tool_name in _COMMANDS:
        paths = [match["path"] for match in _READING.finditer(event.command)]
        found = [place for path in paths[:20] for place in _placed(folders, path, event.cwd)]
    else:
        return []
    bindings = (library.working_copies.bindings.of_folder(folder).get(directory) for folder, directory in found)
    there = [binding for binding in bindings if binding is not None]
    return there[:1] if event.tool_name == "Skill" else there


def _seen_by_claude(folders: list[Folder], cwd: str) -> list[Folder]:
    """Returns the folders whose skills Claude Code knows by name: those of the project before the user's."""
    native = [folder for folder in folders if folder.path.parts[-2:] == (".claude", "skills")]
    here = Path(os.path.realpath(cwd)) if cwd else None
    return sorted(native, key=lambda folder: here is None or not here.is_relative_to(folder.path.parent.parent))


def _placed(folders: list[Folder], path: str, cwd: str) -> list[tuple[Folder, str]]:
    """Returns the folder that a SKILL.md lies in, with the directory below it."""
    if os.path.basename(path).casefold() != "skill.md" or "\0" in path:
        return []
    directory = Path(os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))).parent
    return [
        (folder, directory.relative_to(folder.path).as_posix())
        for folder in folders
        if directory.is_relative_to(folder.path) and directory != folder.path
    ]
