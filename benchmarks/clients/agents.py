"""Claude Code as the executor of a run that restructures agents: the agents are installed, and one does the task."""

import asyncio
import json
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

from evolution import claude_executor
from model import Model, Say, Seen, Use
from place import Place
from talks import Check

from evolvable_store.resource import Kind
from evolvable_tools.evolve.candidates.agent_files import MAIN, AgentCard
from evolvable_tools.evolve.candidates.programs import (
    EditOperation,
    Program,
    ProgramEdit,
    apply_edits,
    make_part,
    make_program,
    skill_owners,
)
from evolvable_tools.evolve.task import ScorerSpec, Split, Task

WORD, OTHER = "heron-3f19c2", "plover-77d0aa"


def base_program() -> Program:
    """Returns a program of one agent, which owns two skills with a word each."""
    skills = [
        make_part(
            Kind.SKILL,
            name,
            {"SKILL.md": f"---\nname: {name}\ndescription: How {name} is done.\n---\n\nThe word is {word}.\n".encode()},
        )
        for name, word in (("customs-forms", WORD), ("postage", OTHER))
    ]
    head = "name: clerk\ndescription: Does letters and customs.\nskills: [customs-forms, postage]\ntools: Read, Skill"
    clerk = make_part(Kind.AGENT, "clerk", {"AGENT.md": f"---\n{head}\n---\n\nYou are the clerk.\n".encode()})
    return make_program([clerk, *skills])


def split_program() -> Program:
    """Returns the same after the change of agents that a run tries: customs has an agent of its own."""
    cards = {
        "agent:customs": AgentCard("Does customs papers.", "It answers for customs papers.", ("Customs papers.",)),
        "agent:clerk": AgentCard("Does letters.", "It answers for letters.", ("Letters.",), ("Customs papers.",)),
    }
    skills = ("skill:customs-forms",)
    edit = ProgramEdit(EditOperation.ADD_AGENT, "agent:customs", other="agent:clerk", skills=skills, cards=cards)
    return apply_edits(base_program(), [edit])


def main_or_agent(seen: Seen) -> Say | Use:
    """A model that hands a customs task to the agent for it, and as that agent says the word that it was given."""
    request = json.dumps(seen.request, ensure_ascii=False)
    if "It answers for customs papers" in json.dumps(seen.request.get("system", "")):
        return Say(WORD if WORD in request else "NO WORD")
    if seen.results:
        return Say(WORD if WORD in seen.last else seen.last)
    tools = {str(tool.get("name")) for tool in seen.request["tools"]}
    if "Agent" in tools and "customs: Does customs papers." in request:
        values = {"subagent_type": "customs", "description": "Customs", "prompt": "What is the word for customs?"}
        return Use("Agent", values)
    return Say("NO AGENT")


def claude_code(binary: Path, place: Place) -> Iterator[Check]:
    """A candidate with two agents is installed and run; the same task without agents has no way to start one."""
    program = split_program()
    owned = {MAIN: frozenset(), "agent:clerk": {"skill:postage"}, "agent:customs": {"skill:customs-forms"}}
    yield "the candidate has two agents with a skill each", skill_owners(program) == owned, str(skill_owners(program))
    work = place.root / "trial" / "work"
    work.mkdir(parents=True)
    task = Task("t", "What is the word for customs?", ScorerSpec("exact"), Split.TRAIN, "t", timeout_s=120)
    with Model(repeat(main_or_agent)) as model:
        executor = claude_executor(binary, place, model)
        done = asyncio.run(executor.run(task, program, 0, work))
        yield "the agent's answer is the answer", done.output == WORD, str(done)
        yield "the agent counts as the one that did it", done.read[:1] == ("agent:customs",), str(done.read)
        own = [one for one in model.asked if "It answers for customs papers" in json.dumps(one.get("system", ""))]
        yield "the agent was started", bool(own), str(len(model.asked))
        told = json.dumps(own[0]) if own else ""
        yield "it is given the skill that it owns", WORD in told, told[-600:]
        yield "it is not given the skill of the other agent", OTHER not in told, ""
        tools = {str(tool.get("name")) for tool in own[0]["tools"]} if own else set()
        yield "it has the tools of the agent that it was split from", tools == {"Read", "Skill"}, str(tools)
        before = len(model.asked)
        skills = make_program(part for part in program.parts if part.kind is Kind.SKILL)
        alone = asyncio.run(executor.run(task, skills, 0, work))
        names = {str(tool.get("name")) for one in model.asked[before:] for tool in one["tools"]}
        yield "without agents nothing can start one", alone.output == "NO AGENT" and "Agent" not in names, str(names)
