"""The use cases of a library, which MCP, the command line and the page share.

Begin with `Library`, a store with all that a verb needs, and `Caller`, in whose name a verb runs.
The verbs are in `evolvable_tools.verbs`. This face has what several of them need: approvals,
authors, the audit log, text of others in answers, secrets that must not leave. Knows no protocol
and no terminal.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.approvals import (
        SOUL,
        UNSEEN_FOLDER,
        ApprovalPolicy,
        add_left_out,
        change_waits,
        check_arrival,
        check_change,
        dump_scan,
        finding_messages,
        is_dangerous,
        parse_policies,
        stricter_policies,
    )
    from evolvable_tools.approvals_lock import (
        ApprovalsLock,
        SigningKey,
        canonical_form,
        lost_lock_message,
        lost_locks,
        make_key,
        open_key,
        unsigned_decisions,
    )
    from evolvable_tools.audit import (
        AuditReport,
        export_log,
        read_export,
        verify_entries,
        verify_log,
    )
    from evolvable_tools.authority import out_of_force
    from evolvable_tools.authors import (
        NOBODYS,
        AuthorKind,
        FileAuthor,
        author_words,
        authorships,
        operation_author,
        reason_notice,
        version_authorship,
        version_base,
    )
    from evolvable_tools.caller import ApprovalLevel, Caller
    from evolvable_tools.client_locators import AgentLocator, SkillLocator
    from evolvable_tools.delegates import agent_of_copy, delegate_in, delegate_in_force, delegate_of
    from evolvable_tools.delegation import (
        DelegateStatus,
        Delegation,
        agent_skills,
        inline_text,
        needed_by,
        start_text,
    )
    from evolvable_tools.file_edits import TextEdit, decode_text, edit_text, encode_text
    from evolvable_tools.found_answers import (
        Answer,
        answer_size,
        first_fitting,
        found_answer,
        given_fields,
    )
    from evolvable_tools.library import Library, TrialArms
    from evolvable_tools.markdown_sections import changed_frozen_sections, read_sections
    from evolvable_tools.metrics import (
        ENOUGH,
        MAIN_AGENT,
        REWARDS,
        Utility,
        agent_episodes,
        agent_utilities,
        format_success,
        verified_utilities,
        wilson_interval,
        wilson_lower_bound,
        wilson_upper_bound,
    )
    from evolvable_tools.reporting import HealthProblem, Progress, Step, count, silent_step, some
    from evolvable_tools.secret_leaks import (
        ENV_FILE,
        NEXT,
        HeldBack,
        LeakedSecret,
        accept_leak,
        check_anything_leaves,
        check_may_decide,
        check_served,
        held_back,
        is_env_file,
        leak_messages,
        leaks,
    )
    from evolvable_tools.trust import find_downgraded, format_downgraded, mark_repository_heads
    from evolvable_tools.untrusted_text import (
        REVIEWING_MARK,
        AnswerMarks,
        bound_text,
        enclose,
        marks,
        quote_marks,
        split_marks,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "approvals": (
                "ApprovalPolicy SOUL UNSEEN_FOLDER add_left_out change_waits check_arrival "
                "check_change dump_scan finding_messages is_dangerous parse_policies "
                "stricter_policies"
            ),
            "approvals_lock": (
                "ApprovalsLock SigningKey canonical_form lost_lock_message lost_locks "
                "make_key open_key unsigned_decisions"
            ),
            "audit": "AuditReport export_log read_export verify_entries verify_log",
            "authority": "out_of_force",
            "authors": (
                "AuthorKind FileAuthor NOBODYS author_words authorships operation_author "
                "reason_notice version_authorship version_base"
            ),
            "caller": "ApprovalLevel Caller",
            "client_locators": "AgentLocator SkillLocator",
            "delegates": "agent_of_copy delegate_in delegate_in_force delegate_of",
            "delegation": "DelegateStatus Delegation agent_skills inline_text needed_by start_text",
            "file_edits": "TextEdit decode_text edit_text encode_text",
            "found_answers": "Answer answer_size first_fitting found_answer given_fields",
            "library": "Library TrialArms",
            "markdown_sections": "changed_frozen_sections read_sections",
            "metrics": (
                "ENOUGH MAIN_AGENT REWARDS Utility agent_episodes agent_utilities format_success "
                "verified_utilities wilson_interval wilson_lower_bound wilson_upper_bound"
            ),
            "reporting": "HealthProblem Progress Step count silent_step some",
            "secret_leaks": (
                "ENV_FILE HeldBack LeakedSecret NEXT accept_leak check_anything_leaves "
                "check_may_decide check_served held_back is_env_file leak_messages leaks"
            ),
            "trust": "find_downgraded format_downgraded mark_repository_heads",
            "untrusted_text": (
                "AnswerMarks REVIEWING_MARK bound_text enclose marks quote_marks split_marks"
            ),
        },
    )

__all__ = [
    "AgentLocator",
    "Answer",
    "AnswerMarks",
    "ApprovalLevel",
    "ApprovalPolicy",
    "ApprovalsLock",
    "AuditReport",
    "AuthorKind",
    "Caller",
    "DelegateStatus",
    "Delegation",
    "ENOUGH",
    "ENV_FILE",
    "FileAuthor",
    "HealthProblem",
    "HeldBack",
    "LeakedSecret",
    "Library",
    "MAIN_AGENT",
    "NEXT",
    "NOBODYS",
    "Progress",
    "REVIEWING_MARK",
    "REWARDS",
    "SOUL",
    "SigningKey",
    "SkillLocator",
    "Step",
    "TextEdit",
    "TrialArms",
    "UNSEEN_FOLDER",
    "Utility",
    "accept_leak",
    "add_left_out",
    "agent_episodes",
    "agent_of_copy",
    "agent_skills",
    "agent_utilities",
    "answer_size",
    "author_words",
    "authorships",
    "bound_text",
    "canonical_form",
    "change_waits",
    "changed_frozen_sections",
    "check_anything_leaves",
    "check_arrival",
    "check_change",
    "check_may_decide",
    "check_served",
    "count",
    "decode_text",
    "delegate_in",
    "delegate_in_force",
    "delegate_of",
    "dump_scan",
    "edit_text",
    "enclose",
    "encode_text",
    "export_log",
    "find_downgraded",
    "finding_messages",
    "first_fitting",
    "format_downgraded",
    "format_success",
    "found_answer",
    "given_fields",
    "held_back",
    "inline_text",
    "is_dangerous",
    "is_env_file",
    "leak_messages",
    "leaks",
    "lost_lock_message",
    "lost_locks",
    "make_key",
    "mark_repository_heads",
    "marks",
    "needed_by",
    "open_key",
    "operation_author",
    "out_of_force",
    "parse_policies",
    "quote_marks",
    "read_export",
    "read_sections",
    "reason_notice",
    "silent_step",
    "some",
    "split_marks",
    "start_text",
    "stricter_policies",
    "unsigned_decisions",
    "verified_utilities",
    "verify_entries",
    "verify_log",
    "version_authorship",
    "version_base",
    "wilson_interval",
    "wilson_lower_bound",
    "wilson_upper_bound",
]
