"""How trials stand in a ledger, and what a ledger says of them."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from evolvable_tools.evolve.attempt import Attempt
from evolvable_tools.evolve.ledger import Record
from evolvable_tools.evolve.rollout import Outcome, Trial, Usage

MOST_TEXT = 100_000
"""Characters that are kept of one text of a trial; of a longer one the beginning and the end."""

BROKEN = "broken"
"""The type of the record of a batch that was given up, as nothing in it came to anything."""


def trial_key(program: str, task: str, scorer: str, executor: str, image: str, repeat: int) -> str:
    """Returns the sha256 over everything that decides a result: digests of program, task and scorer, the executor's
    fingerprint, the environment's image, and which repeat.
    """
    return hashlib.sha256(json.dumps([program, task, scorer, executor, image, repeat]).encode()).hexdigest()


def _kept(text: str) -> str:
    """Returns a text as it is kept: what was scored was the whole."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters are left out here ...]\n{text[-half:]}"


def trial_of(key: str, task: str, program: str, repeat: int, attempt: Attempt, passes: float) -> Trial:
    """Returns an attempt as it is counted. passes: the score from which on it is a PASS."""
    rollout, score = attempt.rollout, attempt.score
    value = score.value if score else None
    outcome = attempt.outcome
    if outcome is None:
        outcome = Outcome.PASS if value is not None and value >= passes else Outcome.FAIL
    elif outcome.counts:
        value = float(outcome is Outcome.PASS)
    return Trial(
        key,
        task,
        program,
        repeat,
        outcome,
        value,
        rollout.usage,
        rollout.wall,
        _kept(rollout.output),
        _kept(rollout.trace),
        _kept(score.feedback) if score else "",
        rollout.read,
        _kept(attempt.detail),
        judging=attempt.judging,
    )


def fields_of(trial: Trial, attempt: Attempt | None, /, **about: object) -> dict[str, Any]:
    """Returns the fields of the record of a trial; `about` are those of the record itself."""
    written: dict[str, Any] = {name: getattr(trial, name) for name in Trial.__slots__}
    written["usage"] = _usage(trial.usage)
    del written["judging"]
    if trial.judging != Usage():
        written["judging"] = _usage(trial.judging)
    score = attempt.score if attempt else None
    if score:
        about |= {
            "evidence": _kept(score.evidence),
            "checks": [asdict(check) for check in score.checks],
            "metrics": dict(score.metrics),
        }
    return {**about, "trial": written}


def _usage(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in Usage.__slots__}


def judging_of(written: Mapping[str, Any]) -> Usage:
    """Returns what scoring a trial took, from its record."""
    return Usage(**written["judging"]) if "judging" in written else Usage()


def read_trial(written: Mapping[str, Any]) -> Trial:
    """Returns the trial that a record holds."""
    fields = dict(written)
    fields["outcome"] = Outcome(fields["outcome"])
    fields["usage"] = Usage(**fields["usage"])
    fields["judging"] = judging_of(written)
    fields["read"] = tuple(fields["read"])
    return Trial(**fields)


@dataclass
class KnownTrials:
    """What the records say: which trials count, and how far each named batch is.

    counted: by key, as first run. ended: by batch and key, what a batch has come to. failed: by batch and key, how
    often infrastructure failed, and the last of these. broken: batches in which nothing but infrastructure failed for
    long; what failed in them is tried anew.
    """

    counted: dict[str, Trial] = field(default_factory=dict)
    ended: dict[tuple[str, str], Trial] = field(default_factory=dict)
    failed: dict[tuple[str, str], tuple[int, Trial]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def take_in(self, records: Iterable[Record]) -> None:
        """Adds what these records say, in their order."""
        for record in records:
            if record["type"] == "trial":
                self.add(record["batch"], read_trial(record["trial"]), record.get("final", False))
            elif record["type"] == BROKEN:
                self.broke(record["batch"])

    def broke(self, batch: str) -> None:
        """Forgets what infrastructure spoiled in a batch."""
        self.broken.add(batch)
        self.failed = {place: found for place, found in self.failed.items() if place[0] != batch}
        spoiled = [
            place for place, one in self.ended.items() if place[0] == batch and one.outcome is Outcome.INFRA_ERROR
        ]
        for place in spoiled:
            del self.ended[place]

    def add(self, batch: str, trial: Trial, final: bool = False) -> None:
        """Adds one trial of a batch. final: it is not tried again, whatever it came to."""
        place = batch, trial.key
        if trial.outcome is Outcome.TAMPERED:
            return  # to be measured anew, if ever
        if trial.cached:
            full = self.counted.setdefault(trial.key, replace(trial, cached=False))
            self.ended[place] = replace(full, cached=True)
            return
        if trial.outcome is Outcome.INFRA_ERROR and not final:
            self.failed[place] = self.failed.get(place, (0, trial))[0] + 1, trial
            return
        self.ended[place] = trial
        if trial.outcome.counts:
            self.counted.setdefault(trial.key, trial)


def without_texts(trial: Trial) -> Trial:
    """Returns the trial without what stands in the ledger already."""
    return replace(trial, output="", trace="", feedback="", detail="")
