"""What would make a measurement worthless whatever is measured: equal tasks in two splits, and answers lying about."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from evolvable_tools.evolve.task import Split, Task, TaskSet
from evolvable_tools.evolve.tasksets.reading import workspace_files
from evolvable_tools.evolve.tasksets.remarks import Level, Remark, tasks

_TELLING = ("expected", "answer", "gold", "solution", "truth", "tasks.jsonl")
_LONG = 20  # characters of an answer that do not stand in a file by chance
_COMMON = 0.5


def leak_remarks(taskset: TaskSet) -> Iterator[Remark]:
    """Yields what is equal that should differ, and where an answer can be read off."""
    yield from _equal(taskset)
    yield from _within(taskset)
    yield from _lying_about(taskset)
    yield from _one_answer(taskset)


def seen(taskset: TaskSet, task: Task) -> str:
    """Returns a hash of what a program gets to see of a task; case and spaces make no difference."""
    files = {path: hashlib.sha256(data).hexdigest() for path, data in workspace_files(taskset, task).items()}
    what = [" ".join(task.prompt.casefold().split()), files, task.setup]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode("utf-8", "replace")).hexdigest()


def _equal(taskset: TaskSet) -> Iterator[Remark]:
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in taskset.tasks:
        groups[seen(taskset, task)].append(task)
    for group in groups.values():
        ids = tuple(task.id for task in group)
        splits = sorted({task.split for task in group})
        if len({task.expected for task in group}) > 1:
            text = f"{tasks(ids)} ask the same and expect different answers."
            yield Remark(Level.REFUSE, "contradiction", text, "Say in the prompts what tells them apart.", ids)
        elif len(splits) > 1:
            text = f"{tasks(ids)} are the same task in {' and '.join(splits)}."
            hint = "Keep one of them: what was learned from one would be tested on the other."
            yield Remark(Level.REFUSE, "duplicate", text, hint, ids)
        elif len(group) > 1:
            text = f"{tasks(ids)} are the same task; they count as several and say no more than one."
            yield Remark(Level.WARN, "duplicate", text, "Keep one of them.", ids)


def _within(taskset: TaskSet) -> Iterator[Remark]:
    """Yields where the workspace of one task holds the workspace of a task of another split."""
    folders = {task.files: task for task in taskset.tasks if task.files is not None}
    for task in folders.values():
        inner = [t for f, t in folders.items() if f and f.startswith(f"{task.files}/") and t.split is not task.split]
        if inner:
            ids = tuple(one.id for one in inner)
            text = f"The workspace of task {task.id} holds that of {tasks(ids)}, which {task.split} must not see."
            yield Remark(Level.REFUSE, "workspace-within", text, "Give each a folder beside the others.", ids)


def _lying_about(taskset: TaskSet) -> Iterator[Remark]:
    told, word_for_word = [], []
    for task in taskset.tasks:
        answer = (task.expected or "").strip()
        files = workspace_files(taskset, task) if answer else {}
        if answer and _tells(answer, files):
            told.append(task.id)
        elif any(answer.encode() in data for data in files.values()):
            word_for_word.append(task.id)
    if told:
        text = f"The expected answer lies in the workspace of {tasks(told)}."
        hint = "Take it out of the folder that `files` names: the program could simply read it."
        yield Remark(Level.REFUSE, "answer-in-files", text, hint, tuple(told))
    if word_for_word:
        text = f"The expected answer stands word for word in a file of {tasks(word_for_word)}."
        hint = "That is as it should be where something is to be found in a text; else take it out."
        yield Remark(Level.NOTE, "answer-in-files", text, hint, tuple(word_for_word))


def _tells(answer: str, files: Mapping[str, bytes]) -> bool:
    """Returns whether a file is the answer, or holds it under a name that says so, or holds a long one."""
    wanted = answer.encode()
    for path, data in files.items():
        telling = any(word in path.rpartition("/")[2].casefold() for word in _TELLING)
        if data.strip() == wanted or (wanted in data and (telling or len(answer) >= _LONG and "\n" in answer)):
            return True
    return False


def _one_answer(taskset: TaskSet) -> Iterator[Remark]:
    answers = [task.expected.strip().casefold() for task in taskset.tasks if task.expected]
    if len(answers) < 4:
        return
    _, count = Counter(answers).most_common(1)[0]
    if count / len(answers) >= _COMMON:
        text = f"The same answer is expected by {count} of {len(answers)} tasks: giving it always scores as much."
        yield Remark(Level.WARN, "one-answer", text, "Mix the answers, or read every score with that in mind.")


def made_up(taskset: TaskSet) -> Iterator[Remark]:
    """Yields a warning where tasks that a model or a program made up are to decide."""
    ids = [t.id for t in taskset.tasks if t.source == "synthetic" and t.split is not Split.TRAIN]
    if ids:
        text = f"{len(ids)} tasks of val and test are synthetic: a verdict is about such tasks."
        yield Remark(Level.WARN, "synthetic", text, "Tasks from real work say more.", tuple(ids))


def by_split(taskset: TaskSet) -> dict[str, int]:
    """Returns how many tasks each split has."""
    return {str(split): len(taskset.of(split)) for split in Split}


def by_category(all_: Sequence[Task]) -> dict[str, dict[str, int]]:
    """Returns how many tasks each category has in each split."""
    table: dict[str, dict[str, int]] = {}
    for task in all_:
        row = table.setdefault(task.category, {str(split): 0 for split in Split})
        row[str(task.split)] += 1
    return dict(sorted(table.items()))
