"""Evolution: search for better resources with tasks, and promote only those that pass a sealed
test.

Begin with `start_run`, `drive_run` and `get_status`, then `adopt`. `TaskSet` and `Task` are what
programs are measured on; `RunState` is the state that follows from the ledger. The packages within
have faces of their own for each other; code outside of evolution imports from here.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.blind_answers import (
        BlindPair,
        draw_blind_pairs,
        record_preferences,
    )
    from evolvable_evolve.evolution.candidates import (
        AgentCard,
        EditOperation,
        LeakCorpus,
        Program,
        ProgramPart,
        load_program,
        make_part,
        make_program,
        new_agent,
        with_delegate,
    )
    from evolvable_evolve.evolution.checked_improvement import (
        CheckedAnswer,
        PairedCheck,
        ProgramImprovement,
        improve_program,
    )
    from evolvable_evolve.evolution.day_budget import (
        Allowance,
        add_spending,
        budget_turn,
        is_of_today,
        no_spending,
    )
    from evolvable_evolve.evolution.deploy import (
        Adoption,
        AdoptionPreview,
        MonitoredAdoption,
        adopt,
        monitor_adoptions,
        preview_adoption,
        unadopt,
    )
    from evolvable_evolve.evolution.driver import drive_run
    from evolvable_evolve.evolution.executors import (
        CLIENTS,
        CommandHost,
        Executor,
        ToolSandbox,
        check_named_executor,
        encode_input,
        parse_strict_json,
        run_tool_command,
        write_below,
    )
    from evolvable_evolve.evolution.ledger import (
        AGS_DIR,
        DAMAGE_ERRORS,
        EVOLVE_DIR,
        Ledger,
        LedgerBusy,
        LedgerDamaged,
        LedgerRecord,
        RunDirectory,
        RunState,
        create_run,
        find_run,
        fold_records,
        iter_run_states,
        iter_runs,
        load_run,
        load_run_state,
        read_ledger,
        read_records,
        translate_damage,
    )
    from evolvable_evolve.evolution.measure import (
        MeasuredUnder,
        Measurement,
        StartedMeasurement,
        describe_look,
        format_measurement,
        read_measurement,
        start_measurement,
    )
    from evolvable_evolve.evolution.operators import MODES
    from evolvable_evolve.evolution.plan import RunPlan, make_plan
    from evolvable_evolve.evolution.proposers import (
        JUDGE_ROLES,
        PROPOSER_ROLES,
        REPAIRS,
        FailureCause,
        HandOffModel,
        ModelAnswer,
        ModelQuestion,
        ModelRole,
        NeedsAnswer,
        NoAnswer,
        PastIteration,
        ProposerModel,
        RepairTag,
        check_answer,
        make_masker,
        named_model,
        shorten,
    )
    from evolvable_evolve.evolution.report import (
        CandidateFacts,
        MeanInterval,
        RunFacts,
        changed_test_tasks,
        collect_facts,
        draw_curve,
        draw_lineage,
        format_mean,
        write_report,
    )
    from evolvable_evolve.evolution.run_config import (
        HostContext,
        RayCluster,
        SpendLimit,
        parse_executor_spec,
        parse_price,
    )
    from evolvable_evolve.evolution.run_context import (
        QUESTION_TOKENS,
        RunStopped,
        check_runnable,
        executor_kind,
        make_executor,
    )
    from evolvable_evolve.evolution.run_control import (
        ControlResult,
        PendingQuestions,
        RunStatus,
        SubmittedAnswer,
        decide_held_candidate,
        describe_evaluations,
        get_held_candidate,
        get_status,
        list_pending,
        list_statuses,
        planned_trials,
        read_status,
        resume_run,
        stop_run,
        submit_answer,
    )
    from evolvable_evolve.evolution.run_file import GIVEN, read_run_file
    from evolvable_evolve.evolution.run_removal import (
        RemovedRun,
        finish_removals,
        remove_old_runs,
        remove_run,
    )
    from evolvable_evolve.evolution.scorers import (
        JudgeSample,
        TaskSetScorer,
        family_warning,
        judge_answer,
        run_judge_calibration,
    )
    from evolvable_evolve.evolution.start import (
        Opportunities,
        StartedRun,
        find_opportunities,
        start_run,
    )
    from evolvable_evolve.evolution.statistics import alpha_of_look
    from evolvable_evolve.evolution.structure import (
        AgentTrace,
        LocalRepair,
        Restructure,
        StructureAction,
        StructureDecision,
        StructureInput,
        StructureSummary,
        StructureThresholds,
        decide_structure,
        summarise_structure,
    )
    from evolvable_evolve.evolution.task import (
        ModelUsage,
        RegisteredScorer,
        Rollout,
        Score,
        ScorerSpec,
        Split,
        SplitRatios,
        Task,
        TaskSet,
        Trial,
        TrialOutcome,
    )
    from evolvable_evolve.evolution.tasks import (
        Alike,
        ImportedTable,
        LookTransfer,
        SessionTaskSet,
        TableColumns,
        TaskSetCheck,
        TryTaskList,
        asks_about_templates,
        check_taskset,
        count_by_category,
        count_by_split,
        draft_from_sessions,
        find_task_templates,
        linked_folders,
        look_at,
        propose_session_tasks,
        read_table,
        record_shown_test,
        redact_file,
        tasks_of_answers,
        tasks_of_draft,
        tasks_of_prompts,
        tasks_of_set,
        tasks_of_table,
        try_checks,
    )
    from evolvable_evolve.evolution.tasks.locate import (
        approve,
        count_unassigned,
        is_approved,
        list_commands,
        load_taskset,
        named_scorers,
        needs_commands,
        read_taskset_path,
        refuse_changed,
        refuse_unapproved,
        refuse_untrusted,
        registered_scorers,
        render_alike,
        render_splits,
        write_files,
    )
    from evolvable_evolve.evolution.tasks.reader import InvalidTaskSet, scorer_files
    from evolvable_evolve.evolution.trials import (
        AsyncioBackend,
        Bill,
        BudgetSpent,
        ConcurrencyLimit,
        ProcessBackend,
        RayBackend,
        Reservation,
        RunBudget,
        TrialAttempt,
        TrialBackend,
        TrialJob,
        parse_trial,
        to_bill,
    )
    from evolvable_evolve.evolution.try_answer import (
        SkillTrial,
        TaskAnswers,
        TryResult,
        word_changes,
    )
    from evolvable_evolve.evolution.try_start import (
        StartedTry,
        TryPlan,
        find_searched,
        plan_try,
        read_try,
        start_try,
    )
    from evolvable_evolve.evolution.try_verdict import joint_results
else:
    __getattr__ = late_names(
        __name__,
        {
            "blind_answers": "BlindPair draw_blind_pairs record_preferences",
            "candidates": (
                "AgentCard EditOperation LeakCorpus Program ProgramPart load_program "
                "make_part make_program new_agent with_delegate"
            ),
            "checked_improvement": "CheckedAnswer PairedCheck ProgramImprovement improve_program",
            "deploy": (
                "Adoption AdoptionPreview MonitoredAdoption adopt monitor_adoptions "
                "preview_adoption unadopt"
            ),
            "driver": "drive_run",
            "executors": (
                "CLIENTS CommandHost Executor ToolSandbox check_named_executor encode_input "
                "parse_strict_json run_tool_command write_below"
            ),
            "ledger": (
                "AGS_DIR DAMAGE_ERRORS EVOLVE_DIR Ledger LedgerBusy LedgerDamaged "
                "LedgerRecord RunDirectory RunState create_run find_run fold_records "
                "iter_run_states iter_runs load_run load_run_state read_ledger read_records "
                "translate_damage"
            ),
            "measure": (
                "MeasuredUnder Measurement StartedMeasurement describe_look "
                "format_measurement read_measurement start_measurement"
            ),
            "operators": "MODES",
            "plan": "RunPlan make_plan",
            "proposers": (
                "FailureCause HandOffModel JUDGE_ROLES ModelAnswer ModelQuestion ModelRole "
                "NeedsAnswer NoAnswer PROPOSER_ROLES PastIteration ProposerModel REPAIRS "
                "RepairTag check_answer make_masker named_model shorten"
            ),
            "report": (
                "CandidateFacts MeanInterval RunFacts changed_test_tasks collect_facts draw_curve "
                "draw_lineage format_mean write_report"
            ),
            "run_config": "HostContext RayCluster SpendLimit parse_executor_spec parse_price",
            "run_context": "QUESTION_TOKENS RunStopped check_runnable executor_kind make_executor",
            "run_control": (
                "ControlResult PendingQuestions RunStatus SubmittedAnswer decide_held_candidate "
                "describe_evaluations get_held_candidate get_status list_pending "
                "list_statuses planned_trials read_status resume_run stop_run submit_answer"
            ),
            "run_file": "GIVEN read_run_file",
            "run_removal": "RemovedRun finish_removals remove_old_runs remove_run",
            "scorers": (
                "JudgeSample TaskSetScorer family_warning judge_answer run_judge_calibration"
            ),
            "start": "Opportunities StartedRun find_opportunities start_run",
            "statistics": "alpha_of_look",
            "structure": (
                "AgentTrace LocalRepair Restructure StructureAction StructureDecision "
                "StructureInput StructureSummary StructureThresholds decide_structure "
                "summarise_structure"
            ),
            "task": (
                "ModelUsage RegisteredScorer Rollout Score ScorerSpec Split SplitRatios Task "
                "TaskSet Trial TrialOutcome"
            ),
            "tasks": (
                "Alike ImportedTable LookTransfer SessionTaskSet TableColumns TaskSetCheck "
                "TryTaskList asks_about_templates check_taskset count_by_category "
                "count_by_split draft_from_sessions find_task_templates linked_folders "
                "look_at propose_session_tasks read_table record_shown_test redact_file "
                "tasks_of_answers tasks_of_draft tasks_of_prompts tasks_of_set tasks_of_table "
                "try_checks"
            ),
            "tasks.locate": (
                "approve count_unassigned is_approved list_commands load_taskset needs_commands "
                "named_scorers read_taskset_path refuse_changed refuse_unapproved refuse_untrusted "
                "registered_scorers render_alike render_splits write_files"
            ),
            "tasks.reader": "InvalidTaskSet scorer_files",
            "trials": (
                "AsyncioBackend Bill BudgetSpent ConcurrencyLimit ProcessBackend RayBackend "
                "Reservation RunBudget TrialAttempt TrialBackend TrialJob parse_trial to_bill"
            ),
            "try_answer": "SkillTrial TaskAnswers TryResult word_changes",
            "try_start": "StartedTry TryPlan find_searched plan_try read_try start_try",
            "day_budget": "Allowance add_spending budget_turn is_of_today no_spending",
            "try_verdict": "joint_results",
        },
    )

__all__ = [
    "AGS_DIR",
    "JUDGE_ROLES",
    "JudgeSample",
    "PROPOSER_ROLES",
    "family_warning",
    "judge_answer",
    "run_judge_calibration",
    "Adoption",
    "AdoptionPreview",
    "AgentCard",
    "AgentTrace",
    "Alike",
    "Allowance",
    "AsyncioBackend",
    "Bill",
    "BlindPair",
    "BudgetSpent",
    "CLIENTS",
    "CandidateFacts",
    "CheckedAnswer",
    "CommandHost",
    "ConcurrencyLimit",
    "ControlResult",
    "DAMAGE_ERRORS",
    "EVOLVE_DIR",
    "EditOperation",
    "Executor",
    "FailureCause",
    "GIVEN",
    "HandOffModel",
    "HostContext",
    "ImportedTable",
    "InvalidTaskSet",
    "LeakCorpus",
    "Ledger",
    "LedgerBusy",
    "LedgerDamaged",
    "LedgerRecord",
    "LocalRepair",
    "LookTransfer",
    "MODES",
    "MeanInterval",
    "MeasuredUnder",
    "Measurement",
    "ModelAnswer",
    "ModelQuestion",
    "ModelRole",
    "ModelUsage",
    "MonitoredAdoption",
    "NeedsAnswer",
    "NoAnswer",
    "Opportunities",
    "PairedCheck",
    "PastIteration",
    "PendingQuestions",
    "ProcessBackend",
    "Program",
    "ProgramImprovement",
    "ProgramPart",
    "ProposerModel",
    "QUESTION_TOKENS",
    "REPAIRS",
    "RayBackend",
    "RayCluster",
    "RegisteredScorer",
    "RemovedRun",
    "RepairTag",
    "Reservation",
    "Restructure",
    "Rollout",
    "RunBudget",
    "RunDirectory",
    "RunFacts",
    "RunPlan",
    "RunState",
    "RunStatus",
    "RunStopped",
    "Score",
    "ScorerSpec",
    "SessionTaskSet",
    "SkillTrial",
    "SpendLimit",
    "Split",
    "SplitRatios",
    "StartedMeasurement",
    "StartedRun",
    "StartedTry",
    "StructureAction",
    "StructureDecision",
    "StructureInput",
    "StructureSummary",
    "StructureThresholds",
    "SubmittedAnswer",
    "TableColumns",
    "Task",
    "TaskAnswers",
    "TaskSet",
    "TaskSetCheck",
    "TaskSetScorer",
    "ToolSandbox",
    "Trial",
    "TrialAttempt",
    "TrialBackend",
    "TrialJob",
    "TrialOutcome",
    "TryPlan",
    "TryResult",
    "TryTaskList",
    "add_spending",
    "adopt",
    "alpha_of_look",
    "approve",
    "asks_about_templates",
    "budget_turn",
    "changed_test_tasks",
    "check_answer",
    "check_named_executor",
    "check_runnable",
    "check_taskset",
    "collect_facts",
    "count_by_category",
    "count_by_split",
    "count_unassigned",
    "create_run",
    "decide_held_candidate",
    "decide_structure",
    "describe_evaluations",
    "describe_look",
    "draft_from_sessions",
    "draw_blind_pairs",
    "draw_curve",
    "draw_lineage",
    "drive_run",
    "encode_input",
    "executor_kind",
    "find_opportunities",
    "find_run",
    "find_searched",
    "find_task_templates",
    "finish_removals",
    "fold_records",
    "format_mean",
    "format_measurement",
    "get_held_candidate",
    "get_status",
    "improve_program",
    "is_approved",
    "is_of_today",
    "iter_run_states",
    "iter_runs",
    "joint_results",
    "linked_folders",
    "list_commands",
    "list_pending",
    "list_statuses",
    "load_program",
    "load_run",
    "load_run_state",
    "load_taskset",
    "look_at",
    "make_executor",
    "make_masker",
    "make_part",
    "make_plan",
    "make_program",
    "monitor_adoptions",
    "named_model",
    "named_scorers",
    "needs_commands",
    "new_agent",
    "no_spending",
    "parse_executor_spec",
    "parse_price",
    "parse_strict_json",
    "parse_trial",
    "plan_try",
    "planned_trials",
    "preview_adoption",
    "propose_session_tasks",
    "read_ledger",
    "read_measurement",
    "read_records",
    "read_run_file",
    "read_status",
    "read_table",
    "read_taskset_path",
    "read_try",
    "record_preferences",
    "record_shown_test",
    "redact_file",
    "refuse_changed",
    "refuse_unapproved",
    "refuse_untrusted",
    "registered_scorers",
    "remove_old_runs",
    "remove_run",
    "render_alike",
    "render_splits",
    "resume_run",
    "run_tool_command",
    "scorer_files",
    "shorten",
    "start_measurement",
    "start_run",
    "start_try",
    "stop_run",
    "submit_answer",
    "summarise_structure",
    "tasks_of_answers",
    "tasks_of_draft",
    "tasks_of_prompts",
    "tasks_of_set",
    "tasks_of_table",
    "to_bill",
    "translate_damage",
    "try_checks",
    "unadopt",
    "with_delegate",
    "word_changes",
    "write_below",
    "write_files",
    "write_report",
]
