"""How many SQL statements an update makes, and how many modules a saved file passes: traced, so
that neither grows.
"""

import contextlib
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
from evolvable_tools.retrieval.search_types import Verdict
from evolvable_tools.verbs import edit, search
from evolvable_tools.verbs.duplicate_hints import DuplicateHints

AGENT = Caller(Actor.AGENT)
PERSON = Caller(Actor.HUMAN)

CHANGE = 17
"""Statements of a change, of a description too, with those that write its folder. One asks whether
a newer program migrated the library.
"""

UPDATE_MODULES = {Actor.AGENT: 40, Actor.HUMAN: 38}
"""Modules that an update with a changed description passes, the 9 of the scan and the parser of
YAML among them, which an earlier test may have made superfluous; it may not grow.
"""

FIND, FIND_MODULES = 10, 24
"""Statements of a search that leaves a choice, with those that begin and end its one read of the
index, and modules that it passes; neither may grow.
"""

MODULES = 43
"""Modules that a saved file passes today, among them the scan and, in a full sync, what reads the
lock files of installers; it may not grow.
"""


@contextlib.contextmanager
def passed_modules() -> Iterator[set[str]]:
    """Yield the set of our modules that the body passes."""
    passed: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = str(frame.f_globals.get("__name__", ""))
        # The face of a package finds a name for an import that runs late; it is no step of the way.
        if event == "call" and name.startswith("evolvable_") and name != "evolvable_store.faces":
            passed.add(name)

    sys.setprofile(note)
    try:
        yield passed
    finally:
        sys.setprofile(None)


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


def change(
    library: Library, name: str, content: str, *, create: bool = False, caller: Caller = AGENT
) -> edit.Updated:
    more = {"create": True} if create else {"expected_version": 1}
    return edit.update_resource(
        library, caller, Ref.parse(name), "why", files={"SKILL.md": content}, **more
    )


@pytest.fixture
def folder(library: Library, tmp_path: Path) -> Path:
    """A folder that holds what the library has, written long enough ago for its signatures to be
    believed.
    """
    folder = tmp_path / "skills"
    library.working_copies.check_out(folder)
    library.index.catch_up()
    return folder


@pytest.mark.usefixtures("folder")
def test_a_changed_text_makes_few_statements(library: Library, statements: list[str]) -> None:
    statements.clear()
    change(library, "pdf", text("pdf", "Fill and merge pdf forms of a pdf.", "Two."))

    assert len(statements) <= CHANGE, statements


@pytest.mark.usefixtures("folder")
def test_a_changed_description_makes_no_more_statements(
    library: Library, statements: list[str]
) -> None:
    statements.clear()
    updated = change(library, "pdf", text("pdf", "Fill and merge pdf forms and reports."))

    assert updated.warnings == []
    assert len(statements) <= CHANGE, statements


def test_a_search_reads_the_index_once_and_passes_few_modules(
    library: Library, statements: list[str]
) -> None:
    search.find_skill(library, AGENT, "split forms")
    statements.clear()

    with passed_modules() as passed:
        found = search.find_skill(library, AGENT, "fill and merge forms")

    assert found.verdict is Verdict.CHOOSE and len(found.matches) == 4
    assert sum("FROM state" in one for one in statements) == 1, statements
    assert len(statements) <= FIND, statements
    assert len(passed) <= FIND_MODULES, sorted(passed)


@pytest.mark.parametrize("caller", [AGENT, PERSON], ids=["agent", "person"])
def test_a_changed_description_passes_few_modules(library: Library, caller: Caller) -> None:
    """Without a folder, in a server, once its modules are imported."""
    hints = DuplicateHints(library, lambda line: None)
    library.compare_later = hints.add
    change(library, "csv", text("csv", "Clean tables."))

    with passed_modules() as passed:
        change(library, "pdf", text("pdf", "Fill and merge pdf forms and reports."), caller=caller)
    hints.close()

    assert len(passed) <= UPDATE_MODULES[caller.actor], sorted(passed)
    assert not any("search" in name or "near_duplicate" in name for name in passed)


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
        with passed_modules() as passed:
            copies.sync()

        assert library.store.head(Ref.parse("pdf")).version == 2
    assert len(passed) <= MODULES, sorted(passed)
