"""The scorer: run the visible and the hidden cases of a problem, and name the outcome."""

import contextlib
import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "public"))

from harness import run_cases  # noqa: E402 - shared with the public check

told = json.load(sys.stdin)
read = [
    json.loads(path.read_text())
    for path in (HERE.parent / "public" / "visible.json", HERE / "cases.json")
]
for path in HERE.iterdir():
    with contextlib.suppress(OSError):  # a sandbox shows them read-only
        path.unlink()
cases = [case for some in read for case in some[told["task_id"]]]
ended = run_cases(told["output"], cases)
metrics = {"cases": len(cases)}
if ended.outcome not in ("CE", "RpE"):
    metrics |= {
        "cases_passed": ended.passed,
        "runtime_ms": ended.runtime_ms,
        "memory_mb": ended.memory_mb,
    }
print(
    json.dumps(
        {
            "score": float(ended.outcome == "PR"),
            "outcome": ended.outcome,
            "feedback_public": "" if ended.outcome == "PR" else "A case fails.",
            "evidence_private": f"{ended.outcome} after {ended.passed} of {len(cases)} cases: "
            f"{ended.said}"[:500],
            "metrics": metrics,
        }
    )
)
