"""How sessions are reviewed here, as the settings of the process say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_store.resource import Kind
from evolvable_tools.policies import Policy
from evolvable_tools.providers.thinker import Thinker
from evolvable_tools.review.budgets import Budget
from evolvable_tools.sessions.redact import Redactor


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
