"""Rounds over the items of runs of agents: failed items are evidence against their agents' skills.

The process that drove the run saw them fail. A done item has a reward only where a check passed.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from evolvable_evolve.ags.bus import fold_bus
from evolvable_evolve.ags.item_evidence import TASK_TYPE, EndedItem, ended_items, item_session
from evolvable_evolve.evolution import (
    AGS_DIR,
    LedgerDamaged,
    find_run,
    iter_runs,
    read_ledger,
    translate_damage,
)
from evolvable_evolve.rounds import MAX_SESSIONS, RoundSource, RoundTrace, SessionSource, hash_text
from evolvable_store import Principal
from evolvable_store.resource import Ref
from evolvable_store.storage import Outcome
from evolvable_tools import Library
from evolvable_tools.redaction import Redactor
from evolvable_tools.review import ReviewSettings
from evolvable_tools.sessions import Session, read_session


@dataclass
class AgsSource:
    """The ended items of one run, each as a short session: subtask, summary and outcome."""

    name: str
    items: Mapping[str, EndedItem]
    redactor: Redactor

    @classmethod
    @translate_damage
    def of(cls, library: Library, run: str) -> "AgsSource":
        """Return the source of a run. Raises NoSuchRun, LedgerDamaged."""
        folder = find_run(library.store.home, run, AGS_DIR)
        ended = ended_items(read_ledger(folder.ledger))
        items = {item_session(folder.id, item.id): item for item in ended}
        return cls(f"ags:{folder.id}", items, library.redactor())

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the items of which no round took notice, the oldest first."""
        excluded = set(seen)
        return [identity for identity in self.items if identity not in excluded]

    def trace(self, identity: str) -> RoundTrace | None:
        """Return the trace of an item, None for what is no item of this run."""
        item = self.items.get(identity)
        if item is None:
            return None
        reward: int | None = None
        cause = ""
        if item.outcome:
            reward, cause = 0, f"worker:{hash_text(item.outcome)}"
        elif item.counted_outcome is Outcome.SUCCEEDED:
            reward = 1
        about = (identity, item.at, TASK_TYPE, str(Ref.parse(item.agent).at(None)), reward, 0.0)
        skills = frozenset(str(Ref.parse(ref).at(None)) for ref in item.skills)
        return RoundTrace(*about, selected=skills, used=skills & item.read, cause=cause)

    def session(self, identity: str) -> Session | None:
        """Return an item as a session for a model; no text of a model is the user's in it."""
        item = self.items.get(identity)
        if item is None:
            return None
        reply = f"that is wrong: {item.outcome}" if item.outcome else "go on"
        turns = [
            ("user", "Do one item of a plan."),
            ("assistant", f"{item.subtask}\n\n{item.summary}"),
            ("user", reply),
        ]
        messages = [
            {"role": role, "content": content, "timestamp": item.at} for role, content in turns
        ]
        return read_session(messages, redactor=self.redactor)

    def shows_answers(self, identity: str) -> bool:
        """Return whether the item failed: its session is the subtask and the summary alone."""
        item = self.items.get(identity)
        return item is not None and bool(item.outcome)

    def leak(self, before: str, after: str) -> str:
        """Return '': a run of agents has no expected answers."""
        return ""


@dataclass
class WholeSource:
    """The sessions of a library, and the items of the runs of agents that a person started.

    name: as of sessions.
    """

    sessions: SessionSource
    runs: Sequence[AgsSource]
    name: str = "sessions"

    @classmethod
    def of(cls, library: Library, settings: ReviewSettings) -> "WholeSource":
        """Return the source of a library. A run that cannot be read is left out."""
        sources = []
        for folder in iter_runs(library.store.home, AGS_DIR):
            with suppress(LedgerDamaged, OSError):
                records = read_ledger(folder.ledger)
                if fold_bus(records).settings.get("principal") == Principal.PERSON:
                    sources.append(AgsSource.of(library, folder.id))
        return cls(SessionSource(library, settings), sources[::-1])

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the sessions of which no round took notice, and such failed or checked items."""
        excluded = set(seen)
        ended = [name for run in self.runs for name in run.fresh(excluded) if run.items[name].tells]
        items = [name for run in self.runs for name in run.items]
        others = self.sessions.fresh([*excluded, *items])
        # Sessions first: they are few beside the items of a large plan.
        return [*others, *ended[:MAX_SESSIONS]]

    def _find_source(self, identity: str) -> RoundSource:
        return next((run for run in self.runs if identity in run.items), self.sessions)

    def trace(self, identity: str) -> RoundTrace | None:
        """Return one trace, None where it cannot be read any more."""
        return self._find_source(identity).trace(identity)

    def session(self, identity: str) -> Session | None:
        """Return one session for a model, None where it cannot be read any more."""
        return self._find_source(identity).session(identity)

    def shows_answers(self, identity: str) -> bool:
        """Return whether the source of this id shows what an agent said."""
        return self._find_source(identity).shows_answers(identity)

    def leak(self, before: str, after: str) -> str:
        """Return '': neither has expected answers."""
        return ""
