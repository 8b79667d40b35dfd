"""Windows that work while something fails every two seconds: nothing acknowledged is lost, nothing
is done twice.

`soak.py --faults` runs this. Each window is a real server over stdio, with a session that ends
after some calls and is queued by the hook, as clients do it; a review goes through the queue beside
them. The library lies on a small disk of its own (tmpfs, so this needs root on Linux), and every
two seconds one fault begins:

- busy: another process holds the library's write lock for one to three seconds,
- full: a file takes every free byte of the disk,
- read only: neither folders nor files of the home may be written; the servers run without root's
power to do so anyway,
- kill: a server is killed (-9), in the middle of whatever it does.

What was begun, and what was acknowledged, is appended to a file: after an interruption `--resume
FILE` goes on.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support import (
    SERVE,
    Row,
    Server,
    at_least,
    conclude,
    environment,
    none_of,
    progress,
    skill_text,
)

from evolvable_store import fsck
from evolvable_store.errors import EvolvableError
from evolvable_store.resource import Ref
from evolvable_store.review_queue import waiting_sessions
from evolvable_store.search.index import check_index
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies

WINDOWS, FAULT_SECONDS, REVIEW_SECONDS = 3, 2.0, 15.0
DISK_MB = 256
NOTES = 20
"""Files that one skill gets, one with each update; then the window makes the next skill."""

DRAIN_SECONDS = 90.0
"""How long the windows get at the end, without faults, to have everything acknowledged."""

POWERLESS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
"""Root writes whatever a file's mode says; what begins with this does not."""

QUIET = ("env", "EVOLVABLE_EMBEDDER=off")
HOOK = "from evolvable_server.hooks.command import main; main()"
HOLD = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=5)
db.execute("BEGIN IMMEDIATE")
time.sleep(float(sys.argv[2]))
"""
OPERATIONS = "SELECT reason, count(*) FROM operation WHERE reason LIKE 'soak %' GROUP BY reason"


class Journal:
    """What was begun and what was acknowledged, in a file of lines.

    acknowledged, refused, unknown: by sort of call.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.elapsed = file, 0.0
        self.acknowledged: dict[str, set[str]] = {
            "update": set(),
            "load": set(),
            "report": set(),
            "end": set(),
        }
        self.unknown: dict[str, set[str]] = {sort: set() for sort in self.acknowledged}
        self.counts: Counter[str] = Counter()
        self._begun: set[str] = set()
        self._lock = threading.Lock()
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            with contextlib.suppress(ValueError):  # the last line of a run that was killed
                self._take(json.loads(line))
        # A driver that was killed noted no more of what it had begun.
        self.unknown["update"] |= self._begun - self.acknowledged["update"]

    def note(self, what: str, sort: str, name: str = "") -> None:
        """Append that something was acknowledged, refused or unknown, or that a fault began."""
        line = {"what": what, "sort": sort, "name": name, "elapsed": self.elapsed}
        with self._lock, open(self.file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
            self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        self.elapsed = max(self.elapsed, line["elapsed"])
        self.counts[f"{line['what']} {line['sort']}"] += 1
        if line["what"] in ("acknowledged", "unknown"):
            getattr(self, line["what"]).setdefault(line["sort"], set()).add(line["name"])
        elif line["what"] == "begun":
            self._begun.add(line["name"])


class Window(threading.Thread):
    """A client with one server after the other.

    It repeats what was refused, as agents do, until it is acknowledged.
    """

    def __init__(self, number: int, place: Path, journal: Journal, rng: random.Random) -> None:
        super().__init__(name=f"window-{number}", daemon=True)
        self.number, self._home, self._journal, self._rng = number, place / "home", journal, rng
        self.drains, self.ended = threading.Event(), threading.Event()
        self.server: Server | None = None
        mine = [token for token in journal.acknowledged["update"] if token.startswith(f"{number}-")]
        self._next = max((int(token.partition("-")[2]) for token in mine), default=-1) + 1
        self._due: list[Callable[[], bool]] = []
        self._updates = 0

    def run(self) -> None:
        while not self.ended.is_set():
            session = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
            for _ in range(self._rng.randint(20, 120)):
                if self.drains.is_set() and not self._due and self._updates:
                    self.ended.set()
                    break
                self._step(session)
            self._close()
            self._end_session(session)

    def _step(self, session: str) -> None:
        try:
            if self.server is None:
                options = (*POWERLESS, *QUIET, f"EVOLVABLE_SESSION={session}")
                self.server = Server((*options, *SERVE), self._home)
            if self._due:
                action = self._due[0]
                if action():
                    self._due.remove(action)
                else:
                    time.sleep(0.1)
            else:
                self._rng.choice([self._update, self._update, self._find, self._load])()
        except (RuntimeError, OSError):  # it was killed, or could not start
            self._close()
            time.sleep(0.1)

    def _close(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            with contextlib.suppress(OSError):
                server.close()

    def _call(self, sort: str, name: str, tool: str, **values: Any) -> dict[str, Any] | None:
        """Return the result; None where it was refused.

        What was under way when the server ended is unknown.
        """
        assert self.server is not None
        try:
            result = self.server.request("tools/call", {"name": tool, "arguments": values})
        except (RuntimeError, OSError):
            self._journal.note("unknown", sort, name)
            raise
        if result.get("isError"):
            self._journal.note("refused", sort, result["content"][0]["text"][:200])
            return None
        return dict(result)

    def _update(self) -> None:
        number, self._next = self._next, self._next + 1
        token, ref = f"{self.number}-{number}", f"skill:soak-{self.number}-{number // NOTES}"
        new = number % NOTES == 0
        # A plain text: of random words the scan asks about some, and the change waits for a person.
        main = (
            f"---\nname: {ref[6:]}\ndescription: Keeps the notes of {ref[6:]}.\n---\n\n"
            "Each note is a file.\n"
        )
        files = {"SKILL.md": main} if new else {f"notes/{number}.md": f"Note {token}.\n"}

        def update() -> bool:
            about: dict[str, Any] = {"ref": ref, "reason": f"soak {token}.", "files": files}
            head = self._head(ref) if token in self._journal.unknown["update"] else None
            if head is None:
                about["create"] = new
            else:
                # It may be there, unserved by this server: the hint says to name the version.
                about["expected_version"] = head
            if self._call("update", token, "update_resource", **about) is None:
                return False
            self._journal.note("acknowledged", "update", token)
            self._updates += 1
            return True

        self._journal.note("begun", "update", token)
        self._due.append(update)
        if update():
            self._due.clear()

    def _head(self, ref: str) -> int | None:
        result = self._call("read", ref, "resource_history", ref=ref, limit=1)
        return int(result["structuredContent"]["head"]) if result else None

    def _find(self) -> None:
        self._call(
            "find", "", "find_skill", task=skill_text("task", self._rng.random(), 300)[120:220]
        )

    def _load(self) -> None:
        ref = (
            f"skill:soak-{self.number}-{self._rng.randrange(max(1, (self._next - 1) // NOTES + 1))}"
        )
        result = self._call("load", ref, "load_skill", ref=ref)
        text = result["content"][0]["text"] if result else ""
        if "use_id: " not in text:
            return
        use = text.rpartition("use_id: ")[2].split()[0]
        self._journal.note("acknowledged", "load", use)

        def report() -> bool:
            if use in self._journal.unknown["report"]:
                return True  # it may be there: an agent that says it again says it twice
            if self._call("report", use, "report_outcome", use_id=use, outcome="succeeded") is None:
                return False
            self._journal.note("acknowledged", "report", use)
            return True

        self._due.append(report)
        if report():
            self._due.clear()

    def _end_session(self, session: str) -> None:
        """Have the hook queue the session; a client calls it at each end of a turn, so one that
        failed comes again.
        """
        folder = self._home.parent / ".claude/projects/soak"
        path = folder / f"{session}.jsonl"
        about = {"session_id": session, "transcript_path": str(path), "cwd": str(self._home.parent)}
        while True:
            try:  # the client's own file is on the full disk too
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(_transcript(session, str(self._home.parent)), encoding="utf-8")
            except OSError:
                time.sleep(0.3)
                continue
            command = [*POWERLESS, *QUIET, sys.executable, "-P", "-c", HOOK, "SessionEnd"]
            done = subprocess.run(
                command,
                input=json.dumps(about).encode(),
                env=environment(self._home),
                capture_output=True,
                check=False,
            )
            if done.returncode == 0 and not done.stderr:
                self._journal.note("acknowledged", "end", session)
                return
            self._journal.note("refused", "end", done.stderr.decode("utf-8", "replace")[:200])
            time.sleep(0.3)


def _transcript(session: str, cwd: str) -> str:
    """Return what Claude Code writes of a session with one turn."""
    shared = {
        "sessionId": session,
        "cwd": cwd,
        "version": "2.1.0",
        "isSidechain": False,
        "userType": "external",
    }
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    turns = [
        ("user", "Write the note."),
        ("assistant", [{"type": "text", "text": "It is written."}]),
    ]
    lines, parent = [], None
    for role, content in turns:
        one = {
            "type": role,
            "uuid": str(uuid.uuid4()),
            "parentUuid": parent,
            "timestamp": at,
            **shared,
        }
        lines.append(json.dumps({**one, "message": {"role": role, "content": content}}))
        parent = one["uuid"]
    return "\n".join(lines) + "\n"


class Faults:
    """What fails, one after the other."""

    def __init__(
        self, disk: Path, windows: list[Window], journal: Journal, rng: random.Random
    ) -> None:
        self._disk, self._home, self._windows, self._journal, self._rng = (
            disk,
            disk / "home",
            windows,
            journal,
            rng,
        )
        self.sorts = {
            "busy": self._busy,
            "full": self._full,
            "read only": self._read_only,
            "kill": self._kill,
        }
        self._holders: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Let one thing fail; return when it is over, or goes on by itself."""
        sort = self._rng.choice(list(self.sorts))
        self._journal.note("fault", sort)
        self.sorts[sort]()

    def end(self) -> None:
        """Wait for what still goes on; end what a driver that was killed left behind."""
        for holder in self._holders:
            holder.wait()
        (self._disk / "filler").unlink(missing_ok=True)
        _set_modes(self._home, 0o700, 0o600)

    def _busy(self) -> None:
        self._holders = [one for one in self._holders if one.poll() is None]
        seconds = str(self._rng.uniform(1, 3))
        command = [sys.executable, "-c", HOLD, str(self._home / "library.db"), seconds]
        self._holders.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    def _full(self) -> None:
        filler = self._disk / "filler"
        try:
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
                free = os.statvfs(self._disk)
                os.posix_fallocate(file.fileno(), 0, max(1, (free.f_bavail - 64) * free.f_frsize))
                file.seek(0, os.SEEK_END)
                while True:
                    file.write(b"\0" * 4096)
            time.sleep(self._rng.uniform(0.5, 1.5))
        finally:
            filler.unlink(missing_ok=True)

    def _read_only(self) -> None:
        try:
            _set_modes(self._home, 0o500, 0o400)
            self._kill()  # a server that starts now finds a library that it cannot write
            time.sleep(self._rng.uniform(0.5, 1.5))
        finally:
            _set_modes(self._home, 0o700, 0o600)

    def _kill(self) -> None:
        if server := self._rng.choice(self._windows).server:
            server.process.kill()


def _set_modes(home: Path, folders: int, files: int) -> None:
    for folder, _, names in os.walk(home):
        os.chmod(folder, folders)
        for name in names:
            with contextlib.suppress(OSError):  # it is gone
                os.chmod(os.path.join(folder, name), files, follow_symlinks=False)


def _review(home: Path, ended: threading.Event) -> None:
    """Go through the queue again and again."""
    while not ended.wait(REVIEW_SECONDS):
        command = [*POWERLESS, *QUIET, *SERVE[:-1], "review", "--queue"]
        subprocess.run(
            command, env=environment(home), capture_output=True, check=False, cwd=home.parent
        )


def _work(disk: Path, journal: Journal, seconds: float, rng: random.Random) -> int:
    """Let windows work and things fail until so many seconds have gone by; return how many windows
    did not finish.
    """
    windows = [
        Window(number, disk, journal, random.Random(rng.random())) for number in range(WINDOWS)
    ]
    faults, reviewed = Faults(disk, windows, journal, rng), threading.Event()
    faults.end()
    reviewer = threading.Thread(target=_review, args=(disk / "home", reviewed), daemon=True)
    for thread in (*windows, reviewer):
        thread.start()
    begun = time.monotonic() - journal.elapsed
    next_fault = time.monotonic() + FAULT_SECONDS
    while journal.elapsed < seconds:
        time.sleep(max(0.0, next_fault - time.monotonic()))
        next_fault += FAULT_SECONDS
        faults.begin()
        before, journal.elapsed = journal.elapsed, time.monotonic() - begun
        if journal.elapsed // 30 > before // 30:
            done = sum(map(len, journal.acknowledged.values()))
            progress(
                f"  {journal.elapsed:.0f} s, {done:,} acknowledged, "
                f"{_count(journal, 'refused')} refused"
            )
    faults.end()
    for window in windows:
        window.drains.set()
    latest = time.monotonic() + DRAIN_SECONDS
    for window in windows:
        window.join(max(0.0, latest - time.monotonic()))
    reviewed.set()
    reviewer.join()
    return sum(window.is_alive() for window in windows)


def _count(journal: Journal, what: str) -> int:
    return sum(count for name, count in journal.counts.items() if name.startswith(what))


def _verify(home: Path, journal: Journal) -> Iterator[Row]:
    with Store.open(home) as store:
        with store.backend.reading() as db:
            made = {reason[5:].rstrip("."): count for reason, count in db.execute(OPERATIONS)}
            uses = Counter(row[0] for row in db.execute("SELECT id FROM use"))
            outcomes = Counter(row[0] for row in db.execute("SELECT use FROM outcome"))
        acknowledged = journal.acknowledged
        lost = acknowledged["update"] - made.keys()
        changed = [token for token in acknowledged["update"] - lost if not _is_there(store, token)]
        yield none_of("updates that were acknowledged and are lost", len(lost) + len(changed))
        yield none_of("updates that were made twice", sum(count > 1 for count in made.values()))
        stray = made.keys() - acknowledged["update"] - journal.unknown["update"]
        yield none_of("updates that were made although they were refused", len(stray))
        yield none_of(
            "loads that were acknowledged and are lost", len(acknowledged["load"] - uses.keys())
        )
        yield none_of(
            "reports that were acknowledged and are lost",
            len(acknowledged["report"] - outcomes.keys()),
        )
        yield none_of("reports that are there twice", sum(count > 1 for count in outcomes.values()))
        queued = {entry.session for entry in waiting_sessions(home)}
        queued |= {
            json.loads(path.read_text())["session_id"]
            for path in (home / "reviews/taken").glob("*.json")
        }
        unseen = [one for one in acknowledged["end"] - queued if not _is_reviewed(store, one)]
        yield none_of("ended sessions that are neither queued nor reviewed", len(unseen))
        yield none_of(
            "files that wait to be written into the library",
            len(list((home / "unwritten").glob("*.json"))),
        )
        WorkingCopies(store).sync()
        behind = [
            head
            for head in store.heads(Ref.parse("x").kind, Ref.parse("x").scope)
            if not _is_written(store, home, head)
        ]
        yield none_of("skills that a last scan leaves otherwise in the folder", len(behind))
        yield none_of(
            "faults that fsck finds", len(fsck.check_library(store, checks=[check_index]).faults)
        )


def _is_there(store: Store, token: str) -> bool:
    window, _, number = token.partition("-")
    ref = Ref.parse(f"skill:soak-{window}-{int(number) // NOTES}")
    path = "SKILL.md" if int(number) % NOTES == 0 else f"notes/{number}.md"
    try:
        return (
            path == "SKILL.md"
            or store.file(store.head(ref), path).data == f"Note {token}.\n".encode()
        )
    except EvolvableError:
        return False


def _is_reviewed(store: Store, session: str) -> bool:
    return store.backend.observations.ingested_session(session) is not None or bool(
        store.backend.reviews.of(session)
    )


def _is_written(store: Store, home: Path, head: Any) -> bool:
    place = home.parent / "skills" / head.name
    return all(
        (place / path).is_file() and (place / path).read_bytes() == file.data
        for path, file in store.files(head).items()
    )


def _mounted(state: Path) -> Path:
    """Return the disk of a run, made and mounted for a new one.

    Ends the program where that cannot be.
    """
    disk = state.with_suffix(".disk")
    if state.exists() and not os.path.ismount(disk):
        sys.exit(f"{disk} is not mounted any more: what the run had is gone. Begin a new one.")
    if not state.exists():
        disk.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0700", "tmpfs", str(disk)],
            check=True,
        )
        (disk / "skills").mkdir()
        with Store.open(disk / "home", create=True) as store:
            WorkingCopies(store).add(disk / "skills")
    return disk


def run(minutes: float, seed: int, resume: str) -> None:
    """Run the soak, verify it, and end the program with 1 when something was lost or done twice."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or shutil.which("setpriv") is None:
        sys.exit(
            "soak.py --faults mounts a small disk and takes powers away: it needs root and "
            "setpriv, on Linux."
        )
    state = Path(resume) if resume else Path(tempfile.mkdtemp(prefix="soak-")) / "state.jsonl"
    disk = _mounted(state)
    journal = Journal(state)
    progress(f"after an interruption: soak.py --faults --minutes {minutes:g} --resume {state}")
    seed = seed or random.randrange(1 << 30)
    unfinished = _work(disk, journal, minutes * 60, random.Random(f"{seed} {journal.elapsed}"))
    counts = journal.counts
    rows = [
        Row("seed; minutes; windows", f"{seed}; {journal.elapsed / 60:.1f}; {WINDOWS}"),
        *(
            at_least(f"faults: {sort}", counts[f"fault {sort}"], 1, str)
            for sort in ("busy", "full", "read only", "kill")
        ),
        *(
            Row(f"acknowledged: {sort}", f"{len(names):,}")
            for sort, names in journal.acknowledged.items()
        ),
        at_least("refused, and made again later", _count(journal, "refused"), 1, str),
        Row("under way when a server was killed", f"{_count(journal, 'unknown'):,}"),
        none_of("windows that do not get on after the last fault", unfinished),
        *_verify(disk / "home", journal),
    ]
    if all(row.met is not False for row in rows):
        subprocess.run(["umount", str(disk)], check=True)
        shutil.rmtree(state.parent)
    else:
        progress(f"what is left lies in {state.parent}; when you have seen it: umount {disk}")
    conclude("Soak with faults", rows)
