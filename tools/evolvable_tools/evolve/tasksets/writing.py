"""Writing the splits of a task set down, so that a task stays where it is whatever is added later."""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from evolvable_store.errors import InvalidArgument
from evolvable_tools.evolve.task import Split, TaskSet
from evolvable_tools.evolve.tasksets.reading import FOLDER, LINES

_RECORD = "task.json"


def undealt(taskset: TaskSet) -> int:
    """Returns how many tasks do not say their split themselves."""
    return sum(1 for _ in _said(taskset))


def with_splits(taskset: TaskSet) -> dict[str, bytes]:
    """Returns the files that change when every task says its split; all that is not said anew stays as it is."""
    open_ = dict(_said(taskset))
    if LINES in taskset.files:
        text = taskset.files[LINES].decode("utf-8-sig")
        lines = [_line(line, open_) for line in re.split(r"(?<=\n)", text)]
        return {LINES: "".join(lines).encode()}
    changed = {}
    for place, split in open_.items():
        path = f"{place}/{_RECORD}"
        record = json.loads(taskset.files[path].decode("utf-8-sig")) if path in taskset.files else {}
        changed[path] = (json.dumps(record | {"split": split}, ensure_ascii=False, indent=1) + "\n").encode()
    return changed


def write_files(path: Path, files: Mapping[str, bytes]) -> Path:
    """Writes files of a task set back to where it was read, each as a whole; returns the folder or the file.

    Raises InvalidArgument when nothing can be written there.
    """
    path = path.resolve()
    for name, data in files.items():
        target = path / name if path.is_dir() else path
        try:
            descriptor, made = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.chmod(made, target.stat().st_mode & 0o777 if target.exists() else 0o644)
            os.replace(made, target)
        except OSError as error:
            raise InvalidArgument(
                f"{target} cannot be written: {error.strerror or error}.", "Copy the task set to a place of your own."
            ) from None
    return path


def _said(taskset: TaskSet) -> "list[tuple[str, Split]]":
    """Returns the tasks without a split of their own, by id (of a folder of tasks: by its path), with what they get."""
    splits = {task.id: task.split for task in taskset.tasks}
    if LINES in taskset.files:
        text = taskset.files[LINES].decode("utf-8-sig")
        records = [json.loads(line) for line in text.split("\n") if line.strip()]
        return [(record["id"], splits[record["id"]]) for record in records if _open(record)]
    found = []
    for name in sorted(
        {path.split("/")[1] for path in taskset.files if path.startswith(FOLDER) and path.count("/") >= 2}
    ):
        path = f"{FOLDER}{name}/{_RECORD}"
        record = json.loads(taskset.files[path].decode("utf-8-sig")) if path in taskset.files else {}
        if _open(record):
            found.append((f"{FOLDER}{name}", splits[record.get("id", name)]))
    return found


def _open(record: Mapping[str, object]) -> bool:
    return record.get("split", "auto") == "auto"


def _line(line: str, open_: Mapping[str, Split]) -> str:
    if not line.strip():
        return line
    record = json.loads(line)
    if record["id"] not in open_:
        return line
    end = line[len(line.rstrip("\r\n")) :]
    return json.dumps({**record, "split": open_[record["id"]]}, ensure_ascii=False) + end
