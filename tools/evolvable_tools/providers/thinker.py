"""What a model is asked and how it may fail, whoever it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from evolvable_store.errors import EvolvableError


@dataclass(frozen=True, slots=True)
class Request:
    """One question. `instructions` are ours; `data` may be anybody's text and is never to be obeyed.

    schema: JSON schema of the answer, an object. max_tokens: the longest answer, thoughts included. spent: told the
    tokens of the question and of the answer, by those who know them. paid: told the US dollars, by those who do.
    """

    instructions: str
    data: str
    schema: Mapping[str, Any]
    max_tokens: int = 1024
    spent: Callable[[int, int], object] | None = None
    paid: Callable[[float], object] | None = None


class Thinker(Protocol):
    """Somebody who answers. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """Who it is, such as `anthropic:claude-haiku-5-5`; another model has another name.

        Who has `beyond` may add so many tokens to a question; who has `tries` may send it so often before it fails.
        """
        ...

    def think(self, request: Request) -> dict[str, Any]:
        """Returns an answer that fits the schema; waits for it a bounded time. Raises ProviderError."""
        ...


class ProviderError(EvolvableError):
    """A thinker gave no answer. The message says which and why, the hint what to do; neither holds a key."""


class WrongAnswer(ProviderError):
    """A thinker gave an answer that does not fit the schema. `answer` is that."""

    def __init__(self, message: str, hint: str, answer: dict[str, Any]) -> None:
        super().__init__(message, hint)
        self.answer = answer
