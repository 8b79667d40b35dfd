"""The questions of an optimizer by textual gradients: a critique of one trial, and the rewrite of one variable."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_tools.evolve.proposers.proposer_model import ModelQuestion, ModelRole
from evolvable_tools.evolve.proposers.role_prompts import CUTS, MAX_QUESTION, Evidence, evidence_data, shorten
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.verbs.variables import ResourceVariable

CRITIC_INSTRUCTIONS = Path(__file__).with_name("critic.txt").read_text("utf-8").rstrip("\n")
"""What every critic is told."""

REWRITER_INSTRUCTIONS = Path(__file__).with_name("rewriter.txt").read_text("utf-8").rstrip("\n")
"""What every builder is told that rewrites one variable."""

MAX_CRITIQUE = 2_000
"""Characters of one critique."""

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


def critic_question(evidence: Evidence, variables: Sequence[ResourceVariable], *, redactor: Redactor) -> ModelQuestion:
    """Return what a critic is asked about one trial. ValueError for a trial that is not of a training task.

    What was expected stands nowhere in it; nor does anything of other tasks, of past iterations or of the gate.
    """
    for cut in CUTS:
        most = max(1_000, min(40_000, cut.head))
        data = {
            "variables": [
                {"id": one.id, "role": one.role, "value": shorten(one.value or "", most // 2, most // 2)}
                for one in variables
            ],
            "trial": evidence_data(evidence, cut),
        }
        if len(json.dumps(data, ensure_ascii=False)) <= MAX_QUESTION:
            break
    return ModelQuestion(ModelRole.CRITIC, CRITIC_INSTRUCTIONS, redactor.redact_value(data)[0], CRITIC_SCHEMA, 4_096)


def rewrite_question(
    variable: ResourceVariable, critiques: Sequence[str], tried: Sequence[Mapping[str, Any]], *, redactor: Redactor
) -> ModelQuestion:
    """Return what the builder of one variable is asked: its text, the critiques, and what was tried and not kept.

    Nothing of the evidence, of tasks or of answers is in it.
    """
    data = {
        "variable": {"id": variable.id, "role": variable.role, "value": variable.value},
        "critiques": list(critiques),
        "tried": list(tried),
    }
    return ModelQuestion(ModelRole.BUILDER, REWRITER_INSTRUCTIONS, redactor.redact_value(data)[0], REWRITE_SCHEMA)
