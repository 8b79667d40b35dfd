"""What `load_skill` says where a skill names an agent for its work, and how `delegate_skill` has
the agent do it.

Claude Code is told to start the sub-agent that is checked out where it works. A client that lends
its model can have the work done by it, in turns without tools. Any other client works as the agent
itself, whose text it is given.
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, TextContent

from evolvable_store.errors import InvalidArgument
from evolvable_tools import DelegateStatus, Delegation, Library, inline_text, start_text
from evolvable_tools.llm import LanguageModel, ProviderError, RedactingModel, Request
from evolvable_tools.verbs import Loaded

DELEGATE_KEY = "evolvable/delegate"
"""Key in the `_meta` of load_skill's answer, of the agent that the skill names."""

# Each turn costs the person's tokens: this and the next limit end a model that never says that it
# is done.
MAX_TURNS = 20
"""Answers of the model for one task."""

MAX_SECONDS = 300.0
"""Seconds after which no further turn begins."""

MAX_TASK = 50_000
"""Characters of a task."""

MAX_SHOWN = 100_000
"""Characters of its own answers that the model is shown again, the last ones."""

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "done": {"type": "boolean"}},
    "required": ["text", "done"],
    "additionalProperties": False,
}

_RULES = (
    "You have no tools, and nobody answers questions. The data are the task, and then what you "
    "wrote so far. Answer with text: what you write next, and done: true once the text holds the "
    "whole result."
)


@dataclass(frozen=True, slots=True)
class FinishedWork:
    """The result of an agent for a task.

    by: the agent's ref. finished: whether it said that it was done within its turns.
    """

    by: str
    text: str
    turns: int
    finished: bool


def starts_subagent(delegation: Delegation, ctx: Context) -> bool:
    """Return whether the client of a call is Claude Code and has the agent where it works."""
    params = ctx.session.client_params
    client = params.client_info.name.lower() if params is not None else ""
    return client.startswith("claude-code") and bool(delegation.subagent)


def opening_of(delegation: Delegation, loaded: Loaded, *, starts: bool, lends: bool) -> str:
    """Return how an answer begins that opens a skill with a delegate.

    starts: whether the client starts the agent itself; otherwise the agent's text is in the answer.
    lends: whether the client lends its model.
    """
    if starts:
        return start_text(delegation, f"{loaded.ref}@{loaded.version}")
    offer = f"delegate_skill has {delegation.ref} do the task. Otherwise:\n\n" if lends else ""
    return f"{offer}{inline_text(delegation)}"


def status_text(delegate: DelegateStatus) -> str:
    """Return the agent that a skill names, and why it is not available."""
    version = f"@{delegate.version}" if delegate.version is not None else ""
    return f"{delegate.ref}{version}" + (f", not available: {delegate.why}" if delegate.why else "")


def as_result(text: str, loaded: Loaded) -> CallToolResult:
    """Return a document as the result of a tool: plain text, and the skill's agent in `_meta`.

    The line on the reader's own changes is a block of its own.
    """
    meta = {DELEGATE_KEY: asdict(loaded.delegate)} if loaded.delegate is not None else None
    texts = [text, loaded.provenance] if loaded.provenance else [text]
    return CallToolResult(
        content=[TextContent(type="text", text=part) for part in texts], _meta=meta
    )


_ELSE = "Call load_skill, and do the work yourself."


def check_request(model: LanguageModel | None, task: str) -> LanguageModel:
    """Return the model that an agent can be run with on a task. Raise InvalidArgument."""
    if model is None:
        raise InvalidArgument(
            "This client lends no model (sampling), so no agent can be run here.", _ELSE
        )
    if not task.strip() or len(task) > MAX_TASK:
        raise InvalidArgument(
            f"delegate_skill needs the task, in 1 to {MAX_TASK:,} characters.",
            "Say in task what is to be done.",
        )
    return model


def run_delegate(
    library: Library,
    model: LanguageModel,
    delegation: Delegation | None,
    skill_text: str,
    task: str,
) -> FinishedWork:
    """Have an agent do a skill's work on a task by a client's model.

    Raise InvalidArgument, ProviderError.
    """
    if delegation is None:
        raise InvalidArgument("No agent can be given the work of this skill.", _ELSE)
    # Secrets are taken out of all that the client's model reads.
    redacting_model = RedactingModel(model, library.redact)
    instructions = f"{delegation.marked_text}\n\n{skill_text}\n\n{_RULES}"
    answers: list[str] = []
    deadline = time.monotonic() + MAX_SECONDS
    # The first turn is not bounded: a task has at least one answer.
    while len(answers) < MAX_TURNS and (not answers or time.monotonic() < deadline):
        written = "\n\n".join(answers)[-MAX_SHOWN:]
        data = f"Task:\n{task}" + (f"\n\nWritten so far:\n{written}" if answers else "")
        try:
            answer = redacting_model.think(Request(instructions, data, SCHEMA, max_tokens=8_192))
        except ProviderError as error:
            raise ProviderError(f"{delegation.ref} did not finish: {error.text}", _ELSE) from None
        answers.append(str(answer["text"]))
        if answer["done"]:
            return FinishedWork(delegation.ref, answers[-1], len(answers), finished=True)
    return FinishedWork(delegation.ref, "\n\n".join(answers), len(answers), finished=False)


def result_text(work: FinishedWork) -> str:
    """Return the result of an agent as a text for the caller."""
    turns = "1 turn" if work.turns == 1 else f"{work.turns} turns"
    end = "" if work.finished else "; it did not say that it was done, so judge what is there"
    return f"{work.by} did this in {turns}{end}:\n\n{work.text}"
