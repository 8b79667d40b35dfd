"""kill -9 at any moment, during updates, watching and checkout: nothing acknowledged is lost, no
folder is mixed.

In every round four processes work on one library, a person saves files, and all four are killed:
one that updates (a line on stdout acknowledges each commit), one or two that update and write the
result into a watched folder, after the commit or with it, and a server that follows the folder.
"""

import contextlib
import itertools
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support import (
    SERVE,
    Row,
    Server,
    arguments,
    at_least,
    conclude,
    median,
    ms,
    none_of,
    progress,
    skill_text,
)

from evolvable_store import fsck
from evolvable_store.errors import NoSuchFile, VersionConflict
from evolvable_store.objects import File, Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.search.index import check_index
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_store.workingcopy.tree_reader import read_folder
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

WRITTEN = tuple(f"written-{number}" for number in range(4))
"""Skills that processes change and write into the folder; every file of one version holds the same
token.
"""

SAVED = tuple(f"saved-{number}" for number in range(6))
"""Skills that only the person changes."""

PATHS = (
    "SKILL.md",
    "scripts/run.py",
    "references/one.md",
    "references/deep/two.md",
    "assets/three.txt",
)
PARTS = ("SOURCES.md", "references/sources.md", "notes/deep/sources.md")
"""Files that an update changes alone: each holds the token of the update that wrote it."""

FSCK_EVERY = 50
"""Rounds between two checks of everything."""


def files(name: str, token: str) -> Files:
    """Return the files of a version; which of them there are differs from token to token."""
    paths = PATHS if sum(token.encode()) % 2 else PATHS[:3]
    top = f"---\nname: {name}\ndescription: Written by {token}\n---\n"
    return {path: File((top + f"{token} in {path}\n" * 60).encode()) for path in paths}


def tokens_of(found: Files) -> set[str]:
    """Return the tokens of the updates that these files are of, none when they are not the whole of
    one version.
    """
    parts = {path: file.data.decode() for path, file in found.items() if path in PARTS}
    shared = token_of({path: file for path, file in found.items() if path not in parts})
    whole = all(text == part_text(text.partition("\n")[0]) for text in parts.values())
    return (
        {shared, *(text.partition("\n")[0] for text in parts.values())}
        if shared and whole
        else set()
    )


def part_text(token: str) -> str:
    """Return what a file that is changed alone holds."""
    return f"{token}\n" * 60


def token_of(found: Files) -> str | None:
    """Return the token that these files share, None when they are not the whole of one version."""
    lines = found["SKILL.md"].data.decode().splitlines() if "SKILL.md" in found else []
    if len(lines) < 3:
        return None
    name, token = lines[1].removeprefix("name: "), lines[2].removeprefix("description: Written by ")
    return token if dict(found) == files(name, token) else None


def update(home: Path, worker: str) -> None:
    """Update one or three resources at a time, for ever; say so after each commit."""
    rng = random.Random(worker)
    with Store.open(home) as store:
        for number in itertools.count(1):
            token = f"{worker}.{number}"
            with store.transaction(Actor.AGENT, token) as tx:
                for part in rng.choice((["shared"], ["one", "two", "three"])):
                    tx.put(Ref.parse(part), files(part, token))
            print(token, flush=True)


def checkout(home: Path, worker: str) -> None:
    """Update a resource that the folder holds and write it out, for ever; say so after
    each commit.
    """
    rng = random.Random(worker)
    with Store.open(home) as store:
        copies = WorkingCopies(store)
        for number in itertools.count(1):
            token, ref = f"{worker}.{number}", Ref.parse(rng.choice(WRITTEN))
            with store.transaction(Actor.AGENT, token) as tx:
                tx.put(ref, files(ref.name, token))
            print(token, flush=True)
            copies.checkout([ref])


def staged(home: Path, worker: str) -> None:
    """Update a resource that the folder holds as a server does, for ever: folder and version in one
    transaction.
    """
    rng = random.Random(worker)
    with Library.open(home) as library:
        for number in itertools.count(1):
            token, ref = f"{worker}.{number}", Ref.parse(rng.choice(WRITTEN))
            if rng.random() < 0.5:
                part = {rng.choice(PARTS): part_text(token)}
                there = library.store.head(ref).version
                with contextlib.suppress(VersionConflict):
                    edit.update_resource(
                        library, Caller(Actor.AGENT), ref, token, files=part, expected_version=there
                    )
                    print(token, flush=True)
                continue
            made = files(ref.name, token)
            texts = {path: made[path].data if path in made else None for path in PATHS}
            # Which paths are deleted depends on the head; with another one the version would be a
            # mix of both.
            with contextlib.suppress(NoSuchFile, VersionConflict):
                head = library.store.head(ref)
                present = library.store.manifest(head)
                change = {
                    path: data
                    for path, data in texts.items()
                    if data is not None or path in present
                }
                edit.update_resource(
                    library,
                    Caller(Actor.AGENT),
                    ref,
                    token,
                    files=change,
                    expected_version=head.version,
                )
                print(token, flush=True)


class Child:
    """A process in a role of this script."""

    def __init__(self, role: str, home: Path, worker: str) -> None:
        command = [sys.executable, __file__, role, str(home), worker]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        self._said = b""

    def wait(self) -> None:
        """Wait until it has acknowledged an update, for half a minute at most: before, only its
        imports are killed.
        """
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], 30.0)[0]:
            self._said = self._process.stdout.read(65_536) or b""

    def kill(self) -> list[str]:
        """Kill the process and return the tokens that it had acknowledged.

        Raises RuntimeError if it had failed.
        """
        self._process.kill()
        said = self._said + self._process.communicate(timeout=30)[0]
        if self._process.returncode > 0:
            raise RuntimeError("a child failed by itself")
        return said[: said.rfind(b"\n") + 1].decode().split()


@dataclass
class Scene:
    """One library with a folder of skills beside it, and all that was found wrong with them."""

    place: Path
    seen: int = 0
    number: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    openings: list[float] = field(default_factory=list)
    last_saved: dict[str, bytes] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.place / "home"

    @property
    def folder(self) -> Path:
        return self.place / "skills"

    def prepare(self) -> None:
        for name in (*WRITTEN, *SAVED):
            for path, file in files(name, "start").items():
                (self.folder / name / path).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name / path).write_bytes(file.data)
        with Store.open(self.home, create=True) as store:
            WorkingCopies(store).add(self.folder)
            self.seen = store.sequence()

    def save(self, rng: random.Random) -> None:
        """Save one file as a person's editor does: in place, or beside and renamed over."""
        name = rng.choice(SAVED)
        self.number += 1
        self.last_saved[name] = data = skill_text(name, f"save {self.number}", 4000).encode()
        path = self.folder / name / "SKILL.md"
        if rng.random() < 0.5:
            path.write_bytes(data)
        else:
            (self.folder / f".{name}.tmp").write_bytes(data)
            os.replace(self.folder / f".{name}.tmp", path)
        self.counts["saves"] += 1

    def round(self, rng: random.Random) -> None:
        """Start four processes, save files meanwhile, kill them in any order, and check what is
        left.
        """
        roles = [
            "update",
            rng.choice(("checkout", "staged")),
            rng.choice(("update", "checkout", "staged")),
        ]
        children = [
            Child(role, self.home, f"{role}{self.counts['kills'] + n}")
            for n, role in enumerate(roles)
        ]
        server = Server(SERVE, self.home)
        if rng.random() < 0.75:  # else it dies while it starts
            server.request("tools/list")
        for child in children:
            if rng.random() < 0.9:  # else it dies while it starts
                child.wait()
        deadline = time.monotonic() + rng.uniform(0.05, 0.6)
        while time.monotonic() < deadline:
            self.save(rng)
            time.sleep(rng.uniform(0, 0.05))
        acknowledged: list[str] = []
        victims: list[Child | Server] = [*children, server]
        for victim in rng.sample(victims, 4):
            acknowledged += victim.kill()
            self.save(rng)
            time.sleep(rng.choice((0.0, 0.0, rng.uniform(0, 0.02))))
        self.counts.update({"kills": 4, "kills of servers": 1, "acknowledged": len(acknowledged)})
        self.counts.update(f"kills of {role}s" for role in roles)
        self.check(acknowledged)

    def check(self, acknowledged: list[str]) -> None:
        """Look at the folder as the kills left it, at the log, and at both after the next start's
        first look.
        """
        self.look_at_folder()
        started = time.perf_counter()
        with Store.open(self.home) as store:
            store.sequence()
            self.openings.append(time.perf_counter() - started)
            self.look_at_log(store, acknowledged)
            syncs = WorkingCopies(store).sync()
            self.wrong["conflicts that nobody made"] += sum(
                len(sync.conflicts) + len(sync.refused) for sync in syncs
            )
            self.look_at_both(store)
            if self.counts["kills"] % (4 * FSCK_EVERY) == 0:
                self.check_all(store)

    def look_at_folder(self) -> None:
        for name in WRITTEN:
            try:
                self.wrong["mixed folders"] += not tokens_of(read_folder(self.folder / name).files)
            except FileNotFoundError:
                self.wrong["missing folders"] += 1
        for name, data in self.last_saved.items():
            self.wrong["saved files lost or changed"] += (
                self.folder / name / "SKILL.md"
            ).read_bytes() != data

    def look_at_log(self, store: Store, acknowledged: list[str]) -> None:
        """Compare the new operations with what was acknowledged, and read what each of
        them made.
        """
        reasons: Counter[str] = Counter()
        operations = set()
        for change in store.changes(after=self.seen, limit=10**6):
            self.seen = change.sequence
            operation = store.operation(change.operation)
            if operation.id not in operations:
                operations.add(operation.id)
                reasons[operation.reason] += 1
            self.wrong["writes of ours taken for a person's"] += (
                operation.actor is Actor.HUMAN and change.name not in SAVED
            )
            head = store.head_or_none(change.ref)
            assert head is not None
            made = (
                tokens_of(store.files(head, change.after))
                if operation.actor is Actor.AGENT
                else {operation.reason}
            )
            if operation.reason not in made:
                self.wrong["versions that are not what was written"] += 1
        self.wrong["acknowledged updates lost"] += len(set(acknowledged) - set(reasons))
        self.wrong["updates made twice"] += sum(
            reasons[token] - 1 for token in acknowledged if token in reasons
        )

    def look_at_both(self, store: Store) -> None:
        for name in (*WRITTEN, *SAVED):
            head = store.head(Ref.parse(name))
            self.wrong["folders behind the library"] += read_folder(
                self.folder / name
            ).files != store.files(head)
            if name in self.last_saved:
                self.wrong["saves lost"] += (
                    store.file(head, "SKILL.md").data != self.last_saved[name]
                )

    def check_all(self, store: Store) -> None:
        report = fsck.check_library(store, checks=[check_index])
        self.wrong["faults that fsck finds"] += len(report.faults)
        for fault in report.faults:
            progress(f"fsck: {fault}")


EXPECTED = (
    "acknowledged updates lost",
    "updates made twice",
    "versions that are not what was written",
    "saves lost",
    "saved files lost or changed",
    "mixed folders",
    "missing folders",
    "folders behind the library",
    "writes of ours taken for a person's",
    "conflicts that nobody made",
    "faults that fsck finds",
)
"""What may not happen."""


def rounds(scene: Scene, kills: int, seconds: float) -> Iterator[None]:
    """Yield once for every round until there were so many kills or the time is over."""
    deadline = time.monotonic() + seconds
    while scene.counts["kills"] < kills and time.monotonic() < deadline:
        yield
        if scene.counts["kills"] % 100 == 0:
            progress(f"{scene.counts['kills']:,} kills, wrong: {sum(scene.wrong.values())}")


def report(scene: Scene, kills: int, seconds: float) -> list[Row]:
    counts = scene.counts
    done = Row("kills", f"{counts['kills']:,}")
    return [
        done
        if seconds
        else at_least("kills", counts["kills"], kills, lambda value: f"{value:,.0f}"),
        Row("  of processes that update", f"{counts['kills of updates']:,}"),
        Row(
            "  of processes that write into the folder after the commit",
            f"{counts['kills of checkouts']:,}",
        ),
        Row("  of processes that write it with the commit", f"{counts['kills of stageds']:,}"),
        Row("  of servers that follow it", f"{counts['kills of servers']:,}"),
        # Fewer would show that the processes were killed before they wrote.
        at_least(
            "updates acknowledged",
            counts["acknowledged"],
            counts["kills"] / 4,
            lambda value: f"{value:,.0f}",
        ),
        Row("files saved by the person", f"{counts['saves']:,}"),
        Row("opening the library after the kills, p50", ms(median(scene.openings))),
        Row("opening, slowest", ms(max(scene.openings))),
        *(none_of(what, scene.wrong[what]) for what in EXPECTED),
    ]


def main() -> None:
    options = arguments(__doc__, kills=1000, seconds=60.0)
    seconds = options.seconds or (60.0 if options.quick and not options.kills else 0.0)
    kills = options.kills or (10**9 if seconds else 1000)
    rng = random.Random()
    with tempfile.TemporaryDirectory() as place:
        scene = Scene(Path(place))
        scene.prepare()
        for _ in rounds(scene, kills, seconds or float("inf")):
            scene.round(rng)
        with Store.open(scene.home) as store:
            scene.check_all(store)
        rows = report(scene, kills, seconds)
    conclude("kill -9 during updates, watching and checkout", rows)


if __name__ == "__main__":
    if sys.argv[1:2] in (["update"], ["checkout"], ["staged"]):
        {"update": update, "checkout": checkout, "staged": staged}[sys.argv[1]](
            Path(sys.argv[2]), sys.argv[3]
        )
    else:
        main()
