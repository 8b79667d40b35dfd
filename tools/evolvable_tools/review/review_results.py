"""Reviews of finished sessions: the results of their verbs, which a server imports at its start."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RefusedCandidate:
    """A candidate that was not admitted. number: its place among the candidates, from 1."""

    number: int
    claim: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A proposal that a review made. operation: of the change, once it is made."""

    proposal_id: int
    ref: str
    claim: str
    operation: int | None = None


@dataclass(frozen=True)
class Reviewed:
    """The progress of a review. state: off, begun (the caller has to answer `packet`), waits, or
    done.

    why: the reason when nothing is proposed, or what to do next. signals: how many of each code.
    cost: the name of the model, the tokens and the money that it reported; of one that reports
    none, the tokens that stay reserved for it. redacted: how many secrets of each type were
    removed.
    """

    review_id: str | None
    session: str | None
    state: str
    why: str = ""
    signals: dict[str, int] = field(default_factory=dict)
    proposals: list[ProposedChange] = field(default_factory=list)
    refused: list[RefusedCandidate] = field(default_factory=list)
    packet: dict[str, Any] | None = None
    cost: dict[str, str | int | float] = field(default_factory=dict)
    redacted: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Assets:
    """What was named in the messages that went, by kind, the last named last."""

    skills: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Compressed:
    """A history made short. level: how often it was. messages: all of the new history, the summary
    first.

    When there was nothing to do, the messages are those that were given and `summary` is empty.
    older: the URI of the resource with all the names that the summary has no room for, '' when it
    has them all. over: the result has more tokens than the limit, or its summary more than a
    quarter of it.
    """

    level: int
    summary: dict[str, list[str]]
    assets: Assets
    messages: list[dict[str, Any]]
    tokens_before: int
    tokens_after: int
    older: str = ""
    over: bool = False
