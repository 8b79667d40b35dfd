"""The public check: run the examples that the prompt shows, and say what happened to the first that
fails.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import run_cases  # noqa: E402 - beside this file

TITLES = {
    "CE": "compile error",
    "RE": "runtime error",
    "WA": "wrong answer",
    "TLE": "time limit",
    "MLE": "memory limit",
    "RpE": "unreadable answer",
}

told = json.load(sys.stdin)
cases = json.loads((HERE / "visible.json").read_text())[told["task_id"]]
ended = run_cases(told["output"], cases)
said = ""
if ended.outcome != "PR":
    where = ""
    if ended.failed is not None:
        arguments, expected = cases[ended.failed]
        call = f"solve({', '.join(map(json.dumps, arguments))})"
        where = f" in {call}, which should give {json.dumps(expected)}"
    said = f"{TITLES[ended.outcome]}{where}: {ended.said}"
print(json.dumps({"score": float(ended.outcome == "PR"), "feedback_public": said}))
