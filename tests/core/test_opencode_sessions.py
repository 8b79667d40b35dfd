"""Sessions of OpenCode are read from its database, which stays as it is."""

import json
import sqlite3
from pathlib import Path

import pytest

from evolvable_tools.sessions import NoTranscript, read_session

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
        row = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in found["row"].items()}
        marks = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {found['table']} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    connection.commit()
    connection.close()
    return path


def test_a_session_is_read_with_its_calls_results_and_errors(database: Path) -> None:
    before = database.read_bytes()
    session = read_session(database / SESSION)
    assert (session.client, session.session_id) == ("opencode", SESSION)
    assert [span.text.splitlines()[0] for span in session.spans if span.typed] == [
        '"Write a commit message for my staged changes."'
    ]
    calls = [span.tool for span in session.spans if span.input is not None]
    assert calls == [f"evolvable_{n}" for n in ("find_skill", "load_skill", "get_resource", "report_outcome")]
    assert [span.tool for span in session.spans if span.is_error] == ["evolvable_get_resource"]
    assert session.spans[-1].text == "FINAL: all steps done."
    assert database.read_bytes() == before


def test_without_an_id_the_session_that_changed_last_is_read(database: Path) -> None:
    assert read_session(database).session_id == SESSION


def test_an_unknown_session_and_another_database_are_refused(database: Path, tmp_path: Path) -> None:
    with pytest.raises(NoTranscript):
        read_session(database / "ses_none")
    other = tmp_path / "other/opencode.db"
    other.parent.mkdir()
    other.write_bytes(b"no database " * 100)
    with pytest.raises(NoTranscript):
        read_session(other)


def _add(database: Path, number: int, message: dict[str, object], part: dict[str, object], owner: str) -> None:
    with sqlite3.connect(database) as connection:
        at = 1795832160000 + number
        connection.execute(
            "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (f"msg_{number}", owner, at, at, json.dumps(message))
        )
        row = (f"prt_{number}", f"msg_{number}", owner, at, at, json.dumps(part))
        connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
    connection.close()


def test_a_correction_an_abort_a_compaction_and_unknown_rows_have_their_place(database: Path) -> None:
    user, model = {"role": "user"}, {"role": "assistant"}
    _add(database, 1, user, {"type": "text", "text": "No, use the imperative."}, SESSION)
    _add(database, 2, model, {"type": "tool", "tool": "bash", "callID": "c9", "state": {"status": "running"}}, SESSION)
    _add(database, 3, {**model, "summary": True}, {"type": "text", "text": "What was done."}, SESSION)
    _add(database, 4, user, {"type": "text", "text": "Continue.", "synthetic": True}, SESSION)
    _add(database, 5, model, {"type": "of-tomorrow", "text": "x"}, SESSION)
    session = read_session(database / SESSION)
    typed, last = [span.text for span in session.spans if span.typed], session.spans[-4:]
    assert typed[1:] == ["No, use the imperative."]
    assert [(span.role, span.text) for span in last[2:]] == [("system", "What was done."), ("system", "Continue.")]
    assert last[1].tool == "bash"


def test_the_work_of_a_subagent_is_read_as_its_own(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        names = "project_id, slug, directory, title, version, time_created, time_updated"
        connection.execute(f"INSERT INTO session (id, parent_id, {names}) SELECT 'ses_child', id, {names} FROM session")
    connection.close()
    _add(database, 1, {"role": "user"}, {"type": "text", "text": "Count the tests."}, "ses_child")
    span = read_session(database / SESSION).spans[-1]
    assert (span.agent, span.typed, span.text) == ("ses_child", False, "Count the tests.")
