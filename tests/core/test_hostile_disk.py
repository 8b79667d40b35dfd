"""Whatever lies in the files and rows that are read back: nothing outside changes, and errors say
what to do.
"""

import json
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from command_line import CommandLine, skill_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolvable_store.errors import EvolvableError
from evolvable_store.workingcopy.atomic_dir import staging_for, sweep

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="links and modes as on a POSIX system"),
]

FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))

HOSTILE_PATHS = st.sampled_from(
    [
        "..",
        "../outside",
        "/etc",
        "a/../../outside",
        "",
        ".",
        "./pdf",
        "pdf\0x",
        "a\\..\\b",
        "pdf/",
        "//",
        "x" * 300,
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | HOSTILE_PATHS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | HOSTILE_PATHS, inner, max_size=3)
    ),
    max_leaves=8,
)
BYTES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())
VALUES = (
    st.none()
    | st.integers(-(2**40), 2**40)
    | st.text(max_size=12)
    | st.binary(max_size=8)
    | HOSTILE_PATHS
)


class Machine:
    """A library with one watched skill, and a tree around it that nothing may change."""

    def __init__(self, place: Path) -> None:
        self.outside = place / "outside"
        (self.outside / "pdf").mkdir(parents=True)
        (self.outside / "pdf" / "SKILL.md").write_text(skill_text("pdf"))
        (self.outside / "link").symlink_to("pdf")
        self.run = CommandLine(place)
        self.skills = place / "skills"
        self.run.save(self.skills, "pdf", skill_text("pdf"))
        self.run("init", self.skills, "--yes")

    def snapshot(self) -> dict[str, tuple[int, bytes]]:
        found = {}
        for path in sorted(self.outside.rglob("*")):
            link = path.is_symlink()
            content = (
                os.readlink(path).encode() if link else path.read_bytes() if path.is_file() else b""
            )
            found[str(path)] = (stat.S_IMODE(path.lstat().st_mode), content)
        return found

    def check(self, *commands: tuple[str, ...]) -> None:
        """Runs commands; an exception that is no error of ours would be a traceback for
        the person.
        """
        before = self.snapshot()
        for command in commands:
            try:
                self.run(*command, code=None)
            except (EvolvableError, click.ClickException) as error:
                assert str(error)
        assert self.snapshot() == before


@contextmanager
def machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as place:
        yield Machine(Path(place).resolve())


def check_binding(column: str, value: object) -> None:
    with machine() as here:
        db = sqlite3.connect(here.run.home / "library.db")
        try:
            db.execute(f"UPDATE binding SET {column} = ?", (value,))
            db.commit()
        except sqlite3.Error:
            return  # the schema refuses it
        finally:
            db.close()
        here.check(("sync",), ("doctor",))


@FEW
@given(st.sampled_from(["directory", "version", "signature", "conflict"]), VALUES)
def test_a_binding_with_any_value_leads_nothing_outside(column: str, value: object) -> None:
    check_binding(column, value)


def check_folder(column: str, value: object) -> None:
    with machine() as here:
        db = sqlite3.connect(here.run.home / "library.db")
        try:
            db.execute(f"UPDATE folder SET {column} = ?", (value,))
            db.commit()
        except sqlite3.Error:
            return
        finally:
            db.close()
        here.check(("sync",), ("doctor",), ("folders",))


@FEW
@given(st.sampled_from(["path", "scope", "kind"]), VALUES)
def test_a_watched_folder_with_any_value_leads_nothing_outside(column: str, value: object) -> None:
    check_folder(column, value)


FILES = (
    "tokens.json",
    "callers/x.json",
    "vectors.bin",
    "redaction.json",
    "trash/20260101T000000-00000000/entry.json",
)
CLIENTS = (".claude.json", ".claude/settings.json", ".codex/config.toml", ".cursor/mcp.json")


def check_file(name: str, data: bytes) -> None:
    with machine() as here:
        path = here.run.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        here.check(("sync",), ("doctor",), ("search", "pdf"), ("trash",), ("token", "list"))


@FEW
@given(st.sampled_from(FILES), BYTES)
def test_a_file_in_the_home_with_any_content_leads_nothing_outside(name: str, data: bytes) -> None:
    check_file(name, data)


def check_client(name: str, data: bytes) -> None:
    with machine() as here:
        path = here.run.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        here.check(("doctor",), ("disconnect", "--all"), ("connect", "claude-code", "--yes"))


@FEW
@given(st.sampled_from(CLIENTS), BYTES)
def test_a_client_configuration_with_any_content_leads_nothing_outside(
    name: str, data: bytes
) -> None:
    check_client(name, data)


def check_archive(suffix: str, data: bytes) -> None:
    with machine() as here:
        path = here.run.project / f"archive.{suffix}"
        path.write_bytes(data)
        here.check(("import", str(path), "--yes"))


@FEW
@given(st.sampled_from(["zip", "json", "tar.gz"]), BYTES | BYTES.map(lambda data: b"PK\3\4" + data))
def test_an_archive_of_any_bytes_leads_nothing_outside(suffix: str, data: bytes) -> None:
    check_archive(suffix, data)


def check_note(data: bytes) -> None:
    with machine() as here:
        notes = here.run.home / "recovery" / "folder-1"
        staging = staging_for(here.skills, notes)
        for end in ("ready", "old"):
            (staging.path / f"pdf.1-a.{end}").mkdir()
            (staging.path / f"pdf.1-a.{end}" / "SKILL.md").write_text(end)
        (notes / "pdf.1-a.json").write_bytes(data)
        before = here.snapshot()
        sweep(staging, 2e9)
        assert here.snapshot() == before
        here.check(("sync",), ("doctor",))


NOTES = st.fixed_dictionaries(
    {"target": HOSTILE_PATHS, "drop": st.none() | st.lists(HOSTILE_PATHS, max_size=3)},
    optional={
        "at": VALUES.filter(lambda value: not isinstance(value, bytes)),
        "inode": st.integers(),
    },
).map(
    lambda fields: {
        "host": "x",
        "process": 1,
        "at": 0,
        "inode": 0,
        "believed": "",
        "written": "",
        **fields,
    }
)


@FEW
@given(BYTES | NOTES.map(lambda note: json.dumps(note).encode()))
def test_a_recovery_note_with_any_content_leads_nothing_outside(data: bytes) -> None:
    check_note(data)


@pytest.mark.nightly
@MANY
@given(st.data())
def test_many_hostile_files_and_rows(data: st.DataObject) -> None:
    which = data.draw(st.integers(0, 5))
    if which == 0:
        check_binding(
            data.draw(st.sampled_from(["directory", "version", "signature"])), data.draw(VALUES)
        )
    elif which == 1:
        check_folder(data.draw(st.sampled_from(["path", "scope", "kind"])), data.draw(VALUES))
    elif which == 2:
        check_file(data.draw(st.sampled_from(FILES)), data.draw(BYTES))
    elif which == 3:
        check_client(data.draw(st.sampled_from(CLIENTS)), data.draw(BYTES))
    elif which == 4:
        check_archive(data.draw(st.sampled_from(["zip", "json"])), data.draw(BYTES))
    else:
        check_note(data.draw(BYTES))
