"""Runs a small evolution again and again, and kills it (SIGKILL) after each of the records named,
or in one of them.

    python evolve_child.py FOLDER FIRST STEP [structure|textgrad|reinforce_pp|grpo]

structure: of a run that restructures agents; else of a run with that optimizer. Every run is a
process of its own, forked from here. Prints a JSON line with what the whole run came to, and one
for each run that was killed and continued, with the number of the record.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # the scripted model

from baselines.scripted_model import ScriptedModel
from evolve_runs import program, running, scripted, task
from transplant import InterferenceExecutor, repairer, transplant_world

from evolvable_evolve.evolution.ledger.run_directory import Ledger, read_ledger
from evolvable_evolve.evolution.ledger.run_reducer import fold_records
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.proposers.proposer_model import ModelQuestion, ModelRole
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import Split

SPLITS = {
    split: [
        task(split, n, "broken_by:shout", *(["needs:iso"] if n % 4 != 1 else []))
        for n in range(size)
    ]
    for split, size in {Split.TRAIN: 6, Split.VAL: 5, Split.TEST: 12}.items()
}
BRAIN = [("Shout", ["rule: shout"]), ("Dates are ISO", ["rule: iso"])]
SETTINGS = RunSettings("environment:made-up", iterations=2, batch=(1, 2))


STRUCTURE = RunSettings(
    "environment:made-up",
    mode="structure",
    iterations=2,
    trials=100,
    open_above=-1,
    structure={"failures": 2, "enough": 2, "chance": 1.0},
)


def restructuring(folder: Path) -> None:
    """Drive a run that changes agents as far as it comes."""
    world = transplant_world()
    splits = {
        split: world.tasks(split, size) for split, size in zip(Split, (16, 12, 10), strict=True)
    }
    brain, executor = repairer(world.repairs), InterferenceExecutor(11)
    with running(folder, world.base, brain, splits, STRUCTURE, executor=executor) as made:
        asyncio.run(run_phases(made))


def optimizing(folder: Path, optimizer: str) -> None:
    """Drive a run with an optimizer beside the default as far as it comes."""

    def rewrite(question: ModelQuestion) -> Mapping[str, str]:
        line = "rule: iso" if question.data["tried"] else "rule: shout"
        return {"value": f"{question.data['variable']['value']}{line}\n"}

    def criticise(question: ModelQuestion) -> Mapping[str, object]:
        said = f"Mind {question.data['trial']['outcome']}."
        return {
            "change": question.data["trial"]["result"] == "failed",
            "critique": said,
            "variables": [],
        }

    brain = scripted(BRAIN)
    if optimizer == "textgrad":
        brain = ScriptedModel({ModelRole.CRITIC: criticise, ModelRole.BUILDER: rewrite})
    settings = RunSettings(
        "environment:made-up", iterations=2, batch=(1, 2), optimizer=optimizer, trials=60, samples=2
    )
    splits = {
        split: [replace(one, tags=(*one.tags, "without:0.3")) for one in own]
        for split, own in SPLITS.items()
    }
    with running(folder, program(), brain, splits, settings) as made:
        asyncio.run(run_phases(made))


def run(folder: Path) -> None:
    """Drive a run as far as it comes."""
    if sys.argv[4:] == ["structure"]:
        restructuring(folder)
        return
    if sys.argv[4:]:
        optimizing(folder, sys.argv[4])
        return
    with running(folder, program(), scripted(BRAIN), SPLITS, SETTINGS) as made:
        asyncio.run(run_phases(made))


def came_to(folder: Path) -> dict[str, object]:
    """What is the same however often a run was killed. The records of both ledgers make it."""
    state = fold_records(
        [*read_ledger(folder / "ledger.jsonl"), *read_ledger(folder / "test.jsonl")]
    )
    bill = state.bill
    return {
        "frontier": state.frontier,
        "verdict": state.verdict["verdict"],
        "p": state.verdict.get("p"),
        "changes": [
            [record["action"], record["edit"], record["artifact"]] for record in state.structures
        ],
        "decisions": [record["decision"] for record in state.iterations],
        "gradients": [
            [record["task"], record["to"], record["artifact"]] for record in state.gradients
        ],
        "signals": [[record["groups"], record["contrasts"]] for record in state.signals],
        "bill": [bill.trials, bill.calls, bill.input_tokens, bill.output_tokens, bill.cost],
        "spent": {purpose: spent.tokens for purpose, spent in sorted(state.spent.items())},
    }


def killed_at(number: int, torn: bool) -> None:
    """Has this process killed once so many records are on the disk; torn: half of one more is as
    well.
    """
    written = 0
    whole = Ledger._write

    def write(ledger: Ledger, data: bytes) -> None:
        nonlocal written
        lines = data.splitlines(keepends=True)
        kept = b"".join(lines[: number - written])
        written += len(lines)
        if written < number:
            whole(ledger, data)
            return
        rest = data[len(kept) :] or b'{"length":1'
        whole(ledger, kept + (rest[: len(rest) // 2] if torn else b""))
        os.kill(os.getpid(), signal.SIGKILL)

    Ledger._write = write  # type: ignore[method-assign]


def in_a_process(work: object) -> int:
    """Run something in a process of its own and return how that ended: 0, or less for a signal."""
    pid = os.fork()
    if pid == 0:
        work()  # type: ignore[operator]
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(root: Path, first: int, step: int) -> None:
    assert in_a_process(lambda: run(root / "whole")) == 0
    print(json.dumps(came_to(root / "whole")), flush=True)
    records = len(read_ledger(root / "whole/ledger.jsonl")) + len(
        read_ledger(root / "whole/test.jsonl")
    )
    for number in range(first, records + 1, step):
        folder = root / str(number)

        def killed(number: int = number, folder: Path = folder) -> None:
            killed_at(number, torn=bool(number % 2))
            run(folder)

        ended = in_a_process(killed)
        assert ended == -signal.SIGKILL, (number, ended)
        assert in_a_process(lambda folder=folder: run(folder)) == 0, number
        print(json.dumps([number, came_to(folder)]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
