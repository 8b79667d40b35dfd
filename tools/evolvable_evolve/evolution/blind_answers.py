"""Answers that a judge scored differently, shown to a person before adoption without the names of
the programs.

A judge may prefer answers that the person does not. The answers are those of train and validation:
to see answers of the sealed test would be a further look at its tasks.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evolvable_evolve.evolution.ledger import (
    Ledger,
    LedgerRecord,
    RunState,
    load_run,
    read_records,
    translate_damage,
)
from evolvable_evolve.evolution.task import TrialOutcome
from evolvable_evolve.evolution.tasks import locate
from evolvable_store.errors import EvolvableError, Refused
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library

# A choice, not measured: a person reads so many with care.
MAX_PAIRS = 5
"""The most pairs of answers that a person compares."""

# By chance four or more of five happen in 6 of 32 cases, where both answers are equally good.
MIN_DOUBT = 4
"""Preferred answers of the base from which on adoption asks again."""

MAX_SHOWN = 4_000
"""The most characters of an answer that are shown."""


class Preference(StrEnum):
    """Whose answer a person found better."""

    BASE = "base"
    FINALIST = "finalist"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class BlindPair:
    """Two answers to one task.

    base_first: whether the first is the base's. prompt: '' where the task set is gone.
    """

    task: str
    prompt: str
    first: str
    second: str
    base_first: bool

    def preference(self, choice: str) -> Preference:
        """Return the meaning of a choice: `1`, `2`, or anything else for no difference."""
        if choice not in ("1", "2"):
            return Preference.NEITHER
        return Preference.BASE if (choice == "1") == self.base_first else Preference.FINALIST


@dataclass(frozen=True, slots=True)
class AnswerPreferences:
    """A person's preferences among the pairs of one finalist, by count."""

    shown: int
    base: int
    finalist: int

    @property
    def doubtful(self) -> bool:
        """Whether the person contradicts the judge so clearly that adoption asks again."""
        return self.base >= MIN_DOUBT

    def __str__(self) -> str:
        """Return the counts in words."""
        return (
            f"Of {self.shown} pairs of answers the base's was preferred in {self.base} and the "
            f"new one's in {self.finalist}"
        )


@translate_damage
def draw_blind_pairs(library: Library, caller: Caller, run: str | None) -> list[BlindPair]:
    """Return the pairs that a person compares before this run's finalist is adopted.

    There are none where no judge scored, where the person compared them before, and where the judge
    found no difference. Which tasks, and which answer is the first, is drawn by the seed of the
    run. Raises NoSuchRun.
    """
    folder, state = load_run(library.store.home, run)
    if not state.settings.get("judge") or read_preferences(state) is not None:
        return []
    prompts = _load_judged_prompts(library, caller, state)
    passes = float(state.settings.get("fail_below", 1.0))
    answers = _collect_answers(read_records(folder), state, passes)
    seed, redactor = state.settings.get("seed", 0), library.redactor()
    pairs = []
    # By a hash of the seed, so that a second call shows the same pairs.
    for task in sorted(answers, key=lambda task: _draw_hash(seed, "task", task)):
        # Only tasks that a judge scores; without the task set their prompts are not known.
        if prompts is not None and task not in prompts:
            continue
        differing = _find_differing(answers[task])
        if differing is None:
            continue
        redacted = [redactor.redact(text)[0][:MAX_SHOWN] for text in differing]
        base_first = _draw_hash(seed, "side", task)[0] % 2 == 0
        prompt = redactor.redact((prompts or {}).get(task, ""))[0][:MAX_SHOWN]
        first, second = redacted if base_first else reversed(redacted)
        pairs.append(BlindPair(task, prompt, first, second, base_first))
        if len(pairs) == MAX_PAIRS:
            break
    return pairs


@translate_damage
def record_preferences(
    library: Library,
    caller: Caller,
    run: str | None,
    pairs: Sequence[BlindPair],
    choices: Sequence[str],
) -> AnswerPreferences:
    """Record the preference of a person for each pair, and return the counts.

    Raises NoSuchRun, LedgerBusy, and Refused for a caller that is no person.
    """
    if not caller.decides:
        raise Refused("Only a person compares answers.", "Tell the user that the run waits.")
    folder, state = load_run(library.store.home, run)
    answers = [
        [pair.task, str(pair.preference(choice))]
        for pair, choice in zip(pairs, choices, strict=True)
    ]
    counts = Counter(preference for _, preference in answers)
    with Ledger.open(folder.ledger) as ledger:
        record = {"candidate": state.finalist, "answers": answers, "shown": len(answers)}
        ledger.append(
            "preferred",
            {**record, **{str(preference): counts[preference] for preference in Preference}},
        )
    return AnswerPreferences(len(answers), counts[Preference.BASE], counts[Preference.FINALIST])


def read_preferences(state: RunState) -> AnswerPreferences | None:
    """Return a person's preferences among the finalist's pairs, None before the person compared
    them.
    """
    record = state.preferred
    # A continued run may have another finalist now.
    if not record or record["candidate"] != state.finalist:
        return None
    return AnswerPreferences(record["shown"], record["base"], record["finalist"])


def _draw_hash(seed: object, what: str, task: str) -> bytes:
    return hashlib.sha256(f"{seed} blind {what} {task}".encode()).digest()


def _load_judged_prompts(
    library: Library, caller: Caller, state: RunState
) -> Mapping[str, str] | None:
    """Return the prompts of the tasks that a judge scores, by task; None where the task set is
    gone.
    """
    try:
        ref = Ref.parse(state.settings["task_set"]).at(state.settings["task_set_version"])
        taskset, _ = locate.load_taskset(library, caller, ref)
    except EvolvableError:
        return None
    return {task.id: task.prompt for task in taskset.tasks if task.scorer.type == "judge"}


_Answers = dict[str, dict[bool, str]]
"""By arm, `base` or `finalist`: the last answer that passed (True), and the last that did not."""


def _collect_answers(
    records: Iterable[LedgerRecord], state: RunState, passes: float
) -> dict[str, _Answers]:
    """Return the answers of both programs to the tasks that are not in the sealed test, by task."""
    arms = {state.base: Preference.BASE, state.finalist: Preference.FINALIST}
    answers: dict[str, _Answers] = {}
    for record in records:
        trial: Mapping[str, Any] = record["trial"] if record["type"] == "trial" else {}
        if trial.get("program") not in arms or trial["task"] not in state.tasks:
            continue
        if trial["score"] is None or not TrialOutcome(trial["outcome"]).counts:
            continue
        if trial["output"].strip():
            of_arm = answers.setdefault(trial["task"], {}).setdefault(arms[trial["program"]], {})
            of_arm[trial["score"] >= passes] = trial["output"]
    return answers


def _find_differing(answers: _Answers) -> tuple[str, str] | None:
    """Return an answer of the base and one of the finalist of which the judge passed exactly one.

    Return None where there is no such pair.
    """
    base, finalist = answers.get(Preference.BASE, {}), answers.get(Preference.FINALIST, {})
    # First a pair that the judge counts as a gain: such pairs led to the promotion.
    for passed in (False, True):
        if passed in base and (not passed) in finalist:
            return base[passed], finalist[not passed]
    return None
