"""Run an answer on cases in a process of its own, within limits of processor time and memory.

The process that runs the answer gets the arguments of the cases and never what they should give. It
can open no file: the scorer's own lie on the same disk.
"""

import json
import re
import resource
import subprocess
import sys
from dataclasses import dataclass

CPU_SECONDS, WALL_SECONDS, MEMORY_BYTES = 0.25, 5.0, 192 * 1024 * 1024

_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)\n?```", re.DOTALL)

# Sets the limits, then runs the cases and prints a line of JSON for each. The timer sends a signal
# that kills. What answers usually import is imported before no file can be opened any more.
_RUNNER = """
import bisect, collections, functools, heapq, itertools, json, math, os, re
import resource, signal, string, sys
told = json.load(sys.stdin)
out = os.fdopen(os.dup(1), "w")
sys.stdout = sys.stderr = open(os.devnull, "w")
resource.setrlimit(resource.RLIMIT_AS, (told["memory"], told["memory"]))
signal.setitimer(signal.ITIMER_PROF, told["cpu"])
resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
def say(**line):
    out.write(json.dumps(line) + "\\n")
    out.flush()
try:
    space = {"__name__": "answer"}
    exec(compile(told["source"], "answer.py", "exec"), space)
    if not callable(space.get("solve")):
        raise NameError("there is no function solve")
    for arguments in told["cases"]:
        say(value=space["solve"](*arguments))
except MemoryError:
    say(memory=True)
except BaseException as error:
    say(error=f"{type(error).__name__}: {error}"[:300])
"""


@dataclass(frozen=True)
class Ended:
    """How an answer ended.

    passed: cases before the first failure. failed: index of that case, None where none is.
    """

    outcome: str
    passed: int
    failed: int | None = None
    said: str = ""
    runtime_ms: float = 0.0
    memory_mb: float = 0.0


def find_code(output: str) -> str | None:
    """Return the last fenced block of an output, None without one."""
    found = _FENCED.findall(output)
    return found[-1] if found else None


def run_cases(output: str, cases: list) -> Ended:
    """Return how the answer in an output ends on these cases, pairs of arguments and of what they
    should give.
    """
    source = find_code(output)
    if source is None:
        return Ended("RpE", 0, None, "there is no fenced block of Python in the answer")
    try:
        compile(source, "answer.py", "exec")
    except (SyntaxError, ValueError) as error:
        return Ended(
            "CE", 0, None, f"line {getattr(error, 'lineno', 0)}: {getattr(error, 'msg', error)}"
        )
    told = {
        "source": source,
        "cases": [one[0] for one in cases],
        "cpu": CPU_SECONDS,
        "memory": MEMORY_BYTES,
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _RUNNER],
            input=json.dumps(told).encode(),
            capture_output=True,
            timeout=WALL_SECONDS,
            check=False,
        )
        lines = ran.stdout.splitlines()
    except subprocess.TimeoutExpired as expired:
        lines = (expired.stdout or b"").splitlines()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return _judge(lines, cases, round(1000 * seconds, 2), round(after.ru_maxrss / scale, 2))


def _judge(lines: list, cases: list, runtime_ms: float, memory_mb: float) -> Ended:
    passed = 0
    for at, (_, expected) in enumerate(cases):
        if at >= len(lines):
            return Ended(
                "TLE", passed, at, f"no result within {CPU_SECONDS:g} s", runtime_ms, memory_mb
            )
        said = json.loads(lines[at])
        if said.get("memory"):
            return Ended(
                "MLE", passed, at, f"more than {MEMORY_BYTES >> 20} MB", runtime_ms, memory_mb
            )
        if "error" in said:
            return Ended("RE", passed, at, said["error"], runtime_ms, memory_mb)
        if json.dumps(said["value"]) != json.dumps(expected):
            return Ended(
                "WA",
                passed,
                at,
                f"it gave {json.dumps(said['value'])[:200]}",
                runtime_ms,
                memory_mb,
            )
        passed += 1
    return Ended("PR", passed, None, "", runtime_ms, memory_mb)
