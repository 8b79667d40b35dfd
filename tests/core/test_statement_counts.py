"""How many SQL statements an update makes, and how many modules a saved file passes: traced, so that neither grows."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage import connection
from evolvable_store.workingcopy.registry import WorkingCopies
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, search

AGENT = Caller(Actor.AGENT)

CHANGE = 17
"""Statements of a change, with those that write its folder, without the warning of near duplicates. One asks whether a
newer program migrated the library."""

DESCRIBED = 24
"""Statements of a change of a description before it answers, where the index was read since the change before."""

REFRESHED = 4
"""Statements that read the index again, where another process has changed it."""

MODULES = 48
"""Modules that a saved file passes today, among them the scan and, in a full sync, what reads the lock files of
installers; it may not grow."""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that any connection runs, in order."""
    ran: list[str] = []
    real: Callable[..., Any] = connection.dbapi.connect

    def connect(*arguments: Any, **options: Any) -> Any:
        made = real(*arguments, **options)
        made.set_trace_callback(ran.append)
        return made

    monkeypatch.setattr(connection.dbapi, "connect", connect)
    return ran


@pytest.fixture
def library(statements: list[str], tmp_path: Path) -> Iterator[Library]:
    """Skills of one subject, the index in step."""
    with Library.open(tmp_path / "home", create=True) as library:
        for name in ("pdf", "csv", "invoice", "pdf-forms"):
            change(library, name, text(name, f"Fill and merge pdf forms of a {name}."), create=True)
        yield library


def text(name: str, description: str, body: str = "One.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"


def change(library: Library, name: str, content: str, *, create: bool = False) -> edit.Updated:
    more = {"create": True} if create else {"expected_version": 1}
    return edit.update_resource(library, AGENT, Ref.parse(name), "why", files={"SKILL.md": content}, **more)


@pytest.fixture
def folder(library: Library, tmp_path: Path) -> Path:
    """A folder that holds what the library has, written long enough ago for its signatures to be believed."""
    folder = tmp_path / "skills"
    library.working_copies.check_out(folder)
    library.index.catch_up()
    return folder


@pytest.mark.usefixtures("folder")
def test_a_changed_text_makes_few_statements(library: Library, statements: list[str]) -> None:
    statements.clear()
    change(library, "pdf", text("pdf", "Fill and merge pdf forms of a pdf.", "Two."))

    assert len(statements) <= CHANGE, statements


@pytest.mark.parametrize("elsewhere", [False, True], ids=["index-known", "index-changed"])
def test_a_changed_description_is_warned_of_with_few_statements(
    library: Library, folder: Path, statements: list[str], elsewhere: bool
) -> None:
    change(library, "csv", text("csv", "Clean tables.", "One."))
    if elsewhere:
        with Library.open(library.store.home) as other:
            other.index.catch_up()
    else:
        library.index.entries()
        library.index.search("tables")
    statements.clear()
    updated = change(library, "pdf", text("pdf", "Fill and merge pdf forms and reports."))

    assert any("answer the same questions" in warning for warning in updated.warnings)
    assert (folder / "pdf/SKILL.md").read_text(encoding="utf-8") == text("pdf", "Fill and merge pdf forms and reports.")
    assert len(statements) <= DESCRIBED + REFRESHED * elsewhere, statements
    assert not any(statement.startswith("INSERT INTO document") for statement in statements)


def test_what_is_warned_of_before_a_text_is_indexed_is_what_the_index_says_afterwards(library: Library) -> None:
    updated = change(library, "pdf", text("pdf", "Fill and merge pdf forms and reports."))
    library.index.catch_up()
    said = search.near_duplicates_of(library, [Ref.parse("pdf")], limit=3).pairs

    named = [(pair.one, pair.other) for pair in said]
    assert named
    assert [warning.split(" answer")[0] for warning in updated.warnings] == [
        f"{one} and {other}" for one, other in named
    ]


def test_a_saved_file_passes_few_modules(tmp_path: Path) -> None:
    """From the watcher's call to the commit."""
    folder = tmp_path / ".claude/skills"
    (folder / "pdf").mkdir(parents=True)
    (folder / "pdf/SKILL.md").write_text(text("pdf", "Fill forms."), encoding="utf-8")
    with Library.open(tmp_path / "home", create=True) as library:
        copies: WorkingCopies = library.working_copies
        copies.add(folder)
        copies.sync()
        (folder / "pdf/SKILL.md").write_text(text("pdf", "Fill forms.", "Two."), encoding="utf-8")
        passed: set[str] = set()

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and str(frame.f_globals.get("__name__", "")).startswith("evolvable_"):
                passed.add(frame.f_globals["__name__"])

        sys.setprofile(note)
        try:
            copies.sync()
        finally:
            sys.setprofile(None)

        assert library.store.head(Ref.parse("pdf")).version == 2
    assert len(passed) <= MODULES, sorted(passed)
