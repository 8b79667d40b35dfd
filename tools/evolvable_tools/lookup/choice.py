"""A choice that is left to whoever called."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alternative:
    """One of those to choose from, and what tells it apart."""

    ref: str
    version: int
    tells_apart: str


@dataclass(frozen=True)
class ChooseBetween:
    """A choice left to the caller: the question, what to choose from, and how to answer."""

    question: str
    choices: list[Alternative]
    how_to_answer: str
