"""Agents that plan together, with the real Claude Code as the planner and as every worker.

The stand-in for the model knows what it was sent and nothing else: the word stands in a skill that
one agent owns, and reaches the other agent by the bus alone.
"""

import json
import os
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from model import Model, Say, Seen, Use
from place import KEY, Place
from talks import Check
from tolls import DATA, THINKING, text_of
from whole_run import parsed

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store

WORD = "plover-5b81e0"
FINDER, WRITER = "You are the finder", "You are the writer"
LEAVE = "mkdir -p outputs && printf '%s' {word} > outputs/letter.txt && ls inputs || true"


def furnish(place: Place) -> None:
    """Put two agents in the library, and a skill with the word, which the finder owns."""
    skill = (
        "---\nname: stamps\ndescription: Which stamp a letter needs.\n---\n\n"
        f"The stamp is {WORD}.\n"
    )
    finder = (
        "---\nname: finder\ndescription: Finds stamps.\nskills: stamps\ntools: Read, Skill\n"
        f"---\n\n{FINDER}.\n"
    )
    writer = f"---\nname: writer\ndescription: Writes letters.\ntools: Bash\n---\n\n{WRITER}.\n"
    person = Identity(Principal.PERSON, "terminal")
    with (
        Store.open(place.library) as store,
        store.transaction(Actor.HUMAN, "for the run", identity=person) as tx,
    ):
        tx.put(Ref(Kind.SKILL, "stamps", "user"), {"SKILL.md": File(skill.encode())})
        tx.put(Ref(Kind.AGENT, "finder", "user"), {"AGENT.md": File(finder.encode())})
        tx.put(Ref(Kind.AGENT, "writer", "user"), {"AGENT.md": File(writer.encode())})


def answers(seen: Seen) -> Say | Use:
    """The stand-in: the planner, the finder, who opens its skill, or the writer, who writes what it
    was told.
    """
    text, system = text_of(seen.request), json.dumps(seen.request.get("system", ""))
    if THINKING in text and '"items_left"' in text:
        return planner(json.loads(DATA.findall(text)[-1][1]))
    if FINDER in system:
        if not seen.results:
            return Use("Skill", {"skill": "stamps"})
        return Say(
            f"The stamp is {WORD}."
            if WORD in json.dumps(seen.request)
            else "FAILED: no skill says it"
        )
    if WRITER in system:
        if not seen.results:
            word = WORD if WORD in json.dumps(seen.request) else "NOTHING"
            return Use(
                "Bash", {"command": LEAVE.format(word=word), "description": "write the letter"}
            )
        return Say("The letter is written.")
    return Say("NOBODY")


def planner(data: dict[str, Any]) -> Say:
    """Plans two searches that need nothing, and a letter that needs both; ends when all
    came back.
    """
    if data["round"] > 1:
        return Say(json.dumps({"note": "all came back", "result": data["messages"][-1]["summary"]}))
    find = [
        {"id": f"find-{n}", "subtask": "Find the stamp.", "agent": "agent:finder", "needs": []}
        for n in ("one", "two")
    ]
    needs = [one["id"] for one in find]
    letter = {
        "id": "letter",
        "subtask": "Write the stamp into a letter.",
        "agent": "agent:writer",
        "needs": needs,
    }
    return Say(json.dumps({"note": "find, then write", "items": [*find, letter]}))


def claude_code(binary: Path, place: Place) -> Iterator[Check]:
    """ags run with claude as planner and workers: the plan, the order, the tools, the file and the
    bill.
    """
    furnish(place)
    with Model(repeat(answers), bare=True) as model:
        given = {
            "PATH": f"{binary.parent}{os.pathsep}{place.environment['PATH']}",
            "ANTHROPIC_API_KEY": KEY,
        }
        place.address(model.url)
        options = (
            "--executor",
            "claude:claude-haiku-5-5",
            "--planner",
            "claude",
            "--stand-in",
            "--max-calls",
            "50",
        )
        done = place.person(
            "ags", "run", "Write a letter with its stamp.", *options, "--wait", "--json", **given
        )
        status, said = parsed(done.stdout), done.stdout[-1500:] + done.stderr[-1500:]
        yield (
            "the run comes to its end",
            (status.get("state"), status.get("ended")) == ("finished", "done"),
            said,
        )
        items = {one["id"]: one for one in status.get("items", ())}
        states = {name: one["state"] for name, one in items.items()}
        yield (
            "every item is done",
            states == dict.fromkeys(("find-one", "find-two", "letter"), "done"),
            str(items),
        )
        found = str(items.get("find-one", {}).get("summary"))
        yield "the finder opened the skill that it owns", WORD in found, found
        tools = {
            name: sorted(_tools(model, words))
            for name, words in (("finder", FINDER), ("writer", WRITER))
        }
        held = tools == {"finder": ["Read", "Skill"], "writer": ["Bash"]}
        yield "each agent has the tools of its file alone", held, str(tools)
        asked = [one for one in model.asked if '"items_left"' in text_of(one)]
        bare = len(asked) == 2 and not any(one.get("tools") for one in asked)
        yield "the planner was asked twice, without tools", bare, str(len(asked))
        out = place.root / "out"
        place.person("ags", "files", str(status.get("run")), str(out), **given)
        letter = out / "letter" / "letter.txt"
        right = letter.is_file() and letter.read_text("utf-8") == WORD
        yield "the letter has the word, which came over the bus", right, said
        spent = status.get("spent", {})
        yield (
            "every call was counted",
            spent.get("calls", 0) >= 8 and spent.get("tokens", 0) > 0,
            str(spent),
        )
        run = place.library / "ags" / str(status.get("run"))
        keys = [
            path.name
            for path in run.rglob("*")
            if path.is_file() and KEY.encode() in path.read_bytes()
        ]
        yield "the key stands in no file of the run", run.is_dir() and not keys, str(keys)
        left = [path.name for path in (run / "workspaces").glob("*")]
        yield "no workspace stays behind", not left, str(left)


def _tools(model: Model, words: str) -> set[str]:
    own = [one for one in model.asked if words in json.dumps(one.get("system", ""))]
    return {str(tool.get("name")) for one in own for tool in one.get("tools", ())} - {
        "DeferredToolPlaceholder"
    }
