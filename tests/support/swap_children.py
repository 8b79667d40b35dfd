"""What a child process does with folders that are swapped; run as a script: ROLE ARGUMENTS.

A folder at version n holds n in each of its files, so that a mix of two shows.
"""

import errno
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from evolvable_store.objects import EXECUTABLE, PLAIN, File, Files, make_manifest
from evolvable_store.workingcopy import atomic_dir
from evolvable_store.workingcopy.tree_reader import read_folder

STEPS = {
    "open",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.link",
    "os.chmod",
    "os.scandir",
    "os.listdir",
}
"""Audit events of what touches the disk: a process can die before each."""


def version(number: int) -> dict[str, File]:
    """Return the files of this version; odd and even ones differ in their names too."""
    paths = [
        "SKILL.md",
        "scripts/run.sh",
        "references/a.md",
        f"references/{'odd' if number % 2 else 'even'}.md",
    ]
    return {
        p: File(b"%d\n" % number * 500, EXECUTABLE if p.endswith(".sh") else PLAIN) for p in paths
    }


def version_of(files: Files) -> int | None:
    """Return the number of the version that these files are, None when they are a mix."""
    number = int(files["SKILL.md"].data.split()[0]) if "SKILL.md" in files else -1
    return number if number >= 0 and files == version(number) else None


def write(target: Path, root: Path) -> None:
    """Write one version after the other until it is killed."""
    staging = staging_for(root)
    number = version_of(read_folder(target).files)
    assert number is not None
    print("ready", flush=True)
    while True:
        tree = make_manifest(version(number)).tree
        number += 1
        atomic_dir.write_folder(target, version(number), staging, believed=tree, now=time.time())


def read(target: Path, stop: Path) -> None:
    """Read until a file `stop` appears; say how often it saw a whole version, a mix,
    and nothing.
    """
    seen = {"whole": 0, "mixed": 0, "missing": 0}
    while not stop.exists():
        try:
            reading = read_folder(target)
        except FileNotFoundError:
            seen["missing"] += 1
        else:
            seen["mixed" if version_of(reading.files) is None else "whole"] += 1
        time.sleep(0.001)
    print(json.dumps(seen))


def staging_for(root: Path) -> atomic_dir.StagingDirectory:
    """Return the staging folder of a root, with its recovery notes in a library's home
    beside it.
    """
    return atomic_dir.staging_for(root, root.parent / "home" / "recovery" / "folder-1")


def tidy(root: Path, stop: Path) -> None:
    """Sweep as if a minute had passed until a file `stop` appears; say what it recovered."""
    staging = staging_for(root)
    recovered = []
    while not stop.exists():
        recovered += [sorted(found.files) for found in atomic_dir.sweep(staging, time.time() + 61)]
        time.sleep(0.02)
    print(json.dumps(recovered))


def crash(folder: Path, way: str, operation: str) -> None:
    """Let the operation die before each of its steps; say how many there were, and what was wrong
    afterwards.
    """
    limit_to(way)
    os.fsync = lambda fd: None  # processes die here, the power stays on
    rng = random.Random(f"{way} {operation}")
    problems: list[str] = []
    step = 0
    while True:
        step += 1
        scene = Scene(folder / str(step), way, operation)
        if not died(scene.run, step):
            break
        scene.look_at_once(problems)
        died(lambda scene=scene: atomic_dir.sweep(scene.staging, scene.now), rng.randint(1, 60))
        atomic_dir.sweep(scene.staging, scene.now)
        scene.look_after_sweep(problems)
        died(
            lambda scene=scene: atomic_dir.sweep(scene.staging, scene.now + 120), rng.randint(1, 60)
        )
        scene.look_at_end(problems)
    print(json.dumps({"steps": step - 1, "problems": problems}))


def limit_to(way: str) -> None:
    """Make this process swap folders in this way only."""

    def refuse(code: int) -> Callable[..., None]:
        def refusing(*_: object) -> None:
            raise OSError(code, os.strerror(code))

        return refusing

    if way == "two renames":
        atomic_dir.exchange = refuse(errno.EINVAL)  # type: ignore[attr-defined]
    elif way == "file by file":
        atomic_dir.exchange = refuse(errno.EXDEV)  # type: ignore[attr-defined]
        atomic_dir._two_renames = atomic_dir._move_away = refuse(errno.EXDEV)


def died(action: Callable[[], object], step: int) -> bool:
    """Run the action in a process of its own that ends before this step; return whether it came so
    far.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    left = step

    def count(event: str, details: tuple[object, ...]) -> None:
        nonlocal left
        left -= event in STEPS and not (event == "open" and is_passed_through(details[2]))
        if left <= 0:
            os._exit(9)

    sys.addaudithook(count)
    action()
    os._exit(0)


def is_passed_through(flags: object) -> bool:
    """Return whether this only opens a directory on the way to another, which leaves the disk as it
    is.
    """
    return isinstance(flags, int) and bool(flags & getattr(os, "O_PATH", 0))


class Scene:
    """A folder at version 0 with a person's own things in it, and an operation on it."""

    def __init__(self, place: Path, way: str, operation: str) -> None:
        self.way, self.operation, self.now = way, operation, time.time()
        root = place / "root"
        root.mkdir(parents=True)
        self.target, self.staging = root / "pdf", atomic_dir.staging_for(root, place / "notes")
        if operation != "create":
            atomic_dir.write_folder(
                self.target, version(0), self.staging, believed="", now=self.now
            )
            for path in (".git/HEAD", ".venv/bin/python", "references/.venv/keep"):
                (self.target / path).parent.mkdir(parents=True)
                (self.target / path).write_text(path)
            (self.target / "empty").mkdir()

    def run(self) -> None:
        believed = make_manifest(version(0)).tree
        if self.operation == "remove":
            atomic_dir.remove_folder(self.target, self.staging, believed=believed, now=self.now)
        else:
            atomic_dir.write_folder(
                self.target, version(1), self.staging, believed=believed, now=self.now
            )

    def state(self) -> str:
        try:
            files = read_folder(self.target).files
        except FileNotFoundError:
            return "nothing"
        number = version_of(files)
        return "nothing" if not files else "mixed" if number is None else f"version {number}"

    def allowed(self) -> set[str]:
        before = "nothing" if self.operation == "create" else "version 0"
        return {before, "nothing" if self.operation == "remove" else "version 1"}

    def look_at_once(self, problems: list[str]) -> None:
        if self.way == "exchange" and self.state() not in self.allowed():
            problems.append(f"{self.target}: {self.state()} after the crash")

    def look_after_sweep(self, problems: list[str]) -> None:
        if self.state() not in self.allowed():
            problems.append(f"{self.target}: {self.state()} after the sweep")
        if self.operation == "create":
            return
        wanted = [".git/HEAD"]
        if self.state() != "nothing":
            wanted += [".venv/bin/python", "references/.venv/keep", "empty"]
        problems.extend(
            f"{self.target}: {path} is lost" for path in wanted if not (self.target / path).exists()
        )

    def look_at_end(self, problems: list[str]) -> None:
        recovered = atomic_dir.sweep(self.staging, self.now + 120)
        problems.extend(
            f"{found.old}: {sorted(found.files)} {found.stuck} recovered" for found in recovered
        )
        left = sorted({*os.listdir(self.staging), *os.listdir(self.staging.notes)})
        if left != [".gitignore"]:
            problems.append(f"{self.staging}: {left} left")
        self.look_after_sweep(problems)


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "crash":
        crash(Path(arguments[0]), *arguments[1:])
    else:
        {"write": write, "read": read, "tidy": tidy}[role](*map(Path, arguments))
