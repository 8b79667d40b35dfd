"""Measure what the guarded checks add to an agent's update of a 6 KB skill.

The same updates are made in turns with the scan of the difference and without it, in one library on
disk. Times are medians, of the wall clock and of the processor; the limit is on the wall clock, and
on a busy machine only the processor's time says something.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools import approvals
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit as resources

MOST_MS = 2.0
"""Milliseconds that the checks may add at the median."""

PDF = Ref.parse("skill:pdf")
AGENT = Caller(Actor.AGENT, session="bench")
SENTENCE = (
    "count the pages, look at the first one, and never overwrite a file without asking the "
    "user first. "
)


def text() -> str:
    """Return a SKILL.md of 6 KB with a line that changes."""
    head = (
        "---\nname: pdf\ndescription: Merge, split and fill PDF forms.\n---\n\n# PDF\n\n"
        "Step 0 of the work.\n\n"
    )
    said = [[f"In part {number}.{place} {SENTENCE}" for place in range(3)] for number in range(30)]
    parts = [f"## Part {number}\n\n{''.join(three)}\n" for number, three in enumerate(said)]
    return (head + "\n".join(parts))[:6_000]


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Leave the scan out."""
    with mock.patch.object(approvals, "check_change", lambda *_: approvals.NOTHING):
        yield


def update(library: Library, number: int) -> tuple[float, float]:
    """Make one small change; return the milliseconds that passed, and those of the processor."""
    edit = TextEdit("SKILL.md", f"Step {number} of", f"Step {number + 1} of")
    began, used = time.perf_counter(), time.process_time()
    made = resources.update_resource(library, AGENT, PDF, "next", edits=[edit])
    assert made.version is not None, made.warnings
    return (time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=300, help="of each sort")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    updates = 60 if options.quick else options.updates
    checked, bare = list[tuple[float, float]](), list[tuple[float, float]]()
    with (
        tempfile.TemporaryDirectory() as made,
        Library.open(Path(made) / "library", create=True) as library,
    ):
        resources.update_resource(
            library, AGENT, PDF, "new", files={"SKILL.md": text()}, create=True
        )
        for number in range(updates + 5):
            one = update(library, 2 * number)
            with unchecked():
                other = update(library, 2 * number + 1)
            if number >= 5:  # the first ones compile the patterns
                checked.append(one)
                bare.append(other)
    adds = 0.0
    for number, clock in reversed(list(enumerate(("wall clock", "processor")))):
        with_, without = (
            statistics.median(one[number] for one in times) for times in (checked, bare)
        )
        adds = with_ - without
        print(
            f"{clock}: with the checks p50 {with_:.2f} ms, without {without:.2f} ms: "
            f"{adds:.2f} ms more"
        )
    print(f"limit {MOST_MS:.0f} ms by the wall clock")
    return int(adds > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
