"""What an agent is shown of a task set: no answers, and nothing of the test.

The agent that reads the library may be the one that thinks for a run. It is a veil and no lock: whoever may run
commands on this machine can read the files of the library.
"""

import json
from collections.abc import Mapping
from typing import Any

from evolvable_tools.evolve.task import Split, TaskSet
from evolvable_tools.evolve.tasksets.reading import FOLDER, LINES, InvalidTaskSet, holds_task, parsed, read_taskset

SEALED = (
    "[Not shown to agents: this belongs to the sealed test of a task set, or tells an answer. A person sees it with"
    " `evolvable get`.]\n"
)
"""What stands in the place of a whole file."""

NOTE = (
    "[Not the whole file: to agents the expected answers, the arguments of scorers, and {hidden} of the sealed test are"
    " not shown. A person sees all with `evolvable get`. Do not write this back: change it by edits.]\n"
)
"""The first line of a file of tasks as an agent is shown it."""

_TELLING = ("expected", "scorer", "answer")
_OPEN = (Split.TRAIN.value, Split.VAL.value)


def is_task_set(files: Mapping[str, Any]) -> bool:
    """Returns whether an environment with files at these paths is a task set."""
    return LINES in files or any(path.startswith(FOLDER) for path in files)


def veiled(path: str, files: Mapping[str, bytes]) -> bytes:
    """Returns a file of an environment as an agent is shown it; the same bytes where there is nothing to hide."""
    if not is_task_set(files):
        return files[path]
    try:
        taskset = read_taskset("tasks", files)
    except InvalidTaskSet:
        taskset = None  # then nobody knows what is of the test, but for what says that it is not
    if path == LINES:
        return _lines(files[path], taskset)
    if path.startswith(FOLDER):
        return _of_folder(path, files[path], taskset)
    return SEALED.encode() if _in_test_workspace(path, taskset) else files[path]


def hides(path: str, files: Mapping[str, bytes]) -> bool:
    """Returns whether there is something in a file of an environment that an agent is not shown."""
    return path in files and veiled(path, files) != files[path]


def _lines(data: bytes, taskset: TaskSet | None) -> bytes:
    shown, hidden = [], 0
    for line in data.decode("utf-8", "replace").splitlines():
        if not line.strip():
            continue
        said = _parsed(line)
        if said is None or not _is_open(said.get("id"), said, taskset):
            hidden += 1
        else:
            shown.append(json.dumps(_without_answer(said), ensure_ascii=False))
    note = NOTE.format(hidden=f"{hidden} task{'s' * (hidden != 1)}")
    return (note + "".join(f"{line}\n" for line in shown)).encode("utf-8", "replace")


def _of_folder(path: str, data: bytes, taskset: TaskSet | None) -> bytes:
    parts = path.split("/")
    if len(parts) < 3 or not _is_open(parts[1], {}, taskset):
        return SEALED.encode()
    if not holds_task(path) or parts[2] == "prompt.md":
        return data
    said = _parsed(data.decode("utf-8", "replace")) if parts[2] == "task.json" else None
    if said is None:
        return SEALED.encode()
    note = NOTE.format(hidden="the tasks")
    return (note + json.dumps(_without_answer(said), ensure_ascii=False, indent=1) + "\n").encode("utf-8", "replace")


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        said = parsed(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _is_open(name: object, said: Mapping[str, Any], taskset: TaskSet | None) -> bool:
    """Returns whether a task is surely not of the test."""
    if taskset is None:
        return said.get("split") in _OPEN
    return any(task.id == name and task.split is not Split.TEST for task in taskset.tasks)


def _without_answer(said: Mapping[str, Any]) -> dict[str, Any]:
    shown = {key: value for key, value in said.items() if key not in _TELLING}
    scorer = said.get("scorer")
    if isinstance(scorer, dict) and isinstance(scorer.get("type"), str):
        scorer = scorer["type"]
    return shown | ({"scorer": scorer} if isinstance(scorer, str) else {})


def _in_test_workspace(path: str, taskset: TaskSet | None) -> bool:
    if taskset is None:
        return False
    of = {split: [task.files for task in taskset.of(split) if task.files is not None] for split in Split}
    below = {split: any(path.startswith(f"{folder}/") for folder in folders) for split, folders in of.items()}
    return below[Split.TEST] and not below[Split.TRAIN] and not below[Split.VAL]
