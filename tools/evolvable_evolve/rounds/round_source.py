"""What a round is over: the real sessions with a verified end since the last one, or the training
trials of a run.

Of a run nothing of validation or test is read, and no answer is shown.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from evolvable_evolve.evolution import (
    DAMAGE_ERRORS,
    LeakCorpus,
    LedgerDamaged,
    Program,
    Split,
    Task,
    Trial,
    load_run,
    load_taskset,
    make_masker,
    parse_trial,
    read_records,
    shorten,
)
from evolvable_evolve.rounds.traces import (
    RoundTrace,
    cause_of,
    failed_last_check_only,
    hash_text,
    procedures_of,
)
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import Attempt, Outcome, VerifiedEnd
from evolvable_tools import MAIN_AGENT, REWARDS, Caller, Library, review
from evolvable_tools.outcomes import own_part
from evolvable_tools.redaction import Redactor
from evolvable_tools.review import (
    EvidenceSpan,
    ReviewRequest,
    ReviewSettings,
    pause_gc,
    session_steps,
    signals,
)
from evolvable_tools.sessions import NoTranscript, Origin, Session, TranscriptNotRead, read_session

# Bounds the time of a round, which reads each transcript.
MAX_SESSIONS = 300
"""Sessions of one round, the oldest first; the others come in the next."""

EVIDENT = review.EVIDENT | {"check_failing"}
"""Signals whose spans are evidence: those of a review, and a check that still fails, because it
verifies the end.
"""


class RoundSource(Protocol):
    """Where the traces of a round come from."""

    @property
    def name(self) -> str:
        """The name of the source in the ledger."""

    def shows_answers(self, identity: str) -> bool:
        """Return whether a model is shown what the agent said in this session or trial.

        Answers are shown of trials alone: expected answers are masked in them, and nothing is
        masked in a session.
        """

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the ids that no round has seen. seen: ids of earlier rounds."""

    def trace(self, identity: str) -> RoundTrace | None:
        """Return one trace, None where nothing of it is left."""

    def session(self, identity: str) -> Session | None:
        """Return what a model may be shown of this session or trial, None where it cannot be read
        any more.
        """

    def leak(self, before: str, after: str) -> str:
        """Return the source of a text that a change repeats and must not, '' for none.

        before, after: the texts of the resource without and with the change.
        """


@dataclass
class SessionSource:
    """The sessions that the server saw and that have a verified end."""

    library: Library
    settings: ReviewSettings
    name: str = "sessions"

    def __post_init__(self) -> None:
        self._ends: dict[str, VerifiedEnd] = {}
        self._attempts: dict[str, list[Attempt]] = {}
        # A trace is about a skill. The agents that a session started have episodes of their own
        # (`agent_episodes`).
        self._refs = {head.id: str(head.ref) for head in self.library.store.heads(Kind.SKILL)}
        for attempt in self.library.evidence.list_attempts():
            self._attempts.setdefault(attempt.key, []).append(attempt)
        for end in self.library.store.backend.observations.verified_ends():
            self._ends[end.session] = end

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the sessions with a verified end that no round was over, the oldest first."""
        excluded = set(seen)
        rewarded = (
            name
            for name in self._ends
            if name not in excluded and self._find_reward(name) is not None
        )
        # Lazily: the reward of no session behind the bound is computed.
        return list(itertools.islice(rewarded, MAX_SESSIONS))

    def _find_reward(self, session: str) -> int | None:
        """Return the reward of a session, 1 or 0: as its transcript shows its end, else as the
        verified ends of its uses agree. None where they do not.
        """
        outcomes = {self._ends[session].outcome} & REWARDS.keys()
        if not outcomes:
            attempts = self._attempts.get(session, ())
            outcomes = {attempt.outcome for attempt in attempts if attempt.verified}
            outcomes &= REWARDS.keys()
        rewards = {int(REWARDS[outcome]) for outcome in outcomes if outcome is not None}
        return rewards.pop() if len(rewards) == 1 else None

    def trace(self, identity: str) -> RoundTrace | None:
        """Return the trace of a session, as far as its observations and its transcript say."""
        end = self._ends.get(identity)
        if end is None:
            return None
        attempts = self._attempts.get(identity, [])
        shown_ids = self.library.store.backend.observations.shown_in(identity)
        loaded = {attempt.resource for attempt in attempts if attempt.loaded}
        used = frozenset(
            self._refs[attempt.resource]
            for attempt in attempts
            if attempt.used and attempt.resource in self._refs
        )
        selected = frozenset(
            self._refs[resource] for resource in shown_ids | loaded if resource in self._refs
        )
        task_types = [attempt.task_type for attempt in attempts if attempt.task_type]
        task_type = next(iter(task_types), None) or end.task_type or "other"
        reward = self._find_reward(identity)
        outcomes = [end.outcome, *(attempt.outcome for attempt in attempts)]
        partial = Outcome.PARTIAL in outcomes
        score = 0.5 if partial and not reward else float(reward or 0)
        trace = RoundTrace(identity, end.at, task_type, MAIN_AGENT, reward, score, selected, used)
        session = self.session(identity)
        return trace if session is None else with_session(trace, session)

    def session(self, identity: str) -> Session | None:
        """Return a session as its transcript has it."""
        path = self.settings.transcript(identity)
        if path is None:
            return None
        try:
            # A transcript makes many objects at once, none of which is garbage.
            with pause_gc():
                session = read_session(path, redactor=self.settings.redactor)
        except (NoTranscript, TranscriptNotRead, OSError):
            return None
        return None if session.reviewing else own_part(self.library, session)

    def shows_answers(self, identity: str) -> bool:
        """Return False: nothing is masked in the answers of a session."""
        return False

    def leak(self, before: str, after: str) -> str:
        """Return '': sessions have no expected answers.

        What third parties wrote is refused by the rules of reviews.
        """
        return ""


def with_session(trace: RoundTrace, session: Session) -> RoundTrace:
    """Return a trace with what its session shows: steps, cause and procedures."""
    session_signals = signals(session)
    return replace(
        trace,
        steps=len(session_steps([span for span in session.spans if not span.copied])),
        cause=cause_of(session_signals) if trace.reward == 0 else "",
        procedures=procedures_of(session_signals),
        last_check=trace.reward == 0 and failed_last_check_only(session),
    )


def packet_of(
    library: Library, caller: Caller, session: Session, *, answers: bool = False
) -> ReviewRequest:
    """Return what a model is given of a session whose end is verified.

    answers: with what the agent said. The evidence counts as settled, because the end is known, and
    a failed check counts as verified, as one that passed does.
    """
    packet, _ = review.build_request(library, caller, session, library.store.clock(), EVIDENT)
    failed = {
        f"s{i}"
        for signal in packet.signals
        if signal.code in ("check_failing", "fail_then_pass")
        for i in signal.spans
    }
    own = [
        replace(piece, settled=True) for piece in packet.evidence if piece.session == packet.session
    ]
    if answers:
        own += [
            EvidenceSpan(
                f"s{span.index}",
                session.session_id,
                span.turn,
                span.origin,
                ("answer",),
                span.text,
                True,
            )
            for span in session.spans
            if span.origin == Origin.ASSISTANT and span.text
        ]
        # By the number of the span, so that the model reads the session in its order.
        own.sort(key=lambda piece: int(piece.id[1:]))
    others = [piece for piece in packet.evidence if piece.session != packet.session]
    verified = sorted({*packet.verified, *(failed & {piece.id for piece in own})})
    return replace(packet, evidence=[*own, *others], verified=verified)


def traces_of(source: RoundSource, ids: Iterable[str]) -> Iterator[RoundTrace]:
    """Yield the traces of these sessions or trials that are left."""
    for identity in ids:
        trace = source.trace(identity)
        if trace is not None:
            yield trace


# The beginning says how a task was understood, the end says what the result was.
HEAD, TAIL = 6_000, 3_000
"""Characters of a trial's trace that are shown at its beginning and its end."""


@dataclass
class TrialSource:
    """The training trials of one run, each as a short session: the task, what was done, and the
    scorer's feedback.
    """

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
            name = Ref.parse(str(settings["task_set"]))
            version = int(settings["task_set_version"]) or None
            ref = name.within(name.scope or USER_SCOPE).at(version)
            taskset, _ = load_taskset(library, caller, ref)
            train = {task.id: task for task in taskset.tasks if task.split is Split.TRAIN}
            own = {task for task, (split, _) in state.tasks.items() if split == Split.TRAIN}
            trials = _read_trials(folder.id, read_records(folder), train.keys() & own)
            skills = {
                digest: _list_skill_refs(folder.program(digest))
                for digest in {trial.program for _, trial in trials.values()}
            }
            # Texts of the sealed test are never read here, not even to compare a change with them.
            open_tasks = [task for task in taskset.tasks if task.split is not Split.TEST]
            bar = float(settings["fail_below"])
        except DAMAGE_ERRORS as error:
            text = f"Run {folder.id} cannot be read: {type(error).__name__}."
            raise LedgerDamaged(text, "Restore its folder from a backup.") from error
        return cls(
            f"run:{folder.id}",
            train,
            trials,
            skills,
            bar,
            LeakCorpus(open_tasks),
            library.redactor(),
        )

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the trials that no round was over, the oldest first."""
        excluded = set(seen)
        return [identity for identity in self.trials if identity not in excluded]

    def trace(self, identity: str) -> RoundTrace | None:
        """Return the trace of a trial, None for what is no trial of this run."""
        if identity not in self.trials:
            return None
        at, trial = self.trials[identity]
        task, score = self.tasks[trial.task], trial.score or 0.0
        reward = int(score >= self.fail_below)
        category = task.category or "other"
        return RoundTrace(
            identity,
            at,
            category.lower(),
            MAIN_AGENT,
            reward,
            score,
            selected=self.skills[trial.program],
            used=frozenset(trial.read) & self.skills[trial.program],
            steps=trial.usage.calls,
            cause="" if reward else f"scorer:{hash_text(category)}",
        )

    def session(self, identity: str) -> Session | None:
        """Return what a model may be shown of a trial: expected answers are masked, and all texts
        redacted.
        """
        if identity not in self.trials:
            return None
        at, trial = self.trials[identity]
        task = self.tasks[trial.task]
        hide = make_masker(task.expected, task.prompt)
        transcript = "\n\n".join(part for part in (trial.trace, trial.output) if part)
        # Masked before it is cut, so that no part of an expected answer stays at the cut.
        answer = shorten(hide(transcript), HEAD, TAIL)
        works = trial.score is not None and trial.score >= self.fail_below
        complaint = f"that is wrong: {hide(trial.feedback) or 'the scorer says so'}"
        verdict = "it works" if works else complaint
        messages = [
            {"role": "user", "content": task.prompt, "timestamp": at},
            {"role": "assistant", "content": answer or "(no answer)", "timestamp": at},
            {"role": "user", "content": shorten(verdict, HEAD, TAIL), "timestamp": at},
        ]
        return read_session(messages, redactor=self.redactor)

    def shows_answers(self, identity: str) -> bool:
        """Return whether the trial failed: why it did is often seen in its trace alone."""
        trace = self.trace(identity)
        return trace is not None and trace.reward == 0

    def leak(self, before: str, after: str) -> str:
        """Return the source of a text of the run's tasks that a change repeats, '' for none."""
        leaks = self.corpus.leaks(after, before)
        return str(leaks[0].source) if leaks else ""


def _read_trials(
    run: str, records: Iterable[Mapping[str, Any]], train: Set[str]
) -> dict[str, tuple[str, Trial]]:
    """Return the counted trials of training tasks by their id, in the order of the ledger.

    train: ids of the training tasks.
    """
    trials: dict[str, tuple[str, Trial]] = {}
    for record in records:
        if record["type"] != "trial" or record["trial"]["task"] not in train:
            continue
        # A trial from the cache is counted where it was run.
        if record["trial"].get("cached"):
            continue
        trial = parse_trial(record["trial"])
        if trial.score is not None:
            at = datetime.fromisoformat(str(record["at"])).isoformat()
            trials[f"run:{run}:{trial.key[:24]}"] = (at, trial)
    return trials


def _list_skill_refs(program: Program) -> frozenset[str]:
    return frozenset(part.ref for part in program.parts if part.ref.startswith("skill:"))
