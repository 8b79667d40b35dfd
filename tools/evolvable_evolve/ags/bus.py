"""The bus of a run: messages in an append-only ledger, and the state after them.

Only the driver writes messages, under ids that it makes: the text of a worker or a planner is a
value in a body. A message is delivered at least once. A second one with the same id changes
nothing.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from evolvable_evolve.ags.improvement import (
    CommittedPart,
    Improvement,
    ImprovementStep,
    committed_parts,
    take_improvement,
)
from evolvable_evolve.ags.judge_check import JudgeAnswers, judging_text
from evolvable_evolve.ags.plan import ItemState, Plan, PlanChange, PlanItem, with_blocked
from evolvable_evolve.evolution import Bill, Ledger, LedgerRecord, ModelUsage, to_bill
from evolvable_tools.llm import ModelAttempt, printable_line

# Bounds the cost of a planner that never gives a result.
MAX_ROUNDS = 10
"""Answers of the planner in one run."""

# One round may fail by chance; a second one without progress shows that the planner has no other
# way.
MAX_IDLE_ROUNDS = 2
"""Rounds in a row without progress that end a run."""

# A network error passes; after three the machine or the provider has another problem.
MAX_ATTEMPTS = 3
"""Dispatches of one item; with an infrastructure error in the last, the item counts as failed."""

PLANNER, RUN, PERSON = "planner", "run", "person"
"""The names of senders and receivers beside the items, whose names are `item:ID`."""


class MessageKind(StrEnum):
    """The kind of a message."""

    DISPATCH = "dispatch"
    RESULT = "result"
    ERROR = "error"
    NOTE = "note"
    REPLAN = "replan"
    DONE = "done"


class EndReason(StrEnum):
    """Why a run ended."""

    DONE = "done"
    BUDGET = "budget"
    NO_PROGRESS = "no progress"
    ROUNDS = "rounds"


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """The result of one dispatch.

    agent: with its version. round: in which it ended. passed: the result of its check.
    """

    item: str
    agent: str
    ok: bool
    summary: str
    files: tuple[Mapping[str, Any], ...]
    round: int
    passed: bool | None = None

    @property
    def line(self) -> str:
        """The outcome in one line of the plan's history."""
        return (
            f"{self.item} {'done' if self.ok else 'failed'} by {self.agent}: "
            f"{printable_line(self.summary)}"
        )


@dataclass
class AgsState:
    """The state of a run.

    round: answers of the planner so far. questions_asked: questions to the planner so far.
    outcomes: by item. dispatches: the number of dispatches, by item. answers: of the person, by
    round. request: the artefact of the planner's open question. refused: why the planner's last
    answer was refused, '' when it was taken. idle: rounds in a row without progress, before this
    one. improvements: changes of the run's own program that were tried. judging: the answers of the
    judge. ended: '' while the run goes on.
    """

    run: str = ""
    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    round: int = 0
    questions_asked: int = 0
    items: dict[str, PlanItem] = field(default_factory=dict)
    outcomes: dict[str, ItemOutcome] = field(default_factory=dict)
    dispatches: dict[str, int] = field(default_factory=dict)
    answers: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    notes: list[Mapping[str, Any]] = field(default_factory=list)
    improvements: list[Improvement] = field(default_factory=list)
    judging: JudgeAnswers = field(default_factory=JudgeAnswers)
    past: list[str] = field(default_factory=list)
    request: str = ""
    question: str = ""
    refused: str = ""
    result: str = ""
    idle: int = 0
    ended: str = ""
    stopped: str = ""
    bill: Bill = Bill()
    messages: int = 0

    @property
    def task(self) -> str:
        """The task of the run."""
        return str(self.settings["task"])

    @property
    def checks(self) -> Mapping[str, Any]:
        """The checks that items may have, by name."""
        return dict(self.settings.get("checks", {}))

    @property
    def has_judge(self) -> bool:
        """Whether items may be checked by a judge."""
        return bool(self.settings.get("judge"))

    @property
    def plan_items(self) -> list[PlanItem]:
        """The items as the plan shows them."""
        return with_blocked(self.items.values())

    @property
    def ready(self) -> list[PlanItem]:
        """The items that may begin now, in the order of the plan."""
        done = {item.id for item in self.items.values() if item.state is ItemState.DONE}
        return [
            item
            for item in self.items.values()
            if item.state is ItemState.OPEN and done.issuperset(item.needs)
        ]

    @property
    def in_round(self) -> list[ItemOutcome]:
        """The outcomes of this round, in the order of the plan and not of time."""
        outcomes = [self.outcomes[name] for name in self.items if name in self.outcomes]
        return [outcome for outcome in outcomes if outcome.round == self.round]

    def results_for(self, item: PlanItem) -> dict[str, tuple[str, tuple[Mapping[str, Any], ...]]]:
        """Return the summaries and files of the items that this one needs, by their ids."""
        return {
            name: (self.outcomes[name].summary, self.outcomes[name].files) for name in item.needs
        }

    @property
    def improved_in_round(self) -> list[Improvement]:
        """The changes of the program that this round brought."""
        return [
            improvement
            for improvement in self.improvements
            if improvement.round == self.round and improvement.accepted
        ]

    @property
    def committed(self) -> dict[str, CommittedPart]:
        """The parts of the program that are changed in this run, by ref."""
        return committed_parts(self.improvements)

    @property
    def has_progressed(self) -> bool:
        """Whether in this round an item was done, the person answered, or the program improved."""
        if self.round in self.answers or self.improved_in_round:
            return True
        return any(outcome.ok for outcome in self.in_round)

    @property
    def round_lines(self) -> list[str]:
        """The lines of this round in the history of the plan."""
        return [
            *(outcome.line for outcome in self.in_round),
            *(improvement.line for improvement in self.improved_in_round),
        ]

    @property
    def waits_for_person(self) -> bool:
        """Whether the planner asked the person and nobody answered yet."""
        return bool(self.question) and self.round not in self.answers

    @property
    def must_end(self) -> EndReason | None:
        """Why the planner is not asked again, None while it may be; valid between two rounds."""
        if self.result:
            return EndReason.DONE
        # `idle` counts the rounds before; this one is counted by the next plan.
        if self.round and not self.has_progressed and self.idle + 1 >= MAX_IDLE_ROUNDS:
            return EndReason.NO_PROGRESS
        return EndReason.ROUNDS if self.round >= MAX_ROUNDS else None

    @property
    def plan(self) -> Plan:
        """The present plan. Equal states give equal plans, whatever the order of the results."""
        history = [*self.past, *self.round_lines]
        if self.ended:
            history.append(f"ended: {self.ended}")
        return Plan(self.run, self.task, tuple(self.plan_items), tuple(history), self.result)

    def apply(self, record: LedgerRecord) -> None:
        """Change the state by one record. One of an unknown type changes nothing."""
        match record["type"]:
            case "run":
                self.run, self.label = record["run"], record["label"]
                self.settings = record["settings"]
            case "message":
                self.messages += 1
                self._take_message(record, record["body"])
            case "stopped":
                self.stopped = record["why"]
                self._reopen_items()
            case "continued":
                self.stopped = ""
                self._reopen_items()
                if "limit" in record:
                    self.settings = {**self.settings, "limit": record["limit"]}
                    # A new limit continues a run whose budget was spent; any other end is final.
                    if self.ended == EndReason.BUDGET:
                        self.ended = ""

    def _reopen_items(self) -> None:
        """Reopen the items whose worker has ended with its process."""
        for item in self.items.values():
            # An item that waits for its judge has its result already, and is not run again.
            if item.state is ItemState.RUNNING and item.id not in self.judging.waiting:
                self.items[item.id] = replace(item, state=ItemState.OPEN)

    def _take_message(self, message: LedgerRecord, body: Mapping[str, Any]) -> None:
        if "usage" in body:
            self.bill += to_bill(ModelUsage(**body["usage"]))
        # Messages of the improver and of the judge come first: they name items too, and change no
        # item.
        if "improve" in body:
            take_improvement(self.improvements, body, self.round)
            return
        if "judge" in body:
            self.judging.take(body)
            return
        match kind := MessageKind(message["kind"]):
            case MessageKind.DISPATCH if message["to"] == PLANNER:
                self.questions_asked, self.request = self.questions_asked + 1, message["refs"][0]
            case MessageKind.DISPATCH:
                name = body["item"]
                self.dispatches[name] = self.dispatches.get(name, 0) + 1
                self.items[name] = replace(self.items[name], state=ItemState.RUNNING)
            case MessageKind.RESULT | MessageKind.ERROR:
                self._end_item(kind is MessageKind.RESULT, body)
            case MessageKind.REPLAN:
                self._replan(body)
            case MessageKind.NOTE if "answer" in body:
                self.answers[self.round] = body
                self.past.append(f"the {body['by']} answered: {printable_line(body['answer'])}")
            case MessageKind.NOTE:
                self.notes.append(body)
            case MessageKind.DONE:
                self.ended = body["reason"]

    def _end_item(self, ok: bool, body: Mapping[str, Any]) -> None:
        item = self.items[body["item"]]
        self.judging.waiting.pop(item.id, None)
        # A worker that was given up answered late.
        if item.has_ended:
            return
        if body.get("retry"):
            self.items[item.id] = replace(item, state=ItemState.OPEN)
            return
        self.items[item.id] = replace(item, state=ItemState.DONE if ok else ItemState.FAILED)
        files, passed = tuple(body["files"]), body.get("passed")
        self.outcomes[item.id] = ItemOutcome(
            item.id, body["agent"], ok, body["summary"], files, self.round, passed
        )

    def _replan(self, body: Mapping[str, Any]) -> None:
        # Before the round is counted up: the lines are those of the round that ends here.
        self.past += self.round_lines
        self.idle = 0 if self.has_progressed or not self.round else self.idle + 1
        change = PlanChange.parse(body["change"])
        self.round, self.request, self.refused = self.round + 1, "", body["refused"]
        if self.refused:
            self.past.append(f"round {self.round}: the plan was refused: {self.refused}")
            self.question = ""
            return
        self.items |= {item.id: item for item in change.items}
        for name in change.drop:
            self.items[name] = replace(self.items[name], state=ItemState.DROPPED)
        self.question, self.result = change.question, change.result
        remarks = [change.note] if change.note else []
        if change.items:
            remarks.append(f"planned {', '.join(item.id for item in change.items)}")
        if change.drop:
            remarks.append(f"dropped {', '.join(change.drop)}")
        if change.question:
            remarks.append(f"asked the person: {change.question}")
        line = f"round {self.round}: {'; '.join(remarks) or 'nothing new'}"
        self.past.append(printable_line(line))


class Bus:
    """The messages of one run in its ledger, and the state after them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # The state after the first `_applied` records, and the ids of their messages.
        self._state, self._ids, self._applied = AgsState(), set[str](), 0

    @property
    def state(self) -> AgsState:
        """The state after all records so far."""
        for record in once(self._ledger.records[self._applied :], self._ids):
            self._state.apply(record)
        # Only the new records are applied, so that a long run does not fold its whole ledger at
        # each question.
        self._applied = len(self._ledger.records)
        return self._state

    def post(
        self, kind: MessageKind, id: str, sender: str, to: str, body: Mapping[str, Any], *refs: str
    ) -> bool:
        """Append a message; return False where one with this id is on the bus already."""
        # An id names the step of a message, so a step that is repeated after a kill posts nothing
        # twice.
        if self.has(id):
            return False
        message = {
            "id": id,
            "from": sender,
            "to": to,
            "kind": kind.value,
            "refs": list(refs),
            "body": dict(body),
        }
        self._ledger.append("message", message)
        return True

    def has(self, id: str) -> bool:
        """Return whether a message with this id is on the bus."""
        _ = self.state
        return id in self._ids

    def note(self, type: str, **fields: Any) -> None:
        """Append a record that is no message: of the start, a stop or a continuation of the run."""
        self._ledger.append(type, fields)


def once(records: Iterable[LedgerRecord], seen: set[str]) -> Iterator[LedgerRecord]:
    """Yield the records, each message once. seen: ids of earlier messages; new ids are added."""
    for record in records:
        if record["type"] == "message":
            if record["id"] in seen:
                continue
            seen.add(record["id"])
        yield record


def fold_bus(records: Iterable[LedgerRecord]) -> AgsState:
    """Return the state after these records, in their order."""
    state = AgsState()
    for record in once(records, set()):
        state.apply(record)
    return state


def spending_fields(
    spent: ModelUsage, attempts: Iterable[ModelAttempt], wall: float, elapsed: float
) -> dict[str, Any]:
    """Return a message's fields of spending: the sum, which is billed, and each API request."""
    fields: dict[str, Any] = {"usage": asdict(spent)}
    if requests := list(map(asdict, attempts)):
        fields["attempts"] = requests
    return {**fields, "wall": round(wall, 3), "elapsed": round(elapsed, 3)}


def spending_records(records: Iterable[LedgerRecord]) -> Iterator[LedgerRecord]:
    """Yield the reservations and the spending of messages, as records for `RunBudget.replay`."""
    for record in once(records, set()):
        body = record.get("body", {})
        if record["type"] != "message" or "dispatch" not in body:
            continue
        about = {"key": body["dispatch"], "attempt": 0}
        if record["kind"] == MessageKind.DISPATCH:
            yield {"type": "started", **about, "reserved": body["reserved"]}
        elif "usage" in body:
            trial = {"key": body["dispatch"], "cached": False}
            trial |= {"usage": body["usage"], "wall": body["wall"]}
            lost, elapsed = body.get("lost", False), body["elapsed"]
            yield {"type": "trial", "attempt": 0, "lost": lost, "elapsed": elapsed, "trial": trial}


def message_text(record: LedgerRecord) -> str:
    """Return a message in one line for a person."""
    body = record["body"]
    if "improve" in body:
        return _format_improvement(record["kind"], body)
    if "judge" in body:
        return judging_text(body)
    match record["kind"]:
        case MessageKind.DISPATCH if record["to"] == PLANNER:
            return "the planner is asked"
        case MessageKind.DISPATCH:
            return f"{body['item']} is dispatched to {body['agent']}"
        case MessageKind.RESULT:
            return f"{body['item']} done: {printable_line(body['summary'])}"
        case MessageKind.ERROR:
            end = "tried again" if body.get("retry") else "failed"
            return f"{body['item']} {end}: {printable_line(body['summary'])}"
        case MessageKind.REPLAN if body["refused"]:
            return f"the plan was refused: {body['refused']}"
        case MessageKind.REPLAN:
            return _format_change(body["change"])
        case MessageKind.DONE:
            return f"ended: {body['reason']}"
        case _:
            return printable_line(str(body.get("answer") or body.get("text") or json.dumps(body)))


def _format_improvement(kind: str, body: Mapping[str, Any]) -> str:
    number = body["improve"]
    if kind == MessageKind.DISPATCH:
        tried = body.get("tried")
        work = f"{tried} is run again" if tried else "the improver is asked"
        return f"improvement {number}: {work}"
    match body["step"]:
        case ImprovementStep.BEGUN:
            return f"improvement {number} of {body['agent']} begins over {', '.join(body['items'])}"
        case ImprovementStep.ANSWER:
            answer = "no answer came" if "text" in body else "the improver answered"
            return f"improvement {number}: {answer}"
        case ImprovementStep.TRIAL:
            end = {True: "passes", False: "does not pass", None: "cannot be told"}[body["passed"]]
            return f"improvement {number}: {body['tried']} {end} {body['arm']} the change"
    verdict = "is kept in this run" if body["accepted"] else "is not kept"
    return printable_line(f"improvement {number} {verdict}: {body['why']}")


def _format_change(change: Mapping[str, Any]) -> str:
    if change["result"]:
        return f"the planner has the result: {printable_line(change['result'])}"
    if change["question"]:
        return f"the planner asks the person: {printable_line(change['question'])}"
    return f"planned: {', '.join(item['id'] for item in change['items']) or 'nothing new'}"
