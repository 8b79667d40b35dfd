"""Task sets: the tasks a program is measured on, read, split, checked, and their test sealed."""

from evolvable_tools.evolve.tasksets.checking import TaskSetCheck, check
from evolvable_tools.evolve.tasksets.looks import Looks
from evolvable_tools.evolve.tasksets.places import taskset_from_path, taskset_of
from evolvable_tools.evolve.tasksets.reading import InvalidTaskSet, read_taskset, scorer_files, workspace_files
from evolvable_tools.evolve.tasksets.sealing import OpenedTest, OpenTasks, SealedTest, TaskView, seal, view
from evolvable_tools.evolve.tasksets.splitting import Ratios

__all__ = [
    "InvalidTaskSet",
    "Looks",
    "OpenTasks",
    "OpenedTest",
    "Ratios",
    "SealedTest",
    "TaskSetCheck",
    "TaskView",
    "check",
    "read_taskset",
    "scorer_files",
    "seal",
    "taskset_from_path",
    "taskset_of",
    "view",
    "workspace_files",
]
