"""The canary: proof that a skill of a program reaches the model, and that without it nothing does.

A skill whose only effect is a word that nobody can guess. With it the word must stand in the answer, without it it
must not; otherwise an executor measures something else than the program.
"""

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Kind
from evolvable_tools.evolve.brains.prices import together
from evolvable_tools.evolve.executor import Executor
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.programs import part_of
from evolvable_tools.evolve.rollout import Outcome, Rollout, Usage
from evolvable_tools.evolve.task import ScorerSpec, Split, Task

NAME = "canary-word"

PROMPT = (
    "What is the canary word? It stands in the skill canary-word, if you have that skill. Answer with the word alone. "
    "If you have no such skill, answer NONE, and look nowhere else."
)
_SKILL = """\
---
name: canary-word
description: Tells the canary word. Use it whenever somebody asks for the canary word.
---

# The canary word

The canary word is {word}. Answer with it, as it stands here, and with nothing else.
"""


@dataclass(frozen=True, slots=True)
class Canary:
    """What a canary showed of an executor. why: what was wrong, '' when it passed. installed, empty: the answers."""

    fingerprint: str
    passed: bool
    why: str
    installed: str
    empty: str
    usage: Usage


class CanaryFailed(EvolvableError):
    """An executor does not show what a program does; nothing may be measured with it."""


def word() -> str:
    """Returns a word that nobody can guess."""
    return f"kestrel-{secrets.token_hex(6)}"


def canary_program(token: str) -> Program:
    """Returns a program of one skill, which says this word."""
    return Program((part_of(Kind.SKILL, NAME, {"SKILL.md": _SKILL.format(word=token).encode()}),))


async def canary(executor: Executor, folder: Path, token: str = "", timeout: float = 300.0) -> Canary:
    """Returns what the executor made of the canary, with its skill and without.

    Two runs, in fresh folders below `folder`, which are removed. token: by default a new one. timeout: seconds of each.
    """
    token = token or word()
    task = Task("canary", PROMPT, ScorerSpec("exact"), Split.TRAIN, "canary", expected=None, timeout_s=timeout)
    # The empty arm first: what the other leaves behind somewhere must not help it.
    empty = await _run(executor, task, Program(), folder / "canary-empty")
    installed = await _run(executor, task, canary_program(token), folder / "canary-installed")
    why = _wrong(token, installed, empty)
    return Canary(
        executor.fingerprint, not why, why, installed.output, empty.output, together(installed.usage, empty.usage)
    )


async def require(executor: Executor, folder: Path) -> Canary:
    """Returns the canary of an executor that may be used. Raises CanaryFailed."""
    found = await canary(executor, folder)
    if not found.passed:
        hint = "Nothing was measured. Run the client by hand with a skill, or choose another executor."
        raise CanaryFailed(f"The canary did not pass: {found.why}", hint)
    return found


async def _run(executor: Executor, task: Task, program: Program, folder: Path) -> Rollout:
    workspace = folder / "work"
    try:
        workspace.mkdir(parents=True)
        return await executor.run(task, program, 0, workspace)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wrong(token: str, installed: Rollout, empty: Rollout) -> str:
    for arm, rollout in (("with the skill", installed), ("without the skill", empty)):
        if rollout.outcome is not None and rollout.outcome is not Outcome.AGENT_TIMEOUT:
            return f"{arm} nothing was run: {rollout.detail or rollout.outcome}"
        if rollout.outcome is Outcome.AGENT_TIMEOUT:
            return f"{arm} there was no answer in time."
    if token in empty.output:
        return "without the skill the answer has the word all the same: the arms are not apart."
    if token not in installed.output:
        return "with the skill the answer does not have the word: the skill does not reach the model."
    return ""
