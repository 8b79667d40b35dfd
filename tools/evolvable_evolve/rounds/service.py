"""A round: learn from the sessions since the last one, diagnose failures, and change at most one
thing of a cluster.

Each step is one record of a ledger, and what it does in the library it does once: a round that was
killed at any record goes on to the same state. A round acts as an agent: what the policy would let
live enters the pool, and everything else waits in the inbox.
"""

import contextlib
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from evolvable_evolve.evolution import Ledger, LedgerRecord, RunDirectory
from evolvable_evolve.rounds.agent_changes import RosterChange, change_agents, list_agents
from evolvable_evolve.rounds.diagnosis import (
    ANSWER_SCHEMA,
    INSTRUCTIONS,
    ProposalSign,
    TraceDiagnosis,
    diagnose,
    proposal_sign,
)
from evolvable_evolve.rounds.policy_cards import (
    SHOWN,
    PolicyCard,
    card_index,
    nearest_cards,
    program_cards,
)
from evolvable_evolve.rounds.pool import look_at_trials
from evolvable_evolve.rounds.round_changes import (
    RoundChange,
    admit_for,
    change_made,
    evolve_cluster,
    expire_proposals,
    propose_prunes,
    texts_of,
    trial_made,
    tried_why,
)
from evolvable_evolve.rounds.round_source import RoundSource, SessionSource, packet_of, traces_of
from evolvable_evolve.rounds.round_state import (
    LEDGER,
    apply_record,
    counted_failures,
    counted_procedures,
    fold_rounds,
)
from evolvable_evolve.rounds.traces import RetainedTrace, RetainReason, retain
from evolvable_store import Actor, Principal
from evolvable_store.errors import EvolvableError, Refused
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import PoolState
from evolvable_tools import (
    Caller,
    Library,
    agent_episodes,
    agent_utilities,
    review,
    verified_utilities,
)
from evolvable_tools.llm import ProviderError, Request, WrongAnswer
from evolvable_tools.outcomes import BUILT_IN_TEXT, TASK_TYPES, VOCABULARY_FILE
from evolvable_tools.review import (
    MAX_TOKENS,
    OverBudget,
    QuestionUsage,
    ReviewRequest,
    ReviewSettings,
    reserve,
    settle,
)
from evolvable_tools.verbs import find_skill, update_resource

# Bounds what one round may cost; the day's budget of reviews bounds all of them.
MAX_QUESTIONS = 12
"""Questions to the model in one round; traces that it has no room for come in the next."""

FOLDER = "rounds"
"""The folder of the library's home in which answers wait until their round has ended."""

SEEDS = [
    "debug-a-failing-test",
    "plan-a-migration",
    "review-a-change",
    "summarize-data-files",
    "use-the-library",
    "write-a-changelog",
    "write-a-skill",
    "write-commit-messages",
]
"""Skills that come with the product and have a policy card."""


@dataclass(frozen=True)
class RoundReport:
    """What a round did.

    episodes: sessions or trials with a verified end. retained: traces by the reason. utilities: how
    many skills and agents have a value of Q. changes: one for each cluster. pruned: removals that
    it proposed. trials: those that go on or ended. unasked: traces that wait for a model;
    why_unasked: why it was not asked. suspects: clusters that were changed before the sessions went
    worse. agents: the change of agents that it proposed, or why there is none.
    """

    number: int
    source: str
    episodes: int
    successes: int
    retained: dict[str, int] = field(default_factory=dict)
    utilities: dict[str, int] = field(default_factory=dict)
    diagnosed: list[dict[str, Any]] = field(default_factory=list)
    changes: list[RoundChange] = field(default_factory=list)
    pruned: list[dict[str, Any]] = field(default_factory=list)
    trials: list[dict[str, Any]] = field(default_factory=list)
    unasked: int = 0
    why_unasked: str = ""
    suspects: list[str] = field(default_factory=list)
    agents: RosterChange | None = None


def run_round(
    library: Library, caller: Caller, settings: ReviewSettings, source: RoundSource | None = None
) -> RoundReport:
    """Run a round, or go on with the one that was interrupted; return what it did.

    source: by default the real sessions since the last round. Raises Refused where reviews are off,
    LedgerBusy while another round runs, LedgerDamaged.
    """
    if not settings.on:
        raise Refused(
            "Reviews are off here (EVOLVABLE_REVIEW=off), and so are rounds.",
            "Nothing was read or written.",
        )
    expire_proposals(library)
    with Ledger.open(library.store.home / LEDGER, clock=library.store.clock) as ledger:
        return _RoundWork(library, caller, settings, ledger, source).run()


class _RoundWork:
    """The steps of one round."""

    def __init__(
        self,
        library: Library,
        caller: Caller,
        settings: ReviewSettings,
        ledger: Ledger,
        source: RoundSource | None,
    ) -> None:
        self._library, self._settings, self._ledger = library, settings, ledger
        self._source: RoundSource = source or SessionSource(library, settings)
        self._scopes = caller.scopes
        self._answers = RunDirectory(library.store.home / FOLDER)
        self._packets: dict[str, ReviewRequest | None] = {}
        # All state is in the ledger, so a round that was killed goes on at the step that has no
        # record.
        self.state = fold_rounds(ledger.records)

    @property
    def caller(self) -> Caller:
        """The caller of a round: an agent, in a session of its own."""
        return Caller(
            Actor.AGENT, f"round-{self.state.number}", self._scopes, Principal.AGENT, "round"
        )

    def note(self, type: str, **fields: Any) -> None:
        """Append a record, and take the step in the state."""
        apply_record(self.state, self._ledger.append(type, fields))

    def run(self) -> RoundReport:
        """Take every step that the state has not."""
        if not self.state.running:
            fresh = self._source.fresh(self.state.seen)
            # Traces that the last round had no question left for come first.
            sessions = list(dict.fromkeys([*self.state.unasked, *fresh]))
            self.note(
                "round", number=self.state.number + 1, source=self._source.name, sessions=sessions
            )
        if not self.state.learned:
            self.learn()
        self.ask()
        self.evolve()
        if self.state.pruned is None:
            self.note("pruned", proposed=propose_prunes(*self.pruning()))
        if not self.state.has_looked:
            self.look()
        if self.state.restructured is None:
            self.note("agents", **asdict(change_agents(self._library, self.caller, self.state)))
        report = self.report()
        self.note("ended", success=[report.successes, report.episodes])
        # Answers hold texts of sessions: they stay only until the record that ends the round is
        # written.
        shutil.rmtree(self._answers.path, ignore_errors=True)
        return self.with_suspects(report)

    def learn(self) -> None:
        """Cut the traces, learn from them, and retain those that something may follow from."""
        self.keep_vocabulary()
        traces = list(traces_of(self._source, self.state.sessions))
        # The round before has counted the traces that it left to this one.
        again = [trace for trace in traces if trace.id in self.state.again]
        fresh = [trace for trace in traces if trace.id not in self.state.again]
        retained = retain(
            traces, self.state.failures - Counter(counted_failures(again)), self.state.procedures
        )
        observations = self._library.store.backend.observations
        episodes = agent_episodes(observations.verified_ends(), observations.executions())
        utilities = {
            "skills": len(verified_utilities(self._library.evidence.list_attempts())),
            "agents": len(agent_utilities(episodes)),
        }
        rewarded = [trace for trace in fresh if trace.reward is not None]
        self.note(
            "learned",
            retained=[_trace_to_row(retained_trace) for retained_trace in retained],
            failures=counted_failures(fresh),
            procedures=counted_procedures(fresh),
            utilities=utilities,
            success=[sum(trace.reward or 0 for trace in rewarded), len(rewarded)],
        )

    def keep_vocabulary(self) -> None:
        """Make the library's own vocabulary of task types, where it has none, for a person to
        change.
        """
        if not self.state.sessions or self._library.store.head_or_none(TASK_TYPES) is not None:
            return
        text = (
            "---\nname: task-types\ndescription: The vocabulary of the task types by which "
            f"evidence is cut.\n---\n\n`{VOCABULARY_FILE}` names the file types and the verbs, "
            "and the part of a label that each stands for.\n"
        )
        files = {"ENVIRONMENT.md": text, VOCABULARY_FILE: BUILT_IN_TEXT}
        # A vocabulary that waits for a person, or is refused, is no reason not to learn.
        with contextlib.suppress(EvolvableError):
            update_resource(
                self._library,
                self.caller,
                TASK_TYPES,
                "the words of task types",
                files=files,
                create=True,
            )

    # Diagnosis

    def ask(self) -> None:
        """Ask the model about the retained traces, those of the largest clusters first."""
        on_trial = self.clusters_on_trial()
        for row in self.to_ask():
            if self.state.stopped or self.count_questions() >= MAX_QUESTIONS:
                return
            if row["cluster"] in on_trial:
                self.note_asked(row, ProposalSign.NOTHING, why="a version of it is on trial")
                continue
            if self._settings.reviewer_model is None:
                self.note("stopped", why="no model is named")
                return
            packet = self.packet(row["id"])
            if packet is None:
                self.note_asked(row, ProposalSign.NOTHING, why="its transcript is gone")
                continue
            try:
                answer, cost = self.think(row, packet)
            except (ProviderError, OverBudget) as error:
                self.note("stopped", why=type(error).__name__)
                return
            evidence = {piece.id: piece.text for piece in packet.evidence}
            diagnosis = diagnose(answer["diagnoses"], evidence)
            sign = proposal_sign(row["reward"], diagnosis)
            may_change = sign in (ProposalSign.SUCCESS, ProposalSign.REPAIR)
            candidates = answer["candidates"][:1] if may_change else []
            better = diagnosis.better
            self.note_asked(
                row,
                sign,
                cause=diagnosis.cause,
                unique=diagnosis.unique,
                tag=diagnosis.tag,
                answer=self.store_answer(candidates[0], cost) if candidates else "",
                better=better if better in list_agents(self._library) else "",
            )

    def count_questions(self) -> int:
        """Return how many traces the model was asked about in this round."""
        # A record with a reason is of a trace that the model was not asked about: it cost nothing.
        return sum(not question["why"] for question in self.state.question_records.values())

    def store_answer(self, candidate: Mapping[str, Any], cost: Mapping[str, Any]) -> str:
        """Store a candidate with its cost until the round ends. Return the key of the answer."""
        # Redacted before it is written, since the model may repeat a secret of the session.
        clean, *_ = self._settings.redactor.redact_value({"candidate": candidate, "cost": cost})
        return self._answers.store_json(clean)

    def clusters_on_trial(self) -> set[str]:
        """Return the skills that an earlier round or a person has on trial.

        Nothing else of them is changed while their trial runs.
        """
        running = self._library.store.backend.pool.on_trial()
        trials = [trial for trial in running if trial.since_round != self.state.number]
        heads = self._library.store.backend.heads_by_id(trial.resource for trial in trials)
        return {str(head.ref) for head in heads.values()}

    def to_ask(self) -> list[Mapping[str, Any]]:
        """Return the traces that no model was asked about: by priority of their cluster, then the
        newest.
        """
        weight = Counter(row["cluster"] for row in self.state.traces if row["ask"])
        for cluster in self.state.suspects:
            # After a change the sessions of this cluster went worse: others are asked about first.
            weight[cluster] //= 2
        waiting = [
            row
            for row in self.state.traces
            if row["ask"] and row["id"] not in self.state.question_records
        ]
        newest = sorted(waiting, key=lambda row: (row["at"], row["id"]), reverse=True)
        # Sorting is stable, so the traces of one cluster stay in the order of `newest`.
        return sorted(newest, key=lambda row: (-weight[row["cluster"]], row["cluster"]))

    def note_asked(self, row: Mapping[str, Any], sign: ProposalSign, **more: Any) -> None:
        """Record the diagnosis of one trace."""
        about = {name: row[name] for name in ("cluster", "agent", "task_type")}
        fields = {
            "cause": None,
            "unique": False,
            "tag": None,
            "answer": "",
            "why": "",
            "better": "",
        } | more
        self.note("asked", trace=row["id"], sign=sign.value, **about, **fields)

    def packet(self, identity: str) -> ReviewRequest | None:
        """Return what a model may be shown of a session or trial, None where it cannot be read."""
        if identity not in self._packets:
            self._packets[identity] = self.make_packet(identity)
        return self._packets[identity]

    def make_packet(self, identity: str) -> ReviewRequest | None:
        """Read a session or trial and return what a model may be shown of it."""
        session = self._source.session(identity)
        if session is None:
            return None
        answers = self._source.shows_answers(identity)
        return packet_of(self._library, self.caller, session, answers=answers)

    def think(
        self, row: Mapping[str, Any], packet: ReviewRequest
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the model's answer, within the day's budget of reviews, and what it cost."""
        model, settings = self._settings.reviewer_model, self._settings
        if model is None:
            raise Refused(
                "No model is set that reviews.",
                "Set one for the role reviewer; docs/models.md says how.",
            )
        bodies = review.skill_bodies(self._library, packet, settings.redactor)
        data = review.data_for_model(packet, bodies)
        context = {"reason": row["reason"], "cluster": row["cluster"], "reward": row["reward"]}
        cards = [asdict(card) for card in self.cards(packet)]
        if agents := list_agents(self._library):
            context["agents"] = agents
        plain = settings.redactor.redact_value({**context, "policy_cards": cards, **data})[0]
        usage = QuestionUsage()
        text = review.to_plain(plain)
        request = Request(
            INSTRUCTIONS, text, ANSWER_SCHEMA, MAX_TOKENS, role="proposer", **usage.hooks()
        )
        reviews, day = self._library.store.backend.reviews, self._library.store.now()[:10]
        name = f"round-{self.state.number}"
        reserved = reserve(reviews, settings.budget, day, name, model, request)
        try:
            answer = model.think(request)
        # The answer cost money and does not fit the schema: the trace counts as asked, and is not
        # paid for again.
        except WrongAnswer:
            answer = {"diagnoses": [], "candidates": []}
        finally:
            # Without figures from the provider the reservation stands as what was spent.
            if usage.is_reported:
                settle(reviews, settings.budget, reserved, usage)
        if not usage.is_reported:
            return answer, {"thinker": model.name, "reserved": reserved.most.tokens}
        tokens = usage.spending(settings.budget).tokens
        model_name = usage.attempts[-1].model if usage.attempts else model.name
        return answer, {"thinker": model_name, "tokens": tokens, **usage.to_json()}

    def cards(self, packet: ReviewRequest) -> list[PolicyCard]:
        """Return the policy cards that are nearest to what was typed in a session."""
        typed = next((piece.text for piece in packet.evidence if piece.origin == review.TYPED), "")
        if not typed:
            return []
        won = {
            trial.resource: "won its trial"
            for trial in self._library.store.backend.pool.all()
            if trial.state is PoolState.PROMOTED
        }
        heads = card_index(self._library, won, SEEDS)
        # As a reviewer, so that the search puts the round into no arm of a trial.
        caller = Caller(Actor.REVIEW, None, self._scopes)
        order: dict[str, float] = {}
        if heads:
            answer = find_skill(self._library, caller, typed[:1_000], limit=20)
            order = {match.ref: match.confidence for match in answer.matches}
        seeds = {head.id: "comes with Evolvable" for head in heads if head.name in SEEDS}
        cards = nearest_cards(self._library, heads, order, {**seeds, **won})
        absent = [
            name
            for name in SEEDS
            if not self._library.store.head_or_none(Ref(Kind.SKILL, name, USER_SCOPE))
        ]
        return [*cards, *program_cards(absent, typed[:1_000])][:SHOWN]

    # Changes

    def evolve(self) -> None:
        """Change at most one thing of each cluster."""
        by_cluster: dict[str, list[Mapping[str, Any]]] = {}
        for record in self.state.question_records.values():
            by_cluster.setdefault(record["cluster"], []).append(record)
        for cluster in sorted(by_cluster):
            # Each cluster is a record of its own, so an interrupted round goes on with the next
            # one.
            if cluster not in self.state.evolved:
                self.note("evolved", **asdict(self.change_cluster(cluster, by_cluster[cluster])))

    def change_cluster(self, cluster: str, records: Sequence[Mapping[str, Any]]) -> RoundChange:
        """Change one cluster by the first candidate of its traces that keeps every rule.

        Return what was done.
        """
        number, why = self.state.number, "no change was proposed"
        # A process that died between the change and its record has made it already.
        if (change := change_made(self._library, number, cluster)) is not None:
            return change
        changed_refs = {evolved["ref"] for evolved in self.state.evolved.values() if evolved["ref"]}
        for record in records:
            candidate, cost = self.answer(record)
            packet = self.packet(record["trace"]) if candidate else None
            if candidate is None or packet is None:
                continue
            diagnosis = TraceDiagnosis.from_record(record)
            target = str(candidate.get("target", ""))
            trial = trial_made(self._library, number, target) if target else None
            if trial is not None and target not in changed_refs:
                return RoundChange(
                    cluster, "refine", tried_why(self._library, trial), target, trial=trial.id
                )
            admitted, refused = admit_for(
                self._library,
                self.caller,
                self._settings,
                packet,
                candidate,
                ProposalSign(record["sign"]),
                diagnosis,
                cluster,
                cost,
            )
            if admitted is None:
                why = refused
                continue
            before, after = texts_of(admitted.change.before), texts_of(admitted.draft.files)
            if str(admitted.draft.ref) in changed_refs:
                why = "another change of it is in this round"
            elif leaked := self._source.leak(before, after):
                why = f"it repeats a task of the run ({leaked})"
            else:
                return evolve_cluster(
                    self._library, self.caller, number, cluster, admitted, "", self.cards(packet)
                )
        return RoundChange(cluster, "no-op", why)

    def answer(self, record: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return the candidate that a model named for a trace, and what it cost."""
        if not record["answer"]:
            return None, {}
        stored = self._answers.read_json(record["answer"])
        return stored["candidate"], stored["cost"]

    def pruning(self) -> tuple[Library, Caller, list[str], dict[str, int]]:
        """Return the arguments of `propose_prunes`."""
        changed = [evolved["ref"] for evolved in self.state.evolved.values() if evolved["ref"]]
        return self._library, self.caller, changed, dict(self.state.prunes)

    def look(self) -> None:
        """Look at the trials that are due, and record the state of each that had not ended
        before.
        """
        for _ in look_at_trials(self._library, self.caller):
            pass
        ended = {trial_id for trial_id, (state, _) in self.state.trials.items() if state != "trial"}
        rows = [
            {
                "trial": trial.id,
                "state": trial.state.value,
                "looks": len(trial.looks),
                "operation": trial.operation,
            }
            for trial in reversed(self._library.store.backend.pool.all())
            if str(trial.id) not in ended
        ]
        self.note("looked", trials=rows)

    # Report

    def report(self) -> RoundReport:
        """Return the report of the round so far."""
        state, learned, looked = self.state, self.last_record("learned"), self.last_record("looked")
        successes, episodes = learned["success"]
        roster = state.restructured
        names = ("cluster", "action", "why", "ref", "proposal_id", "trial")
        columns = ("trace", "cluster", "cause", "unique", "tag", "sign", "why")
        return RoundReport(
            state.number,
            state.source,
            episodes,
            successes,
            retained=dict(Counter(row["reason"] for row in state.traces)),
            utilities=learned["utilities"],
            diagnosed=[
                {name: record[name] for name in columns}
                for record in state.question_records.values()
            ],
            changes=[
                RoundChange(**{name: record[name] for name in names})
                for record in state.evolved.values()
            ],
            pruned=list((state.pruned or {}).get("proposed", ())),
            trials=list(looked["trials"]),
            agents=None if roster is None else _roster_from_record(roster),
            unasked=len(self.to_ask()),
            why_unasked=state.stopped,
        )

    def last_record(self, type: str) -> LedgerRecord:
        """Return the newest record of a type."""
        return next(r for r in reversed(self._ledger.records) if r["type"] == type)

    def with_suspects(self, report: RoundReport) -> RoundReport:
        """Return a report with what the end of the round made suspect."""
        return RoundReport(**{**vars(report), "suspects": list(self.state.suspects)})


def _roster_from_record(record: LedgerRecord) -> RosterChange:
    return RosterChange(**{name: record[name] for name in RosterChange.__slots__})


def _trace_to_row(retained: RetainedTrace) -> dict[str, Any]:
    """Return a retained trace as it is recorded."""
    trace = retained.trace
    # A change can only follow from a failure, or from a success that others can reuse.
    ask = trace.reward == 0 or retained.reason is RetainReason.REUSABLE_SUCCESS
    return {
        "id": trace.id,
        "at": trace.at,
        "cluster": trace.cluster,
        "reason": retained.reason.value,
        "reward": trace.reward,
        "task_type": trace.task_type,
        "agent": trace.agent,
        "cause": trace.cause,
        "ask": ask,
    }
