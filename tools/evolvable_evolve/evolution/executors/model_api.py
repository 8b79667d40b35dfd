"""A model behind an API as an executor, with tools for the program's skills and the workspace."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from evolvable_evolve.evolution.candidates import Program, ProgramPart
from evolvable_evolve.evolution.executors.agent_cli import make_rollout, refuse_program
from evolvable_evolve.evolution.executors.base import (
    Trajectory,
    TrajectoryEnd,
    classify_end,
)
from evolvable_evolve.evolution.executors.installation import (
    find_missing_tools,
    find_run_spec,
    part_body,
    part_description,
    write_part,
)
from evolvable_evolve.evolution.executors.tool_runs import (
    ToolSandbox,
    encode_input,
    run_tool_command,
)
from evolvable_evolve.evolution.run_config import HostContext, parse_price
from evolvable_evolve.evolution.task import Price, Rollout, Task, TrialOutcome
from evolvable_evolve.sandbox import environment_inside
from evolvable_store.errors import EvolvableError, InvalidArgument, Refused
from evolvable_store.resource import Kind
from evolvable_tools import bound_text
from evolvable_tools.llm import (
    ANTHROPIC_ADDRESS,
    ApiAccess,
    Conversation,
    ConversationSettings,
    ModelEndpoint,
    ModelTurn,
    ToolUse,
    TurnFailed,
    anthropic_endpoint,
)
from evolvable_tools.verbs import FOLDER, RunSpec

MAX_TOOL_TEXT = 100_000
"""Characters of one answer of a tool, and bytes of a file that is written, at most."""

MAX_LISTED_FILES = 2_000
"""Files that are listed at most."""


class ToolUseError(Exception):
    """A tool could not do what the model asked; the text is for the model."""


@dataclass
class Toolbox:
    """The tools of one run: files of the workspace, skills, and the tools of the program; no other
    commands.

    read: refs of the parts that were read, in order. inside: where the program's tools run.
    """

    program: Program
    workspace: Path
    read: dict[str, None] = field(default_factory=dict)
    inside: ToolSandbox | None = None

    @property
    def skills(self) -> list[ProgramPart]:
        """The program's skills."""
        return [part for part in self.program.parts if part.kind is Kind.SKILL]

    def declare_tools(self) -> list[dict[str, Any]]:
        """Return the tools in the API's form. Without skills there is no tool to read them."""
        here, at = "the folder you work in", "Its path there."
        tools = [
            _tool_schema("list_files", f"Lists the files of {here}."),
            _tool_schema("read_file", f"Returns the text of a file of {here}.", path=at),
            _tool_schema(
                "write_file", f"Writes a whole file in {here}.", path=at, text="Its whole text."
            ),
        ]
        if self.skills:
            name = f"One of: {', '.join(part.name for part in self.skills)}."
            path = "SKILL.md, or another file that it names."
            tools.append(
                _tool_schema("read_skill", "Returns a file of a skill.", name=name, path=path)
            )
        for name, (part, spec) in self.runnable.items():
            # A model reads the description, and the program may be untrusted.
            description = bound_text(part_description(part), trusted=False)
            tools.append(
                {"name": name, "description": description, "input_schema": dict(spec.schema)}
            )
        return tools

    @cached_property
    def runnable(self) -> dict[str, tuple[ProgramPart, RunSpec]]:
        """The program's tools, by the names that the model calls them by."""
        tools = (part for part in self.program.parts if part.kind is Kind.TOOL)
        return {
            f"tool_{part.name}": (part, spec)
            for part in tools
            if (spec := find_run_spec(part)) is not None
        }

    def describe_skills(self) -> str:
        """Return the model's first text about the skills; '' without any."""
        if not self.skills:
            return ""
        lines = "\n".join(f"- {part.name}: {part_description(part)}" for part in self.skills)
        return (
            "You have these skills. Read one with read_skill before you do what it is for.\n"
            f"{lines}"
        )

    async def use(self, name: str, arguments: object) -> str:
        """Return the result of a tool. Raises ToolUseError."""
        values = arguments if isinstance(arguments, dict) else {}
        if name in self.runnable:
            return _truncate(await self._run(name, values))
        if name == "read_skill":
            return self._read_skill(
                _string_argument(values, "name"), str(values.get("path") or "SKILL.md")
            )
        file_tools = {"list_files": self._list, "read_file": self._read, "write_file": self._write}
        if name not in file_tools:
            raise ToolUseError(f"There is no tool {name[:60]}.")
        try:
            # Files in a thread, so that a slow disk does not stop the other trials.
            return await asyncio.to_thread(file_tools[name], values)
        except (OSError, ValueError) as error:
            raise ToolUseError(f"{getattr(error, 'strerror', None) or error}") from None

    async def _run(self, name: str, values: Mapping[str, Any]) -> str:
        """Return the output of one of the program's tools."""
        part, spec = self.runnable[name]
        self.read.setdefault(part.ref)
        assert self.inside is not None  # a program with tools is refused without
        folder = self.workspace.parent / "tools" / part.name
        try:
            # Once for each trial: the tool may be used several times.
            if not folder.exists():
                await asyncio.to_thread(write_part, folder, part)
            words = tuple(word.replace(FOLDER, str(folder)) for word in spec.argv)
            data = encode_input(part.ref, spec, values)
            return await run_tool_command(part.ref, spec, words, folder, data, self.inside)
        except (EvolvableError, OSError) as error:
            raise ToolUseError(str(error)) from None

    def _read_skill(self, name: str, path: str) -> str:
        part = next((part for part in self.skills if part.name == name), None)
        if part is None:
            raise ToolUseError(f"There is no skill {name[:60]}.")
        self.read.setdefault(part.ref)
        if path not in part.files:
            raise ToolUseError(
                f"It has no file {path[:100]}. Its files: {', '.join(sorted(part.files))}."
            )
        return _truncate(part.files[path].decode("utf-8", "replace"))

    def _inside(self, values: Mapping[str, Any]) -> Path:
        base = self.workspace.resolve()
        # Resolved, so that neither `..` nor a link leads out of the workspace.
        path = (base / _string_argument(values, "path")).resolve()
        if path == base or not path.is_relative_to(base):
            raise ToolUseError("Only files in the folder you work in can be used.")
        return path

    def _list(self, values: Mapping[str, Any]) -> str:
        files = sorted(
            str(path.relative_to(self.workspace))
            for path in self.workspace.rglob("*")
            if path.is_file()
        )
        more = (
            f"\nand {len(files) - MAX_LISTED_FILES} more" if len(files) > MAX_LISTED_FILES else ""
        )
        return "\n".join(files[:MAX_LISTED_FILES]) + more or "There are none."

    def _read(self, values: Mapping[str, Any]) -> str:
        with self._inside(values).open("rb") as file:
            # Four bytes are the most of a character, so enough is read to see that more is there.
            return _truncate(file.read(4 * MAX_TOOL_TEXT + 4).decode("utf-8", "replace"))

    def _write(self, values: Mapping[str, Any]) -> str:
        path = self._inside(values)
        data = str(values.get("text", "")).encode("utf-8", "replace")
        if len(data) > MAX_TOOL_TEXT:
            raise ToolUseError(f"A file has at most {MAX_TOOL_TEXT:,} bytes.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"{len(data)} bytes are written."


def _tool_schema(name: str, description: str, /, **values: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in values.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(values),
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "input_schema": schema}


def _string_argument(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ToolUseError(f"Give {name} as a text.")
    return value


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_TOOL_TEXT else f"{text[:MAX_TOOL_TEXT]}\n[the rest is left out]"


SYSTEM_PROMPT = """\
You do one task in a folder of files, with the tools you have. \
Nobody is there to be asked: decide, and end with your
answer. Whatever else is said after the answer counts as part of it."""
"""The first instructions of every run, with a program and without."""

API_TOOLS = frozenset(("Read", "Write", "Edit", "Glob", "Skill"))
"""The abilities of the model, by the names that skills use for tools."""

_TEXT_KINDS = (Kind.PROMPT, Kind.MEMORY)


@dataclass(frozen=True)
class ApiSettings:
    """Settings of the requests to an API.

    price: of a million tokens; without one the cost is unknown. max_turns: answers of one run;
    max_tokens: of one answer. scripted: a script plays the model, and the figures say so. patterns:
    a person's own secrets. inside: where the program's tools run, None where there is no sandbox.
    protocol: see PROTOCOLS. name: of the model in records.
    """

    api_key: str = field(repr=False)
    model: str
    base_url: str = ANTHROPIC_ADDRESS
    proxy: str | None = None
    price: Price | None = None
    max_tokens: int = 8_192
    max_turns: int = 50
    scripted: bool = False
    patterns: Mapping[str, str] = field(default_factory=dict)
    inside: ToolSandbox | None = None
    protocol: str = "anthropic"
    name: str = ""


class ModelExecutor:
    """Runs tasks with a model behind an API.

    No request is repeated here: the runner of trials repeats whole trials.
    """

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        limits = settings.max_tokens, settings.max_turns
        # All that decides an answer beside the model; the key is not in it.
        rest = json.dumps([SYSTEM_PROMPT, settings.base_url, *limits, settings.scripted])
        digest = hashlib.sha256(rest.encode("utf-8", "replace")).hexdigest()[:12]
        self.fingerprint = (
            f"{settings.protocol}-api 1 model={settings.model} "
            f"tools={','.join(sorted(API_TOOLS))} flags={digest}"
        )
        self.label = "scripted" if settings.scripted else f"real model {settings.model}"

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], host: HostContext, **_: object) -> Self:
        """Return the executor that a run's settings name.

        Raises InvalidArgument without a key, Refused for a model that is named otherwise than at
        the run's start.
        """
        sandbox, environment = host.working_sandbox, environment_inside(host.environment)
        more: dict[str, Any] = {
            "price": parse_price(spec),
            "scripted": bool(spec.get("scripted")),
            "inside": ToolSandbox(sandbox, environment, host.hidden)
            if sandbox is not None
            else None,
        }
        if spec["kind"] == "model":
            found = _named_endpoint(spec, host)
        elif not host.key:
            raise InvalidArgument(
                "There is no key for the Anthropic API.", "Set ANTHROPIC_API_KEY."
            )
        else:
            found = anthropic_endpoint(host.key, spec["model"], host.address, host.proxy)
        more |= {
            "base_url": found.url,
            "proxy": found.proxy,
            "protocol": found.protocol,
            "name": found.full_name,
        }
        return cls(ApiSettings(found.key, found.model, **more))

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return the rollout of one task; see Executor.

        Refused where the program needs what the model cannot have.
        """
        if missing := find_missing_tools(program, API_TOOLS):
            return refuse_program(f"{'; '.join(missing)}, which the model may not use here")
        began, seen, own = time.monotonic(), Trajectory(), self._settings
        toolbox = Toolbox(program, workspace, seen.read, own.inside)
        fits = {part.ref for part, _ in toolbox.runnable.values()}
        fits |= {part.ref for part in program.parts if part.kind in (*_TEXT_KINDS, Kind.SKILL)}
        if unfit := [part.ref for part in program.parts if part.ref not in fits]:
            return refuse_program(
                f"a model behind an API cannot be given {', '.join(unfit)} as part of a program"
            )
        # Tools of a program are code that was never reviewed for this machine.
        if toolbox.runnable and own.inside is None:
            names = ", ".join(part.ref for part, _ in toolbox.runnable.values())
            return refuse_program(f"{names} runs in a sandbox only, and none works on this machine")
        end = await self._converse(task, toolbox, seen)
        _add_usage(seen)
        return make_rollout(seen, end, time.monotonic() - began, own.price, own.patterns)

    async def _converse(self, task: Task, toolbox: Toolbox, seen: Trajectory) -> TrajectoryEnd:
        try:
            async with (
                asyncio.timeout(task.timeout_s),
                Conversation(self._conversation_settings(task, toolbox)) as conversation,
            ):
                seen.attempts = conversation.attempts
                await self._turns(conversation, toolbox, seen)
        except TimeoutError:
            return classify_end(seen, timed_out=True, code=None, last_words="")
        except TurnFailed as error:
            if error.status is None:
                # The connection, or an answer that is none: nothing that the program could have
                # done.
                return TrajectoryEnd(TrialOutcome.INFRA_ERROR, str(error))
            seen.failure, seen.status = str(error), error.status
            end = classify_end(seen, timed_out=False, code=None, last_words="")
            # The provider's own figure is better than one read from its text.
            wait = end.wait if error.retry_after is None else error.retry_after
            return TrajectoryEnd(end.outcome, end.detail, wait)
        return classify_end(seen, timed_out=False, code=0, last_words="")

    def _conversation_settings(self, task: Task, toolbox: Toolbox) -> ConversationSettings:
        """Return the settings of the conversation about a task."""
        own = self._settings
        texts = [part_body(part) for part in toolbox.program.parts if part.kind in _TEXT_KINDS]
        price = (own.price.input, own.price.output) if own.price is not None else None
        access = ApiAccess(
            "",
            own.protocol,
            own.model,
            own.base_url,
            price,
            key=own.api_key.strip(),
            proxy=own.proxy,
        )
        return ConversationSettings(
            access,
            own.name or own.model,
            "\n\n".join(filter(None, (SYSTEM_PROMPT, *texts, toolbox.describe_skills()))),
            task.prompt,
            toolbox.declare_tools(),
            own.max_tokens,
            task.timeout_s,
        )

    async def _turns(self, conversation: Conversation, toolbox: Toolbox, seen: Trajectory) -> None:
        for _ in range(self._settings.max_turns):
            turn = await conversation.turn()
            _note_turn(turn, seen)
            if turn.uses:
                results = [(use, *await _run_tool_use(toolbox, use, seen)) for use in turn.uses]
                conversation.add_results(results)
            elif not turn.goes_on:
                seen.ended = True
                return
        # As with a client: a run that is too long counts as a timeout.
        seen.limit, seen.failure = True, f"it took more than {self._settings.max_turns} turns"


def _named_endpoint(spec: Mapping[str, Any], host: HostContext) -> ModelEndpoint:
    """Return the model that a run's settings name, as it was at the run's start.

    Raises InvalidArgument, Refused.
    """
    name = str(spec["name"])
    if host.models is None:
        raise InvalidArgument(
            f"No model is named {ascii(name[:80])}.", "A person adds it: evolvable role model add."
        )
    found = host.models.resolve(name)
    # The person may have given the name to another model since.
    at_start = (spec.get("protocol"), spec.get("model"), spec.get("address"))
    if (found.protocol, found.model, found.url) != at_start:
        text = (
            f"The model {name} is now {found.model} at {found.url}, and the run began with another."
        )
        raise Refused(
            text, "Name that one again by `evolvable role model add`, or start a new run."
        )
    return found


def _add_usage(seen: Trajectory) -> None:
    """Add the usage of the attempts: the sum of the records is billed."""
    seen.calls = len(seen.attempts)
    seen.input_tokens = sum(attempt.input_tokens for attempt in seen.attempts)
    seen.output_tokens = sum(attempt.output_tokens for attempt in seen.attempts)


def _note_turn(turn: ModelTurn, seen: Trajectory) -> None:
    seen.note_progress()
    if turn.text:
        seen.output = turn.text
        seen.add_step("agent", turn.text)
    if turn.refused:
        # A model that declines under this program has failed under it: the score counts.
        seen.add_step("refused", "the model declined to go on")


async def _run_tool_use(toolbox: Toolbox, use: ToolUse, seen: Trajectory) -> tuple[str, bool]:
    """Return the result of a tool, and whether that is an error."""
    seen.add_step(f"tool {use.name}", use.input)
    try:
        result, wrong = await toolbox.use(use.name, use.input), False
    except ToolUseError as error:
        result, wrong = str(error), True
    seen.add_step("error" if wrong else "result", result)
    return result, wrong
