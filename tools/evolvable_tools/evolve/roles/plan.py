"""What a proposer answers: a diagnosis of the evidence, and at most a few intents. No text of a resource yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidRef
from evolvable_store.resource import Kind
from evolvable_tools.evolve.edits import BadEdit, Op, is_frozen_part, parsed_ref
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.roles.diagnosis import Cause, Diagnosis, Tag
from evolvable_tools.evolve.roles.schemas import closed, many, one_of, texts
from evolvable_tools.evolve.static_gate.leaks import Corpus

MAX_FIELD = 2_000
"""Characters of one field of an intent: it says what to write, and is not what is written."""


@dataclass(frozen=True, slots=True)
class Intent:
    """One edit that is wanted, before anybody has written it. other: the second resource of a split or a merge.

    tasks: of the evidence that it answers. capability, inputs, outputs, problem: of what is created; modification: of
    what is changed.
    """

    op: Op
    ref: str
    tasks: tuple[str, ...]
    other: str = ""
    capability: str = ""
    inputs: str = ""
    outputs: str = ""
    problem: str = ""
    modification: str = ""

    def spoken(self) -> dict[str, str]:
        """Returns what a builder is told of it: nothing of the evidence, and no reasons."""
        said = {
            "op": str(self.op),
            "ref": self.ref,
            "other": self.other,
            "capability": self.capability,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "problem": self.problem,
            "modification": self.modification,
        }
        return {key: value for key, value in said.items() if value}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a proposer wants. Without intents there is nothing worth trying, and `why` says so.

    why: the justification, for the history and for people; no builder sees it. dropped: intents that were not taken,
    each with its reason.
    """

    intents: tuple[Intent, ...]
    diagnoses: tuple[Diagnosis, ...]
    summary: str
    why: str
    related: tuple[int, ...] = ()
    dropped: tuple[str, ...] = ()


class BadPlan(EvolvableError):
    """None of what a proposer wants can be done."""


_DIAGNOSIS = closed(
    {
        **texts("task"),
        "cause": one_of(Cause),
        "only_cause": {"type": "boolean"},
        "repair": one_of(Tag),
        "quotes": many({"type": "string"}),
    }
)
_INTENT = closed(
    {
        "op": one_of(Op),
        **texts("ref", "other", "capability", "inputs", "outputs", "problem", "modification"),
        "tasks": many({"type": "string"}),
    },
    *("op", "ref", "tasks"),
)
SCHEMA: dict[str, Any] = closed(
    {
        "diagnoses": many(_DIAGNOSIS),
        "approaches": many(closed(texts("approach", "trade_off"))),
        "intents": many(_INTENT),
        **texts("summary", "justification"),
        "related_iterations": many({"type": "integer"}),
    },
    *("diagnoses", "approaches", "intents", "summary", "justification"),
)
"""JSON schema of a proposer's answer."""


def intents_of(
    given: Mapping[str, Any],
    program: Program,
    known: frozenset[str],
    found: tuple[Diagnosis, ...],
    kinds: frozenset[Kind],
    max_edits: int,
) -> tuple[tuple[Intent, ...], tuple[str, ...]]:
    """Returns the intents that may be built, and of each other one why not.

    known: tasks that were shown. An intent answers at least one of them, and not only failures whose cause is unclear
    or asks for another structure. Of one resource the first intent is taken; so are the first `max_edits`.
    """
    taken: dict[str, Intent] = {}
    dropped: list[str] = []
    unclear = {diagnosis.task for diagnosis in found if not diagnosis.local}
    for one in given["intents"]:
        try:
            intent = _intent(one, program, known, unclear, kinds)
        except (BadEdit, InvalidRef) as error:
            dropped.append(f"{one['op']} {ascii(str(one['ref'])[:80])}: {error.text}")
            continue
        if intent.ref in taken:
            dropped.append(f"{intent.op} {intent.ref}: a second edit of the same resource.")
        elif len(taken) == max_edits:
            dropped.append(f"{intent.op} {intent.ref}: more than {max_edits} edits.")
        else:
            taken[intent.ref] = intent
    return tuple(taken.values()), tuple(dropped)


def without_leaks(
    intents: tuple[Intent, ...], program: Program, corpus: Corpus
) -> tuple[tuple[Intent, ...], tuple[str, ...]]:
    """Returns the intents that repeat nothing of a task which the program does not say itself, and why not the others.

    What a builder is not told it cannot write down.
    """
    before = "\n".join(data.decode("utf-8", "replace") for part in program.parts for data in part.files.values())
    kept, dropped = [], []
    for intent in intents:
        leaks = corpus.leaks("\n".join(intent.spoken().values()), before)
        if leaks:
            dropped.append(f"{intent.op} {intent.ref}: {leaks[0]}.")
        else:
            kept.append(intent)
    return tuple(kept), tuple(dropped)


def _intent(
    one: Mapping[str, Any], program: Program, known: frozenset[str], unclear: set[str], kinds: frozenset[Kind]
) -> Intent:
    op, ref = Op(one["op"]), parsed_ref(str(one["ref"]))
    name, parts = f"{ref.kind}:{ref.name}", {part.ref: part for part in program.parts}
    if ref.kind not in kinds or ref.kind is Kind.ENVIRONMENT:
        raise BadEdit(f"A {ref.kind} may not be changed in this run.", "")
    if (op is Op.CREATE) is (name in parts):
        raise BadEdit("It is there already." if name in parts else "There is none of this name.", "")
    if name in parts and is_frozen_part(parts[name]):
        raise BadEdit("It is frozen.", "")
    other = ""
    if op in (Op.SPLIT, Op.MERGE):
        second = parsed_ref(str(one.get("other", "")))
        other = f"{second.kind}:{second.name}"
        if second.kind not in kinds or (op is Op.MERGE) is not (other in parts) or other == name:
            raise BadEdit(f"{ascii(other)} cannot be the second resource.", "")
    tasks = tuple(task for task in dict.fromkeys(map(str, one["tasks"])) if task in known)
    if not tasks:
        raise BadEdit("Its tasks are none of those that were shown.", "")
    if all(task in unclear for task in tasks):
        raise BadEdit("The cause of what it answers is not clear, or no edit of a resource is the repair.", "")
    fields = ("capability", "inputs", "outputs", "problem", "modification")
    said = {field: " ".join(str(one.get(field, "")).split())[:MAX_FIELD] for field in fields}
    if not any(said.values()):
        raise BadEdit("It does not say what to write.", "")
    return Intent(op, name, tasks, other, **said)
