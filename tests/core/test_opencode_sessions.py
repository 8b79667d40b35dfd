"""Sessions of OpenCode are read from its database, which stays as it is."""

import json
import sqlite3
from pathlib import Path

import pytest
from command_line import CommandLine

from evolvable_store.errors import TryAgain
from evolvable_store.storage import ForeignDatabaseInvalid, ReadLimits, foreign_database
from evolvable_tools.sessions import (
    NoTranscript,
    TranscriptNotRead,
    find_transcript,
    list_sessions,
    read_session,
    transcript_files,
)

ROWS = Path(__file__).parents[1] / "data/opencode_rows.jsonl"
SESSION = "ses_de0102349ffefBzYU3H1ZYquIh"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "opencode.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        found = json.loads(line)
        if "sql" in found:
            connection.execute(found["sql"])
            continue
        row = {
            key: json.dumps(value) if isinstance(value, dict) else value
            for key, value in found["row"].items()
        }
        marks = ", ".join("?" * len(row))
        connection.execute(
            f"INSERT INTO {found['table']} ({', '.join(row)}) VALUES ({marks})", list(row.values())
        )
    connection.commit()
    connection.close()
    return path


def test_a_session_is_read_with_its_calls_results_and_errors(database: Path) -> None:
    before = database.read_bytes()
    session = read_session(database / SESSION)
    assert (session.client, session.session_id) == ("opencode", SESSION)
    assert [span.text.splitlines()[0] for span in session.spans if span.typed] == [
        "Write a commit message for my staged changes."
    ]
    calls = [span.tool for span in session.spans if span.input is not None]
    assert calls == [
        f"evolvable_{n}" for n in ("find_skill", "load_skill", "get_resource", "report_outcome")
    ]
    assert [span.tool for span in session.spans if span.is_error] == ["evolvable_get_resource"]
    assert session.spans[-1].text == "FINAL: all steps done."
    assert database.read_bytes() == before


def test_without_an_id_the_session_that_changed_last_is_read(database: Path) -> None:
    assert read_session(database).session_id == SESSION


def test_an_unknown_session_and_another_database_are_refused(
    database: Path, tmp_path: Path
) -> None:
    with pytest.raises(NoTranscript):
        read_session(database / "ses_none")
    other = tmp_path / "other/opencode.db"
    other.parent.mkdir()
    other.write_bytes(b"no database " * 100)
    with pytest.raises(NoTranscript):
        read_session(other)


def test_a_text_that_is_no_utf8_and_a_name_with_control_characters_are_refused_in_plain_words(
    database: Path,
) -> None:
    with sqlite3.connect(database) as writer:
        writer.execute(
            "UPDATE session SET directory = CAST(x'2fff1b5b33316d' AS TEXT) WHERE id = ?", [SESSION]
        )
    writer.close()
    with pytest.raises(NoTranscript) as refusal:
        read_session(database / SESSION)
    assert str(refusal.value).isprintable()
    with sqlite3.connect(database) as writer:
        writer.execute("PRAGMA writable_schema = 1")
        writer.execute(
            "UPDATE sqlite_master SET sql = 'CREATE odd', name = char(27) || '[31m' || "
            "printf('%0900d', 0)"
        )
    writer.close()
    with pytest.raises(NoTranscript) as refusal:
        read_session(database / SESSION)
    assert str(refusal.value).isprintable() and len(str(refusal.value)) < 400
    assert transcript_files([database.parent]) == []


def test_a_time_that_is_no_date_stops_no_list_of_sessions(database: Path) -> None:
    with sqlite3.connect(database) as writer:
        writer.execute("UPDATE session SET time_updated = 9000000000000000000")
        writer.execute("UPDATE part SET time_created = -1")
    writer.close()
    listed = list_sessions([database.parent], lambda _: None).sessions
    assert SESSION in [one.session for one in listed] and all(
        one.at.startswith("1970-01-01") for one in listed
    )


def test_a_row_that_another_program_is_writing_is_left_for_the_next_read(database: Path) -> None:
    writer = sqlite3.connect(database, isolation_level=None)
    try:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        _write(writer, 1, {"role": "user"}, {"type": "text", "text": "Once more."}, SESSION)
        assert (database.parent / "opencode.db-wal").stat().st_size > 0
        writer.execute("BEGIN IMMEDIATE")
        _write(writer, 2, {"role": "user"}, {"type": "text", "text": "Half done."}, SESSION)
        typed = [span.text for span in read_session(database / SESSION).spans if span.typed]
        assert typed[1:] == ["Once more."]
        writer.execute("COMMIT")
        assert [span.text for span in read_session(database / SESSION).spans if span.typed][2:] == [
            "Half done."
        ]
    finally:
        writer.close()


def test_one_transaction_sees_no_row_that_was_committed_while_it_reads(database: Path) -> None:
    with foreign_database(database, ReadLimits(1_000, 1 << 20, 10)) as opened:
        _add(database, 1, {"role": "user"}, {"type": "text", "text": "Later."}, SESSION)
        texts = [row[0] for row in opened.rows("SELECT data FROM part")]
    assert texts and not any("Later." in text for text in texts)


def test_a_locked_database_is_read_later_and_rows_bytes_and_time_have_a_limit(
    database: Path,
) -> None:
    for limits, what in (
        (ReadLimits(3, 1 << 20, 10), "3 rows"),
        (ReadLimits(1_000, 1 << 11, 10), "too big|MiB"),
    ):
        with (
            pytest.raises(ForeignDatabaseInvalid, match=what),
            foreign_database(database, limits) as opened,
        ):
            list(opened.rows("SELECT data FROM part"))
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    )
    brief = ReadLimits(9, 1 << 20, 0.05)
    with pytest.raises(TryAgain, match="interrupted"), foreign_database(database, brief) as opened:
        list(opened.rows(endless))
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    other = sqlite3.connect(database, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TranscriptNotRead):
            read_session(database / SESSION)
    finally:
        other.close()


def test_the_doors_list_and_review_a_session_by_its_id_and_by_its_path(
    database: Path, tmp_path: Path
) -> None:
    (tmp_path / "machine").mkdir()
    evolvable = CommandLine(tmp_path / "machine")
    evolvable("init", "--yes")
    place = evolvable.user / ".local/share/opencode"
    place.mkdir(parents=True)
    _add(
        database,
        1,
        {"role": "user"},
        {"type": "text", "text": "From now on, use the imperative."},
        SESSION,
    )
    path = place / "opencode.db"
    path.write_bytes(database.read_bytes())
    (listed,) = evolvable("sessions", "--json").json["sessions"]
    assert (listed["client"], listed["session"], listed["turns"], listed["taken"]) == (
        "opencode",
        SESSION,
        2,
        "no",
    )
    assert listed["path"] == str(path / SESSION) and listed["size"] > 100
    assert [one for _, one in transcript_files([place])] == [path / SESSION]
    assert (
        find_transcript([place], SESSION) == path / SESSION
        and find_transcript([place], "ses_other1") is None
    )

    begun = evolvable("review", SESSION, "--json").json
    assert (begun["state"], begun["session"]) == ("begun", SESSION)
    assert (
        evolvable("review", str(path / SESSION), "--json").json["review_id"] == begun["review_id"]
    )
    assert evolvable("sessions", "--json").json["sessions"][0]["taken"] == "yes"


def _add(
    database: Path, number: int, message: dict[str, object], part: dict[str, object], owner: str
) -> None:
    with sqlite3.connect(database) as connection:
        _write(connection, number, message, part, owner)
    connection.close()


def _write(
    connection: sqlite3.Connection,
    number: int,
    message: dict[str, object],
    part: dict[str, object],
    owner: str,
) -> None:
    at = 1795832160000 + number
    row = (f"msg_{number}", owner, at, at, json.dumps(message))
    connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
    connection.execute(
        "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
        (f"prt_{number}", f"msg_{number}", owner, at, at, json.dumps(part)),
    )


def test_a_correction_an_abort_a_compaction_and_unknown_rows_have_their_place(
    database: Path,
) -> None:
    user, model = {"role": "user"}, {"role": "assistant"}
    _add(database, 1, user, {"type": "text", "text": "No, use the imperative."}, SESSION)
    _add(
        database,
        2,
        model,
        {"type": "tool", "tool": "bash", "callID": "c9", "state": {"status": "running"}},
        SESSION,
    )
    _add(
        database, 3, {**model, "summary": True}, {"type": "text", "text": "What was done."}, SESSION
    )
    _add(database, 4, user, {"type": "text", "text": "Continue.", "synthetic": True}, SESSION)
    _add(database, 5, model, {"type": "of-tomorrow", "text": "x"}, SESSION)
    session = read_session(database / SESSION)
    typed, last = [span.text for span in session.spans if span.typed], session.spans[-4:]
    assert typed[1:] == ["No, use the imperative."]
    assert [(span.role, span.text) for span in last[2:]] == [
        ("system", "What was done."),
        ("system", "Continue."),
    ]
    assert last[1].tool == "bash"
    assert session.skipped == 1


def test_the_work_of_a_subagent_is_read_as_its_own(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        names = "project_id, slug, directory, title, version, time_created, time_updated"
        connection.execute(
            f"INSERT INTO session (id, parent_id, {names}) SELECT 'ses_child', id, {names} "
            "FROM session"
        )
    connection.close()
    message = {"role": "user", "agent": "clerk"}
    _add(database, 1, message, {"type": "text", "text": "Count the tests."}, "ses_child")
    session = read_session(database / SESSION)
    span = session.spans[-1]
    assert (span.agent, span.typed, span.text) == ("ses_child", False, "Count the tests.")
    assert [(run.agent, run.name) for run in session.subagents] == [("ses_child", "clerk")]
