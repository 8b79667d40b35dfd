"""The questions to proposer, builder and critic, with the evidence redacted, shortened and without
answers.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates import (
    ALL_KINDS,
    MAIN,
    MAX_EDITS,
    Program,
    ProgramPart,
    iter_leaves,
    skill_owners,
)
from evolvable_evolve.evolution.proposers.edit_plan import (
    BUILDER_SCHEMA,
    CARD_SCHEMA,
    PLAN_SCHEMA,
    EditPlan,
    cards_wanted,
    structure_schema,
)
from evolvable_evolve.evolution.proposers.proposer_model import ModelQuestion, ModelRole
from evolvable_evolve.evolution.structure import Restructure
from evolvable_evolve.evolution.task import Split, Task, Trial
from evolvable_evolve.variables import ResourceVariable
from evolvable_store.resource import Kind
from evolvable_tools.redaction import Redactor

ANSWER_MASK = "[expected answer]"
"""The mask that replaces an expected answer."""

_MIN_PIECE = 3
"""Characters from which a piece of a structured answer is masked by itself."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One trial on a training task, as a reason for a change.

    passed: by the run's own pass score. why: why it is shown. sample: where several rollouts of a
    task are compared, its number and its signals.
    """

    task: Task
    trial: Trial
    passed: bool
    why: str = ""
    sample: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class EvidenceCut:
    """The limits of the evidence in a question.

    head, tail: characters of a trace at its beginning and its end. history: earlier iterations.
    failures: trials that failed, and as many that passed.
    """

    head: int
    tail: int
    history: int
    failures: int


CUTS = (
    EvidenceCut(60_000, 60_000, 1_000, 1_000),
    EvidenceCut(20_000, 10_000, 20, 3),
    EvidenceCut(5_000, 2_000, 5, 2),
    EvidenceCut(2_000, 500, 3, 1),
)
"""From all evidence to the least. The first cut whose question is short enough is taken."""

# About 60,000 tokens, which leaves a model with a context of 200,000 tokens room to think and to
# answer.
MAX_QUESTION = 240_000
"""Characters of the data of one question."""


def evidence_data(evidence: Evidence, cut: EvidenceCut) -> dict[str, Any]:
    """Return the data of one trial for a model.

    Raises ValueError for a task that is not for training.
    """
    task, trial = evidence.task, evidence.trial
    if task.split is not Split.TRAIN:
        raise ValueError(f"task {task.id} belongs to {task.split}, nobody may learn from it")
    hide = make_masker(task.expected, task.prompt)
    fields = {
        "task": task.id,
        "category": task.category,
        "prompt": shorten(task.prompt, cut.head, cut.tail),
        "result": "passed" if evidence.passed else "failed",
        "why_shown": evidence.why,
        "outcome": str(trial.outcome),
        "score": trial.score,
        "answer": shorten(hide(trial.output), cut.head, cut.tail),
        "trace": shorten(hide(trial.trace), cut.head, cut.tail),
        "feedback": hide(trial.feedback),
        "resources_read": list(trial.read),
        "sample": dict(evidence.sample) if evidence.sample else None,
    }
    return {key: value for key, value in fields.items() if value not in ("", [], None)}


def choose_evidence(evidence: Sequence[Evidence], cut: EvidenceCut) -> list[Evidence]:
    """Return the trials for a question: as many failures as the cut allows, and then as many
    successes.
    """
    failed = [example for example in evidence if not example.passed]
    passed = [example for example in evidence if example.passed]
    # The shortest traces, because they are cut least.
    by_length = sorted(failed, key=lambda example: len(example.trial.trace))
    chosen = by_length[: cut.failures]
    return [example for example in evidence if example in chosen] + passed[: cut.failures]


def resource_data(parts: Sequence[ProgramPart], most: int = 40_000) -> list[dict[str, Any]]:
    """Return the texts of a program.

    A file that is no text, or longer than `most` characters, is only named.
    """
    resources: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        paths = sorted(part.files)
        resources[part.ref] = [_describe_file(path, part.files[path], most) for path in paths]
    return [{"ref": ref, "files": files} for ref, files in resources.items()]


def make_masker(expected: str | None, prompt: str = "") -> Callable[[str], str]:
    """Return a function that masks an expected answer in a text, whole or by its pieces.

    Pieces that the prompt has too are not masked. Case and the width of spaces do not matter.
    """
    # Longest first: a masked piece would hide the whole answer from its own pattern.
    unique = dict.fromkeys(filter(None, _split_answer(expected or "")))
    pieces = sorted(unique, key=len, reverse=True)
    patterns = [pattern for pattern in map(_compile_piece, pieces) if not pattern.search(prompt)]

    def mask(text: str) -> str:
        for pattern in patterns:
            text = pattern.sub(ANSWER_MASK, text)
        return text

    return mask


def shorten(text: str, head: int, tail: int) -> str:
    """Return a text with its middle left out, where it is longer than head and tail together."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return text
    return f"{text[:head]}\n[{left_out:,} characters left out]\n{text[-tail:]}"


def _split_answer(expected: str) -> Iterator[str]:
    """Yield an expected answer, and where it is JSON its values."""
    yield expected.strip()
    try:
        value = json.loads(expected)
    except (ValueError, RecursionError):
        return
    for leaf in iter_leaves(value):
        if isinstance(leaf, bool) or not isinstance(leaf, str | int | float):
            continue
        text = leaf.strip() if isinstance(leaf, str) else json.dumps(leaf)
        # With every 7 masked a trace would be unreadable.
        if isinstance(value, Mapping | list) and len(text) < _MIN_PIECE:
            continue
        yield text
        # A number is often written with separators of thousands.
        with suppress(ValueError):
            yield f"{int(text):,}"


def _compile_piece(piece: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in piece.split())
    # Not within a longer word or number: 5 is not a part of 1.5.
    before = r"(?<!\w)(?<!\d[.,])" if piece[:1].isalnum() else ""
    after = r"(?!\w)(?![.,]\d)" if piece[-1:].isalnum() else ""
    # The choice "A" is not every "a".
    flags = re.IGNORECASE if len(piece) >= _MIN_PIECE else 0
    return re.compile(f"{before}{words}{after}", flags)


def _describe_file(path: str, data: bytes, most: int) -> dict[str, Any]:
    with suppress(UnicodeDecodeError):
        text = data.decode("utf-8")
        if len(text) <= most and "\0" not in text:
            return {"path": path, "text": text}
    return {"path": path, "bytes": len(data), "text": None}


PROPOSER_INSTRUCTIONS = Path(__file__).with_name("proposer.txt").read_text("utf-8").rstrip("\n")
"""Instructions of every proposer.

They are the same for every question, so that a provider can cache them.
"""

ASSIGNMENT_INSTRUCTIONS = (
    "agents names who does tasks; resources_read of a trial has the agent that did it, else it "
    "was main. Where a failure has the one cause `bad executor assignment`, say in better_agent "
    "which of them should have done the task."
)
"""Further instructions of a proposer where the agents may be restructured."""


@dataclass(frozen=True, slots=True)
class PastIteration:
    """One earlier iteration in the history of a question.

    difference: of the means, None where it was not measured.
    """

    iteration: int
    summary: str
    outcome: str
    difference: float | None = None
    fixed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QuestionGuide:
    """Instructions and data that an optimizer adds to a proposer's question."""

    instructions: str
    data: Mapping[str, Any]


def proposer_question(
    program: Program,
    evidence: Sequence[Evidence],
    *,
    redactor: Redactor,
    history: Sequence[PastIteration] = (),
    kinds: frozenset[Kind] = ALL_KINDS,
    max_edits: int = MAX_EDITS,
    agents: Sequence[str] = (),
    guide: QuestionGuide | None = None,
) -> ModelQuestion:
    """Return the question to a proposer.

    agents: those that tasks are handed to, where their assignment is diagnosed. The question has no
    expected answers. The evidence is cut, as little as necessary, to a size that a model can hold.
    Raises ValueError for evidence of a task that is not for training.
    """
    for cut in CUTS:
        data = _make_data(program, evidence, history, cut)
        # The last cut is used even where it is too long, because less evidence would be none.
        if len(json.dumps(data, ensure_ascii=False)) <= MAX_QUESTION:
            break
    data |= {"may_change": sorted(kinds - {Kind.ENVIRONMENT}), "most_intents": max_edits}
    instructions, schema = PROPOSER_INSTRUCTIONS, PLAN_SCHEMA
    if agents:
        data["agents"] = list(agents)
        instructions, schema = f"{instructions}\n\n{ASSIGNMENT_INSTRUCTIONS}", structure_schema()
    if guide is not None:
        data |= guide.data
        instructions = f"{instructions}\n\n{guide.instructions}"
    return ModelQuestion(ModelRole.PROPOSER, instructions, redactor.redact_value(data)[0], schema)


def _make_data(
    program: Program,
    evidence: Sequence[Evidence],
    history: Sequence[PastIteration],
    cut: EvidenceCut,
) -> dict[str, Any]:
    return {
        "resources": resource_data(program.parts, max(2_000, min(40_000, cut.head))),
        "history": [_describe_past(past) for past in history[-cut.history :]],
        "evidence": [evidence_data(example, cut) for example in choose_evidence(evidence, cut)],
    }


def _describe_past(past: PastIteration) -> dict[str, Any]:
    fields = asdict(past) | {"fixed": len(past.fixed), "broken": len(past.broken)}
    if past.difference is not None:
        fields["difference"] = round(past.difference, 4)
    return {key: value for key, value in fields.items() if value not in (None, "")}


BUILDER_INSTRUCTIONS = Path(__file__).with_name("builder.txt").read_text("utf-8").rstrip("\n")
"""Instructions of every builder.

They are the same for every question, so that a provider can cache them.
"""


def builder_question(
    program: Program, plan: EditPlan, *, redactor: Redactor, kinds: frozenset[Kind] = ALL_KINDS
) -> ModelQuestion:
    """Return the question to a builder: the intents, the resources that they touch, and the refs of
    the others.

    The evidence, answers, and the proposer's reasons are not in it.
    """
    touched = {name for intent in plan.intents for name in (intent.ref, intent.other)}
    parts = [part for part in program.parts if part.ref in touched]
    data = {
        "intents": [intent.builder_fields() for intent in plan.intents],
        "resources": resource_data(parts, most=200_000),
        "other_resources": [part.ref for part in program.parts if part.ref not in touched],
        "may_change": sorted(kinds - {Kind.ENVIRONMENT}),
    }
    clean, _ = redactor.redact_value(data)
    return ModelQuestion(ModelRole.BUILDER, BUILDER_INSTRUCTIONS, clean, BUILDER_SCHEMA)


CARD_INSTRUCTIONS = Path(__file__).with_name("card_builder.txt").read_text("utf-8").rstrip("\n")
"""Instructions of a builder that writes the cards of agents."""


def card_question(program: Program, edit: Restructure, *, redactor: Redactor) -> ModelQuestion:
    """Return the question to a builder about a change of agents: the change, the agents that it
    touches, and their skills.

    The evidence, tasks, answers and numbers are not in it.
    """
    owned, parts = skill_owners(program), program.by_ref
    neighbours = {
        ref: parts[ref].description for ref in owned if ref not in edit.agents and ref != MAIN
    }
    if MAIN not in edit.agents:
        neighbours[MAIN] = "It does all that no agent does."
    skills = sorted({skill for ref in edit.agents for skill in owned.get(ref, ())})
    data = {
        "change": str(edit.op),
        "task_types": list(edit.boundary),
        "write": list(cards_wanted(edit)),
        "agents_of_the_change": list(edit.agents),
        "skills_moved": list(edit.skills_moved),
        "owned": {ref: sorted(owned.get(ref, ())) for ref in edit.agents},
        "agents": resource_data([part for part in program.parts if part.ref in edit.agents]),
        "skills": {ref: parts[ref].description for ref in skills},
        "neighbours": neighbours,
    }
    clean, _ = redactor.redact_value(data)
    return ModelQuestion(ModelRole.BUILDER, CARD_INSTRUCTIONS, clean, CARD_SCHEMA)


CRITIC_INSTRUCTIONS = Path(__file__).with_name("critic.txt").read_text("utf-8").rstrip("\n")
"""Instructions of every critic."""

REWRITER_INSTRUCTIONS = Path(__file__).with_name("rewriter.txt").read_text("utf-8").rstrip("\n")
"""Instructions of every builder that rewrites one variable."""

MAX_CRITIQUE = 2_000
"""Characters of one critique at most."""

# A critique is cut to MAX_CRITIQUE characters in any case.
_MAX_CRITIC_TOKENS = 4_096
"""Tokens of a critic's answer."""

CRITIC_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "change": {"type": "boolean"},
        "critique": {"type": "string"},
        "variables": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["change", "critique", "variables"],
    "additionalProperties": False,
}
"""JSON schema of a critic's answer. variables: ids; none means all."""

REWRITE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "string"}},
    "required": ["value"],
    "additionalProperties": False,
}
"""JSON schema of the rewrite of a variable."""


def critic_question(
    evidence: Evidence, variables: Sequence[ResourceVariable], *, redactor: Redactor
) -> ModelQuestion:
    """Return the question to a critic about one trial.

    Expected answers, other tasks, past iterations and decisions of the gate are not in it. Raises
    ValueError for a trial that is not of a training task.
    """
    for cut in CUTS:
        half = max(1_000, min(40_000, cut.head)) // 2
        rows = [
            {
                "id": variable.id,
                "role": variable.role,
                "value": shorten(variable.value or "", half, half),
            }
            for variable in variables
        ]
        data = {"variables": rows, "trial": evidence_data(evidence, cut)}
        if len(json.dumps(data, ensure_ascii=False)) <= MAX_QUESTION:
            break
    clean, _ = redactor.redact_value(data)
    return ModelQuestion(
        ModelRole.CRITIC, CRITIC_INSTRUCTIONS, clean, CRITIC_SCHEMA, _MAX_CRITIC_TOKENS
    )


def rewrite_question(
    variable: ResourceVariable,
    critiques: Sequence[str],
    tried: Sequence[Mapping[str, Any]],
    *,
    redactor: Redactor,
) -> ModelQuestion:
    """Return the question to the builder of one variable: its text, the critiques, and the rejected
    values.

    The evidence, tasks and answers are not in it.
    """
    data = {
        "variable": {"id": variable.id, "role": variable.role, "value": variable.value},
        "critiques": list(critiques),
        "tried": list(tried),
    }
    clean, _ = redactor.redact_value(data)
    return ModelQuestion(ModelRole.BUILDER, REWRITER_INSTRUCTIONS, clean, REWRITE_SCHEMA)
