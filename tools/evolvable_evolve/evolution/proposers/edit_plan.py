"""A proposer's answer: diagnoses from a closed list of failure causes, and at most a few intents
without text.
"""

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates import (
    ALL_KINDS,
    MAIN,
    MAX_EDITS,
    AgentCard,
    EditOperation,
    InvalidEdit,
    LeakCorpus,
    Program,
    ProgramEdit,
    parse_part_ref,
)
from evolvable_evolve.evolution.proposers.proposer_model import ModelQuestion
from evolvable_evolve.evolution.structure import Restructure
from evolvable_store.errors import EvolvableError, InvalidRef
from evolvable_store.resource import Kind
from evolvable_tools import TextEdit


class FailureCause(StrEnum):
    """Causes of a failure. The last is ours: no part of the program concerns the task."""

    MISSING_PRECONDITION = "missing precondition"
    WRONG_ORDER = "wrong action order"
    MISLEADING_RETRIEVAL = "misleading retrieval"
    SKILL_CONFLICT = "skill conflict"
    BAD_ASSIGNMENT = "bad executor assignment"
    MISSING_CAPABILITY = "missing capability"


class RepairTag(StrEnum):
    """The kind of repair that a cause asks for."""

    ADD_GUARD = "add-guard"
    REORDER_STEP = "reorder-step"
    TIGHTEN_RETRIEVAL = "tighten-retrieval"
    SPLIT_SKILL = "split-skill"
    HANDOFF = "handoff-to-structure"
    ADD_SKILL = "add-skill"


REPAIRS: Mapping[FailureCause, tuple[RepairTag, ...]] = {
    FailureCause.MISSING_PRECONDITION: (RepairTag.ADD_GUARD,),
    FailureCause.WRONG_ORDER: (RepairTag.REORDER_STEP,),
    FailureCause.MISLEADING_RETRIEVAL: (RepairTag.TIGHTEN_RETRIEVAL,),
    FailureCause.SKILL_CONFLICT: (RepairTag.SPLIT_SKILL, RepairTag.TIGHTEN_RETRIEVAL),
    FailureCause.BAD_ASSIGNMENT: (RepairTag.HANDOFF,),
    FailureCause.MISSING_CAPABILITY: (RepairTag.ADD_SKILL,),
}
"""The repairs that fit a cause, the natural one first."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of one failed trial.

    unique: whether words of the evidence support this cause, and the answer names no other. tag:
    the repair. quotes: those that are in the evidence. better: the agent that should have done the
    task, where the cause is its assignment.
    """

    task: str
    cause: FailureCause
    unique: bool
    tag: RepairTag
    quotes: tuple[str, ...]
    better: str = ""

    @property
    def local(self) -> bool:
        """Whether a bounded edit of a resource can be the repair."""
        return self.unique and self.tag is not RepairTag.HANDOFF


def parse_diagnoses(answer: Mapping[str, Any], question: ModelQuestion) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of an answer, at most one for each trial.

    question: the question that was answered. A diagnosis is unique only with a quote from the
    evidence, and without a second cause for the same trial. A repair that does not fit its cause is
    replaced by the natural one. Diagnoses of tasks that were not shown are ignored.
    """
    texts, diagnoses = _collect_texts(question), dict[str, Diagnosis]()
    for item in answer["diagnoses"]:
        task, cause = str(item["task"]), FailureCause(item["cause"])
        if task in diagnoses:
            if diagnoses[task].cause is not cause:
                diagnoses[task] = replace(diagnoses[task], unique=False)
        elif task in texts:
            diagnoses[task] = _parse_diagnosis(item, task, cause, texts[task])
    return tuple(diagnoses.values())


def _parse_diagnosis(
    item: Mapping[str, Any], task: str, cause: FailureCause, evidence: str
) -> Diagnosis:
    # On one line, because models break quotes differently.
    text = one_line(evidence)
    named = map(one_line, item.get("quotes", ()))
    quotes = tuple(quote for quote in named if quote and quote in text)
    repairs = REPAIRS[cause]
    tag = next((repair for repair in repairs if repair == item.get("repair")), repairs[0])
    is_assignment = cause is FailureCause.BAD_ASSIGNMENT
    better = str(item.get("better_agent", "")) if is_assignment else ""
    unique = bool(item["only_cause"]) and bool(quotes)
    return Diagnosis(task, cause, unique, tag, quotes, better)


def _collect_texts(question: ModelQuestion) -> dict[str, str]:
    """Return the evidence of each task in one text, of all its trials together."""
    texts: dict[str, str] = {}
    for example in question.data["evidence"]:
        words = (str(example.get(key, "")) for key in ("prompt", "answer", "trace", "feedback"))
        texts[example["task"]] = "\n".join([texts.get(example["task"], ""), *words])
    return texts


def one_line(text: object) -> str:
    """Return a text on one line, with single spaces."""
    return " ".join(str(text).split())


MAX_FIELD = 2_000
"""Characters of one field of an intent, which describes a text and is not the text itself."""


@dataclass(frozen=True, slots=True)
class EditIntent:
    """One edit that is wanted, before its text is written.

    tasks: those of the evidence that it answers. other: the second resource of a split or a merge.
    capability, inputs, outputs, problem: of a new resource. modification: of an existing one.
    """

    op: EditOperation
    ref: str
    tasks: tuple[str, ...]
    other: str = ""
    capability: str = ""
    inputs: str = ""
    outputs: str = ""
    problem: str = ""
    modification: str = ""

    def builder_fields(self) -> dict[str, str]:
        """Return the fields that a builder gets, without the evidence and the reasons."""
        return {key: str(value) for key, value in asdict(self).items() if value and key != "tasks"}


@dataclass(frozen=True, slots=True)
class EditPlan:
    """The plan of a proposer.

    Without intents nothing is worth trying, and `why` says so. why: the justification, for the
    history and for people; no builder sees it. dropped: intents that were refused, each with its
    reason. restructure: in place of intents, a change of agents that the evidence supports.
    """

    intents: tuple[EditIntent, ...]
    diagnoses: tuple[Diagnosis, ...]
    summary: str
    why: str
    dropped: tuple[str, ...] = ()
    restructure: Restructure | None = None


class InvalidPlan(EvolvableError):
    """None of the intents of a proposer can be built."""


PLAN_SCHEMA: dict[str, Any] = json.loads(
    Path(__file__).with_name("proposer.schema.json").read_text("utf-8")
)
"""JSON schema of a proposer's answer."""


def structure_schema() -> dict[str, Any]:
    """Return the plan's schema for tasks that agents do: a diagnosis may name the agent that should
    have done the task.
    """
    schema: dict[str, Any] = json.loads(json.dumps(PLAN_SCHEMA))
    schema["properties"]["diagnoses"]["items"]["properties"]["better_agent"] = {"type": "string"}
    return schema


def parse_plan(
    answer: Mapping[str, Any],
    program: Program,
    question: ModelQuestion,
    *,
    kinds: frozenset[Kind] = ALL_KINDS,
    max_edits: int = MAX_EDITS,
    corpus: LeakCorpus | None = None,
) -> EditPlan:
    """Return the plan in a proposer's answer, without the intents that may not be built.

    An intent answers at least one task that was shown, and not only failures whose cause is unclear
    or asks for another structure. Of each resource the first intent is taken, and at most
    `max_edits` in all. An intent that repeats words of a task, which the program does not have, is
    left out, so that no builder gets them.

    question: the question that was answered. corpus: of the open tasks. A plan has no intents where
    the answer had none. Raises InvalidPlan where it had some and none may be built.
    """
    diagnoses = parse_diagnoses(answer, question)
    task_ids = {example["task"] for example in question.data["evidence"]}
    unclear = {diagnosis.task for diagnosis in diagnoses if not diagnosis.local}
    accepted, dropped = dict[str, EditIntent](), list[str]()
    for item in answer["intents"]:
        try:
            intent = _parse_intent(item, program, task_ids, unclear, kinds)
        except (InvalidEdit, InvalidRef) as error:
            dropped.append(f"{item['op']} {ascii(str(item['ref'])[:80])}: {error.text}")
            continue
        if intent.ref in accepted:
            dropped.append(f"{intent.op} {intent.ref}: a second edit of the same resource.")
        elif len(accepted) == max_edits:
            dropped.append(f"{intent.op} {intent.ref}: more than {max_edits} edits.")
        else:
            accepted[intent.ref] = intent
    if corpus is not None:
        before = "\n".join(text for part in program.parts for text in part.texts.values())
        for ref, intent in list(accepted.items()):
            if leaks := corpus.leaks("\n".join(intent.builder_fields().values()), before):
                dropped.append(f"{intent.op} {ref}: {leaks[0]}.")
                del accepted[ref]
    if answer["intents"] and not accepted:
        raise InvalidPlan(
            f"None of the intents can be built: {'; '.join(dropped)}",
            "The next iteration asks again.",
        )
    summary, why = one_line(answer["summary"])[:500], str(answer["justification"])[:4_000]
    return EditPlan(tuple(accepted.values()), diagnoses, summary, why, tuple(dropped))


def _parse_intent(
    item: Mapping[str, Any],
    program: Program,
    task_ids: Container[str],
    unclear: set[str],
    kinds: frozenset[Kind],
) -> EditIntent:
    """Return an intent. Raises InvalidEdit, InvalidRef for one that may not be built.

    task_ids: tasks that were shown. unclear: those without a local cause.
    """
    op, parts, other = EditOperation(item["op"]), program.by_ref, ""
    kind, name = parse_part_ref(str(item["ref"]))
    if kind not in kinds or kind is Kind.ENVIRONMENT:
        raise InvalidEdit(f"A {kind} may not be changed in this run.", "")
    # A create needs a free name, every other operation a part that is there.
    if (op is EditOperation.CREATE) is (name in parts):
        raise InvalidEdit(
            "It is there already." if name in parts else "There is none of this name.", ""
        )
    if name in parts and parts[name].is_frozen:
        raise InvalidEdit("It is frozen.", "")
    if op in (EditOperation.SPLIT, EditOperation.MERGE):
        second, other = parse_part_ref(str(item.get("other", "")))
        # A split makes the second resource, a merge needs it.
        fits = (op is EditOperation.MERGE) is (other in parts)
        if second not in kinds or not fits or other == name:
            raise InvalidEdit(f"{ascii(other)} cannot be the second resource.", "")
    tasks = tuple(task for task in dict.fromkeys(map(str, item["tasks"])) if task in task_ids)
    if not tasks:
        raise InvalidEdit("Its tasks are none of those that were shown.", "")
    if all(task in unclear for task in tasks):
        raise InvalidEdit(
            "The cause of what it answers is not clear, or no edit of a resource is the repair.", ""
        )
    fields = ("capability", "inputs", "outputs", "problem", "modification")
    texts = {field: one_line(item.get(field, ""))[:MAX_FIELD] for field in fields}
    if not any(texts.values()):
        raise InvalidEdit("It does not say what to write.", "")
    return EditIntent(op, name, tasks, other, **texts)


BUILDER_SCHEMA: dict[str, Any] = json.loads(
    Path(__file__).with_name("builder.schema.json").read_text("utf-8")
)
"""JSON schema of a builder's answer."""


def parse_edits(
    answer: Mapping[str, Any], plan: EditPlan, max_edits: int = MAX_EDITS
) -> tuple[ProgramEdit, ...]:
    """Return the edits that a builder wrote.

    Raises InvalidEdit when they are not those of the plan.
    """
    edits = tuple(_parse_edit(item) for item in answer["edits"])
    planned = {(intent.op, intent.ref, intent.other) for intent in plan.intents}
    # Other operations have no second resource, whatever the builder wrote there.
    for edit in edits:
        other = edit.other if edit.op in (EditOperation.SPLIT, EditOperation.MERGE) else ""
        if (edit.op, edit.ref, other) not in planned:
            text = f"Nobody asked for {edit.op} {ascii(edit.ref[:80])}."
            raise InvalidEdit(text, "One edit for each intent, with its op and its ref.")
    if not 1 <= len(edits) <= max_edits:
        raise InvalidEdit(
            f"The builder wrote {len(edits)} edits.", f"Between 1 and {max_edits} are allowed."
        )
    return edits


def _parse_edit(item: Mapping[str, Any]) -> ProgramEdit:
    changes = [
        TextEdit(change["path"], change["old"], change["new"]) for change in item.get("changes", ())
    ]
    return ProgramEdit(
        EditOperation(item["op"]),
        str(item["ref"]),
        tuple(changes),
        _parse_files(item.get("files", ())) or None,
        tuple(item.get("removed", ())),
        str(item.get("other", "")),
        _parse_files(item.get("other_files", ())) or None,
    )


def _parse_files(items: Sequence[Mapping[str, str]]) -> dict[str, str]:
    files: dict[str, str] = {}
    for item in items:
        if item["path"] in files:
            raise InvalidEdit(
                f"The file {ascii(item['path'][:80])} is given twice.", "Give it once."
            )
        files[item["path"]] = item["text"]
    return files


CARD_SCHEMA: dict[str, Any] = json.loads(
    Path(__file__).with_name("card.schema.json").read_text("utf-8")
)
"""JSON schema of a builder's answer to a change of agents."""

MAX_LINE, MAX_LINES = 300, 6
"""Characters of one line of a card, and lines of one list."""


def cards_wanted(edit: Restructure) -> tuple[str, ...]:
    """Return the agents whose cards a change of agents rewrites: those with a file that stay."""
    first, second = edit.agents
    stays = (first,) if edit.op is EditOperation.MERGE_AGENTS else (first, second)
    return tuple(ref for ref in stays if ref != MAIN)


def parse_cards(answer: Mapping[str, Any], program: Program, edit: Restructure) -> ProgramEdit:
    """Return the edit of a change of agents with the cards that a builder wrote.

    Raises InvalidEdit.
    """
    expected_refs, cards = cards_wanted(edit), dict[str, AgentCard]()
    for card in answer["cards"]:
        ref = card["ref"]
        if ref not in expected_refs or ref in cards:
            raise InvalidEdit(
                f"Nobody asked for a card of {ascii(ref[:80])}.",
                f"One for each of {', '.join(expected_refs)}.",
            )
        description = _clean_line(card["description"])
        responsibility = _clean_line(card["responsibility"])
        if not (description and responsibility):
            raise InvalidEdit(
                f"The card of {ref} does not say what it is for.",
                "Give description and responsibility.",
            )
        rejected: dict[str, str] = {}
        # A neighbour that is not in the program would send work to nobody.
        for neighbour in card.get("rejected_neighbours", ())[:MAX_LINES]:
            if neighbour["ref"] == MAIN or neighbour["ref"] in program.by_ref:
                rejected[neighbour["ref"]] = _clean_line(neighbour["why"])
        cards[ref] = AgentCard(
            description,
            responsibility,
            _clean_lines(card["choose_when"]),
            _clean_lines(card["not_when"]),
            rejected,
            _clean_line(card.get("coordination", "")),
        )
    if missing := [ref for ref in expected_refs if ref not in cards]:
        raise InvalidEdit(
            f"There is no card of {', '.join(missing)}.", "Write one for each agent that is named."
        )
    first, second = edit.agents
    # An edit names first the resource that it makes or that stays.
    ref, other = (first, second) if edit.op is EditOperation.MERGE_AGENTS else (second, first)
    return ProgramEdit(edit.op, ref, other=other, skills=edit.skills_moved, cards=cards)


def _clean_line(text: object) -> str:
    """Return a text of a card on one line that cannot begin a heading or another part of
    the file.
    """
    return one_line(text).lstrip("#-`~>|* ")[:MAX_LINE]


def _clean_lines(texts: Sequence[object]) -> tuple[str, ...]:
    return tuple(line for line in map(_clean_line, texts[:MAX_LINES]) if line)
