"""Measure how the processes over one watched folder take over from an owner that is killed (-9) in
any phase.

Four processes follow one folder with the watcher of the server. When all of them have started, the
owner is killed at a random moment of one phase, a person saves a file at that moment, and a new
process takes the place of the dead one. They are forked, with everything imported: a server that
starts needs a second of processor time. Skills are made up.
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from reload import until
from support import (
    Row,
    arguments,
    at_most,
    conclude,
    median,
    ms,
    none_of,
    percentile,
    progress,
    seed_folder,
)
from support import skill_text as text_of

from evolvable_server import file_events
from evolvable_server.watcher import Watcher
from evolvable_store import fsck
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.search.index import check_index
from evolvable_store.store import Store
from evolvable_store.workingcopy.folder_lock import FolderOwner
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_tools import secret_leaks
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

PROCESSES, SKILLS = 4, 60

PATIENCE = 60.0
"""Seconds after which a save counts as missed."""

AT_ONCE = 6
"""Files that a person saves at once."""

FSCK_EVERY = 100

EXPECTED = (
    "saves missed",
    "saves taken twice",
    "versions that nobody saved",
    "changes that did not reach the folder",
    "faults that fsck finds",
)
"""What may not happen."""

IMPORTED = (file_events, secret_leaks)
"""What the watcher imports late."""


def follow(home: Path) -> int:
    """Fork a process that follows the library until SIGTERM; return its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        with Library.open(home) as library:
            watcher = Watcher(library, lambda _: None)
            watcher.start()
            ended.wait()
            watcher.stop()
    finally:
        os._exit(0)


class Takeovers:
    """A library with a folder and its processes, and what was found wrong.

    phases: what the owner does when it dies.
    """

    def __init__(self, place: Path, rng: random.Random) -> None:
        self.home, self._folder, self._rng = place / "home", place / "skills", rng
        self._names = seed_folder(self._folder, SKILLS)
        with Store.open(self.home, create=True) as store:
            WorkingCopies(store).add(self._folder)
        self._pids = [follow(self.home) for _ in range(PROCESSES)]
        self._library = Library(Store.open(self.home))
        self._store = self._library.store
        self.took: dict[str, list[float]] = defaultdict(list)
        self.wrong: Counter[str] = Counter()
        self.kills = self.half_written = 0
        self.phases: dict[str, Callable[[], int]] = {
            "idle": self._owner,
            "a file was just saved": lambda: self._saving(1, 0.06),
            "several files were just saved": lambda: self._saving(AT_ONCE, 0.2),
            "the index is written": lambda: self._saving(1, 0.25),
            "another process's change is written out": self._writing_out,
            "a client's change": self._client_changes,
            "it has just taken over": self._taking_over,
            "it ends by itself": self._leaving,
        }
        self._saved: dict[str, int] = {}
        self._made: set[str] = set()

    def close(self) -> int:
        """End the processes; return how many directories a last scan still has to do something
        about.
        """
        for pid in self._pids:
            os.kill(pid, signal.SIGTERM)
        for pid in self._pids:
            os.waitpid(pid, 0)
        syncs = WorkingCopies(self._store).sync()
        self._library.close()
        return sum(
            len(sync.taken) + len(sync.conflicts) + len(sync.refused) + len(sync.written)
            for sync in syncs
        )

    def round(self) -> None:
        """Kill the owner in a phase drawn at random, save a file, and wait until nothing is
        missing.
        """
        phase = self._rng.choice(list(self.phases))
        self._saved, self._made = {}, set()
        if not until(lambda: all(map(_is_candidate, self._pids)), PATIENCE):
            raise RuntimeError("a process does not start")
        self._kill(self.phases[phase]())
        killed = time.perf_counter()
        last = self._save()
        until(lambda: self._is_version(last), PATIENCE)
        self.took[phase].append(time.perf_counter() - killed)
        self._check(phase)
        while len(self._pids) < PROCESSES:
            self._pids.append(follow(self.home))

    def _check(self, phase: str) -> None:
        """Compare folder and library once every change of the round has reached both."""
        until(lambda: all(map(self._is_version, self._saved)), PATIENCE)
        until(lambda: all(map(self._is_written, self._made)), PATIENCE)
        before = sum(self.wrong.values())
        for name, latest in self._saved.items():
            self.wrong["saves missed"] += not self._is_version(name)
            self._compare_versions(name, latest)
        behind = [name for name in self._made if not self._is_written(name)]
        self.wrong["changes that did not reach the folder"] += len(behind)
        if self.kills % FSCK_EVERY < 2:
            self.wrong["faults that fsck finds"] += len(
                fsck.check_library(self._store, checks=[check_index]).faults
            )
        if sum(self.wrong.values()) > before:
            progress(f"after {phase}: {dict(self.wrong)}")

    def _compare_versions(self, name: str, latest: int) -> None:
        """Compare the versions since `latest` with the save.

        A person's file is cut to nothing before it is written.
        """
        head = self._store.head(Ref.parse(name))
        saved = (self._folder / name / "SKILL.md").read_bytes()
        made = [
            self._store.file(head, "SKILL.md", number).data
            for number in range(latest + 1, head.latest + 1)
        ]
        self.half_written += sum(saved.startswith(data) and data != saved for data in made)
        self.wrong["saves taken twice"] += made.count(saved) > 1
        self.wrong["versions that nobody saved"] += sum(not saved.startswith(data) for data in made)

    # What the owner does; each returns the process that is to be killed

    def _saving(self, count: int, most: float) -> int:
        for _ in range(count):
            self._save()
        time.sleep(self._rng.uniform(0, most))
        return self._owner()

    def _writing_out(self) -> int:
        name = self._fresh()
        with self._store.transaction(Actor.IMPORT, "another process") as tx:
            tx.put(Ref.parse(name), {"SKILL.md": File(text_of(name, self._rng.random()).encode())})
        self._made.add(name)
        # The owner gives that process 0.3 seconds to write it.
        time.sleep(self._rng.uniform(0.25, 0.45))
        return self._owner()

    def _client_changes(self) -> int:
        name = self._fresh()
        note = {f"notes/{self.kills}.md": "a client's"}
        edit.update_resource(
            self._library, Caller(Actor.AGENT), Ref.parse(name), "takeover", files=note
        )
        self._made.add(name)
        time.sleep(self._rng.uniform(0, 0.1))
        return self._owner()

    def _taking_over(self) -> int:
        owner = self._owner()
        self._kill(owner)
        self._save()
        until(lambda: self._owner() != owner, PATIENCE)
        time.sleep(self._rng.uniform(0, 0.05))
        return self._owner()

    def _leaving(self) -> int:
        owner = self._owner()
        os.kill(owner, signal.SIGTERM)
        time.sleep(self._rng.uniform(0, 0.05))
        return owner

    # A person, and the processes

    def _fresh(self) -> str:
        """Return a skill that this round has not touched."""
        return self._rng.choice(
            [name for name in self._names if name not in self._saved and name not in self._made]
        )

    def _save(self) -> str:
        name = self._fresh()
        self._saved[name] = self._store.head(Ref.parse(name)).latest
        path = self._folder / name / "SKILL.md"
        path.write_text(text_of(name, self._rng.random()), encoding="utf-8")
        return name

    def _is_version(self, name: str) -> bool:
        saved = (self._folder / name / "SKILL.md").read_bytes()
        return self._store.file(self._store.head(Ref.parse(name)), "SKILL.md").data == saved

    def _is_written(self, name: str) -> bool:
        files = self._store.files(self._store.head(Ref.parse(name)))
        with contextlib.suppress(OSError):
            return all(
                (self._folder / name / path).read_bytes() == file.data
                for path, file in files.items()
            )
        return False

    def _owner(self) -> int:
        return FolderOwner(self.home).owner()

    def _kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._pids.remove(pid)
        self.kills += 1


def _is_candidate(pid: int) -> bool:
    """Return whether a process has the lock of the owner open."""
    with contextlib.suppress(OSError):
        return any(
            "/locks/owner/" in os.readlink(descriptor)
            for descriptor in Path(f"/proc/{pid}/fd").iterdir()
        )
    return False


def main() -> None:
    if not sys.platform.startswith("linux"):
        sys.exit("takeover.py reads /proc: it runs on Linux alone.")
    options = arguments(__doc__, kills=1000)
    kills = options.kills or (40 if options.quick else 1000)
    with tempfile.TemporaryDirectory() as place:
        takeovers = Takeovers(Path(place), random.Random())
        try:
            while takeovers.kills < kills:
                takeovers.round()
                if takeovers.kills % 50 < 2:
                    progress(f"{takeovers.kills:,} kills, wrong: {sum(takeovers.wrong.values())}")
        finally:
            left = takeovers.close()
    took = [seconds for phase in takeovers.took.values() for seconds in phase]
    rows = [
        Row("kills of the owner", f"{takeovers.kills:,}"),
        *(
            Row(f"  {phase}: {len(its)} rounds, save to version, p95", ms(percentile(its, 95)))
            for phase, its in takeovers.took.items()
        ),
        Row("a file saved at the kill is a version, p50", ms(median(took))),
        at_most("a file saved at the kill is a version, p95", percentile(took, 95), 1.0, ms),
        Row("longest", ms(max(took))),
        Row(
            "files read while they were written, and again afterwards", str(takeovers.half_written)
        ),
        *(none_of(what, takeovers.wrong[what]) for what in EXPECTED),
        none_of("directories that a last scan changes", left),
    ]
    conclude("kill -9 of the owner of a watched folder", rows)


if __name__ == "__main__":
    main()
