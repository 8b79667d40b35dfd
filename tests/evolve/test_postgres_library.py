"""A library in PostgreSQL through the command line: opened by its address, moved there and back."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from postgres_place import public_folder, server_url

from evolvable_evolve.evolution.tasks.opened_tasks import OpenedTaskLog, TaskOpening
from evolvable_evolve.evolution.tasks.similarity import TextSketch
from evolvable_store.resource import Ref
from evolvable_store.storage.learned import LearnedTask, TaskSource
from evolvable_tools.library import Library

pwd = pytest.importorskip("pwd")  # POSIX only, as the server that the tests start

pytestmark = pytest.mark.process


@pytest.fixture
def evolvable(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of a project that nobody made yet."""
    return f"{server_url()}&project=c{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]}"


def registered(evolvable: CommandLine, url: str) -> None:
    from evolvable_store.storage.address import Address

    evolvable.configure(f'homes = ["{Address.parse(url).name}"]\n')


def test_a_library_moves_into_postgresql_and_back_with_its_whole_history(
    evolvable: CommandLine, url: str, tmp_path: Path
) -> None:
    folder = evolvable.user / ".claude/skills"
    evolvable.save(folder, "pdf", skill_text("pdf", body="First."))
    evolvable("init", folder)
    evolvable.save(folder, "pdf", skill_text("pdf", body="Second."))
    evolvable("sync")
    registered(evolvable, url)
    sketch = TextSketch.of("Add 1 and 3.")
    OpenedTaskLog.in_library(evolvable.home).add(
        TaskOpening("run", "finalist", "test", (), (sketch,))
    )
    opened = OpenedTaskLog.in_library(evolvable.home).content()
    moved = evolvable("move", "--to", url, "--json").json
    assert moved["folders"] == [str(folder)]

    there = {"EVOLVABLE_HOME": url}
    history = evolvable("history", "pdf", "--json").json
    assert evolvable("--home", url, "history", "pdf", "--json").json == history
    assert "Second." in evolvable("get", "pdf", **there).out
    assert "pdf" in evolvable("find", "work with pdf", **there).out
    newest = evolvable("log", "--json", **there).json["operations"][0]["operation"]
    evolvable("undo", newest, **there)
    assert "First." in evolvable("get", "pdf", **there).out
    assert "Second." in evolvable("get", "pdf").out
    evolvable("fsck", **there)
    assert evolvable("folders", "--json", **there).json["folders"] == [], (
        "two must not write into one folder"
    )
    evolvable("folders", "confirm", stdin="y\n", **there)
    assert [one["path"] for one in evolvable("folders", "--json", **there).json["folders"]] == [
        str(folder)
    ]
    assert "project=c" in evolvable("doctor", code=None, **there).out

    back = evolvable("move", "--to", tmp_path / "back", "--json", **there).json
    assert back["rows"] > moved["rows"]
    assert OpenedTaskLog.in_library(tmp_path / "back").content() == opened, (
        "looks at sealed tests go along"
    )
    assert evolvable("move", "--to", tmp_path / "back", code=1, **there).err.startswith("Error: ")
    changed = evolvable("--home", url, "history", "pdf", "--json").json
    assert evolvable("--home", tmp_path / "back", "history", "pdf", "--json").json == changed


def test_what_transcripts_taught_does_not_move_into_postgresql(
    evolvable: CommandLine, url: str
) -> None:
    folder = evolvable.user / ".claude/skills"
    evolvable.save(folder, "pdf", skill_text("pdf", body="First."))
    evolvable("init", folder)
    registered(evolvable, url)
    with Library.open(evolvable.home) as library:
        learned, pdf = library.store.backend.learned, library.store.head(Ref.parse("skill:pdf")).id
        task = LearnedTask(
            pdf,
            "my private prompt",
            "2026-11-21T00:00:00.000000Z",
            False,
            TaskSource.TRANSCRIPT,
            "s1",
        )
        learned.take_transcript("file", "1", "s1", [task])
        learned.add(
            [replace(task, task="named by a person", source=TaskSource.PERSON, session=None)]
        )

    evolvable("move", "--to", url)

    kept = evolvable("learned", EVOLVABLE_HOME=url).out, evolvable("learned").out
    assert ["named by a person" in text for text in kept] == [True, True]
    assert ["my private prompt" in text for text in kept] == [False, True]


def test_a_server_starts_a_postgresql_of_its_own_and_ends_it(evolvable: CommandLine) -> None:
    server_url()  # skips the test where there is none to start
    if os.geteuid() == 0 and not any(one.pw_name == "postgres" for one in pwd.getpwall()):
        pytest.skip("there is no account that PostgreSQL could run as")
    with public_folder() as place:
        given = (
            "--http",
            "127.0.0.1:0",
            "--postgres",
            "embedded",
            "--postgres-data",
            place / "server",
        )
        server = evolvable.start("serve", *given, stdout=subprocess.DEVNULL)
        try:
            assert any("Serving" in line for line in server.stderr or ()), (
                "it ended before it served"
            )
            address = evolvable.home / "postgres.json"
            assert address.stat().st_mode & 0o077 == 0
            assert (place / "server/socket").stat().st_mode & 0o077 == 0
            evolvable("list")
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate(timeout=60)
        assert not (place / "server/data/postmaster.pid").exists(), "it ends with the server"
        assert "cannot be reached" in evolvable("list", code=1).err


def test_an_address_that_the_person_did_not_register_is_refused(
    evolvable: CommandLine, url: str
) -> None:
    refused = evolvable("list", code=1, EVOLVABLE_HOME=url).err
    assert "not one of your libraries" in refused and "homes" in refused


@pytest.mark.parametrize(
    "said",
    [
        "alice@evil/team",
        "alice@db,evil/team",
        "alice@db/team?host=evil",
        "alice@db/team?sslmode=disable",
    ],
)
@pytest.mark.parametrize("more", ["", "&project=theirs"])
def test_what_a_project_adds_to_a_registered_address_makes_it_another_one(
    evolvable: CommandLine, said: str, more: str
) -> None:
    registered(evolvable, "postgresql://alice@db/team")
    address = f"postgresql://{said}{more if '?' in said else more.replace('&', '?')}"
    refused = evolvable("list", code=1, EVOLVABLE_HOME=address).err
    assert "not one of your libraries" in refused
    assert not (evolvable.user / ".evolvable/postgres").exists()


def test_a_variable_of_a_project_chooses_neither_the_certificates_nor_another_server(
    evolvable: CommandLine,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = (
            f"postgresql://alice@127.0.0.1:{server.getsockname()[1]}/team?sslmode=verify-full&"
            "connect_timeout=5"
        )
        registered(evolvable, address)
        asked = threading.Thread(target=_offer_tls, args=[server])
        asked.start()
        of_project = evolvable.project / "ca.crt"
        named = {
            "PGSSLROOTCERT": str(of_project),
            "PGHOSTADDR": "192.0.2.1",
            "PGREQUIREAUTH": "none",
        }
        refused = evolvable("list", code=1, EVOLVABLE_HOME=address, **named).err
        asked.join(timeout=30)
    assert "root certificate file" in refused, (
        "the server of the address was asked, and its certificate would be checked"
    )
    assert str(of_project) not in refused and "Traceback" not in refused


def _offer_tls(server: socket.socket) -> None:
    """Answer the first request for an encrypted connection as a server does that has a
    certificate.
    """
    server.settimeout(20)
    client, _ = server.accept()
    with client:
        client.settimeout(20)
        client.recv(8)
        client.sendall(b"S")
        client.recv(1)


def test_a_hook_leaves_its_event_where_the_server_of_the_shared_library_looks(
    evolvable: CommandLine, url: str
) -> None:
    registered(evolvable, url)
    evolvable("init", EVOLVABLE_HOME=url)
    event = json.dumps(
        {
            "session_id": "s1",
            "hook_event_name": "Stop",
            "transcript_path": str(evolvable.user / "t.jsonl"),
        }
    )
    command = [
        sys.executable,
        "-P",
        "-c",
        "from evolvable_server.hooks.command import main; main()",
    ]
    environment = {**evolvable.environment, "EVOLVABLE_HOME": url}
    subprocess.run(command, input=event, env=environment, text=True, check=True, timeout=60)
    homes = [one.parent for one in (evolvable.user / ".evolvable/postgres").rglob("postgres.json")]
    assert len(homes) == 1 and list((homes[0] / "reviews").iterdir())


def test_a_watched_folder_follows_the_shared_library_of_its_own_machine_only(
    evolvable: CommandLine, url: str, tmp_path: Path
) -> None:
    registered(evolvable, url)
    (tmp_path / "colleague").mkdir()
    colleague = CommandLine(tmp_path / "colleague")
    registered(colleague, url)
    here, there = (one.user / ".claude/skills" for one in (evolvable, colleague))
    evolvable.save(here, "pdf", skill_text("pdf", body="Shared."))
    evolvable("init", here, EVOLVABLE_HOME=url)
    there.mkdir(parents=True)
    assert colleague("folders", "--json", EVOLVABLE_HOME=url).json["folders"] == []
    colleague("checkout", there, EVOLVABLE_HOME=url)
    assert "Shared." in (there / "pdf/SKILL.md").read_text()
    colleague.save(there, "pdf", skill_text("pdf", body="Better."))
    colleague("sync", EVOLVABLE_HOME=url)
    evolvable("sync", EVOLVABLE_HOME=url)
    assert "Better." in (here / "pdf/SKILL.md").read_text()
    folders = [
        one("folders", "--json", EVOLVABLE_HOME=url).json["folders"]
        for one in (evolvable, colleague)
    ]
    assert [[folder["path"] for folder in one] for one in folders] == [[str(here)], [str(there)]]


def plant(url: str, evolvable: CommandLine, path: Path) -> None:
    """Write rows of a home's folders into the database, as its owner can."""
    from evolvable_store.store import Store
    from evolvable_teams.postgres.storage import PostgresStorage

    (address,) = (evolvable.user / ".evolvable/postgres").rglob("postgres.json")
    with Store.open(address.parent) as store:
        assert isinstance(store.backend, PostgresStorage)
        pdf = store.heads()[0].id
        with store.backend.writing() as db:
            db.execute(
                "INSERT INTO folder (id, scope, kind, path) VALUES (77, 'user', 'skill', ?)",
                (str(path),),
            )
            row = (77, "pdf", pdf)
            insert = (
                "INSERT INTO binding (folder, directory, resource, version, signature) "
                "VALUES (?, ?, ?, 1, '')"
            )
            db.execute(insert, row)


@pytest.mark.parametrize("answer", ["y", "n"])
def test_folders_that_a_database_names_do_nothing_until_the_person_confirms_them(
    evolvable: CommandLine, url: str, tmp_path: Path, answer: str
) -> None:
    registered(evolvable, url)
    here, victim = evolvable.user / ".claude/skills", tmp_path / "victim"
    evolvable.save(here, "pdf", skill_text("pdf", body="Shared."))
    evolvable("init", here, EVOLVABLE_HOME=url)
    evolvable.save(victim, "secret", skill_text("secret", body="PRIVATE"))
    evolvable.save(victim, "pdf", skill_text("pdf", body="Shared."))
    plant(url, evolvable, victim)
    evolvable("sync", EVOLVABLE_HOME=url)
    assert "secret" not in evolvable("list", EVOLVABLE_HOME=url).out
    for command in ("status", "doctor"):
        assert str(victim) in evolvable(command, code=None, EVOLVABLE_HOME=url).out.replace(
            "\n", ""
        )
    evolvable.person = False
    refused = evolvable("folders", "confirm", stdin="y\n", code=1, EVOLVABLE_HOME=url).err
    assert "Only a person decides" in refused and "folders" in refused
    evolvable.person = True
    evolvable("folders", "confirm", stdin="", code=1, EVOLVABLE_HOME=url)  # nobody answers

    asked = evolvable("folders", "confirm", stdin=f"{answer}\n", EVOLVABLE_HOME=url).err
    assert str(victim) in asked
    folders = [
        one["path"] for one in evolvable("folders", "--json", EVOLVABLE_HOME=url).json["folders"]
    ]
    assert sorted(folders) == sorted([str(here), *([str(victim)] if answer == "y" else [])])
    assert (
        str(victim) not in evolvable("doctor", code=None, EVOLVABLE_HOME=url).out or answer == "y"
    )
    evolvable("sync", EVOLVABLE_HOME=url)
    assert ("secret" in evolvable("list", EVOLVABLE_HOME=url).out) is (answer == "y")
    assert "No folder waits" in evolvable("folders", "confirm", EVOLVABLE_HOME=url).out
