"""Stand in for a model: answer problems of the code set, with mistakes, and repair those that
feedback names.

It is a command executor. It keeps nothing between two calls: a further answer repairs what the
critiques in its prompt name, and a critique names what the public feedback in its prompt says. A
rule in a resource of its program, a line `rule: NAME`, keeps it from the mistakes that follow that
rule. With the argument `varies` it makes each mistake in seven of ten repeats, so that repeats of
one problem differ. Every figure of it is scripted.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

SIGNS = {
    "CE": "compile error",
    "RE": "runtime error",
    "WA": "wrong answer",
    "TLE": "time limit",
    "MLE": "memory limit",
    "RpE": "unreadable answer",
    "TO": "No answer",
}
BLOCK = re.compile(r"<<<(.+?) ([0-9a-f]{12})\n(.*?)\n\2>>>", re.DOTALL)
RULE = re.compile(r"^[ \t]*(?:[-*][ \t]+)?rule:[ \t]*([\w-]+)[ \t]*$", re.MULTILINE)
TOKEN = 4  # characters
LEFT_OUT = 77  # of 256: mistakes that a repeat does not make, where repeats vary


def reflect(blocks: list[tuple[str, str]]) -> str:
    """Return a critique: which kind of mistake the feedback names. It solves nothing."""
    feedback = next(text for name, text in blocks if name.startswith("public feedback"))
    kind = next((kind for kind, sign in SIGNS.items() if feedback.startswith(sign)), "")
    return (
        f"cause: {SIGNS[kind]}\n{feedback.splitlines()[0][:200]}"
        if kind
        else "The feedback does not tell the cause."
    )


def answer(prompt: str, blocks: list[tuple[str, str]], known: dict, rules: set[str]) -> dict:
    """Return the answer with the mistakes that neither a rule nor a critique took away."""
    problem = known[re.search(r"Problem ([\w-]+)\.", prompt)[1]]
    left = [fault for fault in problem["faults"] if not (fault[3] and fault[3] in rules)]
    for name, text in blocks:
        if name.startswith("critique"):
            repaired = next(
                (fault for fault in left if text.startswith(f"cause: {SIGNS[fault[0]]}")), None
            )
            left = [fault for fault in left if fault is not repaired]
    if any(fault[0] == "TO" for fault in left):
        return {"outcome": "agent_timeout", "detail": "it was still thinking"}
    code = problem["code"]
    for _, old, new, _ in reversed(left):
        code = code.replace(old, new, 1) if old else code
    fenced = not any(fault[0] == "RpE" for fault in left)
    return {"output": f"```python\n{code}```" if fenced else f"The function is:\n{code}"}


def happens(problem: str, at: int, repeat: int) -> bool:
    """Return whether a repeat makes the mistake with this index."""
    return hashlib.sha256(f"{problem} {at} {repeat}".encode()).digest()[0] >= LEFT_OUT


def main() -> None:
    told = json.load(sys.stdin)
    known = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if "varies" in sys.argv[2:]:
        for name, problem in known.items():
            problem["faults"] = [
                one for at, one in enumerate(problem["faults"]) if happens(name, at, told["repeat"])
            ]
    prompt = told["prompt"]
    blocks = [(name, text) for name, _, text in BLOCK.findall(prompt)]
    rules = {
        rule
        for one in told["program"]["resources"]
        for path in sorted(Path(one["folder"]).rglob("*"))
        if path.is_file()
        for rule in RULE.findall(path.read_text(encoding="utf-8", errors="replace"))
    }
    reflects = prompt.startswith("Analyse an attempt")
    said = {"output": reflect(blocks)} if reflects else answer(prompt, blocks, known, rules)
    size = len(said.get("output", ""))
    usage = {
        "input_tokens": len(prompt) // TOKEN,
        "output_tokens": size // TOKEN,
        "calls": 1,
        "cost": 0.0,
    }
    print(
        json.dumps(
            {**said, "usage": usage, "read": [one["ref"] for one in told["program"]["resources"]]}
        )
    )


main()
