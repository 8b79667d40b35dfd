"""Tasks for a trial of a skill, from anywhere: finished sessions, a table, or prompts; and which were taught to it.

There is no split and no seal: all tasks are measured. A task that the skill was made from, or that the skill repeats,
says nothing of it and is left out with the reason.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.candidates import LeakCorpus, Program
from evolvable_evolve.evolution.task import Split, Task, TaskSet, task_fixtures
from evolvable_evolve.evolution.tasks.holdout import hold_out_test
from evolvable_evolve.evolution.tasks.reader import ENVIRONMENT_FILE, LINES, read_taskset, split_lines
from evolvable_evolve.evolution.tasks.session_import import SESSION_SOURCE, SessionDraft, sessions_behind_proposals
from evolvable_evolve.evolution.tasks.table_import import TableColumns, read_table, table_header
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Library

MAX_PROMPTS = 20
"""Prompts that may be typed or piped."""

COMPARED = "compared"
"""The tag of a task that nothing checks: a judge compares the answers of both arms."""

TRY_NAME = "tried"
_ABOUT = f"---\nname: {TRY_NAME}\ndescription: Tasks of a trial of a skill.\n---\n"
_QUESTIONS = ("prompt", "question", "task", "input")
_ANSWERS = ("expected", "answer", "result", "output")
_MIN_COPY = 60  # bytes from which on equal files are copies


@dataclass(frozen=True, slots=True)
class TryTask:
    """A task as a person is shown it before anything is spent."""

    id: str
    prompt: str
    check: str


@dataclass(frozen=True)
class TryTaskList:
    """Tasks of a trial. source: where they are from, in words. files: the task set. left_out: ids, and why."""

    source: str
    files: Mapping[str, bytes]
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def taskset(self) -> TaskSet:
        """Return the tasks as a set; all of them may be measured."""
        return read_taskset(TRY_NAME, self.files)

    @property
    def tasks(self) -> list[TryTask]:
        """Return the tasks as a person is shown them."""
        if not self.files.get(LINES, b"").strip():
            return []
        return [TryTask(task.id, task.prompt, describe_check(task)) for task in self.taskset.tasks]

    def without(self, reasons: Mapping[str, str]) -> "TryTaskList":
        """Return the list without these tasks. reasons: by id."""
        if not reasons:
            return self
        kept = [line for line in _lines(self.files) if json.loads(line)["id"] not in reasons]
        return replace(self, files=_with_lines(self.files, kept), left_out={**self.left_out, **reasons})


def describe_check(task: Task) -> str:
    """Return in words what decides about an answer to a task."""
    if COMPARED in task.tags:
        return "a judge compares both answers"
    argv = task.scorer.args.get("argv")
    if task.scorer.type == "command" and isinstance(argv, list | tuple):
        return " ".join(map(str, argv))
    if task.scorer.type == "judge":
        return f"a judge, by the correction: {(task.expected or '')[:100]}"
    return f"{task.scorer.type}: {(task.expected or '')[:100]}"


def tasks_of_table(path: Path) -> TryTaskList:
    """Return the tasks of a table. Its columns are found by their names, else the first two are question and answer.

    Raises InvalidArgument, InvalidTaskSet.
    """
    header = table_header(path)
    by_name = {name.strip().casefold(): name for name in header}
    question = next((by_name[name] for name in _QUESTIONS if name in by_name), header[0] if header else "")
    rest = [name for name in header if name != question]
    answer = next((by_name[name] for name in _ANSWERS if name in by_name), rest[0] if rest else "")
    if not question or not answer:
        raise InvalidArgument(
            f"{path} has no two columns.", "A table has a question and an expected answer in each row."
        )
    category, identity = by_name.get("category", ""), by_name.get("id", "")
    _, files, _ = read_table(path, TableColumns(question, answer, category, identity, "numeric_strict"), TRY_NAME)
    return _listed(path.name, _with_scorer([json.loads(line) for line in _lines(files)]), files)


def tasks_of_answers(prompts: Sequence[str], expected: Sequence[str]) -> TryTaskList:
    """Return tasks with an expected answer each. Raises InvalidArgument where there are not as many."""
    if len(prompts) != len(expected):
        raise InvalidArgument(f"{len(prompts)} prompts have {len(expected)} expected answers.", "Give one for each.")
    given = tasks_of_prompts(prompts)
    answers = dict(zip((one.strip() for one in prompts), expected, strict=True))
    records = [
        {"id": one["id"], "prompt": one["prompt"], "expected": answers[one["prompt"]], "scorer": "numeric_strict"}
        for one in map(json.loads, _lines(given.files))
    ]
    return _listed("prompts with expected answers", _with_scorer(records), {})


def _with_scorer(records: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return records whose answers are compared as numbers, or as texts where one is no number."""
    if all(_is_number(str(one["expected"])) for one in records):
        return records
    return [{**one, "scorer": "exact"} for one in records]


def tasks_of_prompts(prompts: Iterable[str]) -> TryTaskList:
    """Return tasks that nothing checks, one for each prompt. Raises InvalidArgument for none, or for too many."""
    given = list(dict.fromkeys(one.strip() for one in prompts if one.strip()))
    if not 1 <= len(given) <= MAX_PROMPTS:
        raise InvalidArgument(f"There are {len(given)} prompts.", f"Give 1 to {MAX_PROMPTS}, one on each line.")
    records = [
        {
            "id": f"prompt-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:12]}",
            "prompt": text,
            # Every answer passes: which of two is better is asked when both are there.
            "scorer": {"type": "regex", "args": {"pattern": "(?s).*"}},
            "tags": [COMPARED],
        }
        for text in given
    ]
    return _listed("prompts", records, {})


def tasks_of_draft(draft: SessionDraft, *, judged: bool) -> TryTaskList:
    """Return the tasks that were found in sessions. judged: whether there is a judge for those that need one."""
    found = {one.id for one in draft.found}
    records = [one for one in map(json.loads, _lines(draft.files)) if one["id"] in found]
    listed = _listed("sessions", records, draft.files)
    needs = [] if judged else [task.id for task in _tasks(listed) if task.scorer.type == "judge"]
    return listed.without(dict.fromkeys(needs, "a judge scores it, and none is named (--judge)"))


def tasks_of_set(taskset: TaskSet) -> TryTaskList:
    """Return train and validation of a task set; nothing of its sealed test is read. Raises InvalidArgument."""
    if LINES not in taskset.files:
        raise InvalidArgument(f"{taskset.name} has a folder for each task.", f"Tasks are taken from {LINES} alone.")
    open_tasks, _ = hold_out_test(taskset)
    known = {task.id for task in (*open_tasks.train, *open_tasks.val)}
    records = [one for one in map(json.loads, _lines(taskset.files)) if one["id"] in known]
    return _listed(f"train and validation of {taskset.name}", records, open_tasks.files)


def _tasks(listed: TryTaskList) -> Sequence[Task]:
    return listed.taskset.tasks if listed.files.get(LINES, b"").strip() else ()


def _listed(source: str, records: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]) -> TryTaskList:
    lines = [json.dumps({**one, "split": str(Split.VAL)}, ensure_ascii=False) for one in records]
    about = {ENVIRONMENT_FILE: _ABOUT.encode()}
    return TryTaskList(source, _with_lines({**about, **files, **about}, lines))


def _lines(files: Mapping[str, bytes]) -> list[str]:
    return [line for line in split_lines(files.get(LINES, b"").decode("utf-8-sig")) if line.strip()]


def _with_lines(files: Mapping[str, bytes], lines: Sequence[str]) -> dict[str, bytes]:
    return {**files, LINES: "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")}


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").strip("$€£% "))
    except ValueError:
        return False
    return True


def find_taught(library: Library, taskset: TaskSet, refs: Sequence[Ref], program: Program) -> dict[str, str]:
    """Return the open tasks that say nothing of the program, with the reason: it was made from them, or repeats them.

    A session that is a fork of one among the evidence has its own prompts alone, and those are no evidence.
    """
    learned = {"-".join(one.split()) for one in sessions_behind_proposals(library, refs)}
    reasons = {}
    copies = {hashlib.sha256(data).digest() for part in program.parts for data in part.files.values() if _counts(data)}
    texts = [text for part in program.parts for text in part.texts.values()]
    for task in taskset.tasks:
        if task.split is Split.TEST:  # nobody looks into it
            continue
        fixtures = task_fixtures(task, taskset.files)
        if task.source.startswith(SESSION_SOURCE) and task.source.removeprefix(SESSION_SOURCE) in learned:
            reasons[task.id] = "taught: its session is among the evidence of the skill"
        elif any(hashlib.sha256(data).digest() in copies for data in fixtures.values() if _counts(data)):
            reasons[task.id] = "taught: a file of it stands in the skill"
        elif _repeats(task, texts):
            reasons[task.id] = "taught: its expected answer stands in the skill"
    return reasons


def _counts(data: bytes) -> bool:
    return len(data) >= _MIN_COPY


def _repeats(task: Task, texts: Sequence[str]) -> bool:
    """Return whether a text has what is expected of a task. Commands and prompts are no answers."""
    answers = replace(task, prompt="", scorer=replace(task.scorer, args={}))
    corpus = LeakCorpus([answers])
    return any(corpus.leaks(text) for text in texts)


def find_exposed(taskset: TaskSet, program: Program) -> dict[str, str]:
    """Return the tasks whose files hold the skill already, by name or as a copy: both arms would have it."""
    copies = {hashlib.sha256(data).digest() for part in program.parts for data in part.files.values() if _counts(data)}
    names = {part.name for part in program.parts}
    reasons = {}
    for task in (one for one in taskset.tasks if one.split is not Split.TEST):
        for path, data in task_fixtures(task, taskset.files).items():
            folders = Path(path).parts[:-1]
            named = "skills" in folders and bool(names.intersection(folders))
            if named or (_counts(data) and hashlib.sha256(data).digest() in copies):
                reasons[task.id] = f"its files hold the skill: {path}"
    return reasons
