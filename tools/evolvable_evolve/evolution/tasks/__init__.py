"""Task sets: the tasks that programs are measured on, read, split and checked, with a held-out
test.

Begin with `check_taskset` and `hold_out_test`. The sealed rows are read by `tasks.reader` and found
by `tasks.locate` alone; both are doors of their own, so that a contract keeps the search away from
them.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.tasks.dependency_folders import linked_folders
    from evolvable_evolve.evolution.tasks.diagnostics import (
        MIN_TASKS,
        TaskSetCheck,
        TaskTemplate,
        asks_about_templates,
        check_taskset,
        count_by_category,
        count_by_split,
        count_groups,
        find_task_templates,
    )
    from evolvable_evolve.evolution.tasks.holdout import (
        HeldOutTest,
        TestAccessLog,
        TestRunner,
        hold_out_test,
        look_at,
        opened_before,
        redact_file,
    )
    from evolvable_evolve.evolution.tasks.look_transfer import LookTransfer, record_shown_test
    from evolvable_evolve.evolution.tasks.opened_tasks import OpenedTaskLog
    from evolvable_evolve.evolution.tasks.scorer_calibration import IssueLevel, format_ids
    from evolvable_evolve.evolution.tasks.session_import import (
        SessionTaskSet,
        draft_from_sessions,
        propose_session_tasks,
        refuse_learned_sessions,
        try_checks,
    )
    from evolvable_evolve.evolution.tasks.similarity import (
        Alike,
        TaskKinds,
        TextSketch,
        count_effective,
        describe_claim,
        find_groups,
        find_kinds,
        sketch_set,
    )
    from evolvable_evolve.evolution.tasks.table_import import (
        ImportedTable,
        TableColumns,
        read_table,
    )
    from evolvable_evolve.evolution.tasks.taught_tasks import (
        MARK,
        find_copies,
        find_exposed,
        find_taught,
    )
    from evolvable_evolve.evolution.tasks.try_tasks import (
        COMPARED,
        TryTask,
        TryTaskList,
        tasks_of_answers,
        tasks_of_draft,
        tasks_of_prompts,
        tasks_of_set,
        tasks_of_table,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "diagnostics": (
                "MIN_TASKS TaskSetCheck TaskTemplate asks_about_templates check_taskset "
                "count_by_category count_by_split count_groups find_task_templates"
            ),
            "holdout": (
                "HeldOutTest TestAccessLog TestRunner hold_out_test look_at opened_before "
                "redact_file"
            ),
            "look_transfer": "LookTransfer record_shown_test",
            "opened_tasks": "OpenedTaskLog",
            "scorer_calibration": "IssueLevel format_ids",
            "session_import": (
                "SessionTaskSet draft_from_sessions propose_session_tasks "
                "refuse_learned_sessions try_checks"
            ),
            "similarity": (
                "Alike TaskKinds TextSketch count_effective describe_claim find_groups "
                "find_kinds sketch_set"
            ),
            "table_import": "ImportedTable TableColumns read_table",
            "try_tasks": (
                "COMPARED TryTask TryTaskList tasks_of_answers tasks_of_draft "
                "tasks_of_prompts tasks_of_set tasks_of_table"
            ),
            "dependency_folders": "linked_folders",
            "taught_tasks": "MARK find_copies find_exposed find_taught",
        },
    )

__all__ = [
    "Alike",
    "COMPARED",
    "HeldOutTest",
    "ImportedTable",
    "IssueLevel",
    "LookTransfer",
    "MARK",
    "MIN_TASKS",
    "OpenedTaskLog",
    "SessionTaskSet",
    "TableColumns",
    "TaskKinds",
    "TaskSetCheck",
    "TaskTemplate",
    "TestAccessLog",
    "TestRunner",
    "TextSketch",
    "TryTask",
    "TryTaskList",
    "asks_about_templates",
    "check_taskset",
    "count_by_category",
    "count_by_split",
    "count_effective",
    "count_groups",
    "describe_claim",
    "draft_from_sessions",
    "find_copies",
    "find_exposed",
    "find_groups",
    "find_kinds",
    "find_task_templates",
    "find_taught",
    "format_ids",
    "hold_out_test",
    "linked_folders",
    "look_at",
    "opened_before",
    "propose_session_tasks",
    "read_table",
    "record_shown_test",
    "redact_file",
    "refuse_learned_sessions",
    "sketch_set",
    "tasks_of_answers",
    "tasks_of_draft",
    "tasks_of_prompts",
    "tasks_of_set",
    "tasks_of_table",
    "try_checks",
]
