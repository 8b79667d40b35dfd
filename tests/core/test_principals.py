"""Who is at the command line, and what the person's configuration says whatever the environment
claims.
"""

import json
import os
import stat
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

from evolvable_server.clients.attendance import SHELL_MARKS
from evolvable_server.config import MARKS, cli_identity, read_config
from evolvable_server.person_config import config_path, read_person_config
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Identity, Principal
from evolvable_store.store import Store

SHELLS = Path(__file__).parents[1] / "data/client_shells"

posix = pytest.mark.skipif(os.name != "posix", reason="needs owners and modes")


@pytest.fixture
def evolvable(tmp_path: Path) -> CommandLine:
    """A machine with a library and a folder with one skill, imported by the person at a
    terminal.
    """
    made = CommandLine(tmp_path)
    made.save(made.user / ".claude/skills", "pdf", skill_text("pdf"))
    made("init", made.user / ".claude/skills")
    return made


def test_what_a_person_imports_at_a_terminal_is_the_persons(evolvable: CommandLine) -> None:
    (found,) = evolvable("list", "--json").json["resources"]
    assert found["author"] == "you"
    with Store.open(evolvable.home) as store:
        (made,) = store.operations()
    assert (made.principal, made.intent.via) == (Principal.PERSON, "terminal")


@pytest.mark.process
def test_what_is_imported_without_a_terminal_is_the_owners(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable.person = False
    evolvable.save(evolvable.user / ".claude/skills", "pdf", skill_text("pdf"))
    evolvable("init", "--yes")
    (found,) = evolvable("list", "--json").json["resources"]
    assert (found["author"], found["by"]) == ("you", "")


@pytest.mark.parametrize("mark", sorted(MARKS))
def test_a_command_with_a_clients_mark_acts_as_agent_on_a_terminal_too(
    evolvable: CommandLine, mark: str
) -> None:
    evolvable("update", "pdf", "--edit", "SKILL.md", "one", "1", "-m", "shorter", **{mark: "1"})
    with Store.open(evolvable.home) as store:
        newest = store.operations()[0]
    assert (newest.actor, newest.principal, newest.intent.via) == (
        "agent",
        Principal.AGENT,
        f"client:{MARKS[mark]}",
    )


def test_every_mark_was_seen_in_a_real_clients_shell_and_every_such_shell_is_known() -> None:
    """The files say which variables the shell of a real client's agent had."""
    seen: dict[str, set[str]] = {}
    for path in sorted(SHELLS.glob("*.json")):
        shell = json.loads(path.read_text(encoding="utf-8"))
        seen.setdefault(shell["client"], set()).update(shell["environment"])
        given = {name: value or "1" for name, value in shell["environment"].items()}
        assert cli_identity(given) == Identity(Principal.AGENT, f"client:{shell['client']}"), path
    assert all(name in seen[client] for name, client in MARKS.items())


@pytest.mark.parametrize("client", ["opencode", "qwen", "droid", "gemini"])
def test_what_a_client_gives_its_servers_too_is_no_sign_of_an_agents_shell_and_every_other_mark_is(
    client: str,
) -> None:
    for path in sorted(SHELLS.glob(f"{client}_*.json")):
        shell = json.loads(path.read_text(encoding="utf-8"))
        marks = {name for name in shell["environment"] if name in MARKS}
        assert marks & set(SHELL_MARKS) == marks - set(shell["servers"]), path


@pytest.mark.parametrize(
    "name",
    [
        "CLAUDE_CODE_USE_BEDROCK",
        "CODEX_HOME",
        "TERM_PROGRAM",
        "AGENT",
        "OPENCODE_CONFIG",
        "FACTORY_API_KEY",
    ],
)
def test_settings_that_people_export_are_no_marks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOLVABLE_TEST_TERMINAL", "1")
    assert cli_identity({name: "1"}).principal is Principal.PERSON


def test_a_persons_setting_is_the_floor_of_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path))
    path = config_path()
    assert path is not None
    path.parent.mkdir(parents=True)
    for floor in ("off", "guarded", "all"):
        path.write_text(f'approve = "{floor}"')
        levels = [
            read_config({"EVOLVABLE_APPROVE": word, "HOME": "/elsewhere"}).approve
            for word in ("off", "all")
        ]
        assert levels == [floor, "all"]


WRONG = [
    'approve = "never"',
    "approve = 1",
    "homes = 3",
    "[executors.a]\ncommand = 'x'",
    "trusted = [1]",
    "[[[",
    "\0",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_configuration_that_is_not_valid_is_an_error_and_no_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path))
    path = tmp_path / ".config/evolvable/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=r"config\.toml") as error:
        read_person_config()
    assert error.value.hint


@posix
def test_a_configuration_that_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path))
    path = tmp_path / ".config/evolvable/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('approve = "off"')
    path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IWOTH)
    with pytest.raises(Refused, match="written by other accounts"):
        read_person_config()
