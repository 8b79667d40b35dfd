"""A machine on which a person named a worker and a planner, both scripts, and has
agents for a run.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from ags_place import item, save_agent
from command_line import CommandLine

from evolvable_evolve.evolution import AGS_DIR
from evolvable_evolve.evolution.ledger.run_directory import find_run, read_ledger
from evolvable_tools.library import Library

WORKER = """\
import json, os, pathlib, sys, time
given = json.load(sys.stdin)
name, folder = given["task_id"], pathlib.Path(given["program"]["folder"])
[agent] = [one for one in given["program"]["resources"] if one["kind"] == "agent"]
text = pathlib.Path(agent["folder"], "AGENT.md").read_text()
time.sleep(SECONDS)
files = [path for path in pathlib.Path("inputs").rglob("*") if path.is_file()]
seen = sorted(str(path.relative_to("inputs")) for path in files)
os.makedirs("outputs", exist_ok=True)
pathlib.Path("outputs", name + ".txt").write_text("made by " + name)
said = {"output": name + " saw " + ", ".join(seen) + "; " + text.strip().splitlines()[-1]}
usage = {"input_tokens": 100, "output_tokens": 10, "calls": 1, "cost": 0.001}
print(json.dumps({**said, "usage": usage}))
"""
"""Does an item: says what it saw of the items before it, and leaves a file."""

PLANNER = """\
import json, os, sys, time
while os.path.exists(HOLD):
    time.sleep(0.02)
[line] = [line for line in sys.stdin.read().splitlines() if line.startswith('{"task":')]
data = json.loads(line)
items = ITEMS
if data["round"] == 1:
    said = {"note": "a diamond", "items": items}
else:
    result = "; ".join(one["summary"] for one in data["messages"])
    said = {"note": "all came back", "result": result}
print(json.dumps({"type": "result", "is_error": False, "result": json.dumps(said),
                  "total_cost_usd": 0.002, "usage": {"input_tokens": 200, "output_tokens": 20}}))
"""
"""Plans once, as soon as the file HOLD is gone, and ends with what came back."""


DIAMOND = [item("a"), item("b", "a"), item("c", "a"), item("d", "b", "c")]


class AgsMachine(CommandLine):
    """Where a person has the agent clerk, and named the executor `worker` and the
    proposer `plan`.
    """

    def __init__(self, root: Path, seconds: float = 0.0, more: str = "") -> None:
        super().__init__(root)
        (root / "worker.py").write_text(WORKER.replace("SECONDS", str(seconds)), encoding="utf-8")
        planner = PLANNER.replace("ITEMS", json.dumps(DIAMOND)).replace(
            "HOLD", repr(str(root / "hold"))
        )
        (root / "plan.py").write_text(planner, encoding="utf-8")
        named = (
            ("executors.worker", "{python}", "worker.py"),
            ("proposers.plan", sys.executable, "plan.py"),
        )
        lines = [
            f"[{role}]\ncommand = {json.dumps([python, '-I', '-S', str(root / script)])}\n"
            for role, python, script in named
        ]
        self.configure("\n".join([*lines, more]))
        with Library.open(self.home, create=True) as library:
            save_agent(library, "clerk", "You are the clerk.")

    def records(self) -> list[Any]:
        """Return the records of the newest run, none before one was begun."""
        folder = self.home / AGS_DIR
        if not any(folder.glob("*/ledger.jsonl")):
            return []
        try:
            return read_ledger(find_run(self.home, None, AGS_DIR).ledger)
        except Exception:  # the run's first record is just being written
            return []

    def until(self, id: str, seconds: float = 60.0) -> None:
        """Wait until the newest run has a message with this id."""
        deadline = time.monotonic() + seconds
        while not any(record.get("id") == id for record in self.records()):
            assert time.monotonic() < deadline, self.records()
            time.sleep(0.02)  # another process writes them
