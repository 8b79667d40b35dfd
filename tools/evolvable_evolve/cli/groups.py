"""The groups `evolve` and `taskset`, whose help needs none of their modules."""

import click

from evolvable_server.cli import VerbGroup, home_option, json_option

_PLACE = "evolvable_evolve.cli"


@click.group(
    "evolve",
    cls=VerbGroup,
    modules=(f"{_PLACE}.evolve_results", f"{_PLACE}.evolve_measure", f"{_PLACE}.evolve_commands"),
)
@home_option
@json_option
def evolve_command() -> None:
    """Search for better resources with a task set, and promote only what a sealed test carries.

    A run is driven by a process of its own. It stops when it waits for an answer, and can be stopped and continued at
    any time, from any terminal.
    """


@click.group("taskset", cls=VerbGroup, modules=(f"{_PLACE}.taskset_commands", f"{_PLACE}.taskset_sources"))
@home_option
@json_option
def taskset_command() -> None:
    """Check, list and split the tasks of an evolution.

    WHAT is a folder with tasks.jsonl, such a file, or an environment of the library: environment:NAME.
    """
