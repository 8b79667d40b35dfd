"""The files of the code set as a task set, and what the stand-in knows."""

import hashlib
import json
from pathlib import Path
from typing import Any

from seeds.code_set.lists import LISTS
from seeds.code_set.numbers import NUMBERS
from seeds.code_set.problem import Problem
from seeds.code_set.tables import TABLES
from seeds.code_set.texts import TEXTS

PROBLEMS: dict[str, list[Problem]] = {
    "numbers": NUMBERS,
    "lists": LISTS,
    "texts": TEXTS,
    "tables": TABLES,
}
"""The problems by category."""

HERE = Path(__file__).resolve().parent
STAND_IN = HERE / "stand_in.py"

_SPLITS = ("train", "val", "test", "test")


def taskset_files(
    names: frozenset[str] | None = None, *, all_val: bool = False
) -> dict[str, bytes]:
    """Return the files of the code set by path.

    names: of these problems alone. all_val: no split but validation.
    """
    top = HERE / "environment"
    files = {
        p.relative_to(top).as_posix(): p.read_bytes()
        for p in top.rglob("*")
        if p.suffix in (".py", ".md")
    }
    visible, hidden, lines = {}, {}, []
    for category, problems in PROBLEMS.items():
        for at, problem in enumerate(problems):
            if names is not None and problem.name not in names:
                continue
            solve = problem.solve()
            visible[problem.name] = problem.shown
            hidden[problem.name] = [
                (arguments, solve(*json.loads(json.dumps(arguments))))
                for arguments in problem.hidden
            ]
            split = "val" if all_val else _SPLITS[at % len(_SPLITS)]
            lines.append(json.dumps(_task(problem, category, split, hidden[problem.name])))
    files["public/visible.json"] = json.dumps(visible).encode()
    files["hidden/cases.json"] = json.dumps(hidden).encode()
    files["tasks.jsonl"] = "\n".join(lines).encode() + b"\n"
    return files


def _task(problem: Problem, category: str, split: str, hidden: list[Any]) -> dict[str, Any]:
    examples = "\n".join(
        f"solve({', '.join(map(json.dumps, a))}) gives {json.dumps(b)}" for a, b in problem.shown
    )
    prompt = (
        f"Problem {problem.name}. {problem.text}\nWrite a function `solve` in one fenced block of "
        f"Python.\n{examples}"
    )
    return {
        "id": problem.name,
        "prompt": prompt,
        "category": category,
        "split": split,
        "timeout_s": 60,
        "scorer": {
            "type": "command",
            "args": {
                "argv": ["{python}", "-I", "-S", "{taskset}/hidden/judge.py"],
                "outcomes": "code",
            },
        },
        "public": {
            "argv": ["{python}", "-I", "-S", "{taskset}/public/check.py"],
            "files": "public",
        },
        # The scorer does not read it. Its mark stands nowhere else, so a prompt that held it would
        # be found.
        "expected": (
            f"hidden-{hashlib.sha256(problem.name.encode()).hexdigest()[:16]} "
            f"{json.dumps(hidden)[:200]}"
        ),
    }


def knowledge() -> bytes:
    """Return what the stand-in knows of each problem: the right code, and the mistakes of its first
    answer.
    """
    known = {
        one.name: {"code": one.code, "faults": [[f.kind, f.old, f.new, f.rule] for f in one.faults]}
        for problems in PROBLEMS.values()
        for one in problems
    }
    return json.dumps(known).encode()


def write_stand_in(folder: Path, *, varies: bool = False) -> list[str]:
    """Write the stand-in with its knowledge into a folder, and return the command that runs it.

    varies: repeats of one problem differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stand_in.py").write_bytes(STAND_IN.read_bytes())
    (folder / "knowledge.json").write_bytes(knowledge())
    files = [str(folder / name) for name in ("stand_in.py", "knowledge.json")]
    return ["{python}", "-I", "-S", *files, *(["varies"] if varies else [])]
