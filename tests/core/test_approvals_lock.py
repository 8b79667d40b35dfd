"""With approvals locked, only what a person signed with the passphrase counts."""

import json
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from mcp import StdioServerParameters
from mcp.client import Client
from mcp_types import ElicitResult

from evolvable_server.person_config import read_person_config
from evolvable_store.fsck import check_library
from evolvable_store.operation import Actor
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import proposal_inbox

pytestmark = pytest.mark.process

WORDS = "correct horse battery"


@pytest.fixture
def evolvable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A machine with a library, a skill that the person imported, and locked approvals."""
    made = CommandLine(tmp_path)
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(made.user))
    made.save(made.user / ".claude/skills", "pdf", skill_text("pdf"))
    made("init", made.user / ".claude/skills")
    made("approvals", "lock", stdin=f"{WORDS}\n{WORDS}\n")
    return made


def propose(evolvable: CommandLine, old: str = "one", new: str = "1") -> str:
    made = evolvable(
        "update", "pdf", "--edit", "SKILL.md", old, new, "--propose", "-m", "shorter", "--json"
    )
    return str(made.json["proposal_id"])


def author(evolvable: CommandLine) -> str:
    (found,) = evolvable("list", "--json").json["resources"]
    return str(found["author"])


def test_what_was_the_persons_before_the_lock_stays_so(evolvable: CommandLine) -> None:
    assert author(evolvable) == "you"
    assert "Approvals are locked" in evolvable("approvals").out


def test_an_approval_with_the_passphrase_is_signed_and_counts(evolvable: CommandLine) -> None:
    evolvable.person = False
    number = propose(evolvable)
    evolvable.person = True
    evolvable("inbox", "approve", number, stdin=f"{WORDS}\n")
    assert author(evolvable) == "you"
    assert evolvable("approvals", "--json").json["unsigned"] == []
    with Store.open(evolvable.home) as store:
        assert check_library(store).faults == ()


@pytest.mark.parametrize("typed", ["wrong passphrase\n", ""])
def test_without_the_passphrase_nothing_is_approved(evolvable: CommandLine, typed: str) -> None:
    number = propose(evolvable)
    refused = evolvable("inbox", "approve", number, stdin=typed, code=None)
    assert refused.code != 0
    assert "1\n" not in evolvable("get", "pdf").out.split("---")[-1]
    assert len(evolvable("inbox", "--json").json["proposals"]) == 1


def test_an_approval_that_was_written_without_a_signature_does_not_count_and_is_named(
    evolvable: CommandLine,
) -> None:
    """A program of the same account can write the database; the lock makes it show."""
    evolvable.person = False
    number = propose(evolvable)
    with Library.open(evolvable.home) as library:  # which knows of no lock
        proposal_inbox.approve_together(library, Caller(Actor.HUMAN), [int(number)], "")[0]
    evolvable.person = True
    assert author(evolvable) == "agent"
    (operation,) = evolvable("approvals", "--json").json["unsigned"]
    assert f"operation {operation}" in evolvable("doctor", code=None).out


def test_a_signature_of_one_operation_is_none_of_another(evolvable: CommandLine) -> None:
    for old, new in (("one", "1"), ("two", "2")):
        evolvable("inbox", "approve", propose(evolvable, old, new), stdin=f"{WORDS}\n")
    with Store.open(evolvable.home) as store, store.backend.writing() as db:
        rows = db.execute(
            "SELECT operation, signature FROM signature ORDER BY operation"
        ).fetchall()
        db.execute(
            "UPDATE signature SET signature = ? WHERE operation = ?", (rows[0][1], rows[1][0])
        )
    assert author(evolvable) == "agent"
    assert evolvable("approvals", "--json").json["unsigned"] == [rows[1][0]]


def test_an_edit_at_a_terminal_is_not_signed_and_counts_as_an_agents(
    evolvable: CommandLine,
) -> None:
    evolvable("update", "pdf", "--edit", "SKILL.md", "one", "1", "-m", "shorter")
    assert author(evolvable) == "agent"
    assert "[text of another" in evolvable("load", "pdf", CLAUDECODE="1").out


def test_settings_that_were_changed_without_a_signature_are_the_strictest(
    evolvable: CommandLine,
) -> None:
    path = evolvable.user / ".config/evolvable/config.toml"
    path.write_text(f'approve = "off"\n[executors.evil]\ncommand = ["true"]\n{path.read_text()}')
    found = read_person_config()
    assert (found.approve, found.unsigned, dict(found.commands)) == ("all", True, {})


def test_a_person_is_needed_to_lock_and_to_unlock(evolvable: CommandLine) -> None:
    evolvable.person = False
    for action in ("lock", "unlock"):
        assert "person" in evolvable("approvals", action, stdin=f"{WORDS}\n{WORDS}\n", code=1).err
    evolvable.person = True
    evolvable("approvals", "unlock", stdin="wrong words\n", code=1)
    evolvable("approvals", "unlock", stdin=f"{WORDS}\n")
    assert "not locked" in evolvable("approvals").out and author(evolvable) == "you"


@pytest.mark.anyio
async def test_an_answer_in_the_client_decides_nothing(evolvable: CommandLine) -> None:
    asked = []

    async def yes(context: object, params: object) -> ElicitResult:
        asked.append(params)
        return ElicitResult(action="accept", content={})

    number = int(propose(evolvable))
    arguments = ["-P", "-m", "evolvable_server", "serve"]
    server = StdioServerParameters(
        command=sys.executable, args=arguments, env=evolvable.environment, cwd=evolvable.project
    )
    async with Client(server, elicitation_callback=yes) as client:
        result = await client.call_tool(
            "review_inbox", {"action": "approve", "proposal_id": number}
        )
        removed = await client.call_tool("remove_resource", {"ref": "pdf", "reason": "no need"})
    assert result.is_error and "locked" in result.content[0].text
    assert "locked" in json.dumps(removed.structured_content)
    assert asked == [] and author(evolvable) == "you"


def test_a_passphrase_of_seven_characters_is_refused(tmp_path: Path) -> None:
    evolvable = CommandLine(tmp_path)
    evolvable("init")
    assert "fewer than 8" in evolvable("approvals", "lock", stdin="7 chars\n7 chars\n", code=1).err


@pytest.mark.parametrize("typed", ["wrong passphrase\n", ""])
def test_without_the_passphrase_nothing_is_purged(evolvable: CommandLine, typed: str) -> None:
    refused = evolvable("purge", "pdf", "SKILL.md", "--yes", "-m", "gone", stdin=typed, code=None)
    assert refused.code != 0 and "purged" not in evolvable("get", "pdf").out
    evolvable("purge", "pdf", "SKILL.md", "--yes", "-m", "gone", stdin=f"{WORDS}\n")
    assert "purged" in evolvable("get", "pdf").out


@pytest.mark.parametrize("typed", ["wrong passphrase\n", ""])
def test_without_the_passphrase_no_backup_replaces_the_library(
    evolvable: CommandLine, tmp_path: Path, typed: str
) -> None:
    evolvable("backup", tmp_path / "copy")
    evolvable.save(evolvable.user / ".claude/skills", "later", skill_text("later"))
    evolvable("sync")
    refused = evolvable("recover", tmp_path / "copy", "--yes", stdin=typed, code=None)
    assert refused.code != 0 and "later" in evolvable("list").out
    evolvable("recover", tmp_path / "copy", "--yes", stdin=f"{WORDS}\n")


@pytest.mark.parametrize("typed", ["wrong passphrase\n", ""])
def test_without_the_passphrase_at_most_five_resources_are_taken_back(
    evolvable: CommandLine, tmp_path: Path, typed: str
) -> None:
    for number in range(6):
        evolvable.save(tmp_path / "six", f"one-{number}", skill_text(f"one-{number}"))
    evolvable("import", tmp_path / "six", "--accept", code=None)
    last = str(evolvable("log", "--json").json["operations"][0]["operation"])
    refused = evolvable("undo", last, "--yes", stdin=typed, code=None)
    assert refused.code != 0 and "one-5" in evolvable("list").out
    evolvable("undo", last, "--yes", stdin=f"{WORDS}\n", code=None)
    assert "one-5" not in evolvable("list").out


@pytest.mark.parametrize("typed", ["wrong passphrase\n", ""])
def test_without_the_passphrase_no_token_is_made_and_nothing_is_moved(
    evolvable: CommandLine, tmp_path: Path, typed: str
) -> None:
    assert evolvable("token", "add", "ci", "--approve", stdin=typed, code=None).code != 0
    assert evolvable("token", "list", "--json").json["tokens"] == []
    moved = evolvable("move", "--to", tmp_path / "elsewhere", stdin=typed, code=None)
    assert moved.code != 0 and "passphrase" in (moved.out + moved.err).lower()
    evolvable("token", "add", "ci", "--approve", stdin=f"{WORDS}\n")


def forget_configuration(evolvable: CommandLine) -> None:
    """Do what a program of the account can do to the lock."""
    path = evolvable.user / ".config/evolvable/config.toml"
    path.write_text(
        "".join(part for part in path.read_text().splitlines(True) if "public_key" not in part)
    )


def test_a_library_whose_lock_is_gone_from_the_configuration_says_so(
    evolvable: CommandLine,
) -> None:
    forget_configuration(evolvable)
    assert "were locked with key" in evolvable("list").err
    assert "were locked with key" in evolvable("doctor", code=None).out

    evolvable("approvals", "unlock", stdin="n\n", code=None)
    assert "were locked with key" in evolvable("status").err
    evolvable("approvals", "unlock", stdin="y\n")
    assert "were locked with key" not in evolvable("status").err
    assert any("without its passphrase" in line for line in evolvable("audit").out.splitlines())


def test_a_lock_with_another_key_does_not_hide_the_one_before(evolvable: CommandLine) -> None:
    forget_configuration(evolvable)
    (evolvable.user / ".config/evolvable/approvals.key").unlink()
    evolvable("approvals", "lock", stdin="another one\nanother one\nn\n", code=None)
    assert "names another key" in evolvable("list").err

    evolvable("approvals", "lock", stdin="another one\ny\n")
    assert "were locked with key" not in evolvable("list").err


def test_a_lock_that_was_ended_with_its_passphrase_leaves_no_message(
    evolvable: CommandLine,
) -> None:
    evolvable("approvals", "unlock", stdin=f"{WORDS}\n")
    assert "locked with key" not in evolvable("list").err


def test_without_the_passphrase_no_secret_is_kept(evolvable: CommandLine) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    evolvable.save(
        evolvable.user / ".claude/skills", "pdf", skill_text("pdf", body=f"token {secret}")
    )
    evolvable("sync")
    (found,) = evolvable("purge", "--list", "--json").json["secrets"]
    assert (
        evolvable("purge", "--accept", found["id"], stdin="wrong passphrase\n", code=None).code != 0
    )
    assert evolvable("purge", "--list", "--json").json["secrets"]
    evolvable("purge", "--accept", found["id"], stdin=f"{WORDS}\n")
    assert not evolvable("purge", "--list", "--json").json["secrets"]
