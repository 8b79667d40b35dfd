"""Rounds over the items of runs of agents: those that failed are evidence against what their agents
had.

The process that drove the run saw them fail. That an item was done has a reward only where a check
says so.
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
    """The ended items of one run, each as a short session: the subtask, what the worker said, and
    how it ended.
    """

    name: str
    items: Mapping[str, EndedItem]
    redactor: Redactor

    @classmethod
    @translate_damage
    def of(cls, library: Library, run: str) -> "AgsSource":
        """Return the source of a run. Raises NoSuchRun, LedgerDamaged."""
        folder = find_run(library.store.home, run, AGS_DIR)
        found = {
            item_session(folder.id, ended_item.id): ended_item
            for ended_item in ended_items(read_ledger(folder.ledger))
        }
        return cls(f"ags:{folder.id}", found, library.redactor())

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the items that no round was over, the oldest first."""
        excluded = set(seen)
        return [identity for identity in self.items if identity not in excluded]

    def trace(self, identity: str) -> RoundTrace | None:
        """Return the trace of an item, None for what is no item of this run."""
        item = self.items.get(identity)
        if item is None:
            return None
        worked = 1 if item.counted_outcome is Outcome.SUCCEEDED else None
        reward, cause = (0, f"worker:{hash_text(item.outcome)}") if item.outcome else (worked, "")
        about = (identity, item.at, TASK_TYPE, str(Ref.parse(item.agent).at(None)), reward, 0.0)
        skills = frozenset(str(Ref.parse(ref).at(None)) for ref in item.skills)
        return RoundTrace(*about, selected=skills, used=skills & item.read, cause=cause)

    def session(self, identity: str) -> Session | None:
        """Return what a model may be shown of an item.

        No word of a model stands in it as the user's.
        """
        item = self.items.get(identity)
        if item is None:
            return None
        ended = f"that is wrong: {item.outcome}" if item.outcome else "go on"
        messages = [
            {"role": "user", "content": "Do one item of a plan.", "timestamp": item.at},
            {
                "role": "assistant",
                "content": f"{item.subtask}\n\n{item.summary}",
                "timestamp": item.at,
            },
            {"role": "user", "content": ended, "timestamp": item.at},
        ]
        return read_session(messages, redactor=self.redactor)

    def shows_answers(self, identity: str) -> bool:
        """Return whether the item failed: the subtask and what its worker said are all there is."""
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
        found = []
        for folder in iter_runs(library.store.home, AGS_DIR):
            with suppress(LedgerDamaged, OSError):
                records = read_ledger(folder.ledger)
                if fold_bus(records).settings.get("principal") == Principal.PERSON:
                    found.append(AgsSource.of(library, folder.id))
        return cls(SessionSource(library, settings), found[::-1])

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the sessions that no round was over, and the items that failed since, or passed
        their check.
        """
        excluded = set(seen)
        ended = [name for run in self.runs for name in run.fresh(excluded) if run.items[name].tells]
        others = self.sessions.fresh(
            [*excluded, *(name for run in self.runs for name in run.items)]
        )
        # Sessions first: they are few beside the items of a large plan.
        return [*others, *ended[:MAX_SESSIONS]]

    def _source_of(self, identity: str) -> RoundSource:
        return next((run for run in self.runs if identity in run.items), self.sessions)

    def trace(self, identity: str) -> RoundTrace | None:
        """Return one trace, None where nothing of it is left."""
        return self._source_of(identity).trace(identity)

    def session(self, identity: str) -> Session | None:
        """Return what a model may be shown of it, None where it cannot be read any more."""
        return self._source_of(identity).session(identity)

    def shows_answers(self, identity: str) -> bool:
        """Return whether the source of this id shows what an agent said."""
        return self._source_of(identity).shows_answers(identity)

    def leak(self, before: str, after: str) -> str:
        """Return '': neither has expected answers."""
        return ""
