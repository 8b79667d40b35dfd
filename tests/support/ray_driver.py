"""A run of letters on a Ray cluster, as a script that a test kills: ROOT ADDRESS TOKEN_FILE."""

import sys
from dataclasses import replace
from pathlib import Path

from driving_place import driving, letters

from evolvable_evolve.evolution.run_config import RayCluster

SLOW = """\
import json, pathlib, sys, time
given = json.load(sys.stdin)
time.sleep(float(given["prompt"].partition("wait ")[2] or 0))
usage = {"input_tokens": 10, "output_tokens": 1, "calls": 1}
print(json.dumps({"output": "dear " + given["task_id"], "usage": usage}))
"""


def slow_letters(seconds: float) -> list[dict[str, object]]:
    """The letters, each of which takes so long."""
    return [{**one, "prompt": f"{one['prompt']} wait {seconds}"} for one in letters()]


def drive(root: Path, address: str, token: Path) -> None:
    """Begin a run on the cluster, and drives it."""
    with driving(root) as place:
        place.means = replace(place.means, cluster=RayCluster(address, token))
        place.save(slow_letters(0.5), run_py=SLOW)
        place.begin(backend=f"ray:{address}")
        place.drive()


if __name__ == "__main__":
    drive(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
