"""The verbs: one function for each thing that a person or an agent can ask of a library.

Begin with `find_skill`, `load_skill`, `update_resource` and `undo`. Each takes a `Library` and a
`Caller`, and returns a frozen result that MCP and the command line print. `VERBS` and `TOOLS` list
all of them with their effect and the authority that they need. `folder_states` and `library_status`
are modules with one verb of the same name each.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.verbs.collections import (
        BUDGET,
        ListedSkill,
        Shown,
        SkillCollection,
        SkillListing,
        add_to_collection,
        describe_listing,
        find_collection,
        fitting_skills,
        list_collections,
        measure_listing,
        plan_overrides,
        read_skills,
        remove_from_collection,
    )
    from evolvable_tools.verbs.duplicate_hints import DuplicateHints, near_duplicates_of, take_pairs
    from evolvable_tools.verbs.edit import (
        Updated,
        remove_resource,
        remove_together,
        restore_resource,
        update_resource,
    )
    from evolvable_tools.verbs.fork_proposals import propose_forks
    from evolvable_tools.verbs.host_catalog import (
        MAIN,
        HostCatalog,
        SkillEntry,
        changes_seen,
        is_users,
        moves_seen,
    )
    from evolvable_tools.verbs.lessons import (
        WaitingLesson,
        lessons_line,
        short_line,
        waiting_lessons,
    )
    from evolvable_tools.verbs.load import (
        MAX_TEXT,
        OUTCOMES,
        EvidenceSummary,
        Loaded,
        get_resource,
        load_delegate,
        load_skill,
        note_load,
        report_outcome,
        use_delegate,
    )
    from evolvable_tools.verbs.lookup_test import AMONG, LookupTest, measure_lookup
    from evolvable_tools.verbs.memory_facts import (
        add_fact,
        briefing,
        content_terms,
        memories_for_clients,
        parse_facts,
        project_memory,
        retire_facts,
        same_fact,
        says_already,
    )
    from evolvable_tools.verbs.overview import (
        NOTHING,
        ContentComparison,
        OperationOverview,
        ResourceOverview,
        diff_resources,
        diff_versions,
        diff_working_copies,
        show_operation,
        show_resource,
    )
    from evolvable_tools.verbs.prompts import Prompt, fill_prompt, get_prompt, list_prompts
    from evolvable_tools.verbs.proposal_inbox import (
        Decided,
        approve_as_asked,
        approve_together,
        changes_text,
        expire,
        is_expired,
        list_waiting,
        propose,
        propose_undo,
        proposed_lines,
        proposed_parts,
        proposed_texts,
        reject,
        reopen,
        revert_or_propose,
        seen_versions,
        show_proposal,
    )
    from evolvable_tools.verbs.purge_content import (
        Purged,
        PurgePlan,
        note_copy,
        plan_blobs,
        plan_file,
        plan_secret,
        purge,
        resume_purges,
    )
    from evolvable_tools.verbs.rebased_proposals import MergePart, end_with_newline, rebase
    from evolvable_tools.verbs.registry import (
        ALIASES,
        EXAMPLES,
        FIRST,
        GROUPS,
        HINTS,
        PLACES,
        TOOLS,
        VERBS,
        Authority,
        Effect,
        Tool,
        add_table,
        place_of,
        refusal_reason,
        verb_at,
    )
    from evolvable_tools.verbs.release import (
        MAX_MOVES,
        ChannelLog,
        ChannelStatus,
        ChannelStep,
        Published,
        ReleaseMove,
        changelog,
        channel_log,
        channel_status,
        publish,
        set_policy,
        withdraw_skills,
    )
    from evolvable_tools.verbs.resource_info import (
        ResourceInfo,
        ResourceState,
        argument_schema,
        copied_from,
        get_info,
        get_state,
        main_document,
        plain_arguments,
    )
    from evolvable_tools.verbs.reverse_merge import UndoConflict
    from evolvable_tools.verbs.scan_import import (
        Answer,
        Coming,
        Preview,
        Scanned,
        TrustDecision,
        TrustOffer,
        TrustQuestion,
        ask_trust,
        import_archive,
        preview,
        scan_path,
        scan_resources,
        trust,
        withdraw_trust,
    )
    from evolvable_tools.verbs.search import (
        CHOICES,
        MAX_MATCHES,
        MAX_PAGE,
        NEAREST,
        FoundSkills,
        FurtherChoice,
        ListedResource,
        Listing,
        find_skill,
        index_for,
        list_page,
        list_resources,
        record_impressions,
    )
    from evolvable_tools.verbs.tool_commands import (
        APPROVALS_FILE,
        FOLDER,
        PYTHON,
        RunSpec,
        ToolVersion,
        approve_tool,
        approved_digests,
        approved_version,
        build_version,
        out_of_force_line,
        run_spec,
        runnable_tool,
        tool_version,
        withdraw_tool,
    )
    from evolvable_tools.verbs.unseen_changes import (
        UnseenChange,
        approve_seen,
        count_unseen,
        list_unseen,
        unseen_change,
    )
    from evolvable_tools.verbs.versions import (
        CONTEXT,
        CUT,
        MAX_LIMIT,
        History,
        PastVersion,
        Undone,
        diff,
        operations_undone,
        resource_history,
        undo,
    )
    from evolvable_tools.verbs.waiting_proposal import Grounds, WaitingProposal, as_read
else:
    __getattr__ = late_names(
        __name__,
        {
            "collections": (
                "BUDGET ListedSkill Shown SkillCollection SkillListing add_to_collection "
                "describe_listing find_collection fitting_skills list_collections "
                "measure_listing plan_overrides read_skills remove_from_collection"
            ),
            "duplicate_hints": "DuplicateHints near_duplicates_of take_pairs",
            "edit": "Updated remove_resource remove_together restore_resource update_resource",
            "fork_proposals": "propose_forks",
            "host_catalog": "HostCatalog MAIN SkillEntry changes_seen is_users moves_seen",
            "lessons": "WaitingLesson lessons_line short_line waiting_lessons",
            "load": (
                "EvidenceSummary Loaded MAX_TEXT OUTCOMES get_resource load_delegate "
                "load_skill note_load report_outcome use_delegate"
            ),
            "lookup_test": "AMONG LookupTest measure_lookup",
            "memory_facts": (
                "add_fact briefing content_terms memories_for_clients parse_facts "
                "project_memory retire_facts same_fact says_already"
            ),
            "overview": (
                "ContentComparison NOTHING OperationOverview ResourceOverview diff_resources "
                "diff_versions diff_working_copies show_operation show_resource"
            ),
            "prompts": "Prompt fill_prompt get_prompt list_prompts",
            "proposal_inbox": (
                "Decided approve_as_asked approve_together changes_text expire is_expired "
                "list_waiting propose propose_undo proposed_lines proposed_parts "
                "proposed_texts reject reopen revert_or_propose seen_versions show_proposal"
            ),
            "purge_content": (
                "PurgePlan Purged note_copy plan_blobs plan_file plan_secret purge resume_purges"
            ),
            "rebased_proposals": "MergePart end_with_newline rebase",
            "registry": (
                "ALIASES Authority EXAMPLES Effect FIRST GROUPS HINTS PLACES TOOLS Tool VERBS "
                "add_table place_of refusal_reason verb_at"
            ),
            "release": (
                "ChannelLog ChannelStatus ChannelStep MAX_MOVES Published ReleaseMove "
                "changelog channel_log channel_status publish set_policy withdraw_skills"
            ),
            "resource_info": (
                "ResourceInfo ResourceState argument_schema copied_from get_info get_state "
                "main_document plain_arguments"
            ),
            "reverse_merge": "UndoConflict",
            "scan_import": (
                "Answer Coming Preview Scanned TrustDecision TrustOffer TrustQuestion ask_trust "
                "import_archive preview scan_path scan_resources trust withdraw_trust"
            ),
            "search": (
                "CHOICES FoundSkills FurtherChoice ListedResource Listing MAX_MATCHES "
                "MAX_PAGE NEAREST find_skill index_for list_page list_resources "
                "record_impressions"
            ),
            "tool_commands": (
                "APPROVALS_FILE FOLDER PYTHON RunSpec ToolVersion approve_tool approved_digests "
                "approved_version build_version out_of_force_line run_spec runnable_tool "
                "tool_version withdraw_tool"
            ),
            "unseen_changes": "UnseenChange approve_seen count_unseen list_unseen unseen_change",
            "versions": (
                "CONTEXT CUT History MAX_LIMIT PastVersion Undone diff operations_undone "
                "resource_history undo"
            ),
            "waiting_proposal": "Grounds WaitingProposal as_read",
        },
    )

__all__ = [
    "ALIASES",
    "AMONG",
    "APPROVALS_FILE",
    "Answer",
    "Authority",
    "BUDGET",
    "CHOICES",
    "CONTEXT",
    "CUT",
    "ChannelLog",
    "ChannelStatus",
    "ChannelStep",
    "Coming",
    "ContentComparison",
    "Decided",
    "DuplicateHints",
    "EXAMPLES",
    "Effect",
    "EvidenceSummary",
    "FIRST",
    "FOLDER",
    "FoundSkills",
    "FurtherChoice",
    "GROUPS",
    "Grounds",
    "HINTS",
    "History",
    "HostCatalog",
    "ListedResource",
    "ListedSkill",
    "Listing",
    "Loaded",
    "LookupTest",
    "MAIN",
    "MAX_LIMIT",
    "MAX_MATCHES",
    "MAX_MOVES",
    "MAX_PAGE",
    "MAX_TEXT",
    "MergePart",
    "NEAREST",
    "NOTHING",
    "OUTCOMES",
    "OperationOverview",
    "PLACES",
    "PYTHON",
    "PastVersion",
    "Preview",
    "Prompt",
    "Published",
    "PurgePlan",
    "Purged",
    "ReleaseMove",
    "ResourceInfo",
    "ResourceOverview",
    "ResourceState",
    "RunSpec",
    "Scanned",
    "Shown",
    "SkillCollection",
    "SkillEntry",
    "SkillListing",
    "TOOLS",
    "Tool",
    "ToolVersion",
    "TrustDecision",
    "TrustOffer",
    "TrustQuestion",
    "UndoConflict",
    "Undone",
    "UnseenChange",
    "Updated",
    "VERBS",
    "WaitingLesson",
    "WaitingProposal",
    "add_fact",
    "add_table",
    "add_to_collection",
    "approve_as_asked",
    "approve_seen",
    "approve_together",
    "approve_tool",
    "approved_digests",
    "approved_version",
    "argument_schema",
    "as_read",
    "ask_trust",
    "briefing",
    "build_version",
    "changelog",
    "changes_seen",
    "changes_text",
    "channel_log",
    "channel_status",
    "content_terms",
    "copied_from",
    "count_unseen",
    "describe_listing",
    "diff",
    "diff_resources",
    "diff_versions",
    "diff_working_copies",
    "end_with_newline",
    "expire",
    "fill_prompt",
    "find_collection",
    "find_skill",
    "fitting_skills",
    "get_info",
    "get_prompt",
    "get_resource",
    "get_state",
    "import_archive",
    "index_for",
    "is_expired",
    "is_users",
    "lessons_line",
    "list_collections",
    "list_page",
    "list_prompts",
    "list_resources",
    "list_unseen",
    "list_waiting",
    "load_delegate",
    "load_skill",
    "main_document",
    "measure_listing",
    "measure_lookup",
    "memories_for_clients",
    "moves_seen",
    "near_duplicates_of",
    "note_copy",
    "note_load",
    "operations_undone",
    "out_of_force_line",
    "parse_facts",
    "place_of",
    "plain_arguments",
    "plan_blobs",
    "plan_file",
    "plan_overrides",
    "plan_secret",
    "preview",
    "project_memory",
    "propose",
    "propose_forks",
    "propose_undo",
    "proposed_lines",
    "proposed_parts",
    "proposed_texts",
    "publish",
    "purge",
    "read_skills",
    "rebase",
    "record_impressions",
    "refusal_reason",
    "reject",
    "remove_from_collection",
    "remove_resource",
    "remove_together",
    "reopen",
    "report_outcome",
    "resource_history",
    "restore_resource",
    "resume_purges",
    "retire_facts",
    "revert_or_propose",
    "run_spec",
    "runnable_tool",
    "same_fact",
    "says_already",
    "scan_path",
    "scan_resources",
    "seen_versions",
    "set_policy",
    "short_line",
    "show_operation",
    "show_proposal",
    "show_resource",
    "take_pairs",
    "tool_version",
    "trust",
    "undo",
    "unseen_change",
    "update_resource",
    "use_delegate",
    "verb_at",
    "waiting_lessons",
    "withdraw_skills",
    "withdraw_tool",
    "withdraw_trust",
]
