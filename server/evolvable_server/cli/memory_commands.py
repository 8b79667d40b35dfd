"""The command memory: write the memories where clients read them, and take them out again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import confirm, remark, say, warn
from evolvable_server.clients import (
    TITLES,
    MemoryCopy,
    MemoryProject,
    copy_statuses,
    disable_copies,
    disable_project_files,
    enable_copies,
    enable_project_file,
    installed_clients,
    memory_project,
    memory_text,
    project_file_statuses,
    project_files,
    project_memory_files,
    tracking_in_project,
)
from evolvable_server.config import Machine, read_machine
from evolvable_store import Actor
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import USER_SCOPE
from evolvable_store.workingcopy import GitTracking
from evolvable_tools import Caller
from evolvable_tools.review import memory_conflicts
from evolvable_tools.verbs import project_memory


@command("memory")
@click.argument("action", type=click.Choice(["show", "on", "off"]), default="show")
@click.argument("clients", type=click.Choice(list(TITLES)), nargs=-1, metavar="[CLIENT]...")
@click.option(
    "--project", is_flag=True, help="The memory of the open project, in files of that project."
)
def memory_command(
    state: CommandContext, action: str, clients: tuple[str, ...], project: bool
) -> Output[dict[str, Any]]:
    """Write the memories where clients read them.

    `on` writes memory:SOUL, memory:USER and memory:MEMORY where Claude Code (a rule of yours),
    Codex, OpenCode and Droid (AGENTS.md), Copilot CLI (its instructions) and Qwen Code (QWEN.md)
    read them, by default for those that are installed, and keeps them up to date; `off` takes them
    out again. What you wrote in such a file stays as it is, and a copy is kept beside it. `show`
    shows what they read. With --project, memory:MEMORY of the open project alone is written into
    that project's CLAUDE.md, AGENTS.md or QWEN.md, after a question that says whether git tracks
    the file.
    """
    if project:
        return _run_in_project(state, action, clients)
    config = state.config()
    machine, shown_text = read_machine(config.project), ""
    # Without opening the library, which may be gone.
    if action == "off":
        copies = disable_copies(config.home, clients or tuple(TITLES))
    else:
        with state.library(create=action == "on") as (library, _):
            text = memory_text(library)
            conflicts = memory_conflicts(library, Caller(Actor.AGENT, None, (USER_SCOPE,)))
        if action == "on":
            copies = enable_copies(config.home, machine, _choose_clients(machine, clients), text)
        else:
            statuses = copy_statuses(config.home, machine, text)
            copies = [copy for copy in statuses if not clients or copy.client in clients]
            shown_text = text
        warn(*conflicts)
    return Output(
        {"copies": copies, "text": shown_text}, lambda _: _show_memory(copies, shown_text)
    )


def _choose_clients(machine: Machine, clients: Sequence[str]) -> Sequence[str]:
    chosen = clients or installed_clients(machine)
    if not chosen:
        raise InvalidArgument(
            "No client that reads memories is installed here.", "Name one: codex."
        )
    return chosen


def _run_in_project(
    state: CommandContext, action: str, clients: Sequence[str]
) -> Output[dict[str, Any]]:
    config = state.config()
    if action == "off":
        copies = disable_project_files(config.home, config.project, clients)
        if copies:
            # For the audit log of the library, where decisions on files of a project are found
            # again.
            state.record("project memory off", ", ".join(copy.path for copy in copies))
        return Output({"copies": copies, "text": ""}, lambda _: _show_memory(copies, ""))
    if action == "on":
        state.require_person("Writing a memory into a file of a project")
        state.unlock()
    with state.library() as (library, _):
        project = memory_project(library, config.project)
        text = project_memory(library, project.scope)
        if action == "show":
            statuses = project_file_statuses(config.home, library)
            copies = [copy for copy in statuses if copy.project == str(project.folder)]
            return Output({"copies": copies, "text": text}, lambda _: _show_memory(copies, text))
    machine = read_machine(config.project)
    names_by_path = project_files(project.folder, _choose_clients(machine, clients))
    empty = (
        f"memory:{project.scope}/MEMORY says nothing yet. What it will say is written when "
        "you approve it."
    )
    # Before the question: this text is what the file would hold.
    remark(text or empty)
    copies = []
    for path, names in names_by_path.items():
        git = tracking_in_project(project.folder, path)
        _ask_to_write(config.home, project, path, git)
        # Each file is written and recorded before the next question, so an interrupt leaves nothing
        # half done.
        copies.append(enable_project_file(config.home, project, path, names, text, git))
        state.record("project memory on", f"{path} ({git})")
    return Output({"copies": copies, "text": ""}, lambda _: _show_memory(copies, ""))


_READERS = {
    GitTracking.TRACKED: (
        "Git tracks {path}: everybody with the repository reads it after the next commit."
    ),
    GitTracking.UNTRACKED: (
        "Git does not track {path}, and no ignore file of the repository names it: `git add` "
        "would take it in, and then everybody with the repository reads it."
    ),
    GitTracking.IGNORED: "Git ignores {path}: it stays on this machine.",
    GitTracking.OUTSIDE: (
        "{path} is in no git repository: all accounts with access to the folder read it."
    ),
}


def _ask_to_write(home: Path, project: MemoryProject, path: Path, git: GitTracking) -> None:
    """Ask whether the memory goes into a file, unless the person said yes to that already."""
    # A file that git treats in another way than at the yes is asked about again.
    if any(file.path == path and file.git is git for file in project_memory_files(home)):
        return
    remark(_READERS[git].format(path=path))
    if path.name == "AGENTS.md" and not path.exists() and (project.folder / "CLAUDE.md").exists():
        remark(
            "There is no AGENTS.md yet. Once there is one, OpenCode reads it and no longer reads "
            "CLAUDE.md."
        )
    confirm(
        f"Write the memory of the project {project.scope} into it, now and whenever that "
        "memory changes?",
        refused=f"{path} is as it was.",
    )


_MESSAGES = {
    "off": "{title} reads no memories: {path}",
    "current": "{title} reads them in {path}, which is up to date.",
    "behind": "{title} reads them in {path}, which is not up to date; `{command}` writes it again.",
    "broken": "{title}: {why}",
}


def _show_memory(copies: list[MemoryCopy], text: str) -> None:
    if text:
        say(f"{text}\n")
    if not copies:
        say("It was off already. Nothing changed.")
    for copy in copies:
        command = f"evolvable client memory on{' --project' if copy.project else ''}"
        say(
            _MESSAGES[copy.state].format(
                title=copy.title, path=copy.path, why=copy.why, command=command
            )
        )
        if copy.backup:
            say(f"The file as it was: {copy.backup}")
        if copy.warning and copy.state != "off":
            warn(copy.warning)
