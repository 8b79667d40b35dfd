"""A whole evolution that a person begins and the agent in Claude Code thinks about, through the
tools over stdio.

The tasks are done by a command, without a model; the agent is the brain, and answers each packet by
the packet alone.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

from claude import SERVER, Claude
from model import Model, Say, Seen, Use
from place import Place
from talks import Check, found
from tolls import edits, materials, not_told, plan
from whole_run import parsed

AGAIN = 0.3  # seconds between two looks at the run
START = {
    "task_set": "environment:tolls",
    "program": ["skill:toll"],
    "executor": "toll",
    "iterations": 1,
    "settings": {"test_repeats": 1},
}


@dataclass
class Agent:
    """Tries to begin a run, which a person then begins, answers what it asks until it is finished,
    reads the report and tries to adopt. It sees results of tools and nothing else.

    begin: begins the run as a person does.
    """

    begin: Callable[[], object]
    did: list[str] = field(default_factory=list)
    packets: list[dict[str, Any]] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)

    def __call__(self, seen: Seen) -> Say | Use:
        last = self.did[-1] if self.did else ""
        self.said[last] = seen.last
        if last == "evolve_start":
            self.begin()
        answer = found(seen.last) if last in ("evolve_status", "evolve_pending") else {}
        if not last:
            return self._uses("evolve_start", **START)
        if last in ("evolve_start", "evolve_submit"):
            return self._uses("evolve_status")
        if last == "evolve_status" and answer["state"] == "waiting":
            return self._uses("evolve_pending")
        if last == "evolve_status" and answer["state"] == "running":
            time.sleep(AGAIN)
            return self._uses("evolve_status")
        if last == "evolve_pending":
            (packet,) = answer["packets"]
            self.packets.append(packet)
            said = plan(packet["data"]) if packet["role"] == "proposer" else edits(packet["data"])
            return self._uses("evolve_submit", question_id=packet["question_id"], answer=said)
        following = {"evolve_status": "evolve_report", "evolve_report": "evolve_adopt"}
        return self._uses(following[last]) if last in following else Say("DONE")

    def _uses(self, tool: str, **values: Any) -> Use:
        self.did.append(tool)
        return Use(tool, values, SERVER)


def claude_code(binary: Path, place: Place) -> Iterator[Check]:
    """The agent's session, then the person's adoption."""
    folder = materials(place.root)
    for words in (
        ("import", str(folder / "tolls"), "--yes", "--kind", "environment"),
        ("import", str(folder / "toll"), "--yes"),
    ):
        place.person(*words)
    place.person("executor", "add", "toll", "--", "{python}", "run.py")
    words = (
        "evolve",
        "start",
        START["task_set"],
        "-p",
        "skill:toll",
        "--executor",
        "toll",
        "--iterations",
        "1",
    )
    begun: list[str] = []

    def begin() -> None:
        done = place.person(*words, "--test-repeats", "1")
        begun.append(f"{done.stdout}{done.stderr}" if done.returncode else "")

    agent = Agent(begin)
    with Model(repeat(agent)) as model:
        claude = Claude(binary, place, model)
        claude.add("--toolsets", "evolve")
        events = claude.ask("Make the skill toll better, please. I agree with what it costs.")
        said = events[-1].get("result", "") if events else ""
        yield (
            "the session ends with the model's words",
            said == "DONE",
            f"{str(events[-1:])[-900:]} {model.failures}",
        )
        yield "the script went through", not model.failures, str(model.failures)
    refused = agent.said.get("evolve_start", "")
    yield "the agent cannot begin it, and is told who can", "a person starts it" in refused, refused
    yield "a person begins it", begun == [""], str(begun)
    status = parsed(place.person("evolve", "status", "--json").stdout)
    logs = "".join(
        log.read_text(encoding="utf-8") for log in place.library.glob("evolve/*/driver.log")
    )
    yield (
        "the run comes to PROMOTE",
        status.get("verdict") == "PROMOTE",
        f"{logs} {status.get('line')} {agent.said}",
    )
    roles = [packet["role"] for packet in agent.packets]
    yield "both roles were answered by submit", roles == ["proposer", "builder"], str(agent.did)
    yield from not_told(
        [f"{packet['instructions']}\n{json.dumps(packet['data'])}" for packet in agent.packets]
    )
    answer = agent.said.get("evolve_adopt", "")
    by_hand = "only a person adopts" in answer and place.heads().get("toll") == 1
    yield "the agent cannot adopt it, and is told who can", by_hand, answer
    report = agent.said.get("evolve_report", "")
    yield (
        "the report is read through the tool",
        "PROMOTE" in report and "report.html" in report,
        report[-900:],
    )
    adopted = place.person("evolve", "adopt", typed="y\n")
    live = place.heads().get("toll") == 2 and "times 3" in place.text("toll", 2)
    yield (
        "a person's adoption makes it live",
        live,
        f"{adopted.stdout[-900:]}{adopted.stderr[-900:]}",
    )
