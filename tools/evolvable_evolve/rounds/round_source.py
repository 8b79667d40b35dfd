"""What a round is over: the real sessions with a verified end since the last one, or the training
trials of a run.

Of a run nothing of validation or test is read, and no answer is shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from evolvable_evolve.evolution import (
    DAMAGE_ERRORS,
    LeakCorpus,
    LedgerDamaged,
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
        """Its name in the ledger."""

    def shows_answers(self, identity: str) -> bool:
        """Return whether a model is shown what the agent said in it: that of a trial is masked, of
        a session not.
        """

    def fresh(self, seen: Iterable[str]) -> list[str]:
        """Return the ids that no round has seen. seen: ids of earlier rounds."""

    def trace(self, identity: str) -> RoundTrace | None:
        """Return one trace, None where nothing of it is left."""

    def session(self, identity: str) -> Session | None:
        """Return what a model may be shown of it, None where it cannot be read any more."""

    def leak(self, before: str, after: str) -> str:
        """Return which text a change repeats and must not, '' for none."""


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
        ended = (
            name for name in self._ends if name not in excluded and self._reward(name) is not None
        )
        # Lazily: no end is compared behind the bound.
        return [name for name, _ in zip(ended, range(MAX_SESSIONS), strict=False)]

    def _reward(self, session: str) -> int | None:
        """Return how a session ended: as its transcript shows it, else as the verified ends of its
        uses agree.
        """
        outcomes = {self._ends[session].outcome} & REWARDS.keys()
        if not outcomes:
            outcomes = {
                attempt.outcome for attempt in self._attempts.get(session, ()) if attempt.verified
            } & REWARDS.keys()
        rewards = {int(REWARDS[outcome]) for outcome in outcomes if outcome is not None}
        return rewards.pop() if len(rewards) == 1 else None

    def trace(self, identity: str) -> RoundTrace | None:
        """Return the trace of a session, as far as its observations and its transcript say."""
        end = self._ends.get(identity)
        if end is None:
            return None
        mine = self._attempts.get(identity, [])
        shown_ids = self.library.store.backend.observations.shown_in(identity)
        loaded = {attempt.resource for attempt in mine if attempt.loaded}
        used = frozenset(
            self._refs[attempt.resource]
            for attempt in mine
            if attempt.used and attempt.resource in self._refs
        )
        selected = frozenset(
            self._refs[resource] for resource in shown_ids | loaded if resource in self._refs
        )
        kind = (
            next((attempt.task_type for attempt in mine if attempt.task_type), None)
            or end.task_type
            or "other"
        )
        reward = self._reward(identity)
        partial = end.outcome is Outcome.PARTIAL or any(
            attempt.outcome is Outcome.PARTIAL for attempt in mine
        )
        score = 0.5 if partial and not reward else float(reward or 0)
        about = (identity, end.at, kind, MAIN_AGENT, reward, score)
        bare = RoundTrace(*about, selected, used)
        session = self.session(identity)
        return bare if session is None else with_session(bare, session)

    def session(self, identity: str) -> Session | None:
        """Return a session as its transcript has it."""
        path = self.settings.transcript(identity)
        if path is None:
            return None
        try:
            # A transcript makes many objects at once, none of which is garbage.
            with pause_gc():
                found = read_session(path, redactor=self.settings.redactor)
        except (NoTranscript, TranscriptNotRead, OSError):
            return None
        return None if found.reviewing else own_part(self.library, found)

    def shows_answers(self, identity: str) -> bool:
        """Return False."""
        return False

    def leak(self, before: str, after: str) -> str:
        """Return '': sessions have no expected answers.

        What third parties wrote is refused by the rules of reviews.
        """
        return ""


def with_session(trace: RoundTrace, session: Session) -> RoundTrace:
    """Return a trace with what its session shows: steps, cause and procedures."""
    found = signals(session)
    return replace(
        trace,
        steps=len(session_steps([span for span in session.spans if not span.copied])),
        cause=cause_of(found) if trace.reward == 0 else "",
        procedures=procedures_of(found),
        last_check=trace.reward == 0 and failed_last_check_only(session),
    )


def packet_of(
    library: Library, caller: Caller, session: Session, *, answers: bool = False
) -> ReviewRequest:
    """Return what a model is given of a session whose end is verified. answers: with what the agent
    said.

    Its evidence is settled, because its end is known, and a check that failed in it is verified as
    one that passed is.
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
        about = session.session_id
        answer_spans = [
            span for span in session.spans if span.origin == Origin.ASSISTANT and span.text
        ]
        own += [
            EvidenceSpan(
                f"s{span.index}", about, span.turn, span.origin, ("answer",), span.text, True
            )
            for span in answer_spans
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
            task_set_ref = Ref.parse(str(settings["task_set"]))
            ref = task_set_ref.within(task_set_ref.scope or USER_SCOPE).at(
                int(settings["task_set_version"]) or None
            )
            taskset, _ = load_taskset(library, caller, ref)
            train = {task.id: task for task in taskset.tasks if task.split is Split.TRAIN}
            own = {task for task, (split, _) in state.tasks.items() if split == Split.TRAIN}
            trials = dict(_training_trials(folder.id, read_records(folder), train.keys() & own))
            skills = {
                digest: _refs(folder.program(digest))
                for digest in {trial.program for _, trial in trials.values()}
            }
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
            *(identity, at, category.lower(), MAIN_AGENT, reward, score),
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
        answer = shorten(
            hide("\n\n".join(part for part in (trial.trace, trial.output) if part)), HEAD, TAIL
        )
        works = trial.score is not None and trial.score >= self.fail_below
        ended = (
            "it works"
            if works
            else f"that is wrong: {hide(trial.feedback) or 'the scorer says so'}"
        )
        messages = [
            {"role": "user", "content": task.prompt, "timestamp": at},
            {"role": "assistant", "content": answer or "(no answer)", "timestamp": at},
            {"role": "user", "content": shorten(ended, HEAD, TAIL), "timestamp": at},
        ]
        return read_session(messages, redactor=self.redactor)

    def shows_answers(self, identity: str) -> bool:
        """Return whether the trial failed: why it did is often seen in its trace alone."""
        found = self.trace(identity)
        return found is not None and found.reward == 0

    def leak(self, before: str, after: str) -> str:
        """Return which text of the run's tasks a change repeats, '' for none."""
        found = self.corpus.leaks(after, before)
        return str(found[0].source) if found else ""


def _training_trials(
    run: str, records: Iterable[Mapping[str, Any]], train: Iterable[str]
) -> dict[str, Any]:
    """Return the counted trials of training tasks by their id, in the order of the ledger."""
    own, found = set(train), dict[str, Any]()
    for record in records:
        if (
            record["type"] != "trial"
            or record["trial"]["task"] not in own
            or record["trial"].get("cached")
        ):
            continue
        trial = parse_trial(record["trial"])
        if trial.score is not None:
            found[f"run:{run}:{trial.key[:24]}"] = (_moment(str(record["at"])), trial)
    return found


def _moment(at: str) -> str:
    return datetime.fromisoformat(at).isoformat()


def _refs(program: Any) -> frozenset[str]:
    return frozenset(part.ref for part in program.parts if part.ref.startswith("skill:"))
