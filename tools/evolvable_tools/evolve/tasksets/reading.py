"""Reading a task set out of its files, and saying everything that is wrong with it at once."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evolvable_store.errors import InvalidResource
from evolvable_tools.evolve.task import Split, Task, TaskSet
from evolvable_tools.evolve.tasksets.records import Record, read_record
from evolvable_tools.evolve.tasksets.splitting import Dealt, Ratios, deal

LINES = "tasks.jsonl"
FOLDER = "tasks/"
ABOUT = "ENVIRONMENT.md"

_RECORD, _PROMPT, _WORKSPACE = "task.json", "prompt.md", "files"
_EXPECTED = ("expected.txt", "expected.json")
_SAMPLES = ("good", "bad")

Written = tuple[str, Any]
"""A record as it is written, after where it stands."""


class InvalidTaskSet(InvalidResource):
    """Files that are no task set. `problems` holds every reason."""


def read_taskset(name: str, files: Mapping[str, bytes], ratios: Ratios | None = None) -> TaskSet:
    """Returns the task set in these files: `tasks.jsonl`, one task a line, or a folder `tasks/ID/` for each task.

    Such a folder has `task.json` with the record, or a part of it: the prompt may stand in `prompt.md`, the expected
    answer in `expected.txt` or `expected.json`, and what the workspace begins with below `files/`. Tasks that name no
    split are dealt out by `ratios`. Raises InvalidTaskSet.
    """
    problems: list[str] = []
    records: list[Record] = []
    for where, said in _written(files, problems):
        record, faults = read_record(said)
        problems += [f"{where}: {fault}" for fault in faults]
        if record is not None:
            problems += [f"{where}: {fault}" for fault in _workspace_problems(record.files, files)]
            records.append(record)
    problems += _twice(record.id for record in records)
    if not records and not problems:
        problems.append("it has no tasks")
    if problems:
        raise InvalidTaskSet(name, problems)
    return _assembled(name, files, records, ratios or Ratios())


def workspace_files(taskset: TaskSet, task: Task) -> dict[str, bytes]:
    """Returns what a fresh workspace of the task begins with: path inside the workspace -> bytes."""
    if task.files is None:
        return {}
    start = f"{task.files}/"
    return {path.removeprefix(start): data for path, data in taskset.files.items() if path.startswith(start)}


def scorer_files(taskset: TaskSet) -> dict[str, bytes]:
    """Returns the files that a command scorer may need: all but the workspaces' and the tasks themselves."""
    return _scorer_files(taskset.files, [task.files for task in taskset.tasks])


def parsed(text: str) -> Any:
    """Returns what a JSON text says. Raises ValueError, for NaN and Infinity as well, and RecursionError."""

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def holds_task(path: str) -> bool:
    """Returns whether the file at this path says what a task is, and may say what it expects."""
    parts = path.split("/")
    return path == LINES or (path.startswith(FOLDER) and (len(parts) < 4 or parts[2] != _WORKSPACE))


def _written(files: Mapping[str, bytes], problems: list[str]) -> Iterator[Written]:
    if LINES in files:
        if any(path.startswith(FOLDER) and path.endswith(f"/{_RECORD}") for path in files):
            problems.append(f"it has both {LINES} and a folder {FOLDER} with tasks; keep one of them")
        yield from _lines(files[LINES], problems)
        return
    names = sorted({path.split("/")[1] for path in files if path.startswith(FOLDER) and path.count("/") >= 2})
    if not names:
        problems.append(f"it has neither {LINES} nor a folder {FOLDER}ID/ with {_RECORD}")
    for name in names:
        found = _foldered(name, files, problems)
        if found is not None:
            yield f"{FOLDER}{name}", found


def _lines(data: bytes, problems: list[str]) -> Iterator[Written]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problems.append(f"{LINES} is not UTF-8 (byte {error.start:,})")
        return
    for number, line in enumerate(re.split(r"\r?\n", text), start=1):
        if line.strip():
            try:
                yield f"line {number}", parsed(line)
            except (ValueError, RecursionError) as error:
                problems.append(f"line {number}: it is no JSON ({error})")


def _foldered(name: str, files: Mapping[str, bytes], problems: list[str]) -> dict[str, Any] | None:
    place = f"{FOLDER}{name}/"
    said: dict[str, Any] = {"id": name}
    try:
        if f"{place}{_RECORD}" in files:
            record = parsed(files[f"{place}{_RECORD}"].decode("utf-8-sig"))
            if not isinstance(record, dict):
                raise ValueError("a task is a JSON object")
            said |= record
        if f"{place}{_PROMPT}" in files:
            said.setdefault("prompt", files[f"{place}{_PROMPT}"].decode("utf-8-sig").strip())
        for path in _EXPECTED:
            if place + path in files:
                text = files[place + path].decode("utf-8-sig")
                said.setdefault("expected", parsed(text) if path.endswith(".json") else text.removesuffix("\n"))
    except (ValueError, RecursionError) as error:
        problems.append(f"{place.rstrip('/')}: it cannot be read ({error})")
        return None
    if any(path.startswith(f"{place}{_WORKSPACE}/") for path in files):
        said.setdefault("files", f"{place}{_WORKSPACE}")
    return said


def _workspace_problems(folder: str | None, files: Mapping[str, bytes]) -> Iterator[str]:
    below = [path for path in files if folder is not None and path.startswith(f"{folder}/")]
    if folder is not None and not below:
        yield f"files names {folder}, and there is no file below it"
    if told := next(filter(holds_task, below), None):
        yield f"files names {folder}, in which {told} lies: the program could read what is expected"


def _twice(ids: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for id_ in ids:
        # Workspaces and reports are named by them, also where case makes no difference.
        if id_.casefold() in seen:
            yield f"two tasks have the id {id_}"
        seen.add(id_.casefold())


def _assembled(name: str, files: Mapping[str, bytes], records: Sequence[Record], ratios: Ratios) -> TaskSet:
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    scorers = _digest(sorted((path, hashes[path]) for path in _scorer_files(files, [r.files for r in records])))
    contents = [_content(record, hashes, scorers) for record in records]
    digests = [_digest(content) for content in contents]
    groups = [_digest([content["prompt"], content["files"], content["setup"]]) for content in contents]
    dealt = [Dealt(r.id, r.category, g, r.split, r.source) for r, g in zip(records, groups, strict=True)]
    splits = deal(dealt, ratios)
    tasks = tuple(_task(r, splits[r.id], digest) for r, digest in zip(records, digests, strict=True))
    test = _digest(sorted(task.digest for task in tasks if task.split is Split.TEST))
    whole = _digest([sorted((t.id, t.digest, t.split, t.weight, t.category) for t in tasks), sorted(hashes.items())])
    return TaskSet(name, tasks, dict(files), whole, test)


def _content(record: Record, hashes: Mapping[str, str], scorers: str) -> dict[str, Any]:
    """Returns everything that decides what the task is. Known answers in the scorer's arguments are no part of it."""
    start = f"{record.files}/"
    command = record.scorer.type == "command"
    return {
        "prompt": record.prompt,
        "scorer": record.scorer.type,
        "args": {key: value for key, value in record.scorer.args.items() if key not in _SAMPLES},
        "scorer_files": scorers if command else "",
        "expected": record.expected,
        "files": sorted((path.removeprefix(start), sha) for path, sha in hashes.items() if path.startswith(start)),
        "setup": record.setup,
        "timeout_s": record.timeout_s,
    }


def _task(record: Record, split: Split, digest: str) -> Task:
    return Task(
        id=record.id,
        prompt=record.prompt,
        scorer=record.scorer,
        split=split,
        digest=digest,
        expected=record.expected,
        category=record.category,
        files=record.files,
        setup=record.setup,
        timeout_s=record.timeout_s,
        weight=record.weight,
        tags=record.tags,
        source=record.source,
    )


def _scorer_files(files: Mapping[str, bytes], workspaces: Iterable[str | None]) -> dict[str, bytes]:
    starts = tuple(f"{folder}/" for folder in workspaces if folder is not None)
    return {
        path: data
        for path, data in files.items()
        if path not in (LINES, ABOUT) and not path.startswith((FOLDER, *starts))
    }


def _digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
