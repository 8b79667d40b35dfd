"""The hooks by which the annex of evolution adds to the core: runs, rounds, agents, the sandbox."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_server.plugins import hookimpl
from evolvable_store import RUNS

if TYPE_CHECKING:
    from evolvable_evolve.evolution import LookTransfer
    from evolvable_evolve.trial_arms import PoolArms
    from evolvable_server import Config
    from evolvable_server.mcp.call import CallSessions
    from evolvable_server.mcp.server import LibraryServer
    from evolvable_server.page_kit import PageKit, PageParts
    from evolvable_server.plugins import WaitingRun
    from evolvable_tools import Caller, HealthProblem, Library

# Functions import late: every process that runs a command imports this module, and few need the
# imported modules.

_CLI = "evolvable_evolve.cli"
_GROUPS = ("evolve", "taskset")
_COMMANDS = {
    "round_commands": ("round", "pool"),
    "ags_commands": ("ags",),
    "rspl_commands": ("rspl", "tool"),
    "try_command": ("try",),
}


@hookimpl
def verb_table() -> Path:
    """Return the verbs of this annex."""
    return Path(__file__).with_name("registry.json")


@hookimpl
def commands() -> Mapping[str, str]:
    """Return the commands of this annex."""
    table = {name: f"{_CLI}:{name}_command" for name in _GROUPS}
    return table | {
        name: f"{_CLI}.{module}:{name}_command"
        for module, names in _COMMANDS.items()
        for name in names
    }


@hookimpl
def add_tools(
    server: "LibraryServer",
    library: "Library",
    caller: "Caller",
    sessions: "CallSessions",
    config: "Config",
) -> None:
    """Add the groups `evolve`, `ags`, `rspl` and `tools` where they are asked for."""
    if "evolve" in config.toolsets:
        from evolvable_evolve.mcp import add_evolving

        add_evolving(server, library, caller, sessions, config)
    if "ags" in config.toolsets:
        from evolvable_evolve.mcp import add_ags

        add_ags(server, library, caller, sessions, config)
    if "rspl" in config.toolsets or "tools" in config.toolsets:
        from evolvable_evolve.mcp import add_approved_tools, add_rspl

        if "rspl" in config.toolsets:
            add_rspl(server, library, caller, sessions, config)
        if "tools" in config.toolsets:
            add_approved_tools(server, library, caller, sessions, config)


@hookimpl
def pages(page: "PageKit") -> "PageParts":
    """Return the section Evolution, and the results that wait in the inbox."""
    from evolvable_evolve.evolution_pages import EvolutionPages

    return EvolutionPages(page).parts()


@hookimpl
def trial_arms() -> "PoolArms":
    """Return the arms of the pool's trials."""
    from evolvable_evolve.trial_arms import PoolArms

    return PoolArms()


@hookimpl
def archive_part() -> "LookTransfer":
    """Return the looks at sealed tests, which travel with task sets."""
    from evolvable_evolve.evolution import LookTransfer

    return LookTransfer()


@hookimpl
def doctor_checks(config: "Config") -> "tuple[list[HealthProblem], list[str]]":
    """Return the problems of the configured cluster, and a note on it."""
    if not config.person.ray_address:
        return [], []
    from evolvable_evolve.cli import check_cluster  # late: it imports what runs trials

    return check_cluster(config)


@hookimpl
def describe_sandbox(config: "Config") -> str:
    """Return the sandbox of trials, found by a run of it, and why nothing better is used."""
    from evolvable_evolve.run_launcher import choose_sandbox
    from evolvable_evolve.sandbox import sandbox_of

    chosen = sandbox_of(choose_sandbox(config), fresh=True)
    if chosen.sandbox is not None:
        return f"{chosen.name} ({chosen.why})" if chosen.why else chosen.name
    why = chosen.why or "no mechanism is known here"
    return f"none: what a candidate could execute waits for a person ({why})"


@hookimpl
def after_review(library: "Library", caller: "Caller") -> None:
    """Propose to take back adoptions that do worse in the sessions than the versions before
    them.
    """
    if (library.store.home / RUNS).is_dir():
        from evolvable_evolve.evolution import monitor_adoptions

        monitor_adoptions(library, caller)


@hookimpl
def remove_old_runs(
    library: "Library", before: str, dry_run: bool
) -> tuple[list[str], dict[str, list[str]]]:
    """Finish interrupted removals, and remove old runs of evolution that nothing refers to."""
    from evolvable_evolve import evolution

    if not dry_run:
        evolution.finish_removals(library.store.home)
    runs = evolution.remove_old_runs(library, before, dry_run=dry_run)
    return runs.removed, runs.kept


@hookimpl
def waiting_runs(library: "Library") -> "Sequence[WaitingRun]":
    """Return the trials of skills that an agent asked for, where nobody could be asked."""
    if not (library.store.home / RUNS).is_dir():
        return []
    from evolvable_evolve.waiting_tries import list_waiting_tries

    return list_waiting_tries(library)


@hookimpl
def served_environment(path: str, files: Mapping[str, bytes]) -> bytes:
    """Return a file of a task set as an agent is shown it."""
    from evolvable_evolve.evolution import redact_file

    return redact_file(path, files)
