"""What a session shows and teaches is kept once, also where the library refused it at first."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from command_line import CommandLine
from earned import LOAD, WORDS, client
from labelled_sessions import labelled
from library_trouble import Refusal, busy, no_room
from powers import NO_POWERS, powerless
from processes import poll
from samples import teach
from stdio_client import Server
from talks import Talk
from transcripts import LoadSkill, Run, User, session_id, write_claude_code

from evolvable_store.errors import LibraryError, LibraryFull
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.review_queue import enqueue, waiting_sessions
from evolvable_store.storage import connection
from evolvable_store.storage.observations import ClientSession
from evolvable_store.storage.protocol import Storage
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.outcomes.learning import list_learned, remove_learned
from evolvable_tools.outcomes.usage_report import stats
from evolvable_tools.sessions.session import Session
from evolvable_tools.verbs import edit, load
from evolvable_tools.verbs.search import find_skill

pytestmark = pytest.mark.process

PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON)
TASK = "merge the quarterly invoices of our suppliers into one pdf"
SESSION = next(one for one in labelled() if one.name == "alembic")

refusals = pytest.mark.parametrize("refusal", [busy, no_room])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the library gives up soon."""
    monkeypatch.setattr(connection, "GIVE_UP_SECONDS", 0.05)


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """A library with a skill for PDF files."""
    with Library.open(tmp_path / "home", create=True) as library:
        document = "---\nname: pdf\ndescription: Merges and splits PDF files.\n---\n# pdf\n"
        edit.update_resource(
            library, PERSON, Ref.parse("pdf"), "new", files={"SKILL.md": document}, create=True
        )
        library.index.catch_up()  # nothing is left to write when the library refuses
        yield library


# A queued review


@refusals
def test_a_queued_review_that_the_library_refuses_waits_and_is_made_once_later(
    tmp_path: Path, refusal: Refusal
) -> None:
    evolvable = CommandLine(tmp_path)
    with Store.open(evolvable.home, create=True) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
        hook = {
            "session_id": SESSION.session_id,
            "transcript_path": str(SESSION.write(evolvable.project)),
        }
        assert enqueue(str(evolvable.home), hook)

        with refusal(store.backend):
            (refused,) = evolvable("review", "--queue", "--json").json["reviews"]
        assert refused["state"] == "waits"
        assert evolvable("review", "--status", "--json").json["queued"] == [SESSION.session_id]

        (made,) = evolvable("review", "--queue", "--json").json["reviews"]
        assert made["state"] == "begun"
        assert waiting_sessions(evolvable.home) == []
        assert [one.id for one in store.backend.reviews.of(SESSION.session_id)] == [
            made["review_id"]
        ]


def test_what_is_no_transcript_is_struck_off_and_what_waits_behind_it_is_reviewed(
    tmp_path: Path,
) -> None:
    evolvable = CommandLine(tmp_path)
    with Store.open(evolvable.home, create=True) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    gone = {"session_id": "gone", "transcript_path": str(evolvable.project / "gone.jsonl")}
    hook = {
        "session_id": SESSION.session_id,
        "transcript_path": str(SESSION.write(evolvable.project)),
    }
    assert enqueue(str(evolvable.home), gone) and enqueue(str(evolvable.home), hook)

    assert [one["state"] for one in evolvable("review", "--queue", "--json").json["reviews"]] == [
        "done",
        "begun",
    ]
    assert waiting_sessions(evolvable.home) == []


@powerless
def test_a_queued_session_waits_while_the_library_is_read_only_and_is_ingested_once_later(
    tmp_path: Path,
) -> None:
    evolvable = CommandLine(tmp_path)
    with Store.open(evolvable.home, create=True) as store:
        teach(store, "db-migrations", "Write database migrations.", body="By hand.")
    short = [
        User("Make the migration."),
        LoadSkill("db-migrations", "By hand."),
        Run("pytest", "1 passed"),
    ]
    path = write_claude_code(evolvable.project, short)
    assert enqueue(
        str(evolvable.home), {"session_id": session_id("session"), "transcript_path": str(path)}
    )

    review = [
        *NO_POWERS,
        sys.executable,
        "-P",
        "-m",
        "evolvable_server",
        "review",
        "--queue",
        "--json",
    ]
    for file in evolvable.home.glob("library.db*"):
        file.chmod(0o400)
    evolvable.home.chmod(0o500)
    said = subprocess.run(
        review, env=evolvable.environment, capture_output=True, text=True, check=True
    ).stdout
    evolvable.home.chmod(0o700)
    for file in evolvable.home.glob("library.db*"):
        file.chmod(0o600)
    assert [one["state"] for one in json.loads(said)["reviews"]] == ["waits"]

    assert [one["state"] for one in evolvable("review", "--queue", "--json").json["reviews"]] == [
        "done"
    ]
    with Store.open(evolvable.home) as store:
        assert store.backend.observations.ingested_session(session_id("session")) is not None
    assert waiting_sessions(evolvable.home) == []


# That the server saw a session


@refusals
def test_a_session_whose_first_write_was_refused_is_written_by_the_same_process_later(
    library: Library, refusal: Refusal
) -> None:
    observations = library.store.backend.observations
    with refusal(library.store.backend):
        library.note_session(client("s1"))
        with pytest.raises(LibraryError):
            library.impressions.flush()
    new = [ClientSession("s1", "client-s1", "")]
    poll(lambda: observations.unknown_sessions(new) == [], "the session that was seen", 20)
    record_uses(library, followed(library, "s1"))
    assert [one.session for one in observations.verified_ends()] == ["s1"]


@refusals
def test_what_a_search_showed_while_the_library_refused_it_is_counted_once(
    library: Library, refusal: Refusal
) -> None:
    with refusal(library.store.backend):
        find_skill(library, client("s1"), "merge PDF files", to_agent=True)
        for _ in range(2):
            with pytest.raises(LibraryError):
                library.impressions.flush()
    library.impressions.flush()
    library.impressions.flush()
    (line,) = stats(library, PERSON).resources
    assert (line.ref, line.shown) == ("skill:pdf", 1)


@refusals
def test_a_process_that_ends_while_the_library_refuses_what_was_shown_does_end(
    tmp_path: Path, refusal: Refusal
) -> None:
    with ExitStack() as stack:
        library = stack.enter_context(Library.open(tmp_path / "home", create=True))
        with refusal(library.store.backend):
            library.note_session(client("s1"))
            began = time.monotonic()
            stack.close()
    assert time.monotonic() - began < 4


# What a session teaches


@contextmanager
def no_tasks(backend: Storage) -> Iterator[None]:
    """SQLite finds no room for a learned task, and for everything else."""
    with backend.writing() as db:
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON learned BEGIN SELECT RAISE(ABORT, 'disk is "
            "full'); END"
        )
    yield
    with backend.writing() as db:
        db.execute("DROP TRIGGER full")


def followed(library: Library, session: str) -> Session:
    """A session in which a person typed the task, the server served the skill, and it
    ended well.
    """
    use = load.load_skill(library, client(session), Ref.parse("pdf")).use_id
    said = f"...\nuse_id: {use} (report_outcome with it when the task is done)"
    talk = Talk(session).typed(TASK).called(LOAD, {"ref": "pdf"}, said)
    return (
        talk.called(LOAD, {"ref": "pdf", "path": "notes.md"}, said)
        .typed(WORDS["succeeded"])
        .session
    )


def test_a_session_whose_lesson_was_refused_teaches_it_once_when_it_is_read_again(
    library: Library,
) -> None:
    session = followed(library, "s1")
    with no_tasks(library.store.backend), pytest.raises(LibraryFull):
        record_uses(library, session)
    assert list_learned(library, PERSON) == []

    assert not record_uses(library, session).is_stored  # what it showed was stored before
    (task,) = list_learned(library, PERSON)
    assert task.task == TASK
    remove_learned(library, PERSON, task.id)
    record_uses(library, session)
    assert list_learned(library, PERSON) == []  # it is learned once, and a person removed it


def test_a_session_whose_lesson_was_refused_teaches_it_to_the_next_process(
    library: Library,
) -> None:
    session = followed(library, "s1")
    with no_tasks(library.store.backend), pytest.raises(LibraryFull):
        record_uses(library, session)

    with Library.open(library.store.home) as other:
        record_uses(other, session)
    assert [one.task for one in list_learned(library, PERSON)] == [TASK]
    taken = library.store.backend.observations.ingested_session("s1")
    assert taken is not None and taken.digest == session.digest


# The last rows of a process


def ended_busy(store: Store, evolvable: CommandLine, ending: Callable[[Server], object]) -> float:
    """Have a server show something, end while another process writes; return how long that took."""
    server = Server(
        sys.executable,
        env=evolvable.environment | {"EVOLVABLE_EMBEDDER": "off"},
        cwd=evolvable.project,
    )
    with busy(store.backend):
        server.call("find_skill", task="merge PDF files")
        begun = time.monotonic()
        ending(server)
        server.close()
        return time.monotonic() - begun


def shown(evolvable: CommandLine) -> list[int]:
    return [line["shown"] for line in evolvable("stats", "--json").json["resources"]]


@pytest.mark.parametrize(
    "ending",
    [Server.close, lambda server: server.process.terminate()],
    ids=["stdin", "signal"],
)
def test_what_a_server_showed_right_before_its_end_is_counted_although_the_library_was_busy(
    tmp_path: Path, ending: Callable[[Server], object]
) -> None:
    evolvable = CommandLine(tmp_path)
    with Store.open(evolvable.home, create=True) as store:
        teach(store, "pdf-merge", "Merge PDF files.", body="By hand.")
        assert ended_busy(store, evolvable, ending) < 5
    assert shown(evolvable) == [1]
    assert shown(evolvable) == [1]
    assert list((evolvable.home / "unwritten").iterdir()) == []


@powerless
def test_a_load_from_a_library_that_cannot_be_written_names_no_use_that_nobody_can_report_on(
    tmp_path: Path,
) -> None:
    evolvable = CommandLine(tmp_path)
    with Store.open(evolvable.home, create=True) as store:
        teach(store, "pdf-merge", "Merge PDF files.", body="By hand.")
    load_it = [
        *NO_POWERS,
        sys.executable,
        "-P",
        "-m",
        "evolvable_server",
        "load",
        "pdf-merge",
        "--json",
    ]
    for file in evolvable.home.glob("library.db*"):
        file.chmod(0o400)
    evolvable.home.chmod(0o500)
    said = subprocess.run(
        load_it, env=evolvable.environment, capture_output=True, text=True, check=True
    ).stdout
    evolvable.home.chmod(0o700)
    for file in evolvable.home.glob("library.db*"):
        file.chmod(0o600)
    assert "By hand." in said and json.loads(said).get("use_id") is None
    assert evolvable("load", "pdf-merge", "--json").json["use_id"]


def test_files_with_rows_that_are_damaged_or_hostile_keep_nobody_from_counting(
    library: Library,
) -> None:
    find_skill(library, client("s1"), "merge PDF files", to_agent=True)
    place = library.store.home / "unwritten"
    place.mkdir()
    rows = {
        "damaged": "[[",
        "other": "{}",
        "numbers": "[[[1, 2, 3, 4, 5]], [[1, 2, 3]]]",
        "deep": "[" * 100_000,
        "large": (
            f'[[["s", {1 << 80}, 1, "t", null], ["s", true, 1, "t", null]], '
            '[["a\\u0000", "b", "c"]]]'
        ),
    }
    for name, text in rows.items():
        (place / f"{name}.json").write_text(text, encoding="utf-8")
    os.mkfifo(place / "pipe.json")
    (line,) = stats(library, PERSON).resources
    assert line.shown == 1
    assert [file.name for file in place.iterdir()] == ["pipe.json"]
