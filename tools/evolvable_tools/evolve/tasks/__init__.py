"""Task sets: the tasks a program is measured on, read, split, checked, and their test sealed."""

from evolvable_tools.evolve.task import SplitRatios
from evolvable_tools.evolve.tasks.diagnostics import TaskSetCheck, check_taskset
from evolvable_tools.evolve.tasks.holdout import (
    OpenedTest,
    OpenTasks,
    SealedTest,
    TaskView,
    TestAccessLog,
    hold_out_test,
    view_task,
)
from evolvable_tools.evolve.tasks.locate import load_taskset, read_taskset_path
from evolvable_tools.evolve.tasks.reader import InvalidTaskSet, read_taskset, scorer_files, workspace_files

__all__ = [
    "InvalidTaskSet",
    "TestAccessLog",
    "OpenTasks",
    "OpenedTest",
    "SplitRatios",
    "SealedTest",
    "TaskSetCheck",
    "TaskView",
    "check_taskset",
    "read_taskset",
    "scorer_files",
    "hold_out_test",
    "read_taskset_path",
    "load_taskset",
    "view_task",
    "workspace_files",
]
