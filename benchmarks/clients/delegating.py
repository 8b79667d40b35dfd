"""A skill whose work an agent does: the real client starts the agent, and what the agent did is its
evidence.

The stand-in for the model follows what it reads: it starts the sub-agent that the answer of
`load_skill` names, and the sub-agent does what the skill says.
"""

import json
import re
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

from claude import IN_PLUGIN, Claude
from codex import SERVER as CODEX_SERVER
from codex import Codex
from model import Model, Say, Seen, Turn, Use
from place import PLUGIN, Place
from reviewing import evolvable
from talks import Check

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store

AGENT = "You are the clerk. File every paper."
SKILL = "Run `sorter.sh paper.txt`, then the tests."
CHECK = "python3 -m unittest -q"

_TEST = """import os, unittest
class Filed(unittest.TestCase):
    def test_filed(self):
        self.assertTrue(os.path.exists("filed/paper.txt"))
"""

_SORTER = '#!/bin/sh\nmkdir -p filed && cp "$1" filed/\n'


def furnish(
    place: Place, test: str = _TEST, sorter: str = _SORTER, preloaded: str = "skills: filing\n"
) -> None:
    """Put a skill that delegates to an agent in the library, and a paper that is to be filed in the
    project.

    test, sorter: of the project. preloaded: what the agent's head says of its skills.
    """
    skill = (
        "---\nname: filing\ndescription: Files papers.\nmetadata:\n  delegate: agent:clerk\n"
        f"---\n\n{SKILL}\n"
    )
    agent = f"---\nname: clerk\ndescription: Files papers.\n{preloaded}---\n\n{AGENT}\n"
    person = Identity(Principal.PERSON, "terminal")
    with (
        Store.open(place.library) as store,
        store.transaction(Actor.HUMAN, "for the session", identity=person) as tx,
    ):
        tx.put(Ref(Kind.SKILL, "filing", "user"), {"SKILL.md": File(skill.encode())})
        tx.put(Ref(Kind.AGENT, "clerk", "user"), {"AGENT.md": File(agent.encode())})
    (place.project / "paper.txt").write_text("a paper\n", encoding="utf-8")
    (place.project / "test_filed.py").write_text(test, encoding="utf-8")
    script = place.project / "sorter.sh"
    script.write_text(sorter, encoding="utf-8")
    script.chmod(0o755)


def filing(ran: list[str]) -> Turn:
    """Return the turn of a sub-agent that files the paper.

    ran: filled with what it was told to be.
    """

    def clerk(seen: Seen) -> Say | Use:
        steps = (CHECK, "./sorter.sh paper.txt", CHECK)
        if len(seen.results) < len(steps):
            return Use("Bash", {"command": steps[len(seen.results)], "description": "work"})
        ran.append(json.dumps(seen.request.get("messages")))
        return Say("Filed, and the tests pass.")

    return clerk


def following(server: str, clerk: Turn) -> Turn:
    """Return the turn of a model that follows what it reads. clerk: the turn of the sub-agent."""

    def turn(seen: Seen) -> Say | Use:
        if AGENT in json.dumps(seen.request.get("system")):
            return clerk(seen)
        if not seen.results:
            return Use("load_skill", {"ref": "skill:filing"}, server)
        told = re.search(
            r"Run this in the sub-agent `\w+` by the Agent tool \(subagent_type: (\w+)\)", seen.last
        )
        if told and len(seen.results) == 1:
            prompt = "File paper.txt. Work by skill:filing."
            return Use(
                "Agent", {"description": "file it", "prompt": prompt, "subagent_type": told[1]}
            )
        return Say("DONE")

    return turn


def hold(claude: Claude, tool: str = "Agent") -> str:
    """Hold a session in which the paper is to be filed, with the plugin. Returns its id, '' without
    one.

    tool: of the client, which starts the agent.
    """
    words = ("--output-format", "stream-json", "--verbose", "--plugin-dir", str(PLUGIN))
    said = claude.run(
        "-p", "File the paper.", *words, "--allowedTools", f"mcp__{IN_PLUGIN},{tool},Bash"
    ).stdout
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return next((str(event["session_id"]) for event in events if "session_id" in event), "")


def claude_code(binary: Path, place: Place, era: str) -> Iterator[Check]:
    """claude -p with the plugin: the agent is started and runs, and the evidence is the agent's."""
    furnish(place)
    done = place.person("checkout", "claude-code", "--only", "filing")
    written = sorted(path.name for path in (place.home / ".claude").rglob("*.md"))
    yield (
        "checkout writes the skill with its agent",
        written == ["SKILL.md", "clerk.md"],
        done.stderr + str(written),
    )
    old = {"MCP_PROTOCOL_NEGOTIATION": "legacy"} if era == "handshake" else {}
    ran: list[str] = []
    with Model(repeat(following(IN_PLUGIN, filing(ran)))) as model:
        session = hold(Claude(binary, place, model, **old))
        first = next(
            (one for one in model.seen.results if "sub-agent" in one), str(model.seen.results)
        )
        yield (
            "load_skill says how to start the agent",
            first.lstrip().startswith("Run this in the sub-agent"),
            first,
        )
        yield (
            "the agent ran, with the skill before it",
            bool(ran) and "then the tests." in ran[0],
            str(model.failures),
        )
    begun = place.person("review", session)
    (clerk,) = evolvable(place, "stats", "agent:clerk")["resources"] or [{}]
    said = json.dumps(clerk)
    yield (
        "stats agent:clerk says used 1 and a verified end",
        clerk.get("used") == 1 == clerk["verified"]["n"],
        said,
    )
    with Store.open(place.library) as store:
        found = {
            one.executor: one for one in store.backend.observations.executions(session=session)
        }
        skill = store.head(Ref.parse("filing")).id
    yield (
        "the session and the agent are its executors",
        sorted(found) == ["agent:clerk", "main"],
        begun.stderr,
    )
    uses = [one for one in found["agent:clerk"].uses if one.resource == skill]
    credited = bool(uses) and uses[0].used and {"preloaded", "delegated"} <= {*uses[0].how}
    yield (
        "the skill is credited to the agent",
        credited and uses[0].outcome == "succeeded",
        str(uses),
    )


def calling(clerk: Turn) -> Turn:
    """Return the turn of a model that calls the client's own Skill tool.

    clerk: the turn of the sub-agent.
    """

    def turn(seen: Seen) -> Say | Use:
        if AGENT in json.dumps(seen.request.get("system")):
            return clerk(seen)
        return (
            Say("DONE") if seen.results else Use("Skill", {"skill": "filing", "args": "paper.txt"})
        )

    return turn


def by_the_skill_tool(binary: Path, place: Place) -> Iterator[Check]:
    """claude -p: the client's own Skill tool starts the agent, and the evidence is the agent's and
    the skill's.
    """
    furnish(place, preloaded="")
    done = place.person("checkout", "claude-code", "--only", "filing")
    copy = (place.home / ".claude/skills/filing/SKILL.md").read_text(encoding="utf-8")
    yield (
        "the copy names the agent",
        "\ncontext: fork\nagent: clerk\n---" in copy,
        done.stderr + copy,
    )
    ran: list[str] = []
    with Model(repeat(calling(filing(ran)))) as model:
        session = hold(Claude(binary, place, model), "Skill")
        yield (
            "the agent ran, with the text of the skill",
            bool(ran) and SKILL in ran[0],
            str(model.failures),
        )
    begun = place.person("review", session)
    (clerk,) = evolvable(place, "stats", "agent:clerk")["resources"] or [{}]
    found = json.dumps(clerk)
    yield (
        "stats agent:clerk says used 1 and a verified end",
        clerk.get("used") == 1 == clerk["verified"]["n"],
        found,
    )
    (skill,) = evolvable(place, "stats", "filing")["resources"] or [{}]
    credited = skill.get("used") == 1 == skill["verified"]["n"]
    yield "the skill is credited", credited, json.dumps(skill) + begun.stderr


def codex_exec(binary: Path, place: Place) -> Iterator[Check]:
    """codex exec: the agent's text comes before the skill."""
    furnish(place)
    with Model(repeat(following(CODEX_SERVER, filing([])))) as model:
        codex = Codex(binary, place, model)
        codex.add()
        codex.require()
        codex.ask("File the paper.")
        said = model.seen.last
        inline = (
            f"Work as this agent (agent:clerk@1):\n\n{AGENT}" in said.replace("\\n", "\n")
            and SKILL in said
        )
        yield "load_skill gives the agent's text, then the skill", inline, said[:1500]
    (clerk,) = evolvable(place, "stats", "agent:clerk")["resources"] or [{}]
    yield (
        "that is a load of the agent and no use",
        (clerk.get("loaded"), clerk.get("used")) == (1, 0),
        json.dumps(clerk),
    )
