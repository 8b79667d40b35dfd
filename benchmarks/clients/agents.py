"""Claude Code as the executor of a run that restructures agents: the agents are installed, and one
does the task.

The whole run has a stand-in that is confused by two skills at once, so that a second agent is what
helps.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from evolution import claude_executor, reader
from model import Model, Say, Seen, Use
from place import KEY, Place
from talks import Check
from tolls import DATA, PROPOSER, THINKING, text_of
from whole_run import parsed

from evolvable_evolve.evolution.candidates.agent_files import MAIN, AgentCard
from evolvable_evolve.evolution.candidates.program_edits import (
    EditOperation,
    ProgramEdit,
    apply_edits,
)
from evolvable_evolve.evolution.candidates.programs import (
    Program,
    make_part,
    make_program,
    skill_owners,
)
from evolvable_evolve.evolution.task import ScorerSpec, Split, Task
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store

WORD, OTHER = "heron-3f19c2", "plover-77d0aa"


def base_program() -> Program:
    """Return a program of one agent, which owns two skills with a word each."""
    skills = [
        make_part(
            Kind.SKILL,
            name,
            {
                "SKILL.md": f"---\nname: {name}\ndescription: How {name} is done.\n---\n\n"
                f"The word is {word}.\n".encode()
            },
        )
        for name, word in (("customs-forms", WORD), ("postage", OTHER))
    ]
    head = (
        "name: clerk\ndescription: Does letters and customs.\nskills: [customs-forms, postage]\n"
        "tools: Read, Skill"
    )
    clerk = make_part(
        Kind.AGENT, "clerk", {"AGENT.md": f"---\n{head}\n---\n\nYou are the clerk.\n".encode()}
    )
    return make_program([clerk, *skills])


def split_program() -> Program:
    """Return the same after the change of agents that a run tries: customs has an agent
    of its own.
    """
    cards = {
        "agent:customs": AgentCard(
            "Does customs papers.", "It answers for customs papers.", ("Customs papers.",)
        ),
        "agent:clerk": AgentCard(
            "Does letters.", "It answers for letters.", ("Letters.",), ("Customs papers.",)
        ),
    }
    skills = ("skill:customs-forms",)
    edit = ProgramEdit(
        EditOperation.ADD_AGENT, "agent:customs", other="agent:clerk", skills=skills, cards=cards
    )
    return apply_edits(base_program(), [edit])


def main_or_agent(seen: Seen) -> Say | Use:
    """A model that hands a customs task to the agent for it, and as that agent says the word that
    it was given.
    """
    request = json.dumps(seen.request, ensure_ascii=False)
    if "It answers for customs papers" in json.dumps(seen.request.get("system", "")):
        return Say(WORD if WORD in request else "NO WORD")
    if seen.results:
        return Say(WORD if WORD in seen.last else seen.last)
    tools = {str(tool.get("name")) for tool in seen.request["tools"]}
    if "Agent" in tools and "customs: Does customs papers." in request:
        values = {
            "subagent_type": "customs",
            "description": "Customs",
            "prompt": "What is the word for customs?",
        }
        return Use("Agent", values)
    return Say("NO AGENT")


def claude_code(binary: Path, place: Place) -> Iterator[Check]:
    """A candidate with two agents is installed and run; the same task without agents has no way to
    start one.
    """
    program = split_program()
    owned = {
        MAIN: frozenset(),
        "agent:clerk": {"skill:postage"},
        "agent:customs": {"skill:customs-forms"},
    }
    yield (
        "the candidate has two agents with a skill each",
        skill_owners(program) == owned,
        str(skill_owners(program)),
    )
    work = place.root / "trial" / "work"
    work.mkdir(parents=True)
    task = Task(
        "t", "What is the word for customs?", ScorerSpec("exact"), Split.TRAIN, "t", timeout_s=120
    )
    with Model(repeat(main_or_agent)) as model:
        executor = claude_executor(binary, place, model)
        done = asyncio.run(executor.run(task, program, 0, work))
        yield "the agent's answer is the answer", done.output == WORD, str(done)
        yield (
            "the agent counts as the one that did it",
            done.read[:1] == ("agent:customs",),
            str(done.read),
        )
        own = [
            one
            for one in model.asked
            if "It answers for customs papers" in json.dumps(one.get("system", ""))
        ]
        yield "the agent was started", bool(own), str(len(model.asked))
        told = json.dumps(own[0]) if own else ""
        yield "it is given the skill that it owns", WORD in told, told[-600:]
        yield "it is not given the skill of the other agent", OTHER not in told, ""
        tools = {str(tool.get("name")) for tool in own[0]["tools"]} if own else set()
        yield (
            "it has the tools of the agent that it was split from",
            tools == {"Read", "Skill"},
            str(tools),
        )
        before = len(model.asked)
        skills = make_program(part for part in program.parts if part.kind is Kind.SKILL)
        alone = asyncio.run(executor.run(task, skills, 0, work))
        names = {str(tool.get("name")) for one in model.asked[before:] for tool in one["tools"]}
        yield (
            "without agents nothing can start one",
            alone.output == "NO AGENT" and "Agent" not in names,
            str(names),
        )


# A whole run

ASKED = re.compile(r"(customs|letters) question number (\d+)")
COUNTS = {"train": 8, "val": 8, "test": 8}


def answers(seen: Seen) -> Say | Use:
    """The stand-in: a role, the session, or an agent that is wrong about customs when it has both
    skills.
    """
    text = text_of(seen.request)
    if THINKING in text:
        return thinker(text)
    if "canary word" in text:
        return reader(seen)
    found = ASKED.search(text)
    if found is None:
        return Say("NONE")
    topic, number = found.groups()
    system = json.dumps(seen.request.get("system", ""))
    if "You are the clerk" in system or "It answers for customs" in system:
        confused = topic == "customs" and OTHER in text
        word = WORD if topic == "customs" else OTHER
        return Say(f"{word} {number}" if word in text and not confused else "Both look alike.")
    if seen.results:
        said = re.search(r"(?:heron|plover)-\w+ \d+", seen.last)
        return Say(said[0] if said else "I do not know.")
    names = [name for name in ("customs", "clerk") if f"{name}: Does" in json.dumps(seen.request)]
    if topic == "letters":
        names = [name for name in names if name == "clerk"]
    if not names:
        return Say("I do not know.")
    return Use(
        "Agent", {"subagent_type": names[0], "description": topic, "prompt": f"The {found[0]}."}
    )


def thinker(text: str) -> Say:
    """Answer as proposer, as builder of an edit that does nothing, or as builder of cards."""
    data = json.loads(DATA.findall(text)[-1][1])
    if PROPOSER in text:
        failed = [one["task"] for one in data["evidence"] if one["result"] == "failed"]
        edit = {
            "op": "edit",
            "ref": "skill:customs-forms",
            "tasks": failed,
            "modification": "say it again",
        }
        said: dict[str, Any] = {
            "diagnoses": [],
            "approaches": [],
            "intents": [edit] if failed else [],
        }
        return Say(json.dumps(said | {"summary": "Say it again.", "justification": "It failed."}))
    if "write" in data:
        return Say(json.dumps({"cards": [_card(ref.partition(":")[2]) for ref in data["write"]]}))
    [intent], [part] = data["intents"], data["resources"]
    change = {"path": "SKILL.md", "old": "The word", "new": "Again, the word"}
    return Say(
        json.dumps({"edits": [{"op": intent["op"], "ref": part["ref"], "changes": [change]}]})
    )


def _card(name: str) -> dict[str, Any]:
    what = "letters" if name == "clerk" else "customs papers"
    boundary = {"choose_when": [f"Questions about {what}."], "not_when": []}
    return {
        "ref": f"agent:{name}",
        "description": f"Does {what}.",
        "responsibility": f"It answers for {what}.",
        **boundary,
    }


def materials(root: Path) -> Path:
    """Write the task set, the skills and the agent, and return the folder of all."""
    folder = root / "materials"
    lines = []
    for split, count in COUNTS.items():
        for number in range(count):
            topic, word = ("customs", WORD) if number % 2 else ("letters", OTHER)
            told = {
                "id": f"{split}-{number}",
                "split": split,
                "category": topic,
                "expected": f"{word} {number}",
            }
            prompt = f"Answer the {topic} question number {number} of the {split} book."
            lines.append(
                json.dumps(
                    told | {"prompt": prompt, "scorer": {"type": "exact", "args": {"bad": ["0"]}}}
                )
            )
    about = "---\nname: office\ndescription: Questions of an office.\n---\n\nQuestions.\n"
    texts = {
        "environment/office/ENVIRONMENT.md": about,
        "environment/office/tasks.jsonl": "\n".join(lines) + "\n",
    }
    for part in base_program().parts:
        texts |= {f"{part.kind}/{part.name}/{path}": text for path, text in part.texts.items()}
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def whole_run(binary: Path, place: Place) -> Iterator[Check]:
    """evolve start --mode structure until the verdict: an edit of a skill fails, then a second
    agent is tried.
    """
    folder = materials(place.root)
    with Model(repeat(answers), bare=True) as model:
        given = {
            "PATH": f"{binary.parent}{os.pathsep}{place.environment['PATH']}",
            "ANTHROPIC_API_KEY": KEY,
        }
        place.address(model.url)

        def run(*words: str) -> dict[str, Any]:
            return parsed(place.person(*words, "--json", typed="y\n", **given).stdout)

        for kind in ("environment", "skill", "agent"):
            for one in sorted((folder / kind).iterdir()):
                run("import", str(one), "--yes", "--kind", kind)
        program = ("-p", "agent:clerk", "-p", "skill:customs-forms", "-p", "skill:postage")
        who = (
            "--executor",
            "claude:claude-haiku-5-5",
            "--brain",
            "claude",
            "--stand-in",
            "--mode",
            "structure",
        )
        rules = [
            word for one in ("failures=3", "enough=2", "chance=1") for word in ("--structure", one)
        ]
        few = ("--iterations", "2", "--test-repeats", "1", "--max-calls", "3000")
        started = place.person(
            "evolve",
            "start",
            "environment:office",
            *program,
            *who,
            *rules,
            *few,
            "--wait",
            seconds=900,
            **given,
        )
        said = started.stdout[-2500:] + started.stderr[-1500:]
        status = run("evolve", "status")
        yield "the run comes to a verdict", status.get("state") == "finished", said
        yield (
            "the gate changes the agents after the edit failed",
            "changes the agents: customs has" in said,
            said,
        )
        added = "add-agent agent:customs from agent:clerk for customs: skill:customs-forms"
        yield "customs gets an agent with its skill", added in said, said
        yield (
            "the second agent is better on these tasks",
            status.get("verdict") == "BETTER ON THESE TASKS",
            said,
        )
        before = place.heads()
        said = str(run("evolve", "adopt", "--unproven"))
        live = place.heads()
        yield (
            "a person adopts both agents in one operation",
            (live.get("customs"), live.get("clerk")) == (1, 2),
            said,
        )
        run("evolve", "adopt", "--undo")
        back = place.heads()
        text = base_program().by_ref["agent:clerk"].texts["AGENT.md"]
        with Store.open(place.library) as store:
            now = store.file(
                store.head(Ref.parse("agent:clerk")), "AGENT.md", back["clerk"]
            ).data.decode()
        gone = back.get("customs") is None and "customs" not in before
        yield (
            "undoing it takes the new agent away and restores the other",
            gone and now == text,
            f"{back} {now}",
        )
