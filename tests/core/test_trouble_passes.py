"""Busy, full, read only and unreachable mean "again": no background task takes them for done,
refused or gone.
"""

import contextlib
import errno
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from command_line import CommandLine
from labelled_sessions import labelled
from library_trouble import TROUBLE, busy, linux_root, refusing, small_disk
from mcp_place import PERSON as TERMINAL
from mcp_place import Place, skill_text
from powers import NO_POWERS, powerless
from processes import PATIENCE, poll
from samples import put_texts, teach
from transcripts import LoadSkill, Run, User, session_id, write_claude_code

from evolvable_server import serving, watcher
from evolvable_server.config import Config
from evolvable_server.hooks.dispatch import EMPTY_ANSWER, HookDispatcher
from evolvable_server.mcp import notifications
from evolvable_server.mcp.notifications import Notifier
from evolvable_server.serving import Serving
from evolvable_server.watcher import Watcher
from evolvable_store import errors, review_queue
from evolvable_store.errors import LibraryCorrupt, NotFound, TryAgain, may_pass
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.search.index import check_index
from evolvable_store.search.index_file import IndexFile
from evolvable_store.storage import connection
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library

pytestmark = pytest.mark.process

PDF = Ref.parse("pdf")
PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON)
SESSION = next(one for one in labelled() if one.name == "alembic")
every_trouble = pytest.mark.parametrize("trouble", list(TROUBLE))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the library, or for the next try, does so for a moment."""
    monkeypatch.setattr(connection, "GIVE_UP_SECONDS", 0.05)
    monkeypatch.setattr(serving, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(notifications, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(watcher, "AGAIN_SECONDS", (0.05, 0.05))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A library whose skills lie where Claude Code has them."""
    folder = tmp_path / "user"
    (folder / ".claude").mkdir(parents=True)
    return Place(folder / ".claude")


# The class


@every_trouble
def test_what_sqlite_says_of_trouble_that_passes_is_one_class(tmp_path: Path, trouble: str) -> None:
    with (
        Store.open(tmp_path / "home", create=True) as store,
        refusing(store.backend.path, "operation", trouble),
        pytest.raises(TryAgain) as refused,
    ):
        put_texts(store, {"pdf": skill_text("pdf")})
    assert may_pass(refused.value)
    assert isinstance(refused.value, errors.LibraryError)


@pytest.mark.parametrize(
    "name", ["ENOSPC", "EDQUOT", "EROFS", "EAGAIN", "EBUSY", "EACCES", "EMFILE", "EIO"]
)
def test_what_the_system_says_of_the_moment_may_pass(name: str) -> None:
    assert may_pass(OSError(getattr(errno, name), name))


@pytest.mark.parametrize("name", ["ENOENT", "ENOTDIR", "EISDIR", "EINVAL", "ELOOP", "ENAMETOOLONG"])
def test_what_the_system_says_of_the_file_does_not_pass(name: str) -> None:
    assert not may_pass(OSError(getattr(errno, name), name))
    assert not any(map(may_pass, (NotFound("x"), LibraryCorrupt("x"), ValueError("x"))))


# The review queue


def unpowered(line: CommandLine, *command: str) -> list[dict[str, object]]:
    """Returns the reviews of the queue that a process made for which the modes of files count."""
    program = [*NO_POWERS, sys.executable, "-P", "-m", "evolvable_server", *command]
    ran = subprocess.run(program, env=line.environment, capture_output=True, text=True, check=True)
    return list(json.loads(ran.stdout)["reviews"])


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path)
    with Store.open(made.home, create=True) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    return made


def queued(line: CommandLine) -> tuple[Path, str]:
    """Queues a short session; returns its transcript and its name."""
    said = [
        User("Make the migration."),
        LoadSkill("db-migrations", "By hand."),
        Run("pytest", "1 passed"),
    ]
    path = write_claude_code(line.project, said)
    assert review_queue.enqueue(
        str(line.home), {"session_id": session_id("session"), "transcript_path": str(path)}
    )
    return path, session_id("session")


@powerless
def test_a_transcript_that_cannot_be_read_now_waits_and_what_is_behind_it_is_reviewed(
    line: CommandLine,
) -> None:
    path, name = queued(line)
    hook = {"session_id": SESSION.session_id, "transcript_path": str(SESSION.write(line.project))}
    assert review_queue.enqueue(str(line.home), hook)
    path.chmod(0)
    reviews = unpowered(line, "review", "--queue", "--json")
    assert [(one["session"], one["state"]) for one in reviews] == [
        (name, "waits"),
        (SESSION.session_id, "begun"),
    ]
    assert "cannot be read" in str(reviews[0]["why"])

    path.chmod(0o600)
    assert [one["state"] for one in unpowered(line, "review", "--queue", "--json")] == ["done"]
    with Store.open(line.home) as store:
        assert store.backend.observations.ingested_session(name) is not None
    assert unpowered(line, "review", "--queue", "--json") == []


@powerless
def test_a_session_waits_while_the_transcript_of_its_subagent_cannot_be_read(
    line: CommandLine,
) -> None:
    path, name = queued(line)
    part = path.with_suffix("") / "subagents/agent-a1.jsonl"
    part.parent.mkdir(parents=True)
    part.write_text(path.read_text())
    part.chmod(0)
    assert [one["state"] for one in unpowered(line, "review", "--queue", "--json")] == ["waits"]
    with Store.open(line.home) as store:
        assert store.backend.observations.ingested_session(name) is None

    part.chmod(0o600)
    assert [one["state"] for one in unpowered(line, "review", "--queue", "--json")] == ["done"]


@powerless
@pytest.mark.parametrize("folder", ["queue", "taken"])
def test_an_entry_of_the_queue_that_cannot_be_read_now_stays(
    line: CommandLine, folder: str
) -> None:
    queued(line)
    if folder == "taken":
        assert review_queue.take_session(line.home)  # by a process that is gone
    (entry,) = (line.home / "reviews" / folder).iterdir()
    entry.chmod(0)
    assert unpowered(line, "review", "--queue", "--json") == []
    assert entry.exists()

    entry.chmod(0o600)
    assert [one["state"] for one in unpowered(line, "review", "--queue", "--json")] == ["done"]


def test_a_hook_on_a_full_disk_takes_no_place_of_a_session_that_waits(tmp_path: Path) -> None:
    for number in range(review_queue.MAX_WAITING):
        assert review_queue.enqueue(str(tmp_path), {"session_id": f"s{number}"})
    queue = (
        "import sys; from evolvable_store.review_queue import enqueue; enqueue(sys.argv[1], "
        "{'session_id': 'new'})"
    )
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); {queue}"
    ran = subprocess.run(
        [sys.executable, "-c", full, str(tmp_path)], capture_output=True, text=True
    )
    assert "OSError" in ran.stderr
    assert len(review_queue.waiting_sessions(tmp_path)) == review_queue.MAX_WAITING

    subprocess.run([sys.executable, "-c", queue, str(tmp_path)], check=True)
    waiting = [one.session for one in review_queue.waiting_sessions(tmp_path)]
    assert (len(waiting), "new" in waiting) == (review_queue.MAX_WAITING, True)


# The watcher


@pytest.fixture
def library(place: Place) -> Iterator[Library]:
    with Library.open(place.home) as library:
        yield library


@every_trouble
def test_a_change_that_the_watcher_could_not_note_as_written_is_noted_when_the_trouble_is_over(
    place: Place, library: Library, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    following = Watcher(library, lambda _: None, rescan_seconds=3_600)
    following.start()
    try:
        poll(lambda: following._owner.owns, "the owner of the folders")
        with (
            refusing(library.store.backend.path, "binding", trouble),
            caplog.at_level(logging.WARNING),
        ):
            put_texts(library.store, {"pdf": skill_text("pdf", body="quokka")})
            poll(lambda: caplog.records, "the trouble to be met")
            assert versions_in(library) == {"csv": 1, "pdf": 1}
        poll(lambda: versions_in(library) == {"csv": 1, "pdf": 2}, "the version in the folder", 20)
    finally:
        following.stop()
    assert "quokka" in (place.skills / "pdf/SKILL.md").read_text()
    assert library.store.head(PDF).version == 2


def versions_in(library: Library) -> dict[str, int | None]:
    """Returns the versions that the directories of the folder hold, as the library knows."""
    (folder,) = library.folders()
    bindings = library.working_copies.bindings.of_folder(folder)
    return {directory: binding.version for directory, binding in bindings.items()}


@linux_root
def test_a_change_that_found_no_room_in_the_folder_is_written_when_there_is_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        small_disk(tmp_path / "disk", "256k") as disk,
        Library.open(tmp_path / "home", create=True) as library,
    ):
        (disk / "skills/pdf").mkdir(parents=True)
        (disk / "skills/pdf/SKILL.md").write_text(skill_text("pdf"))
        library.working_copies.add(disk / "skills", identity=TERMINAL)
        following = Watcher(library, lambda _: None, rescan_seconds=3_600)
        following.start()
        try:
            poll(lambda: following._owner.owns, "the owner of the folders")
            (disk / "ballast").write_bytes(b"")
            with (
                contextlib.suppress(OSError),
                (disk / "ballast").open("ab", buffering=0) as ballast,
            ):
                while ballast.write(bytes(4_096)):
                    pass
            with caplog.at_level(logging.WARNING):
                put_texts(library.store, {"pdf": skill_text("pdf", body="quokka\n" * 4_000)})
                poll(lambda: caplog.records, "the trouble to be met")
            file = disk / "skills/pdf/SKILL.md"
            assert "quokka" not in file.read_text()
            (disk / "ballast").unlink()
            poll(lambda: "quokka" in file.read_text(), "the change in the folder", 20)
        finally:
            following.stop()


def test_a_file_that_the_watcher_cannot_open_is_named_with_the_words_of_the_system(
    place: Place, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    missing = place.home / "locks" / "gone" / "folder-1.queue"
    following = Watcher(library, lambda _: missing.open(), rescan_seconds=3_600)
    following.start()
    try:
        poll(lambda: following._owner.owns, "the owner of the folders")
        with caplog.at_level(logging.WARNING):
            put_texts(library.store, {"pdf": skill_text("pdf", body="quokka")})
            poll(lambda: caplog.records, "the trouble to be met")
    finally:
        following.stop()
    said = caplog.records[0].getMessage()
    assert said.startswith(f"{missing} ") and said.endswith(": No such file or directory")


@every_trouble
def test_a_save_that_the_library_refused_is_imported_once_when_the_trouble_is_over(
    place: Place, library: Library, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    following = Watcher(library, lambda _: None, rescan_seconds=3_600)
    following.start()
    try:
        poll(lambda: following._owner.owns, "the owner of the folders")
        with (
            refusing(library.store.backend.path, "operation", trouble),
            caplog.at_level(logging.WARNING),
        ):
            place.save("pdf", skill_text("pdf", body="quokka"))
            poll(lambda: caplog.records, "the trouble to be met")
            assert library.store.head(PDF).version == 1
        poll(lambda: library.store.head(PDF).version == 2, "the save in the library", 20)
    finally:
        following.stop()
    assert b"quokka" in library.store.files(library.store.head(PDF))["SKILL.md"].data
    assert library.store.head(PDF).version == 2


# The index process

INDEXER = """
import sys
from evolvable_server import index_worker
from evolvable_store.storage import connection
connection.GIVE_UP_SECONDS = 0.05
index_worker.main()
"""


def test_the_index_process_goes_on_when_the_index_was_busy(tmp_path: Path) -> None:
    with Store.open(tmp_path / "home", create=True) as store:
        put_texts(store, {f"skill-{n}": skill_text(f"skill-{n}") for n in range(20)})
        command = [sys.executable, "-c", INDEXER, str(store.home), "beside"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as indexing:
            assert indexing.stdin is not None
            with IndexFile(store.home).writing():
                os.write(indexing.stdin.fileno(), b"\n")
                with pytest.raises(subprocess.TimeoutExpired):
                    indexing.wait(3)
            put_texts(store, {"late": skill_text("late")})
            poll(lambda: applied(store) == store.sequence(), "the index to be in step")
            indexing.stdin.close()
            assert indexing.wait(PATIENCE) == 0
        assert list(check_index(store)) == []


def applied(store: Store) -> int:
    """Returns the newest change that is in the index; it takes nothing in."""
    file = IndexFile(store.home)
    try:
        with file.reading() as db:
            row = db.execute("SELECT value FROM state WHERE key = 'applied'").fetchone()
            return int(row[0]) if row else 0
    finally:
        file.close()


# Hooks


def dispatcher(place: Place, library: Library) -> HookDispatcher:
    return HookDispatcher(Config(place.home, place.root), library, Caller(Actor.AGENT))


def used(tool: str, **given: str) -> dict[str, str]:
    return {"hook_event_name": "PostToolUse", "session_id": "s1", "tool_name": tool, **given}


OTHER = used("Read", file_path="/nothing/of/ours")
"""A use of a tool that concerns no skill."""


@every_trouble
def test_a_load_that_the_library_refused_is_recorded_once_with_the_next_hook(
    place: Place, library: Library, trouble: str
) -> None:
    hooks = dispatcher(place, library)
    with refusing(library.store.backend.path, "use", trouble):
        for _ in range(2):
            assert hooks.answer(used("Skill", skill="pdf")) == EMPTY_ANSWER
        assert hooks.answer(OTHER) == EMPTY_ANSWER
    assert library.evidence.tally(library.store.head(PDF).id).loaded == 0

    for _ in range(2):
        assert dispatcher(place, library).answer(OTHER) == EMPTY_ANSWER
    assert library.evidence.tally(library.store.head(PDF).id).loaded == 1
    assert list((place.home / "hooks/waiting").iterdir()) == []


@every_trouble
def test_an_agents_save_that_the_library_refused_is_the_agents_when_it_is_recorded(
    place: Place, library: Library, trouble: str
) -> None:
    hooks = dispatcher(place, library)
    place.save("pdf", skill_text("pdf", body="quokka"))
    with refusing(library.store.backend.path, "operation", trouble):
        assert (
            hooks.answer(used("Write", file_path=str(place.skills / "pdf/SKILL.md")))
            == EMPTY_ANSWER
        )
    hooks.answer(OTHER)
    head = library.store.head(PDF)
    assert head.version == 2
    assert (
        library.store.operation(library.store.version(head).operation).principal is Principal.AGENT
    )


def test_what_was_saved_after_a_refused_event_is_not_put_down_to_the_agent(
    place: Place, library: Library
) -> None:
    file = place.skills / "pdf/SKILL.md"
    place.save("pdf", skill_text("pdf", body="quokka"))
    with refusing(library.store.backend.path, "operation", "busy"):
        dispatcher(place, library).answer(used("Write", file_path=str(file)))
    place.save("pdf", skill_text("pdf", body="a person's own"))
    os.utime(file, (file.stat().st_mtime + 60,) * 2)
    dispatcher(place, library).answer(OTHER)
    assert library.store.head(PDF).version == 1
    library.working_copies.sync()
    made = library.store.version(library.store.head(PDF)).operation
    assert library.store.operation(made).principal is not Principal.AGENT


def test_an_event_that_cannot_be_read_keeps_no_other_one_waiting(
    place: Place, library: Library
) -> None:
    with refusing(library.store.backend.path, "use", "busy"):
        dispatcher(place, library).answer(used("Skill", skill="pdf"))
    unreadable = place.home / "hooks/waiting/0.json"
    unreadable.mkdir()
    (place.home / "hooks/waiting/1.json").write_text("{")
    dispatcher(place, library).answer(OTHER)
    assert library.evidence.tally(library.store.head(PDF).id).loaded == 1
    assert list((place.home / "hooks/waiting").iterdir()) == [unreadable]


def test_a_hook_that_meets_a_defect_answers_nothing_and_says_so(
    place: Place, library: Library, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = dispatcher(place, library)
    (place.home / "reviews").write_text("in the way")
    stop = {"hook_event_name": "Stop", "session_id": "s1", "transcript_path": "/t/a.jsonl"}
    assert hooks.answer(stop) == EMPTY_ANSWER
    assert "a hook failed" in caplog.text


def test_a_prompt_is_answered_while_a_hook_waits_and_the_library_is_busy(
    place: Place, library: Library
) -> None:
    hooks = dispatcher(place, library)
    prompt = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "s2",
        "prompt": "Please fill in this PDF form for me",
    }
    with busy(library.store.backend):
        hooks.answer(used("Skill", skill="pdf"))
        assert "skill:pdf" in hooks.answer(prompt)


def test_what_a_full_disk_kept_from_being_offered_is_offered_later(place: Place) -> None:
    offer = """
import sys
from pathlib import Path
import resource
from evolvable_server.hooks.skill_offers import OfferLog
log = OfferLog(Path(sys.argv[1]))
assert log.claim("s1", 1, "search-1")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
assert not log.claim("s1", 2, "search-1")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert log.claim("s1", 2, "search-1")
assert not log.claim("s1", 2, "search-1")
"""
    subprocess.run([sys.executable, "-c", offer, str(place.home)], check=True)


def test_a_hook_for_a_library_that_cannot_be_opened_now_waits_for_the_next_one(
    place: Place,
) -> None:
    hook = [
        sys.executable,
        "-P",
        "-c",
        "from evolvable_server.hooks.command import main; main()",
        "PostToolUse",
    ]

    def run(event: dict[str, str]) -> int:
        given = json.dumps(event).encode()
        return subprocess.run(hook, input=given, env=place.environment, check=True).returncode

    file = place.home / "library.db"
    file.rename(place.home / "aside")
    file.mkdir()
    assert run(used("Skill", skill="pdf")) == 0
    file.rmdir()
    (place.home / "aside").rename(file)
    assert run(OTHER) == 0
    with Store.open(place.home) as store:
        assert store.backend.evidence.tally(store.head(PDF).id).loaded == 1


# Notifications


@pytest.mark.anyio
async def test_clients_are_notified_once_of_what_the_library_could_not_say_at_first(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    with Store.open(home, create=True) as store:
        put_texts(store, {"pdf": skill_text("pdf")})
        changes = store.changes(0, 10)
    home.rename(tmp_path / "aside")
    notifier, seen = Notifier(store), list[str]()
    notifier.bus.subscribe(lambda event: seen.append(type(event).__name__))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.run)
        notifier.post(changes)
        with pytest.raises(TryAgain):
            await notifier.publish(changes)
        assert seen == []
        (tmp_path / "aside").rename(home)
        with anyio.fail_after(20):
            while len(seen) < 2:
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert seen == ["ResourcesListChanged", "ResourceUpdated"]


# The background threads of a server


def test_memories_that_could_not_be_written_for_a_client_are_written_without_another_change(
    tmp_path: Path,
) -> None:
    line = CommandLine(tmp_path)
    line("init", code=None)
    (line.user / ".claude").mkdir(exist_ok=True)
    rules = line.user / ".claude/rules"
    line("memory", "on", "claude-code")
    (rules / "evolvable-memory.md").unlink()
    rules.rmdir()
    rules.write_text("in the way")
    served = Serving(Config(line.home, line.root))
    try:
        served.start_following()
        with served.library.transaction(PERSON, "learned") as tx:
            tx.put(Ref.parse("memory:USER"), {"USER.md": File(b"- 2026-11-20: Likes tea.\n")})
        poll(lambda: not served._memories_changed.is_set(), "the change to be seen")
        rules.unlink()
        file = rules / "evolvable-memory.md"
        poll(
            lambda: file.exists() and "Likes tea." in file.read_text(),
            "the memories at the client",
            20,
        )
    finally:
        served.close()
