"""A round over the training trials of an evolution. Nothing of validation or test is read, and no answer is shown."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_tools.evolve.candidates.static_gate import LeakCorpus
from evolvable_tools.evolve.ledger.run_directory import DAMAGE_ERRORS, LedgerDamaged
from evolvable_tools.evolve.ledger.run_reducer import load_run, read_records
from evolvable_tools.evolve.proposers.role_prompts import make_masker, shorten
from evolvable_tools.evolve.task import Split, Task, Trial
from evolvable_tools.evolve.tasks.locate import load_taskset
from evolvable_tools.evolve.trials.trial import parse_trial
from evolvable_tools.library import Caller, Library
from evolvable_tools.metrics import MAIN_AGENT
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.rounds.traces import RoundTrace, hashed
from evolvable_tools.sessions import Session
from evolvable_tools.sessions.parser import read_session

HEAD, TAIL = 6_000, 3_000
"""Characters of a trial's trace that are shown at its beginning and its end."""


@dataclass
class TrialSource:
    """The training trials of one run, each as a short session: the task, what was done, and the scorer's feedback."""

    name: str
    tasks: Mapping[str, Task]
    trials: Mapping[str, tuple[str, Trial]]
    skills: Mapping[str, frozenset[str]]
    fail_below: float
    corpus: LeakCorpus
    redactor: Redactor

    @classmethod
    def of(cls, library: Library, caller: Caller, run: str) -> "TrialSource":
        """Return the source of a run. Raises NoSuchRun, LedgerDamaged, and as `load_taskset`."""
        folder, state = load_run(library.store.home, run)
        try:
            settings = state.settings
            named = Ref.parse(str(settings["task_set"]))
            ref = named.within(named.scope or USER_SCOPE).at(int(settings["task_set_version"]) or None)
            taskset, _ = load_taskset(library, caller, ref)
            train = {one.id: one for one in taskset.tasks if one.split is Split.TRAIN}
            own = {task for task, (split, _) in state.tasks.items() if split == Split.TRAIN}
            trials = dict(_training_trials(folder.id, read_records(folder), train.keys() & own))
            skills = {digest: _refs(folder.program(digest)) for digest in {one.program for _, one in trials.values()}}
            open_tasks = [one for one in taskset.tasks if one.split is not Split.TEST]
            bar = float(settings["fail_below"])
        except DAMAGE_ERRORS as error:
            text = f"Run {folder.id} cannot be read: {type(error).__name__}."
            raise LedgerDamaged(text, "Restore its folder from a backup.") from error
        return cls(f"run:{folder.id}", train, trials, skills, bar, LeakCorpus(open_tasks), library.redactor())

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the trials that no round was over, the oldest first."""
        known = set(seen)
        return [identity for identity in self.trials if identity not in known]

    def trace(self, identity: str) -> RoundTrace | None:
        """Return the trace of a trial, None for what is no trial of this run."""
        if identity not in self.trials:
            return None
        at, trial = self.trials[identity]
        task, score = self.tasks[trial.task], trial.score or 0.0
        reward = int(score >= self.fail_below)
        category = task.category or "other"
        return RoundTrace(
            *(identity, at, category.lower(), MAIN_AGENT, reward, score),
            selected=self.skills[trial.program],
            used=frozenset(trial.read) & self.skills[trial.program],
            steps=trial.usage.calls,
            cause="" if reward else f"scorer:{hashed(category)}",
        )

    def session(self, identity: str) -> Session | None:
        """Return what a model may be shown of a trial: expected answers are masked, and all texts redacted."""
        if identity not in self.trials:
            return None
        at, trial = self.trials[identity]
        task = self.tasks[trial.task]
        hide = make_masker(task.expected, task.prompt)
        said = shorten(hide("\n\n".join(part for part in (trial.trace, trial.output) if part)), HEAD, TAIL)
        works = trial.score is not None and trial.score >= self.fail_below
        ended = "it works" if works else f"that is wrong: {hide(trial.feedback) or 'the scorer says so'}"
        messages = [
            {"role": "user", "content": task.prompt, "timestamp": at},
            {"role": "assistant", "content": said or "(no answer)", "timestamp": at},
            {"role": "user", "content": shorten(ended, HEAD, TAIL), "timestamp": at},
        ]
        return read_session(messages, redactor=self.redactor)

    def leak(self, before: str, after: str) -> str:
        """Return what a change repeats of the run's tasks, '' when it repeats nothing."""
        found = self.corpus.leaks(after, before)
        return str(found[0].source) if found else ""


def _training_trials(run: str, records: Iterable[Mapping[str, Any]], train: Iterable[str]) -> dict[str, Any]:
    """Return the counted trials of training tasks by their id, in the order of the ledger."""
    own, found = set(train), dict[str, Any]()
    for record in records:
        if record["type"] != "trial" or record["trial"]["task"] not in own or record["trial"].get("cached"):
            continue
        trial = parse_trial(record["trial"])
        if trial.score is not None:
            found[f"run:{run}:{trial.key[:24]}"] = (_moment(str(record["at"])), trial)
    return found


def _moment(at: str) -> str:
    return datetime.fromisoformat(at).isoformat()


def _refs(program: Any) -> frozenset[str]:
    return frozenset(part.ref for part in program.parts if part.ref.startswith("skill:"))
