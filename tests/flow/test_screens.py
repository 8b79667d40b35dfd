"""What the commands of every day look like with 60 skills: golden screens at 80 and 120 columns in
tests/data/screens.

Run with EVOLVABLE_UPDATE_GOLDEN=1 to write them. Times and random ids are replaced.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from golden_tables import settled
from rich.cells import cell_len

from evolvable_server.cli.command_line import cli
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store
from evolvable_tools.verbs.registry import FIRST

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="paths in the screens are POSIX paths"),
]

GOLDEN = Path(__file__).parents[1] / "data/screens"

AREAS = ("invoices", "contracts", "meetings", "travel", "reports", "tests")
TASKS = (
    "read",
    "write",
    "check",
    "translate",
    "summarise",
    "compare",
    "archive",
    "send",
    "plan",
    "draft",
)

SCREENS = {
    "setup": ["setup", "--help"],
    "find": ["find", "check", "invoices"],
    "show": ["show", "check-invoices"],
    "list": ["list"],
    "edit": ["edit", "--help"],
    "history": ["history", "check-invoices"],
    "undo": ["undo", "63"],
    "inbox": ["inbox", "list"],
    "try": ["try", "--help"],
    "status": ["status"],
    "ui": ["ui", "--help"],
    "doctor": ["doctor"],
    "uninstall": ["uninstall", "--dry-run"],
    "help": ["help"],
}
"""Command of every day -> what is typed.

`setup`, `ui` and `edit` wait for a person, so their help stands for them.
"""


ADA = "/home/ada-king"
"""The home folder in the screens, as long as the real one, so that tables are cut in the same
places.
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[CommandLine]:
    """A person's machine: 60 skills in a watched folder, changes of an agent, and two proposals."""
    root = Path(tempfile.mkdtemp(prefix="a", dir="/tmp"))
    yield make_machine(root)
    shutil.rmtree(root)


@pytest.fixture
def own_machine() -> Iterator[CommandLine]:
    """The same machine for one test, which changes something there."""
    root = Path(tempfile.mkdtemp(prefix="a", dir="/tmp"))
    yield make_machine(root)
    shutil.rmtree(root)


def make_machine(root: Path) -> CommandLine:
    made = CommandLine(root)
    (made.user / ".codex").mkdir()
    skills = made.user / ".claude/skills"
    for area in AREAS:
        for task in TASKS:
            name = f"{task}-{area}"
            made.save(
                skills, name, skill_text(name, f"{task.capitalize()} {area} as this team does it.")
            )
    made("init", skills)
    agent = Identity(Principal.AGENT, "client:claude-code")
    with Store.open(made.home) as store:
        for number in range(3):
            text = skill_text(
                "check-invoices",
                "Check invoices as this team does it.",
                body=f"Look at total {number}.",
            )
            with store.transaction(
                Actor.AGENT, f"the total of invoice {number} was wrong", identity=agent
            ) as tx:
                tx.put(Ref.parse("check-invoices"), {"SKILL.md": File(text.encode())})
        for name in ("read-travel", "plan-meetings"):
            files = {"SKILL.md": File(skill_text(name, body="A shorter way.").encode())}
            draft = Draft(
                Ref(Kind.SKILL, name, USER_SCOPE), 1, files, "a session found a shorter way"
            )
            store.backend.proposals.add(store.now(), Actor.AGENT, "s1", draft)
    made("folders", "sync")
    return made


def without_what_varies(text: str, machine: CommandLine) -> str:
    """A screen with the folders of Ada's machine, and without times, sizes, versions and ids."""
    text = settled(text).replace(str(machine.root), ADA)
    text = re.sub(r"search-[0-9a-f]{12}", "search-0123456789ab", text)
    text = re.sub(r"\d+ (?:seconds?|minutes?|min|s) ago", "just now", text)
    return re.sub(r"\d+%", "90%", text)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", [name for name in SCREENS if name != "undo"])
def test_a_command_of_every_day_looks_as_agreed(machine, monkeypatch, name, columns):
    monkeypatch.chdir(machine.project)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no client of this machine
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    shown = without_what_varies(
        machine.on_screen(*SCREENS[name], columns=columns, code=None), machine
    )
    path = GOLDEN / f"{name}-{columns}.txt"
    if os.environ.get("EVOLVABLE_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")

    assert shown == path.read_text(encoding="utf-8")
    assert [line for line in shown.splitlines() if cell_len(line) > columns] == []


@pytest.mark.parametrize("columns", [80, 120])
def test_undo_looks_as_agreed(own_machine, monkeypatch, columns):
    test_a_command_of_every_day_looks_as_agreed(own_machine, monkeypatch, "undo", columns)


def test_every_command_of_every_day_has_a_screen():
    there = {name for name in FIRST if name in SCREENS or cli.get_command(None, name) is None}

    assert there == set(FIRST)


@pytest.mark.parametrize("name", [name for name in SCREENS if name != "undo"])
def test_no_screen_has_a_word_that_only_the_program_knows(machine, monkeypatch, name):
    monkeypatch.chdir(machine.project)
    shown = machine.on_screen(*SCREENS[name], columns=120, code=None)

    assert (
        re.findall(r"\b(Budding|Growing|Proficient|maturity|untrusted|verdict open)\b", shown) == []
    )
