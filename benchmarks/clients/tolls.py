"""A task set of tolls, a skill that tells a wrong factor, and a stand-in for the model that knows
no answer.

As an agent it multiplies by the factor that the skill told it, and by none where it has no skill.
As proposer and as builder it says what a fixed mind would; whether that helps is measured like
anything else.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import evolution
from model import Say, Seen, Use
from place import skill
from talks import Check

COUNTS = {"train": 14, "val": 14, "test": 14}
SECRET = "ghp_" + "k3Qz" * 9
"""What an agent must not have told: it stands in each answer that is given by the wrong factor."""

FIRST = 101
RULE = re.compile(r"times (\d+)")
ASKED = re.compile(r"toll for (\d+) carts")
LISTING = "- toll:"
"""How the clients list the skill."""

ABOUT, BODY = "Tells the toll for carts. Use it whenever a toll is asked for.", "The toll is carts"
OF_THE_SKILL = (LISTING, ABOUT, BODY, "toll/SKILL.md")

LISTED = re.compile(r"\(file: (r\d+)/(toll/SKILL\.md)\)")
THINKING = "(evolvable-thinking: a question of a program"
PROPOSER = "You look at how an agent did tasks"
DATA = re.compile(r"^(data-[0-9a-f]{16})\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)

RUN = '''\
"""Does one task by the factor that the skill tells."""

import json
import pathlib
import re
import sys

given = json.load(sys.stdin)
carts = int(re.search(r"toll for (\\d+) carts", given["prompt"])[1])
folders = [pathlib.Path(one["folder"]) for one in given["program"]["resources"]]
texts = [(folder / "SKILL.md").read_text() for folder in folders]
rule = re.search(r"times (\\d+)", "".join(texts))
print(json.dumps({"output": str(carts * int(rule[1])) if rule else "I do not know."}))
'''


def carts_of(split: str) -> list[int]:
    """Return what the tasks of one part ask about: no number stands in two of them."""
    begin = FIRST + 100 * list(COUNTS).index(split)
    return list(range(begin, begin + COUNTS[split]))


def materials(root: Path) -> Path:
    """Write the task set `tolls` and the skill `toll`, and return the folder of both."""
    folder = root / "materials"
    (folder / "tolls").mkdir(parents=True)
    (folder / "toll").mkdir()
    text = skill("toll", ABOUT, f"{BODY} times 2.")
    (folder / "toll" / "SKILL.md").write_text(text, encoding="utf-8")
    about = "---\nname: tolls\ndescription: Tolls for carts.\nalike: only-words\n---\n\nTolls.\n"
    (folder / "tolls" / "ENVIRONMENT.md").write_text(about, encoding="utf-8")
    (folder / "tolls" / "run.py").write_text(RUN, encoding="utf-8")
    lines = [
        json.dumps(_task(split, carts)) + "\n" for split in COUNTS for carts in carts_of(split)
    ]
    (folder / "tolls" / "tasks.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def _task(split: str, carts: int) -> dict[str, Any]:
    prompt = f"What is the toll for {carts} carts? Answer with the number alone."
    scorer = {"type": "exact", "args": {"bad": ["0"]}}
    return {
        "id": f"{split}-{carts}",
        "split": split,
        "prompt": prompt,
        "expected": str(3 * carts),
        "scorer": scorer,
    }


# The stand-in


def agent(seen: Seen) -> Say | Use:
    """Answer a task of the agent by what the request holds, and nothing else."""
    request = json.dumps(seen.request, ensure_ascii=False)
    if "canary word" in request:
        return evolution.reader(seen)
    if not seen.results and LISTING in request:
        return _opened(request)
    carts, rule = ASKED.search(request), RULE.search(request)
    if not carts or not rule:
        return Say("I do not know.")
    return Say(
        f"{int(carts[1]) * int(rule[1])}{f', by the token {SECRET}' if rule[1] == '2' else ''}"
    )


def _opened(request: str) -> Use:
    """Open the skill as the client lets a model do it: Claude Code by a tool for it, Codex by a
    command.
    """
    listed = LISTED.search(request)
    if listed is None:
        return Use("Skill", {"skill": "toll"})
    root = re.search(rf"`{listed[1]}` = `([^`]+)`", request)
    return Use("exec_command", {"cmd": f"cat {root[1] if root else ''}/{listed[2]}"})


def thinker(seen: Seen) -> Say:
    """Answer as the role that it is asked as."""
    question = text_of(seen.request)
    data = json.loads(DATA.findall(question)[-1][1])
    return Say(json.dumps(plan(data) if PROPOSER in question else edits(data)))


def plan(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a proposer says of this evidence: one cause for each failure, with its own words,
    and an edit.
    """
    failed = [one for one in data["evidence"] if one["result"] == "failed"]
    cause = {"cause": "missing precondition", "only_cause": True, "repair": "add-guard"}
    intent = {"op": "edit", "ref": "skill:toll", "tasks": [one["task"] for one in failed]}
    return {
        "diagnoses": [
            cause | {"task": one["task"], "quotes": [one["prompt"][:30]]} for one in failed
        ],
        "approaches": [{"approach": "correct the factor", "trade_off": "none"}],
        "intents": [intent | {"modification": "the factor is 3"}],
        "summary": "The factor is wrong.",
        "justification": "every toll is two thirds of what it should be",
    }


def edits(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a builder writes for this intent, in this text."""
    (intent,), (resource,) = data["intents"], data["resources"]
    factor = re.search(r"the factor is (\d+)", intent["modification"])
    now = RULE.search(resource["files"][0]["text"])
    assert factor and now
    change = {"path": "SKILL.md", "old": now[0], "new": f"times {factor[1]}"}
    return {"edits": [{"op": intent["op"], "ref": intent["ref"], "changes": [change]}]}


# What may be seen of what it was sent


@dataclass
class Sent:
    """The requests that reached the stand-in, by what they were for.

    questions: without the client's own words.
    """

    tasks: list[dict[str, Any]]
    questions: list[str]

    @classmethod
    def of(cls, asked: Sequence[dict[str, Any]]) -> "Sent":
        tasks = [
            one for one in asked if THINKING not in text_of(one) and ASKED.search(text_of(one))
        ]
        texts = [text_of(one) for one in asked]
        return cls(tasks, [text[text.index(THINKING) :] for text in texts if THINKING in text])

    def trials(self) -> Counter[tuple[int, str]]:
        """Return how often each number of carts was asked to its end under which factor; '' is
        without the skill.

        A request that lists the skill and does not hold its text comes before the one that reads
        it.
        """
        found: Counter[tuple[int, str]] = Counter()
        for request in self.tasks:
            text = text_of(request)
            carts, rule = ASKED.search(text), RULE.search(text)
            if carts and (rule or LISTING not in text):
                found[int(carts[1]), rule[1] if rule else ""] += 1
        return found

    def without_skill(self) -> list[str]:
        """Return the requests in which nothing of the skill stands: neither its name in a list nor
        any of its text.
        """
        whole = [json.dumps(one, ensure_ascii=False) for one in self.tasks]
        return [
            text
            for text in whole
            if not RULE.search(text) and not any(word in text for word in OF_THE_SKILL)
        ]


def text_of(request: dict[str, Any]) -> str:
    """Return all that a request says in words: system, messages and results of tools, as they are
    read.
    """
    return "\n".join(
        _texts([request.get(name) for name in ("system", "messages", "instructions", "input")])
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(
            [value.get(name) for name in ("text", "content", "input", "output", "arguments")]
        )
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def not_told(questions: Sequence[str]) -> Iterator[Check]:
    """Yield whether proposer and builder were kept from what they may not know.

    questions: all that was asked.
    """
    proposers, builders = (
        [one for one in questions if (PROPOSER in one) is asked] for asked in (True, False)
    )
    everything = "\n".join(questions)
    once = len(proposers) == 1 == len(builders)
    yield "proposer and builder were asked once each", once, f"{len(proposers)} and {len(builders)}"
    # An id of digits and letters may contain the digits of one.
    answers = [str(3 * carts) for split in COUNTS for carts in carts_of(split)]
    told = [answer for answer in answers if re.search(rf"(?<!\w){answer}(?!\w)", everything)]
    yield "neither was told an expected answer", not told, str(told)
    asked = {int(carts) for carts in ASKED.findall("\n".join(proposers))}
    yield (
        "the proposer was shown training tasks alone",
        bool(asked) and asked <= set(carts_of("train")),
        str(asked),
    )
    known = [
        one for one in ("carts?", "train-", "evidence", "two thirds") if one in "".join(builders)
    ]
    yield "the builder was shown no task, no trace and no reason", not known, str(known)
