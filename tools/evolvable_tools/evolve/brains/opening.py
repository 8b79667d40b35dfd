"""Making whoever thinks out of a text: the Anthropic API, or a command."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.brains.brain import Answer, Question
from evolvable_tools.evolve.brains.prices import Price
from evolvable_tools.evolve.brains.thinking import Thinking
from evolvable_tools.llm.anthropic_model import MODEL, AnthropicModel
from evolvable_tools.llm.command_model import CommandModel
from evolvable_tools.redaction.redactor import Redactor

THINKING = 600.0
"""Seconds for one answer of whoever thinks."""


@dataclass(frozen=True)
class Opening:
    """All that whoever thinks is made of; it asks as that does, and can be pickled.

    who: `anthropic`, `anthropic:MODEL`, or the name of a command; command: its argument list. key, address,
    proxy: of the API. folder,
    environment: of a command. price: of tokens, where nobody tells what they cost. scripted: only plays a model.
    """

    who: str
    folder: Path
    key: str | None = field(default=None, repr=False)
    address: str | None = None
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    price: Price | None = None
    scripted: bool = False
    redactor: Redactor = field(default_factory=Redactor, compare=False, repr=False)
    command: tuple[str, ...] = ()
    proxy: str | None = None

    @property
    def name(self) -> str:
        """Who it is; another model has another name."""
        return _thinking(self).name

    @property
    def label(self) -> str:
        """What stands beside every figure that came of it."""
        return _thinking(self).label

    async def ask(self, question: Question) -> Answer:
        """Returns the answer with what it cost. Raises NoAnswer."""
        return await _thinking(self).ask(question)


@lru_cache(maxsize=4)
def _thinking(opening: Opening) -> Thinking:
    """Returns what was opened, once in a process: its connections are used again. Raises InvalidArgument."""
    kind, _, model = opening.who.partition(":")
    how: dict[str, Any] = {"redactor": opening.redactor, "price": opening.price, "scripted": opening.scripted}
    if kind == "anthropic":
        return Thinking(
            AnthropicModel(opening.key, model or MODEL, opening.address, THINKING, proxy=opening.proxy), **how
        )
    return Thinking(
        CommandModel(opening.command, THINKING, folder=opening.folder, environment=dict(opening.environment)), **how
    )


def model_of(who: str) -> str:
    """Returns the model that a text names, '' for a command, whose model nobody knows."""
    kind, _, model = who.partition(":")
    return (model or MODEL) if kind == "anthropic" else ""
