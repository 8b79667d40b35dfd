"""Tasks for a trial of a skill: from finished sessions, a table, prompts, or a task set.

There is no split and no seal: all tasks are measured. A task that the skill was made from, or that
the skill repeats, says nothing of it and is left out with the reason.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.task import Split, Task, TaskSet
from evolvable_evolve.evolution.tasks.check_commands import AND
from evolvable_evolve.evolution.tasks.holdout import hold_out_test
from evolvable_evolve.evolution.tasks.reader import (
    ENVIRONMENT_FILE,
    LINES,
    read_taskset,
    split_lines,
)
from evolvable_evolve.evolution.tasks.session_files import CHECK_SCRIPT
from evolvable_evolve.evolution.tasks.session_import import SessionDraft
from evolvable_evolve.evolution.tasks.table_import import (
    TableColumns,
    read_table,
    table_header,
    table_rows,
)
from evolvable_store.errors import InvalidArgument

MAX_PROMPTS = 20
"""The most prompts that may be typed or piped."""

COMPARED = "compared"
"""The tag of a task that nothing checks: a judge compares the answers of both arms."""

TRY_NAME = "tried"
_ABOUT = f"---\nname: {TRY_NAME}\ndescription: Tasks of a trial of a skill.\n---\n"
# Names of columns, the first that a table has.
_QUESTIONS = ("prompt", "question", "task", "input")
_ANSWERS = ("expected", "answer", "result", "output")
_CHECK = "check"
_CHECK_HINT = (
    "A check is a program with its arguments, such as `python3 -m pytest -q`; && joins several."
)


@dataclass(frozen=True, slots=True)
class TryTask:
    """A task for a person to see before anything is spent."""

    id: str
    prompt: str
    check: str


@dataclass(frozen=True)
class TryTaskList:
    """Tasks of a trial.

    source: their origin, in words. files: the task set. left_out: ids with their reasons. links: by
    task, the folders of its project's dependencies: the path in the workspace -> the path on this
    machine.
    """

    source: str
    files: Mapping[str, bytes]
    left_out: dict[str, str] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def taskset(self) -> TaskSet:
        """The tasks as a set; all of them may be measured."""
        return read_taskset(TRY_NAME, self.files)

    @property
    def tasks(self) -> list[TryTask]:
        """The tasks for a person."""
        # A set without lines is no task set, and reading it raises.
        if not self.files.get(LINES, b"").strip():
            return []
        return [TryTask(task.id, task.prompt, describe_check(task)) for task in self.taskset.tasks]

    def without(self, reasons: Mapping[str, str]) -> "TryTaskList":
        """Return the list without these tasks. reasons: by id."""
        if not reasons:
            return self
        lines = [line for line in _read_lines(self.files) if json.loads(line)["id"] not in reasons]
        files, left_out = _replace_lines(self.files, lines), {**self.left_out, **reasons}
        return replace(self, files=files, left_out=left_out)


def describe_check(task: Task) -> str:
    """Return in words how an answer to a task is decided."""
    if COMPARED in task.tags:
        return "a judge compares both answers"
    argv = task.scorer.args.get("argv")
    if task.scorer.type == "command" and isinstance(argv, list | tuple):
        words = list(map(str, argv))
        is_own_script = len(words) > 2 and words[1].endswith(f"/{CHECK_SCRIPT}")
        # The check itself follows the options of the script that runs it.
        if is_own_script and "--" in words:
            words = words[words.index("--") + 1 :]
        return shlex.join(words).replace("'&&'", AND)
    if task.scorer.type == "judge":
        return f"a judge, by the correction: {(task.expected or '')[:100]}"
    return f"{task.scorer.type}: {(task.expected or '')[:100]}"


def tasks_of_table(path: Path) -> TryTaskList:
    """Return the tasks of a table.

    Its columns are found by their names, else the first two are question and answer. A column
    `check` has the command that decides about a task, run in its workspace. A row without one has
    an expected answer. Raises InvalidArgument, InvalidTaskSet.
    """
    header = table_header(path)
    by_name = {name.strip().casefold(): name for name in header}
    check = by_name.get(_CHECK, "")
    first = header[0] if header else ""
    question = next((by_name[name] for name in _QUESTIONS if name in by_name), first)
    answer = next((by_name[name] for name in _ANSWERS if name in by_name), "")
    others = [name for name in header if name not in (question, check)]
    if not answer and not check and others:
        answer = others[0]
    if not question or not (answer or check):
        raise InvalidArgument(
            f"{path} has no two columns.",
            "A table has in each row a question and an expected answer, or a question and a "
            "`check`: a command.",
        )
    category, identity = by_name.get("category", ""), by_name.get("id", "")
    columns = TableColumns(question, answer, category, identity, "numeric_strict")
    if check:
        return _read_checked_rows(path, columns, check)
    _, files, _ = read_table(path, columns, TRY_NAME)
    records = [json.loads(line) for line in _read_lines(files)]
    return _make_list(path.name, _choose_scorer(records), files)


def _read_checked_rows(path: Path, columns: TableColumns, check: str) -> TryTaskList:
    """Return the tasks of a table with a command that checks each.

    Raises InvalidArgument, InvalidTaskSet.
    """
    plain, checked = list[dict[str, Any]](), list[dict[str, Any]]()
    left_out = dict[str, str]()
    for number, row in enumerate(table_rows(path), 1):
        prompt, expected, line = (
            str(row.get(column) or "").strip()
            for column in (columns.question, columns.answer, check)
        )
        own_id = str(row.get(columns.id) or "") if columns.id else ""
        about: dict[str, Any] = {"id": own_id or f"row-{number}", "prompt": prompt}
        if columns.category and (category := str(row.get(columns.category) or "").strip()):
            about["category"] = category[:100]
        # One bad row of a large table is reported and not fatal.
        if not prompt:
            left_out[about["id"]] = "its row has no question"
        elif not line and not expected:
            left_out[about["id"]] = "its row has no answer and no check"
        elif line:
            command = ["{python}", "{taskset}/" + CHECK_SCRIPT, about["id"], "--"]
            argv = [*command, *_split_check(line, path, number)]
            # 300 seconds, because a suite of tests may take minutes.
            args = {"argv": argv, "timeout_s": 300}
            checked.append({**about, "scorer": {"type": "command", "args": args}})
        else:
            plain.append({**about, "expected": expected, "scorer": "numeric_strict"})
    files = {CHECK_SCRIPT: Path(__file__).with_name("session_check.txt").read_bytes()}
    task_list = _make_list(path.name, [*checked, *_choose_scorer(plain)], files)
    return replace(task_list, left_out=left_out)


def _split_check(line: str, path: Path, number: int) -> list[str]:
    """Return the words of a check.

    No shell runs it: `&&` joins commands, other operators of a shell are refused.
    """
    try:
        # This lexer splits off operators, which `shlex.split` leaves within words.
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
        plain = shlex.split(line)
    except ValueError as error:
        raise InvalidArgument(
            f"The check of row {number} in {path} cannot be read: {error}.", _CHECK_HINT
        ) from None
    signs = [word for word in words if word != AND and set(word) <= set("();<>|&")]
    if signs or AND in (plain[0], plain[-1]):
        sign = signs[0] if signs else AND
        raise InvalidArgument(
            f"The check of row {number} in {path} has the sign {sign} of a shell.", _CHECK_HINT
        )
    return plain


def tasks_of_answers(prompts: Sequence[str], expected: Sequence[str]) -> TryTaskList:
    """Return tasks with an expected answer each.

    Raises InvalidArgument where there are not as many.
    """
    if len(prompts) != len(expected):
        raise InvalidArgument(
            f"{len(prompts)} prompts have {len(expected)} expected answers.", "Give one for each."
        )
    task_list = tasks_of_prompts(prompts)
    answers = dict(zip((prompt.strip() for prompt in prompts), expected, strict=True))
    records = [
        {
            "id": record["id"],
            "prompt": record["prompt"],
            "expected": answers[record["prompt"]],
            "scorer": "numeric_strict",
        }
        for record in map(json.loads, _read_lines(task_list.files))
    ]
    return _make_list("prompts with expected answers", _choose_scorer(records), {})


def _choose_scorer(records: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return records whose answers are compared as numbers, or as texts where one is no number."""
    if all(_is_number(str(record["expected"])) for record in records):
        return records
    return [{**record, "scorer": "exact"} for record in records]


def tasks_of_prompts(prompts: Iterable[str]) -> TryTaskList:
    """Return tasks that nothing checks, one for each prompt.

    Raises InvalidArgument for none, or for too many.
    """
    # Each prompt once: the same task twice is no second task.
    texts = list(dict.fromkeys(prompt.strip() for prompt in prompts if prompt.strip()))
    if not 1 <= len(texts) <= MAX_PROMPTS:
        raise InvalidArgument(
            f"There are {len(texts)} prompts.", f"Give 1 to {MAX_PROMPTS}, one on each line."
        )
    records = [
        {
            "id": f"prompt-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}",
            "prompt": text,
            # Every answer passes here: a judge compares the answers of both arms later.
            "scorer": {"type": "regex", "args": {"pattern": "(?s).*"}},
            "tags": [COMPARED],
        }
        for text in texts
    ]
    return _make_list("prompts", records, {})


def tasks_of_draft(draft: SessionDraft, *, judged: bool) -> TryTaskList:
    """Return the tasks that were found in sessions.

    judged: whether there is a judge for tasks that need one.
    """
    new_ids = {task.id for task in draft.found}
    lines = map(json.loads, _read_lines(draft.files))
    records = [record for record in lines if record["id"] in new_ids]
    task_list = replace(_make_list("sessions", records, draft.files), links=draft.links)
    if judged:
        return task_list
    needing = [task.id for task in _read_tasks(task_list) if task.scorer.type == "judge"]
    why = "a judge scores it, and none is named (--judge)"
    return task_list.without(dict.fromkeys(needing, why))


def tasks_of_set(taskset: TaskSet) -> TryTaskList:
    """Return train and validation of a task set; nothing of its sealed test is read.

    Raises InvalidArgument.
    """
    if LINES not in taskset.files:
        raise InvalidArgument(
            f"{taskset.name} has a folder for each task.", f"Tasks are taken from {LINES} alone."
        )
    open_tasks, _ = hold_out_test(taskset)
    open_ids = {task.id for task in (*open_tasks.train, *open_tasks.val)}
    lines = map(json.loads, _read_lines(taskset.files))
    records = [record for record in lines if record["id"] in open_ids]
    return _make_list(f"train and validation of {taskset.name}", records, open_tasks.files)


def _read_tasks(task_list: TryTaskList) -> Sequence[Task]:
    return task_list.taskset.tasks if task_list.files.get(LINES, b"").strip() else ()


def _make_list(
    source: str, records: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]
) -> TryTaskList:
    # A trial has no splits, and val is the one that is measured and shown.
    lines = [
        json.dumps({**record, "split": str(Split.VAL)}, ensure_ascii=False) for record in records
    ]
    about = {ENVIRONMENT_FILE: _ABOUT.encode()}
    # First for its place in the order, and last to replace a file of the same name.
    return TryTaskList(source, _replace_lines({**about, **files, **about}, lines))


def _read_lines(files: Mapping[str, bytes]) -> list[str]:
    return [line for line in split_lines(files.get(LINES, b"").decode("utf-8-sig")) if line.strip()]


def _replace_lines(files: Mapping[str, bytes], lines: Sequence[str]) -> dict[str, bytes]:
    text = "".join(f"{line}\n" for line in lines)
    return {**files, LINES: text.encode("utf-8", "replace")}


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").strip("$€£% "))
    except ValueError:
        return False
    return True
