"""What `doctor` says of the Ray cluster that the person configured: nodes, slots, and what prevents
its use.
"""

import asyncio
from importlib.util import find_spec
from typing import Any

from evolvable_evolve.evolution import RayBackend
from evolvable_evolve.run_launcher import evolve_context
from evolvable_server import Config
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_tools import HealthProblem, count

START_NODE = "ray start --address=ADDRESS --resources='{\"agent_slot\": 8}'"


def check_cluster(config: Config) -> tuple[list[HealthProblem], list[str]]:
    """Return the problems of the configured cluster, and a note on it.

    The cluster is asked, for a few seconds, by the process that runs speak with it through.
    """
    if find_spec("ray") is None:
        what = (
            f"A Ray cluster is configured ({config.person.ray_address}), and Ray is not installed."
        )
        return [HealthProblem(what, "pip install '.[ray]' in your clone")], []
    try:
        report = asyncio.run(_ask(config))
    except EvolvableError as error:
        return [HealthProblem(str(error), error.hint)], []
    offered = [node for node in report["nodes"] if node["slots"]]
    if not offered:
        what = (
            f"No node of the Ray cluster {config.person.ray_address} offers slots, so no trial "
            "runs there."
        )
        return [HealthProblem(what, f"Start a node by: {START_NODE}")], []
    slots = ", ".join(f"{node['node']} {node['slots']}" for node in offered)
    return [], [
        f"The Ray cluster {config.person.ray_address} has {count(len(report['nodes']), 'node')} and"
        f" {count(sum(node['slots'] for node in offered), 'slot')} ({slots}); Ray "
        f"{report['ray']}, Python {report['python']}."
    ]


async def _ask(config: Config) -> dict[str, Any]:
    cluster = evolve_context(config).cluster
    if cluster is None:
        raise InvalidArgument(
            "The configuration names no Ray cluster any more.", "Set ray_address, and ask again."
        )
    backend = RayBackend(cluster)
    try:
        return await backend.open()
    finally:
        await backend.close()
