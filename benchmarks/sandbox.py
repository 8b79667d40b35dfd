"""What the sandbox adds to a trial: `python benchmarks/sandbox.py [--trials N] [--quick]`.

The same command in the same workspace, bare and in the sandbox, taking turns in one process. Prints
the medians, what the sandbox adds at the median, and its ratio to the bare command. Exit code 1: it
adds more than 50 ms.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from evolvable_evolve.evolution.executors.base import run_confined
from evolvable_evolve.sandbox.mechanisms import Confinement, Sandbox, environment_inside
from evolvable_evolve.sandbox.probe import sandbox_of

MOST = 50.0
"""Milliseconds that the sandbox may add to a trial at the median."""

COMMAND = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    'import json, sys; json.load(sys.stdin); print(\'{"output": "x"}\')',
)


async def trial(work: Path, sandbox: Sandbox | None) -> float:
    """Return the milliseconds of one command."""
    what = Confinement(COMMAND, work, environment_inside(os.environ), 60.0)
    began = time.perf_counter()
    ran = await run_confined(what, sandbox, b"{}", outside=dict(os.environ))
    assert ran.code == 0, ran.err
    return (time.perf_counter() - began) * 1000


async def measured(trials: int, sandbox: Sandbox) -> tuple[float, float]:
    """Return the medians of the bare command and of the one in the sandbox."""
    bare, apart = list[float](), list[float]()
    with tempfile.TemporaryDirectory() as made:
        work = Path(made).resolve() / "work"
        work.mkdir()
        (work / "input.txt").write_text("x" * 10_000)
        for number in range(trials + 2):
            one, other = await trial(work, None), await trial(work, sandbox)
            if number > 1:  # the first ones read the programs from the disk
                bare.append(one)
                apart.append(other)
    return statistics.median(bare), statistics.median(apart)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    trials = 15 if options.quick else options.trials
    began = time.perf_counter()
    found = sandbox_of(fresh=True)
    probing = (time.perf_counter() - began) * 1000
    if found.sandbox is None:
        print(f"no sandbox on this machine: {found.why}")
        return 0
    bare, apart = asyncio.run(measured(trials, found.sandbox))
    adds = apart - bare
    print(f"{found.name}, {trials} trials each, taking turns; load {os.getloadavg()[0]:.1f}")
    print(
        f"bare command p50 {bare:.1f} ms; in the sandbox p50 {apart:.1f} ms; the probe took "
        f"{probing:.0f} ms"
    )
    print(f"adds {adds:.1f} ms at p50 (limit {MOST:.0f}), ratio {apart / bare:.2f}")
    return int(adds > MOST)


if __name__ == "__main__":
    sys.exit(main())
