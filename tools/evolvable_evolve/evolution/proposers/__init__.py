"""Proposer models: the models that answer a run's questions, the questions of each role, and the
parsing of answers.

Begin with `ProposerModel` and `ModelQuestion`. `proposer_question` and its siblings write the
questions, `parse_plan` and `parse_edits` read the answers.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.proposers.edit_plan import (
        REPAIRS,
        Diagnosis,
        EditIntent,
        EditPlan,
        FailureCause,
        InvalidPlan,
        RepairTag,
        cards_wanted,
        one_line,
        parse_cards,
        parse_diagnoses,
        parse_edits,
        parse_plan,
    )
    from evolvable_evolve.evolution.proposers.proposer_model import (
        JUDGE_ROLES,
        PROPOSER_ROLES,
        HandOffModel,
        ModelAnswer,
        ModelQuestion,
        ModelRole,
        ModelSpec,
        NeedsAnswer,
        NoAnswer,
        ProposerModel,
        check_answer,
        command_words,
        find_endpoint,
        make_proposer_model,
        named_model,
    )
    from evolvable_evolve.evolution.proposers.role_prompts import (
        MAX_CRITIQUE,
        Evidence,
        PastIteration,
        QuestionGuide,
        builder_question,
        card_question,
        critic_question,
        make_masker,
        proposer_question,
        rewrite_question,
        shorten,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "edit_plan": (
                "Diagnosis EditIntent EditPlan FailureCause InvalidPlan REPAIRS RepairTag "
                "cards_wanted one_line parse_cards parse_diagnoses parse_edits parse_plan"
            ),
            "proposer_model": (
                "HandOffModel JUDGE_ROLES ModelAnswer ModelQuestion ModelRole ModelSpec "
                "NeedsAnswer NoAnswer PROPOSER_ROLES ProposerModel check_answer command_words "
                "find_endpoint make_proposer_model named_model"
            ),
            "role_prompts": (
                "Evidence MAX_CRITIQUE PastIteration QuestionGuide builder_question card_question "
                "critic_question make_masker proposer_question rewrite_question shorten"
            ),
        },
    )

__all__ = [
    "Diagnosis",
    "EditIntent",
    "EditPlan",
    "Evidence",
    "FailureCause",
    "HandOffModel",
    "InvalidPlan",
    "JUDGE_ROLES",
    "MAX_CRITIQUE",
    "ModelAnswer",
    "ModelQuestion",
    "ModelRole",
    "ModelSpec",
    "NeedsAnswer",
    "NoAnswer",
    "PROPOSER_ROLES",
    "PastIteration",
    "ProposerModel",
    "QuestionGuide",
    "REPAIRS",
    "RepairTag",
    "builder_question",
    "card_question",
    "cards_wanted",
    "check_answer",
    "command_words",
    "critic_question",
    "find_endpoint",
    "make_masker",
    "make_proposer_model",
    "named_model",
    "one_line",
    "parse_cards",
    "parse_diagnoses",
    "parse_edits",
    "parse_plan",
    "proposer_question",
    "rewrite_question",
    "shorten",
]
