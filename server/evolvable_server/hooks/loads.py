"""PostToolUse: which skill of the library a client opened by itself, with its own skill tool or by reading the file."""

from pathlib import Path

from evolvable_server.hooks.events import Event
from evolvable_server.hooks.offered import Offered
from evolvable_store.storage.bindings import Binding
from evolvable_tools.library import Caller, Library, SkillLocator
from evolvable_tools.outcomes.shell_commands import read_files, simple_commands
from evolvable_tools.verbs.load import note_load

MAX_PATHS = 20
"""Files of one command that are looked up."""

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
    places = SkillLocator(library, event.cwd, Path.home())
    if event.tool_name == "Skill":
        binding = places.by_name(event.skill)
        return [binding] if binding is not None else []
    if event.tool_name == "Read":
        paths = [event.file_path]
    elif event.tool_name in _COMMANDS:
        paths = read_files(simple_commands(event.command))
    else:
        return []
    documents = [path for path in paths if path.casefold().endswith("skill.md")]
    found = filter(None, map(places.by_path, documents[:MAX_PATHS]))
    return [binding for binding, inside in found if inside.casefold() == "skill.md"]
