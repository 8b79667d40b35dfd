"""Sessions in which an agent of the library does the work of a skill that names it, as Claude Code
writes them.
"""

from datetime import UTC, datetime
from pathlib import Path

from earned import client
from transcripts import Mcp, Run, Says, Subagent, User, session_id, write_claude_code

from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.sessions.parser import read_session
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.load import load_skill, note_load

PERSON = Caller(Actor.HUMAN)
FILING = Ref.parse("skill:filing")
AGENTS = ("clerk", "scribe")
TYPES = ("fix python", "convert documents")


def put_office(library: Library, machine: Path) -> None:
    """Make the skill `filing`, which names two agents, and have a client's folder of agents hold
    them.
    """
    names = ", ".join(f"agent:{name}" for name in AGENTS)
    head = f"name: filing\ndescription: Files papers in folders.\nmetadata:\n  delegate: [{names}]"
    files = {"SKILL.md": f"---\n{head}\n---\n\nUse one folder a year.\n"}
    edit.update_resource(library, PERSON, FILING, "new", files=files, create=True)
    for name in AGENTS:
        text = f"---\nname: {name}\ndescription: Files papers.\n---\n\n{_prompt(name)}\n"
        ref = Ref.parse(f"agent:{name}")
        edit.update_resource(library, PERSON, ref, "new", files={"AGENT.md": text}, create=True)
    library.working_copies.check_out(machine / ".claude/agents", kind=Kind.AGENT)


def work(
    library: Library, machine: Path, agent: str, task_type: str, number: int, *, good: bool
) -> None:
    """Have an agent do the work of the skill for a task of this type, so many times, and take the
    sessions in.
    """
    ends = [Run("pytest -q", "1 failed", code=1), Run("pytest -q", "1 passed")]
    for at in range(number):
        name = f"{agent}-{task_type}-{good}-{at}"
        identity = session_id(name)
        loaded = load_skill(library, client(identity), FILING, task_type=task_type)
        head = library.store.head(Ref.parse(f"agent:{agent}"))
        # As the client's hook does at the start.
        note_load(library, client(identity), head.id, head.latest)
        said = f"...\nuse_id: {loaded.use_id} (report_outcome with it when the task is done)"
        start = Subagent(
            "File the paper.",
            [*(ends if good else reversed(ends)), Says("Filed.")],
            "Filed.",
            name=agent,
            system=_prompt(agent),
            noted=True,
        )
        given = {"ref": "skill:filing", "task_type": task_type.title()}
        events = [User("Go on"), Mcp("evolvable", "load_skill", given, said), start]
        path = write_claude_code(
            machine, events, session=name, start=datetime.now(UTC), noise=False
        )
        record_uses(library, read_session(path))


def work_opposed(library: Library, machine: Path, number: int = 6) -> None:
    """Have each agent do well at one task type and badly at the other."""
    for agent, good_at in zip(AGENTS, TYPES, strict=True):
        for task_type in TYPES:
            work(library, machine, agent, task_type, number, good=task_type == good_at)


def _prompt(name: str) -> str:
    return f"You are the {name}."
