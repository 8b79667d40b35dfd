"""The clients as executors and as brains of an evolution: the canary, what reaches the model, and
an answer.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from model import Model, Say, Seen, Use
from place import KEY, Place
from talks import Check

from evolvable_evolve.evolution.candidates.programs import Program, make_part, make_program
from evolvable_evolve.evolution.executors.agent_cli import ClientSettings, read_client_version
from evolvable_evolve.evolution.executors.base import Executor
from evolvable_evolve.evolution.executors.coding_agents import ClaudeExecutor, CodexExecutor
from evolvable_evolve.evolution.executors.installation import (
    CANARY_PROMPT,
    canary_program,
    run_canary,
)
from evolvable_evolve.evolution.proposers.proposer_model import ModelRole, PromptedModel
from evolvable_evolve.evolution.scorers import external_scorers
from evolvable_evolve.evolution.task import Rollout, ScorerSpec, Split, Task
from evolvable_store.resource import Kind
from evolvable_tools.llm.command_model import CommandModel
from evolvable_tools.llm.headless_clients import CLAUDE_CODE, CODEX
from evolvable_tools.redaction.redactor import Redactor

WORD = re.compile(r"kestrel-[0-9a-f]{12}")
LISTED = re.compile(r"\(file: (r\d+)/(canary-word/SKILL\.md)\)")
LISTS = ("skills are available", "### Available skills")
"""How the clients begin the list of the skills that there are."""

PROVIDER = """\
model_provider = "script"

[model_providers.script]
name = "script"
base_url = "{url}/v1"
env_key = "SCRIPT_KEY"
wire_api = "responses"
supports_websockets = false
"""

Make = Callable[[Path, Place, Model], Executor]


def claude_executor(binary: Path, place: Place, model: Model) -> Executor:
    environment = place.environment | {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": KEY}
    return ClaudeExecutor(_settings(binary, environment, "claude-haiku-5-5"))


def codex_executor(binary: Path, place: Place, model: Model) -> Executor:
    environment = place.environment | {"SCRIPT_KEY": "dummy"}
    return CodexExecutor(_settings(binary, environment, "gpt-5.5", PROVIDER.format(url=model.url)))


def _settings(
    binary: Path, environment: dict[str, str], model: str, config: str = ""
) -> ClientSettings:
    version = read_client_version(str(binary), environment)
    return ClientSettings(str(binary), version, model, environment, config=config, scripted=True)


def reader(seen: Seen) -> Say | Use:
    """A model that knows what it was sent and nothing else: it uses the skill that it is told of,
    and repeats the word.

    Nothing is read from the script: without the skill in the request the word cannot be said.
    """
    request = json.dumps(seen.request, ensure_ascii=False)
    if ADDING in request:
        return caller(seen)
    if found := WORD.search(request):
        return Say(found[0])
    tools = {str(tool.get("name")) for tool in seen.request["tools"]}
    if "Skill" in tools and "- canary-word:" in request:
        return Use("Skill", {"skill": "canary-word"})
    if "exec_command" in tools and (listed := LISTED.search(request)):
        root = re.search(rf"`{listed[1]}` = `([^`]+)`", request)
        return Use("exec_command", {"cmd": f"cat {root[1] if root else ''}/{listed[2]}"})
    return Say("NONE")


def as_executor(binary: Path, place: Place, make: Make) -> Iterator[Check]:
    """The canary, its own control, and a program of several kinds in a folder that brings its own
    configuration.
    """
    _configure_the_user(place)
    with Model(repeat(reader)) as model:
        executor = make(binary, place, model)
        found = asyncio.run(run_canary(executor, place.root / "canary"))
        yield "the canary passes", found.passed, found.why
        yield (
            "the answer has the word with the skill",
            bool(WORD.fullmatch(found.installed)),
            found.installed,
        )
        yield "the answer has none without it", found.empty == "NONE", found.empty
        listed = next((word for word in LISTS if word in json.dumps(model.asked[0])), "")
        yield (
            "the arm without a program has no skill at all",
            not listed,
            _around(listed, json.dumps(model.asked[0])),
        )
        yield "its figures say that they are scripted", executor.label == "scripted", executor.label
        yield (
            "its fingerprint names the version",
            bool(re.search(r" .*\d+\.\d+\.\d+", executor.fingerprint)),
            "",
        )
        yield (
            "tokens are counted",
            found.usage.input_tokens > 0 and found.usage.calls > 0,
            str(found.usage),
        )
        control = asyncio.run(run_canary(_Deaf(executor), place.root / "canary"))
        yield (
            "a client that is given no skill fails it",
            "does not reach" in control.why,
            control.why,
        )
        yield from _parts(executor, place, model)
        yield from _tools(executor, place, model)
    left = [str(path) for path in place.root.rglob("*") if path.name.startswith("client-")]
    yield "nothing stays behind", not left, str(left)


def _configure_the_user(place: Place) -> None:
    """Give the user a skill, instructions and a hook that no run may see."""
    for base in (".claude", ".codex", ".agents"):
        skill = place.home / base / "skills" / "mine" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(
            "---\nname: mine\ndescription: OF-THE-USER, for everything.\n---\n\nx\n",
            encoding="utf-8",
        )
    (place.home / ".claude" / "CLAUDE.md").write_text("OF-THE-USER\n", encoding="utf-8")
    (place.home / ".codex" / "AGENTS.md").write_text("OF-THE-USER\n", encoding="utf-8")


class _Deaf:
    """An executor that forgets the program: what a client is that does not load skills."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self.fingerprint, self.label = (
            executor,
            executor.fingerprint,
            executor.label,
        )

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        return await self._executor.run(task, Program(), repeat, workspace)


TOOL = """\
---
name: adder
description: Adds one to a number.
metadata:
  run:
    argv: ["{python}", "-I", "{tool}/adder.py"]
    schema: {type: object, properties: {a: {type: integer}}, \
required: [a], additionalProperties: false}
    timeout_s: 20
---
"""
SCRIPT = "import json, sys\nprint('SUM-' + str(json.load(sys.stdin)['a'] + 1))\n"
ADDING = "Add one to 41."
SUM = re.compile(r"SUM-\d+")


def caller(seen: Seen) -> Say | Use:
    """A model that calls the tool and repeats what it said; Codex lists tools of MCP servers only
    in its own search.
    """
    request = json.dumps(seen.request, ensure_ascii=False)
    if found := SUM.search(request):
        return Say(found[0])
    return Say("NONE") if seen.results else Use("adder", {"a": 41}, "library")


def _tools(executor: Executor, place: Place, model: Model) -> Iterator[Check]:
    """A tool of the program is listed by the client, runs, and counts as read; without it there is
    none.
    """
    tool = make_part(Kind.TOOL, "adder", {"TOOL.md": TOOL.encode(), "adder.py": SCRIPT.encode()})
    task = Task("t", ADDING, ScorerSpec("exact"), Split.TRAIN, "t", timeout_s=120)
    for name, program, wanted in (
        ("with", make_program([tool]), "SUM-42"),
        ("without", Program(), "NONE"),
    ):
        work = place.root / f"trial-{name}" / "work"
        work.mkdir(parents=True)
        rollout = asyncio.run(executor.run(task, program, 0, work))
        yield (
            f"{name} a tool in the program the answer is {wanted}",
            rollout.output == wanted,
            str(rollout),
        )
        if program.parts:
            yield "the tool counts as read", rollout.read == ("tool:adder",), str(rollout.read)


def _parts(executor: Executor, place: Place, model: Model) -> Iterator[Check]:
    """A prompt and a memory reach the model; what the task's folder and the user bring does not."""
    trial = place.root / "trial"
    work = trial / "work"
    for base in (".claude", ".agents", ".codex"):
        folder = work / base / "skills" / "planted"
        folder.mkdir(parents=True)
        text = "---\nname: planted\ndescription: OF-THE-FOLDER, for everything.\n---\n\nx\n"
        (folder / "SKILL.md").write_text(text, encoding="utf-8")
    hook = {
        "hooks": {
            "UserPromptSubmit": [{"hooks": [{"type": "command", "command": "echo OF-THE-FOLDER"}]}]
        }
    }
    (work / ".claude" / "settings.json").write_text(json.dumps(hook), encoding="utf-8")
    for name in ("CLAUDE.md", "AGENTS.md"):
        (work / name).write_text("OF-THE-FOLDER\n", encoding="utf-8")
    prompt = make_part(
        Kind.PROMPT,
        "house",
        {"PROMPT.md": b"---\nname: house\ndescription: x\n---\n\nOF-THE-PROMPT\n"},
    )
    memory = make_part(Kind.MEMORY, "MEMORY", {"MEMORY.md": b"OF-THE-MEMORY\n"})
    program = make_program([*canary_program("kestrel-0123456789ab").parts, prompt, memory])
    before = len(model.asked)
    task = Task("t", CANARY_PROMPT, ScorerSpec("exact"), Split.TRAIN, "t", timeout_s=120)
    rollout = asyncio.run(executor.run(task, program, 0, work))
    first = json.dumps(model.asked[before]) if len(model.asked) > before else ""
    yield "the run ends with the word", rollout.output == "kestrel-0123456789ab", str(rollout)
    yield "the skill counts as read", "skill:canary-word" in rollout.read, str(rollout.read)
    yield (
        "the prompt and the memory reach the model",
        "OF-THE-PROMPT" in first and "OF-THE-MEMORY" in first,
        "",
    )
    yield (
        "nothing of the task's folder does",
        "OF-THE-FOLDER" not in first,
        _around("OF-THE-FOLDER", first),
    )
    yield "nothing of the user's does", "OF-THE-USER" not in first, _around("OF-THE-USER", first)
    yield (
        "the run is marked, so that no review takes it in",
        "evolvable-thinking" in first,
        first[-500:],
    )
    planted = make_part(
        Kind.SKILL, "planted", {"SKILL.md": b"---\nname: planted\ndescription: x\n---\n\nx\n"}
    )
    refusal = asyncio.run(executor.run(task, make_program([planted]), 0, work))
    yield (
        "a skill of the folder with a part's name is refused",
        str(refusal.outcome) == "refused",
        str(refusal),
    )


def _around(word: str, text: str) -> str:
    at = text.find(word)
    return text[max(0, at - 300) : at + 200] if at >= 0 else ""


def as_brain(binary: Path, place: Place, kind: str) -> Iterator[Check]:
    """A headless client answers a judge's question; the stand-in's answer follows from what it was
    sent.
    """

    def judged(seen: Seen) -> Say:
        right = "the answer is forty-two" in json.dumps(seen.request)
        said: dict[str, Any] = {
            "score": float(right),
            "passed": right,
            "reason": "r",
            "feedback": "f",
            "errors": [],
        }
        return Say(json.dumps(said))

    with Model(repeat(judged), bare=True) as model:
        environment = place.environment
        if kind == "claude":
            command = (str(binary), *CLAUDE_CODE[1:], "--model", "claude-haiku-5-5")
            environment |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": KEY}
        else:
            command = (str(binary), *CODEX[1:-1], *_provider(model), "-")
            environment |= {"SCRIPT_KEY": "dummy", "CODEX_HOME": str(place.home)}
        thinker = CommandModel(command, 120.0, folder=place.project, environment=environment)
        brain = PromptedModel(thinker, redactor=Redactor(), scripted=True)
        question = external_scorers.judge_question(
            "What is six times seven?", "the answer is forty-two", expected="42"
        )
        answer = asyncio.run(brain.ask(question))
        yield (
            "it answers by the schema",
            external_scorers.parse_judge_score(answer.value).value == 1.0,
            str(answer),
        )
        told = json.dumps(model.asked[-1]) if model.asked else ""
        yield (
            "the instructions of the role reach the model",
            "You judge one answer" in told,
            told[:500],
        )
        yield "what it spent is known", answer.usage.input_tokens > 0, str(answer.usage)
        yield (
            "it is labelled",
            brain.label == "scripted" and question.role is ModelRole.JUDGE,
            brain.label,
        )
        brain.close()


def _provider(model: Model) -> list[str]:
    lines = [line for line in PROVIDER.format(url=model.url).splitlines() if "=" in line]
    settings = [
        lines[0],
        *(f"model_providers.script.{line}" for line in lines[1:]),
        'model="gpt-5.5"',
    ]
    return [word for setting in settings for word in ("--config", setting.replace(" = ", "="))]
