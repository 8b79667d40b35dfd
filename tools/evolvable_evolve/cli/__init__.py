"""The commands of the annex of evolution.

`evolvable_evolve.plugin` names them to the command line. The groups `evolve` and `taskset` stand
here: their help needs none of the modules that hold their commands. `check_cluster` is the check
that doctor runs.
"""

import click

from evolvable_server.cli import VerbGroup, home_option, json_option
from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.cli.cluster_health import check_cluster
else:
    __getattr__ = late_names(__name__, {"cluster_health": "check_cluster"})

__all__ = ["check_cluster", "evolve_command", "taskset_command"]


@click.group(
    "evolve",
    cls=VerbGroup,
    modules=(
        f"{__name__}.evolve_results",
        f"{__name__}.evolve_measure",
        f"{__name__}.evolve_commands",
    ),
)
@home_option
@json_option
def evolve_command() -> None:
    """Search for better resources with a task set, and promote only what a sealed test carries.

    A run is driven by a process of its own. It stops when it waits for an answer, and can be
    stopped and continued at any time, from any terminal.
    """


@click.group(
    "taskset",
    cls=VerbGroup,
    modules=(f"{__name__}.taskset_commands", f"{__name__}.taskset_sources"),
)
@home_option
@json_option
def taskset_command() -> None:
    """Check, list and split the tasks of an evolution.

    WHAT is a folder with tasks.jsonl, such a file, or an environment of the library:
    environment:NAME.
    """
