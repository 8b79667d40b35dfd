"""The check of the Ray cluster that the person configured, for `doctor`: nodes, slots, and
problems.
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

    The process through which runs use the cluster asks it, which takes a few seconds.
    """
    address = config.person.ray_address
    if find_spec("ray") is None:
        what = f"A Ray cluster is configured ({address}), and Ray is not installed."
        return [HealthProblem(what, "pip install '.[ray]' in your clone")], []
    try:
        report = asyncio.run(_ask_cluster(config))
    except EvolvableError as error:
        return [HealthProblem(str(error), error.hint)], []
    offered = [node for node in report["nodes"] if node["slots"]]
    if not offered:
        what = f"No node of the Ray cluster {address} offers slots, so no trial runs there."
        return [HealthProblem(what, f"Start a node by: {START_NODE}")], []
    slots = ", ".join(f"{node['node']} {node['slots']}" for node in offered)
    nodes = count(len(report["nodes"]), "node")
    all_slots = count(sum(node["slots"] for node in offered), "slot")
    versions = f"Ray {report['ray']}, Python {report['python']}"
    return [], [f"The Ray cluster {address} has {nodes} and {all_slots} ({slots}); {versions}."]


async def _ask_cluster(config: Config) -> dict[str, Any]:
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
