"""How many usable tasks `evolvable evolve taskset from-sessions` finds in 100 labelled sessions, and how precisely.

    python -m benchmarks.session_tasks [--json FILE]

The sessions are made (tests/support/session_cases.py), in the formats of Claude Code and Codex, with their label: is a
usable task in it? Every check is run for real, on the files before and after the work. Exit code 1: fewer than 20
usable tasks, a precision under .8, or a task set that `evolvable evolve taskset check` refuses.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from session_cases import SessionCase, labelled_cases
from transcripts import session_id

from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.tasks.diagnostics import check_taskset
from evolvable_evolve.evolution.tasks.scorer_calibration import IssueLevel
from evolvable_evolve.evolution.tasks.session_import import SessionDraft, draft_from_sessions, try_checks
from evolvable_tools.library import Library

MIN_USABLE, MIN_PRECISION = 20, 0.8


def figures(draft: SessionDraft, cases: list[SessionCase]) -> dict[str, Any]:
    """Return how many tasks were found, how many of them are usable, and which labels they miss."""
    by_id = {session_id(case.name): case for case in cases}
    found = [by_id[one.session] for one in draft.found]
    usable = sum(case.usable for case in found)
    wanted = sum(case.usable for case in cases)
    wrong = sorted(case.name for case in found if not case.usable)
    precision = round(usable / len(found), 3) if found else 0.0
    return {"found": len(found), "usable": usable, "of": wanted, "precision": precision, "wrong": wrong}


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cases = labelled_cases()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        paths = [case.write(home) for case in cases]
        with Library.open(home / "library", create=True) as library:
            began = time.perf_counter()
            draft = draft_from_sessions(library, paths)
            read = time.perf_counter() - began
            untried = figures(draft, cases)
            asyncio.run(try_checks(draft, TaskSetScorer()))
            tried = time.perf_counter() - began - read
            check = asyncio.run(check_taskset(draft.taskset))
    said = {
        "sessions": len(cases),
        "before the checks are tried": untried,
        "after": figures(draft, cases),
        "refused": [one.text for one in check.remarks if one.level is IssueLevel.REFUSE],
        "seconds": {"reading": round(read, 1), "trying": round(tried, 1)},
        "left_out": dict(draft.left_out.most_common()),
    }
    print(json.dumps(said, indent=1))
    if given.json:
        given.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    after = said["after"]
    assert isinstance(after, dict)
    return int(after["usable"] < MIN_USABLE or after["precision"] < MIN_PRECISION or not check.passes)


if __name__ == "__main__":
    sys.exit(main())
