"""Read a task set from its files, and report all its problems at once."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.executors import load_schema, parse_strict_json
from evolvable_evolve.evolution.scorers import argument_problem
from evolvable_evolve.evolution.task import (
    PublicCheck,
    ScorerSpec,
    Split,
    SplitRatios,
    SplitRequest,
    Task,
    TaskSet,
    assign_splits,
)
from evolvable_evolve.evolution.tasks.similarity import Alike, find_kinds
from evolvable_store import parse_document, path_problem
from evolvable_store.errors import InvalidResource

AUTO_SPLIT = "auto"
"""The split of a task that names none: its id decides the split."""


def read_record(record: Any) -> tuple[Task | None, list[str]]:
    """Return the task of a JSON value, or None and all its faults.

    Its split and its digest follow from the whole task set. Until then it belongs to the test,
    which is shown to nobody.
    """
    if not isinstance(record, dict):
        return None, ["a task is a JSON object"]
    # Half of a surrogate pair cannot be hashed or written.
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None, ["it is not valid Unicode: it has half of a character (\\ud800 to \\udfff)"]
    record = _upgrade_candidate(record)
    # In the order of the fields, so that the same record gives the same messages.
    faults = sorted(_make_validator().iter_errors(record), key=lambda error: error.json_path)
    problems = [_describe_fault(error.json_path, error.message) for error in faults]
    if problems:
        return None, problems
    task = _make_task(record)
    scorer = ""
    # A task that was not reviewed may still lack its scorer. A check of the task set refuses it.
    if task.reviewed or "scorer" in record:
        scorer = argument_problem(task.scorer, task.expected)
    public = _find_folder_problem(task.public.files, "public.files") if task.public else ""
    problems = list(filter(None, (scorer, _find_folder_problem(task.files), public)))
    return (None if problems else task), problems


_CANDIDATE_FIELDS = {"prompt", "check", "session", "reviewed"}


def _upgrade_candidate(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a line that an older review wrote as a task; any other record as it is."""
    if set(record) != _CANDIDATE_FIELDS or not isinstance(record["session"], str):
        return record
    more = {
        "id": f"session-{_hash_json(record)[:12]}",
        "source": f"session:{'-'.join(record['session'].split()) or 'unknown'}",
    }
    return {name: value for name, value in record.items() if name != "session"} | more


@cache
def _make_validator() -> Any:
    # Late, because its import is slow.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(load_schema(Path(__file__).with_name("task.schema.json")))


def _make_task(record: Mapping[str, Any]) -> Task:
    scorer = record.get("scorer", "numeric_strict")
    if isinstance(scorer, str):
        spec = ScorerSpec(scorer)
    else:
        spec = ScorerSpec(scorer["type"], scorer.get("args", {}))
    return Task(
        record["id"],
        record["prompt"],
        spec,
        # Until the splits are assigned: a task whose split is unknown must not be shown.
        Split.TEST,
        "",
        expected=_format_expected(record.get("expected")),
        category=" ".join(record.get("category", "other").split()),
        files=(record.get("files") or "").strip("/") or None,
        setup=tuple(tuple(command) for command in record.get("setup", [])),
        timeout_s=float(record.get("timeout_s", 600.0)),
        weight=float(record.get("weight", 1.0)),
        tags=tuple(record.get("tags", [])),
        source=record.get("source", "human"),
        group=" ".join(record.get("group", "").split()),
        reviewed=record.get("reviewed", True),
        check=record.get("check", ""),
        public=_make_public_check(record["public"]) if record.get("public") else None,
    )


def _make_public_check(record: Mapping[str, Any]) -> PublicCheck:
    folder = (record.get("files") or "").strip("/") or None
    return PublicCheck(tuple(record["argv"]), folder, float(record.get("timeout_s", 10.0)))


def _format_expected(value: Any) -> str | None:
    """Return the expected answer as a text; another value as its JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _find_folder_problem(path: str | None, field: str = "files") -> str:
    reason = path_problem(path) if path is not None else ""
    if not reason:
        return ""
    return f"{field} names {ascii(path)}, which is no folder inside a task set: {reason}"


def _describe_fault(where: str, message: str) -> str:
    """Return a fault of the schema as a sentence about a field, with a long value cut."""
    field = where.removeprefix("$").lstrip(".")
    short = message if len(message) <= 160 else f"...{message[-150:]}"
    hint = ""
    if field.startswith("setup"):
        hint = '; setup is a list of commands, each a list of arguments such as ["git", "init"]'
    return f"{field}: {short}{hint}" if field else f"{short}{hint}"


LINES = "tasks.jsonl"
FOLDER = "tasks/"
ENVIRONMENT_FILE = "ENVIRONMENT.md"
ALIKE = "alike"
"""The field of ENVIRONMENT.md with a person's answer on tasks that read alike."""

_RECORD, _PROMPT, _WORKSPACE = "task.json", "prompt.md", "files"
_EXPECTED = ("expected.txt", "expected.json")
_SAMPLES = ("good", "bad")

Written = tuple[str, Any]
"""The place of a record in its file, and the record."""


class InvalidTaskSet(InvalidResource):
    """The files are no task set. `problems` has every reason."""


def read_taskset(
    name: str,
    files: Mapping[str, bytes],
    ratios: SplitRatios | None = None,
    *,
    alike: str | None = None,
) -> TaskSet:
    """Return the task set in these files: `tasks.jsonl`, one task a line, or a folder `tasks/ID/`
    for each task.

    Such a folder has `task.json` with the record, or a part of it: the prompt may be in
    `prompt.md`, the expected answer in `expected.txt` or `expected.json`, and the files of the
    workspace below `files/`. ratios: of the splits of tasks that name none. alike: a person's
    answer on tasks that read alike; None: the answer in the files. Raises InvalidTaskSet.
    """
    problems: list[str] = []
    tasks: list[Task] = []
    named_splits: dict[str, Split] = {}
    for where, record in _iter_records(files, problems):
        task, faults = read_record(record)
        problems += [f"{where}: {fault}" for fault in faults]
        if task is not None:
            problems += [
                f"{where}: {fault}" for fault in _find_workspace_problems(task.files, files)
            ]
            if task.public:
                public = _find_workspace_problems(task.public.files, files, "public.files")
                problems += [f"{where}: {fault}" for fault in public]
            tasks.append(task)
            if not is_unassigned(record):
                named_splits[task.id] = Split(record["split"])
    problems += _find_duplicate_ids(task.id for task in tasks)
    if not tasks and not problems:
        problems.append("it has no tasks")
    if problems:
        raise InvalidTaskSet(name, problems)
    answer = read_alike(name, files) if alike is None else alike
    return _assemble(name, files, tasks, named_splits, ratios or SplitRatios(), answer)


def is_unassigned(record: Mapping[str, object]) -> bool:
    """Return whether a record names no split."""
    return record.get("split", AUTO_SPLIT) == AUTO_SPLIT


def task_folders(files: Mapping[str, bytes]) -> list[str]:
    """Return the names of the folders of tasks."""
    below = [path for path in files if path.startswith(FOLDER) and path.count("/") >= 2]
    return sorted({path.split("/")[1] for path in below})


def scorer_files(taskset: TaskSet) -> dict[str, bytes]:
    """Return the files that a command scorer may need: all but workspaces and records of tasks."""
    return _select_scorer_files(taskset.files, [task.files for task in taskset.tasks])


def holds_task(path: str) -> bool:
    """Return whether the file at this path is a part of a record, and may have expected answers."""
    if path == LINES:
        return True
    parts = path.split("/")
    return path.startswith(FOLDER) and (len(parts) < 4 or parts[2] != _WORKSPACE)


def _iter_records(files: Mapping[str, bytes], problems: list[str]) -> Iterator[Written]:
    if LINES in files:
        # Otherwise tasks of the folder would be missing without a word.
        if any(path.startswith(FOLDER) and path.endswith(f"/{_RECORD}") for path in files):
            problems.append(
                f"it has both {LINES} and a folder {FOLDER} with tasks; keep one of them"
            )
        yield from _iter_lines(files[LINES], problems)
        return
    names = task_folders(files)
    if not names:
        problems.append(f"it has neither {LINES} nor a folder {FOLDER}ID/ with {_RECORD}")
    for name in names:
        record = _read_folder(name, files, problems)
        if record is not None:
            yield f"{FOLDER}{name}", record


def split_lines(text: str) -> list[str]:
    """Return the lines of a file with a JSON object a line.

    `str.splitlines` also ends a line at U+0085 and U+2028, which JSON strings may contain.
    """
    return re.split(r"\r?\n", text)


def _iter_lines(data: bytes, problems: list[str]) -> Iterator[Written]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(f"{LINES} is not UTF-8 (byte {error.start:,})")
        return
    for number, line in enumerate(split_lines(text), start=1):
        if line.strip():
            try:
                yield f"line {number}", parse_strict_json(line)
            except (ValueError, RecursionError) as error:
                problems.append(f"line {number}: it is no JSON ({error})")


def _read_folder(
    name: str, files: Mapping[str, bytes], problems: list[str]
) -> dict[str, Any] | None:
    place = f"{FOLDER}{name}/"
    fields: dict[str, Any] = {"id": name}
    try:
        if f"{place}{_RECORD}" in files:
            record = parse_strict_json(files[f"{place}{_RECORD}"].decode("utf-8-sig"))
            if not isinstance(record, dict):
                raise ValueError("a task is a JSON object")
            fields |= record
        # The record wins over the files beside it.
        if f"{place}{_PROMPT}" in files:
            prompt = files[f"{place}{_PROMPT}"].decode("utf-8-sig").strip()
            fields.setdefault("prompt", prompt)
        for path in _EXPECTED:
            if place + path in files:
                text = files[place + path].decode("utf-8-sig")
                is_json = path.endswith(".json")
                expected = parse_strict_json(text) if is_json else text.removesuffix("\n")
                fields.setdefault("expected", expected)
    except (ValueError, RecursionError) as error:
        problems.append(f"{place.rstrip('/')}: it cannot be read ({error})")
        return None
    if any(path.startswith(f"{place}{_WORKSPACE}/") for path in files):
        fields.setdefault("files", f"{place}{_WORKSPACE}")
    return fields


def _find_workspace_problems(
    folder: str | None, files: Mapping[str, bytes], field: str = "files"
) -> Iterator[str]:
    below = [path for path in files if folder is not None and path.startswith(f"{folder}/")]
    if folder is not None and not below:
        yield f"{field} names {folder}, and there is no file below it"
    if task_file := next(filter(holds_task, below), None):
        yield (
            f"{field} names {folder}, in which {task_file} lies: the program could read what "
            "is expected"
        )


def _find_duplicate_ids(ids: Iterable[str]) -> Iterator[str]:
    earlier: set[str] = set()
    for id_ in ids:
        # Ids name workspaces and reports, also on file systems that ignore case.
        if id_.casefold() in earlier:
            yield f"two tasks have the id {id_}"
        earlier.add(id_.casefold())


def _assemble(
    name: str,
    files: Mapping[str, bytes],
    tasks: Sequence[Task],
    named_splits: Mapping[str, Split],
    ratios: SplitRatios,
    alike: str,
) -> TaskSet:
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    scorer_paths = _select_scorer_files(files, [task.files for task in tasks])
    scorers = _hash_json(sorted((path, hashes[path]) for path in scorer_paths))
    contents = {task.id: _list_task_content(task, hashes, scorers) for task in tasks}
    kinds = find_kinds(tasks, files, alike)
    splits = _assign_splits(tasks, kinds.groups, named_splits, ratios)
    if not {Split.VAL, Split.TEST} <= set(splits.values()):
        # With a few templates every split gets some of each: a run can compare, and claims nothing
        # of other tasks.
        groups = find_kinds(tasks, files, Alike.ONLY_WORDS).groups
        splits = _assign_splits(tasks, groups, named_splits, ratios)
    group_names, kind_names = _drop_single(kinds.groups), _drop_single(kinds.kinds)
    assembled = tuple(
        replace(
            task,
            split=splits[task.id],
            digest=_hash_json(contents[task.id]),
            group=group_names[task.id],
            kind=kind_names[task.id],
        )
        for task in tasks
    )
    # Sorted, so that the order of lines makes no difference.
    test = _hash_json(sorted(task.digest for task in assembled if task.split is Split.TEST))
    rows = [(task.id, task.digest, task.split, task.weight, task.category) for task in assembled]
    whole = _hash_json([sorted(rows), sorted(hashes.items())])
    return TaskSet(name, assembled, dict(files), whole, test, alike)


def _drop_single(names: Mapping[str, str]) -> dict[str, str]:
    """Return the names by id, '' for a name that only one id has: a group of one is no group."""
    sizes = Counter(names.values())
    return {id_: name if sizes[name] > 1 else "" for id_, name in names.items()}


def _assign_splits(
    tasks: Sequence[Task],
    groups: Mapping[str, str],
    named_splits: Mapping[str, Split],
    ratios: SplitRatios,
) -> dict[str, Split]:
    """Return the split of each task by its id.

    Tasks of a group are in one split, except where their lines name one.
    """
    requests = []
    for task in tasks:
        split = named_splits.get(task.id)
        requests.append(SplitRequest(task.id, task.category, groups[task.id], split, task.source))
    return assign_splits(requests, ratios)


def read_alike(name: str, files: Mapping[str, bytes]) -> str:
    """Return a person's answer on tasks that read alike, a value of `Alike`, '' for none.

    Raises InvalidTaskSet.
    """
    about = files.get(ENVIRONMENT_FILE)
    try:
        alike = parse_document(about).fields.get(ALIKE) if about is not None else None
    except InvalidResource:
        # The files are of no library, which would refuse such a head itself.
        return ""
    if alike is None:
        return ""
    if alike not in list(Alike):
        problem = f"{ALIKE} of {ENVIRONMENT_FILE} is one of {', '.join(Alike)}"
        raise InvalidTaskSet(name, [problem])
    return str(alike)


def _list_task_content(task: Task, hashes: Mapping[str, str], scorers: str) -> dict[str, Any]:
    """Return everything that the digest of a task covers, which known answers are not."""
    start = f"{task.files}/"
    own_hashes = [
        (path.removeprefix(start), sha) for path, sha in hashes.items() if path.startswith(start)
    ]
    public: dict[str, Any] = {}
    # Without a public check there is no key, so that digests of older versions stay the same.
    if task.public:
        place = f"{task.public.files}/"
        public_hashes = sorted(
            (path, sha) for path, sha in hashes.items() if path.startswith(place)
        )
        public = {"public": [task.public.argv, task.public.timeout_s, public_hashes]}
    return {
        **public,
        "prompt": task.prompt,
        "scorer": task.scorer.type,
        "args": {key: value for key, value in task.scorer.args.items() if key not in _SAMPLES},
        "scorer_files": scorers if task.scorer.type == "command" else "",
        "expected": task.expected,
        # Relative to the folder: a renamed workspace is the same task.
        "files": sorted(own_hashes),
        "setup": task.setup,
        "timeout_s": task.timeout_s,
    }


def _select_scorer_files(
    files: Mapping[str, bytes], workspaces: Iterable[str | None]
) -> dict[str, bytes]:
    starts = tuple(f"{folder}/" for folder in workspaces if folder is not None)
    return {
        path: data
        for path, data in files.items()
        if path not in (LINES, ENVIRONMENT_FILE) and not path.startswith((FOLDER, *starts))
    }


def _hash_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
