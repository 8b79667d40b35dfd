"""What a history that was made short looks like. A server imports this at its start, so it imports nothing itself."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Assets:
    """Everything that was named in the messages that went, by kind and in the order in which it came up."""

    skills: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Compressed:
    """A history made short. level: how often it was; messages: all of the new history, the summary first.

    When there was nothing to do, the messages are those that were given and `summary` is empty.
    """

    level: int
    summary: dict[str, list[str]]
    assets: Assets
    messages: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
