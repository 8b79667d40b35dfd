"""A model behind the Anthropic API as an executor: it is given the program, a few tools, and a task."""

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_store.resource import Kind
from evolvable_tools.evolve.brains.prices import Price, usage_of
from evolvable_tools.evolve.executors.api_tools import Toolbox, ToolTrouble
from evolvable_tools.evolve.executors.checks import missing_tools
from evolvable_tools.evolve.executors.clients import refused
from evolvable_tools.evolve.executors.installing import text_of
from evolvable_tools.evolve.executors.seen import Ending, Seen, ending
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Outcome, Rollout
from evolvable_tools.evolve.task import Task
from evolvable_tools.llm import printable_line
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.sandbox import Sandbox

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message

ADDRESS = "https://api.anthropic.com"

SYSTEM = """\
You do one task in a folder of files, with the tools you have. Nobody is there to be asked: decide, and end with your
answer. Whatever else is said after the answer counts as part of it."""
"""What every run is told first, with a program and without."""

TOOLS = frozenset(("Read", "Write", "Edit", "Glob", "Skill"))
"""What the model can do, by the names that skills use; Bash besides where commands are allowed."""

_TEXT_KINDS = (Kind.PROMPT, Kind.MEMORY)


@dataclass(frozen=True)
class ApiSettings:
    """How the API is asked. price: of a million tokens; without one the cost is unknown.

    commands: the environment of commands that the model may run in its workspace, None: it may run none. They are not
    kept in without a `sandbox`: allow them then only where the machine may be lost. hidden: folders that they may not
    see in a sandbox. max_turns: answers of one run; max_tokens: of one answer.
    scripted: a stand-in plays the model, and the figures say so.
    """

    api_key: str = field(repr=False)
    model: str
    base_url: str = ADDRESS
    proxy: str | None = None
    price: Price | None = None
    max_tokens: int = 8_192
    max_turns: int = 50
    commands: Mapping[str, str] | None = None
    scripted: bool = False
    patterns: Mapping[str, str] = field(default_factory=dict)
    sandbox: Sandbox | None = None
    hidden: tuple[Path, ...] = ()


class AnthropicExecutor:
    """Runs tasks with a model of Anthropic's. Nothing is asked again here: who counts the trials does that."""

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        tools = TOOLS | ({"Bash"} if settings.commands is not None else frozenset())
        self._tools = tools
        rest = json.dumps([SYSTEM, settings.base_url, settings.max_tokens, settings.max_turns, settings.scripted])
        digest = hashlib.sha256(rest.encode("utf-8", "replace")).hexdigest()[:12]
        self.fingerprint = f"anthropic-api 1 model={settings.model} tools={','.join(sorted(tools))} flags={digest}"
        if settings.sandbox is not None and settings.commands is not None:
            self.fingerprint += f" sandbox={settings.sandbox.name}"
        self.label = "scripted" if settings.scripted else f"real model {settings.model}"

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Returns what came of one task; see Executor. Refused where the program needs what the model cannot have."""
        if missing := missing_tools(program, self._tools):
            return refused(f"{'; '.join(missing)}, which the model may not use here")
        if unfit := [part.ref for part in program.parts if part.kind not in (*_TEXT_KINDS, Kind.SKILL)]:
            return refused(f"a model behind an API cannot be given {', '.join(unfit)} as part of a program")
        began, seen = time.monotonic(), Seen()
        own = self._settings
        toolbox = Toolbox(program, workspace, own.commands, own.sandbox, own.hidden)
        end = await self._ended(task, toolbox, seen)
        redactor = Redactor(self._settings.patterns)
        return Rollout(
            output=seen.output,
            trace=redactor.redact(seen.trace)[0],
            usage=usage_of(seen.given, seen.got, seen.calls, self._settings.price),
            wall=time.monotonic() - began,
            read=tuple(toolbox.read),
            outcome=end.outcome,
            detail=redactor.redact(end.detail)[0],
            retry_after=end.wait,
        )

    async def _ended(self, task: Task, toolbox: Toolbox, seen: Seen) -> Ending:
        key = self._settings.api_key.strip()
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            return Ending(Outcome.INFRA_ERROR, "there is no API key, or something that is none")
        try:
            import anthropic
        except ImportError:
            return Ending(Outcome.INFRA_ERROR, "the package anthropic is missing: pip install 'evolvable[anthropic]'")
        try:
            async with asyncio.timeout(task.timeout_s):
                await self._conversation(key, task, toolbox, seen)
        except TimeoutError:
            return ending(seen, timed_out=True, code=None, last_words="")
        except anthropic.APIStatusError as error:
            seen.failure = printable_line(f"{error.status_code}: {error.api_message or ''}".replace(key, "[key]"))
            seen.status = error.status_code
            end = ending(seen, timed_out=False, code=None, last_words="")
            return Ending(end.outcome, end.detail, _asked_wait(error, end.wait))
        except (anthropic.AnthropicError, ValueError, RuntimeError, TypeError) as error:
            # The connection, or an answer that is none: nothing that the program could have done.
            why = printable_line(f"{type(error).__name__}: {error}".replace(key, "[key]"))
            return Ending(Outcome.INFRA_ERROR, why)
        return ending(seen, timed_out=False, code=0, last_words="")

    async def _conversation(self, key: str, task: Task, toolbox: Toolbox, seen: Seen) -> None:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        # Neither the address nor a proxy comes from the environment, which a project's configuration may set.
        http = DefaultAsyncHttpxClient(trust_env=False, proxy=self._settings.proxy)
        messages: list[Any] = [{"role": "user", "content": task.prompt.encode("utf-8", "replace").decode("utf-8")}]
        async with AsyncAnthropic(
            api_key=key, base_url=self._settings.base_url, timeout=task.timeout_s, max_retries=0, http_client=http
        ) as client:
            for _ in range(self._settings.max_turns):
                message = await self._ask(client, toolbox, messages)
                uses = _heard(message, seen)
                messages.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
                if message.stop_reason == "tool_use" and uses:
                    messages.append({"role": "user", "content": [await _use(toolbox, use, seen) for use in uses]})
                elif message.stop_reason != "pause_turn":
                    seen.ended = True
                    return
        seen.limit, seen.failure = True, f"it took more than {self._settings.max_turns} turns"

    async def _ask(self, client: "AsyncAnthropic", toolbox: Toolbox, messages: list[Any]) -> "Message":
        texts = [text_of(part) for part in toolbox.program.parts if part.kind in _TEXT_KINDS]
        system = "\n\n".join(filter(None, (SYSTEM, *texts, toolbox.told())))
        tools: Any = toolbox.declared()
        message = await client.messages.create(
            model=self._settings.model,
            max_tokens=self._settings.max_tokens,
            system=[{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
            messages=messages,
            tools=tools,
        )
        if not isinstance(getattr(message, "content", None), list):
            raise ValueError("the API answered with something that is no message")
        return message


def _heard(message: "Message", seen: Seen) -> list[Any]:
    """Notes an answer and returns the tools that it uses."""
    seen.calls += 1
    if (usage := getattr(message, "usage", None)) is not None:
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        seen.given += usage.input_tokens + cached
        seen.got += usage.output_tokens
    seen.moves()
    text = "".join(block.text for block in message.content if block.type == "text")
    if text:
        seen.output = text
        seen.step("agent", text)
    if message.stop_reason == "refusal":
        # A model that declines under this program has failed under it: the score counts.
        seen.step("refused", "the model declined to go on")
    return [block for block in message.content if block.type == "tool_use"]


async def _use(toolbox: Toolbox, use: Any, seen: Seen) -> dict[str, Any]:
    seen.step(f"tool {use.name}", use.input)
    try:
        said, wrong = await toolbox.use(use.name, use.input), False
    except ToolTrouble as error:
        said, wrong = str(error), True
    seen.step("error" if wrong else "result", said)
    return {"type": "tool_result", "tool_use_id": use.id, "content": said, "is_error": wrong}


def _asked_wait(error: Any, otherwise: float | None) -> float | None:
    """Returns the seconds that the API asks to wait, where it does."""
    if error.status_code not in (429, 503, 529):
        return otherwise
    try:
        return max(0.0, min(float(error.response.headers.get("retry-after", "0")), 3_600.0))
    except ValueError:  # a date
        return otherwise if otherwise is not None else 0.0
