"""Reviews of finished sessions: from the signals in a session to proposals in the inbox.

Begin with `review_session` and `submit_review`, whose result is `Reviewed`. `signals` looks without
a model, `build_request` writes the question, `admit` decides by rules. `compress_history` shortens
a long history.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.review.admission import ALIKE, AdmittedCandidate, admit, jaccard
    from evolvable_tools.review.candidates import (
        CANDIDATE,
        SCHEMA,
        CandidateKind,
        ReviewCandidate,
        SkillEditOp,
        parse_candidate,
    )
    from evolvable_tools.review.context_compression import FOLDER, AssetFiles, compress_history
    from evolvable_tools.review.memory_upkeep import memory_conflicts
    from evolvable_tools.review.review_config import (
        BudgetLeft,
        LastReview,
        OverBudget,
        QuestionUsage,
        ReviewBudget,
        ReviewSettings,
        ReviewStatus,
        budget_left,
        parse_budget,
        reserve,
        review_status,
        settle,
        stricter_budget,
    )
    from evolvable_tools.review.review_request import (
        EVIDENT,
        TYPED,
        EvidenceSpan,
        ReviewRequest,
        build_request,
        data_for_model,
        skill_bodies,
        to_plain,
    )
    from evolvable_tools.review.review_results import Compressed, Reviewed
    from evolvable_tools.review.review_work import reclaim_abandoned, work_queue
    from evolvable_tools.review.rules import MIN_QUOTE, RuleContext, flatten_quote
    from evolvable_tools.review.service import (
        MAX_TOKENS,
        MODES,
        WAITS,
        pause_gc,
        review_session,
        submit_review,
    )
    from evolvable_tools.review.session_signals import SessionSignal, session_steps, signals
else:
    __getattr__ = late_names(
        __name__,
        {
            "admission": "ALIKE AdmittedCandidate admit jaccard",
            "candidates": (
                "CANDIDATE CandidateKind ReviewCandidate SCHEMA SkillEditOp parse_candidate"
            ),
            "context_compression": "AssetFiles FOLDER compress_history",
            "memory_upkeep": "memory_conflicts",
            "review_config": (
                "BudgetLeft LastReview OverBudget QuestionUsage ReviewBudget ReviewSettings "
                "ReviewStatus budget_left parse_budget reserve review_status settle "
                "stricter_budget"
            ),
            "review_request": (
                "EVIDENT EvidenceSpan ReviewRequest TYPED build_request data_for_model "
                "skill_bodies to_plain"
            ),
            "review_results": "Compressed Reviewed",
            "review_work": "reclaim_abandoned work_queue",
            "rules": "MIN_QUOTE RuleContext flatten_quote",
            "service": "MAX_TOKENS MODES WAITS pause_gc review_session submit_review",
            "session_signals": "SessionSignal session_steps signals",
        },
    )

__all__ = [
    "ALIKE",
    "AdmittedCandidate",
    "AssetFiles",
    "BudgetLeft",
    "CANDIDATE",
    "CandidateKind",
    "Compressed",
    "EVIDENT",
    "EvidenceSpan",
    "FOLDER",
    "LastReview",
    "MAX_TOKENS",
    "MIN_QUOTE",
    "MODES",
    "OverBudget",
    "QuestionUsage",
    "ReviewBudget",
    "ReviewCandidate",
    "ReviewRequest",
    "ReviewSettings",
    "ReviewStatus",
    "Reviewed",
    "RuleContext",
    "SCHEMA",
    "SessionSignal",
    "SkillEditOp",
    "TYPED",
    "WAITS",
    "admit",
    "budget_left",
    "build_request",
    "compress_history",
    "data_for_model",
    "flatten_quote",
    "jaccard",
    "memory_conflicts",
    "parse_budget",
    "parse_candidate",
    "pause_gc",
    "reclaim_abandoned",
    "reserve",
    "review_session",
    "review_status",
    "session_steps",
    "settle",
    "signals",
    "skill_bodies",
    "stricter_budget",
    "submit_review",
    "to_plain",
    "work_queue",
]
