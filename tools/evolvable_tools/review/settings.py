"""How sessions are reviewed here, as the settings of the process say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind
from evolvable_tools.providers.thinker import Thinker
from evolvable_tools.review.budgets import Budget
from evolvable_tools.sessions.redact import Redactor


class Policy(StrEnum):
    """What becomes of proposals of one kind."""

    ASK = "ask"
    """They wait for a person."""

    AUTO = "auto"
    """They are made at once, unless the scan asks for a person. Of memory only."""

    OFF = "off"
    """There are none."""


def _no_texts(project: str | None) -> tuple[str, ...]:
    return ()


def _nowhere(session: str) -> Path | None:
    return None


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """on: whether there are reviews at all. thinker: who thinks; without one whoever calls does.

    boot: of a project's folder, the texts that a client reads there at its start. transcript: of a session, its file.
    home: what `~` means in a session's commands.
    """

    redactor: Redactor
    on: bool = True
    thinker: Thinker | None = None
    budget: Budget = field(default_factory=Budget)
    policies: Mapping[Kind, Policy] = field(default_factory=dict)
    boot: Callable[[str | None], tuple[str, ...]] = _no_texts
    transcript: Callable[[str], Path | None] = _nowhere
    home: Path | None = None

    def policy(self, kind: Kind) -> Policy:
        """Returns what becomes of proposals of this kind."""
        return self.policies.get(kind, Policy.ASK)


def policies_of(text: str) -> dict[Kind, Policy]:
    """Returns the policies that a setting says, such as `memory=auto,agent=off`. Raises InvalidArgument."""
    said: dict[Kind, Policy] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        try:
            kind, policy = Kind(name.strip()), Policy(value.strip())
        except ValueError:
            hint = f"Write KIND=POLICY: one of {', '.join(Kind)}, and one of {', '.join(Policy)}."
            raise InvalidArgument(f"{part[:40]!r} is no policy.", hint) from None
        if policy is Policy.AUTO and kind is not Kind.MEMORY:
            raise InvalidArgument(f"{kind}s are not changed without asking.", "auto is for memory alone.")
        said[kind] = policy
    return said
