"""Diagnosis of a retained trace: its cause, whether that is the only one, the repair, and what may
be proposed.

D(trace) = (cause, unique, tag). A model names causes with quotes; code decides. A cause counts
where words that are quoted for it stand in the evidence, and it is unique where it alone counts.
Source: SkillMAS, bounded diagnosability.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution import REPAIRS, FailureCause, RepairTag
from evolvable_tools.review import (
    MIN_QUOTE,
    SCHEMA,
    CandidateKind,
    ReviewCandidate,
    SkillEditOp,
    flatten_quote,
)

OPERATIONS: Mapping[RepairTag, frozenset[SkillEditOp]] = {
    RepairTag.ADD_GUARD: frozenset((SkillEditOp.ADD_GUARD,)),
    RepairTag.REORDER_STEP: frozenset((SkillEditOp.REORDER,)),
    RepairTag.TIGHTEN_RETRIEVAL: frozenset((SkillEditOp.TIGHTEN,)),
    # A skill that is split also says less, so its own text becomes tighter.
    RepairTag.SPLIT_SKILL: frozenset((SkillEditOp.SPLIT, SkillEditOp.TIGHTEN)),
}
"""What the edits of each repair may do."""

LOCAL_REPAIRS = frozenset(OPERATIONS)
"""Repairs that a bounded edit of a skill can make."""

INSTRUCTIONS = Path(__file__).with_name("instructions.txt").read_text("utf-8").strip()
"""Instructions to the model: the same for every trace, so that the provider caches them."""

ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "diagnoses": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "cause": {"type": "string", "enum": [cause.value for cause in FailureCause]},
                    "repair": {"type": "string", "enum": [tag.value for tag in RepairTag]},
                    "quotes": SCHEMA["properties"]["candidates"]["items"]["properties"]["evidence"],
                    "better_agent": {"type": "string"},
                },
                "required": ["cause", "repair", "quotes"],
                "additionalProperties": False,
            },
        },
        "candidates": SCHEMA["properties"]["candidates"],
        "why_none": {"type": "string"},
    },
    "required": ["diagnoses", "candidates"],
    "additionalProperties": False,
}
"""JSON schema of the answer."""


class ProposalSign(StrEnum):
    """What may be proposed from a trace."""

    SUCCESS = "A+"
    """A skill, or an edit of one, from what went well."""

    REPAIR = "A-"
    """A bounded edit of a skill, for a failure with one local cause."""

    STRUCTURE = "F"
    """Nothing here: it is evidence for a change of agents."""

    NOTHING = ""


@dataclass(frozen=True, slots=True)
class TraceDiagnosis:
    """The diagnosis D of one trace.

    cause, tag: None where the evidence supports no cause that the model named. better: the agent
    that should have done the work, where the cause is its assignment: a name that a model gave.
    """

    cause: FailureCause | None = None
    unique: bool = False
    tag: RepairTag | None = None
    better: str = ""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "TraceDiagnosis":
        """Return the diagnosis that a record of a round holds."""
        cause, tag = record["cause"], record["tag"]
        return cls(
            FailureCause(cause) if cause else None,
            record["unique"],
            RepairTag(tag) if tag else None,
        )


def diagnose(diagnoses: Sequence[Mapping[str, Any]], evidence: Mapping[str, str]) -> TraceDiagnosis:
    """Return the diagnosis that a model's answer supports. evidence: id of a span -> its text."""
    supported: dict[FailureCause, Mapping[str, Any]] = {}
    for named in diagnoses:
        cause = FailureCause(named["cause"])
        if any(_is_in_evidence(quote, evidence) for quote in named["quotes"]):
            supported.setdefault(cause, named)
    if not supported:
        return TraceDiagnosis()
    cause, named = next(iter(supported.items()))
    repairs = REPAIRS[cause]
    # A repair that does not fit the cause is replaced by the first that does.
    tag = next((repair for repair in repairs if repair == named["repair"]), repairs[0])
    is_assignment = cause is FailureCause.BAD_ASSIGNMENT
    better = str(named.get("better_agent", "")) if is_assignment else ""
    return TraceDiagnosis(cause, len(supported) == 1, tag, better)


def _is_in_evidence(quote: Mapping[str, str], evidence: Mapping[str, str]) -> bool:
    text = flatten_quote(evidence.get(quote["span"], ""))
    words = flatten_quote(quote["quote"])
    # A text that is shorter than MIN_QUOTE may be quoted whole.
    return bool(words) and len(words) >= min(MIN_QUOTE, len(text)) and words in text


def proposal_sign(reward: int | None, diagnosis: TraceDiagnosis) -> ProposalSign:
    """Return what may be proposed from a trace with this reward and diagnosis."""
    if reward == 1:
        return ProposalSign.SUCCESS
    if reward != 0 or not diagnosis.unique:
        return ProposalSign.NOTHING
    if diagnosis.tag in LOCAL_REPAIRS:
        return ProposalSign.REPAIR
    return ProposalSign.STRUCTURE if diagnosis.tag is RepairTag.HANDOFF else ProposalSign.NOTHING


def misfit(
    candidate: ReviewCandidate, sign: ProposalSign, tag: RepairTag | None, cluster: str
) -> str:
    """Return why a candidate does not follow from its trace's diagnosis, '' when it does.

    cluster: the ref of the skill that the trace is about, or a cluster without one.
    """
    if sign is ProposalSign.SUCCESS:
        may = (CandidateKind.SKILL_NEW, CandidateKind.SKILL_EDIT)
        return "" if candidate.what in may else "From a success follows a skill or an edit of one."
    if sign is not ProposalSign.REPAIR or tag is None:
        return "The failure has no single cause that an edit of a skill repairs."
    if candidate.what is not CandidateKind.SKILL_EDIT:
        return f"The repair {tag} is an edit of a skill."
    if candidate.target.partition("@")[0] not in (cluster, cluster.partition(":")[2]):
        return f"The trace is about {cluster}."
    if any(edit.op not in OPERATIONS[tag] for edit in candidate.edits):
        return f"The repair {tag} has no such edit."
    return ""
