"""`try` through a real client: a table of fifteen tasks, and fifteen labelled sessions, to an
answer.

The stand-in for the model knows what it was sent: with the skill's rule in the request it does all
tasks, without it two in three.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import evolution
from model import Model, Say, Seen, Use
from place import KEY, Place, skill
from talks import Check
from whole_run import CLAUDE, CODEX, Client, parsed

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from session_cases import FUNCTIONS, labelled_cases

RULE = "The house rule of zebras holds for all that is asked."
NAMES = (
    *(
        "bakery",
        "ferry",
        "orchard",
        "canoe",
        "printing press",
        "choir",
        "bronze bell",
        "narrow bridge",
    ),
    *(
        "garden fence",
        "library",
        "school chairs",
        "atlas of Tasmania",
        "lorry",
        "blue flag",
        "desk of Miriam",
    ),
)
FORMS = (
    "What does the {} cost?",
    "Name the yearly loss of the {}.",
    "How many guests came to the {} in May?",
)
UNKNOWN = 5
"""The first so many tasks are done with the skill alone."""

LISTED = re.compile(r"\(file: (r\d+)/(house/SKILL\.md)\)")
FILE = re.compile(r"code_([a-z_]+)\.py")


def questions() -> list[str]:
    """Return fifteen questions."""
    return [FORMS[at % len(FORMS)].format(name) for at, name in enumerate(NAMES)]


def answers(seen: Seen) -> Say | Use:
    """The stand-in: it opens the skill that it is told of, and then does what it knows."""
    request = json.dumps(seen.request, ensure_ascii=False)
    if "canary word" in request:
        return evolution.reader(seen)
    if not seen.results and "- house:" in request:
        listed = LISTED.search(request)
        if listed is None:
            return Use("Skill", {"skill": "house"})
        root = re.search(rf"`{listed[1]}` = `([^`]+)`", request)
        return Use("exec_command", {"cmd": f"cat {root[1] if root else ''}/{listed[2]}"})
    if named := FILE.search(request):
        return _repaired(seen, named[1], RULE in request)
    at = next((at for at, one in enumerate(questions()) if one in request), 0)
    return Say(str(10 * at + 10) if at >= UNKNOWN or RULE in request else "7")


def _repaired(seen: Seen, name: str, ruled: bool) -> Say | Use:
    """Write the function as it should be, by the client's shell, and say that it is done."""
    if len(seen.results) > int(ruled):
        return Say("It is repaired.")
    at = next(at for at, one in enumerate(FUNCTIONS) if one[0] == name)
    _, given, wrong, right, *_ = FUNCTIONS[at]
    body = right if ruled or at >= UNKNOWN else wrong
    command = f"cat > code_{name}.py <<'END'\ndef {name}({given}):\n    return {body}\nEND"
    tools = {str(tool.get("name")) for tool in seen.request["tools"]}
    return (
        Use("Bash", {"command": command})
        if "Bash" in tools
        else Use("exec_command", {"cmd": command})
    )


def tried(binary: Path, place: Place, client: Client, source: str) -> Iterator[Check]:
    """Take one trial to its answer, within what its plan says."""
    folder = place.root / "materials"
    (folder / "house").mkdir(parents=True)
    text = skill("house", "The rule of this house. Use it for whatever is asked.", RULE)
    (folder / "house" / "SKILL.md").write_text(text, encoding="utf-8")
    asked = [] if source == "sessions" else ["--from", str(_table(folder))]
    if source == "sessions":
        cases = [
            one
            for one in labelled_cases()
            if one.name.startswith(("repair-", "commit-")) and one.usable
        ]
        for case in [
            *cases[:12],
            *(one for one in cases if one.name in ("commit-0", "commit-1", "commit-2")),
        ]:
            case.write(place.home)
    with Model(repeat(answers), bare=True) as model:
        path = f"{binary.parent}{os.pathsep}{place.environment['PATH']}"
        place.address(f"{model.url}{client.address}", client.provider)

        def run(*words: str) -> tuple[dict[str, Any], str]:
            done = place.person(
                *words, "--json", seconds=3000, typed="y\n" * 6, PATH=path, **{client.key: KEY}
            )
            return parsed(done.stdout), f"{done.stdout[-1500:]}{done.stderr[-1500:]}"

        run("import", str(folder / "house"), "--yes")
        command = ("try", "house", *asked, "--executor", f"{client.name}:{client.model}")
        plan, said = run(*command, "--plan")
        yield "the plan has fifteen tasks", len(plan.get("tasks", ())) == 15, said
        found, said = run(*command, "--max-calls", "2000")
        yield from _answered(found, client.model, int(plan.get("most") or 0), said)
        yield "the script did not fail", not model.failures, str(model.failures[:3])


def _table(folder: Path) -> Path:
    path = folder / "asked.csv"
    rows = [f'"{question}",{10 * at + 10}' for at, question in enumerate(questions())]
    path.write_text("\n".join(["question,answer", *rows]) + "\n", encoding="utf-8")
    return path


def _answered(found: dict[str, Any], model: str, most: int, said: str) -> Iterator[Check]:
    skills = found.get("skills") or [{}]
    on_these = skills[0].get("on_these", {})
    yield (
        "it comes to an answer",
        found.get("state") == "finished" and on_these.get("answer") == "helps",
        said,
    )
    counts = (on_these.get("tasks"), on_these.get("fixed"), on_these.get("broken"))
    yield (
        "five tasks and more are fixed and none is broken",
        counts[0] == 15 and counts[1] >= 5 and not counts[2],
        said,
    )
    trials = int(found.get("trials") or 0)
    yield f"its {trials} trials are within the {most} of the plan", 0 < trials <= most, said
    yield "the skill was read in all tasks", skills[0].get("read") == 15, said
    # The client is a real one, and cannot tell who answers at the address that it was given.
    yield (
        "its figures name the model",
        found.get("label") == f"real model {model}",
        str(found.get("label")),
    )


claude_table, claude_sessions = (
    partial(tried, client=CLAUDE, source=source) for source in ("table", "sessions")
)
codex_table, codex_sessions = (
    partial(tried, client=CODEX, source=source) for source in ("table", "sessions")
)
