"""Copies by which Claude Code's own Skill tool starts the delegate of a skill: two lines that
belong to no version.
"""

import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine
from mcp_place import PERSON

from evolvable_store.fork_lines import with_fork, without_fork
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store

AGENT = "---\nname: clerk\ndescription: Files papers.\n---\n\nYou are the clerk.\n"
LINES = "context: fork\nagent: clerk\n"
BOT = Identity(Principal.AGENT, "mcp")


def filing(
    delegate: str = "agent:clerk", body: str = "Use one folder a year.", extra: str = ""
) -> str:
    head = (
        f"name: filing\ndescription: Files papers in folders.\n{extra}metadata:\n"
        f"  delegate: {delegate}"
    )
    return f"---\n{head}\n---\n\n{body}\n"


class Desk:
    """A person's machine with a library that holds a skill and its delegate."""

    def __init__(self, run: CommandLine) -> None:
        self.run, self.skill = run, run.user / ".claude/skills/filing/SKILL.md"
        self.put(filing())
        self.put(AGENT, Ref(Kind.AGENT, "clerk", "user"))

    def put(
        self,
        text: str,
        ref: Ref = Ref(Kind.SKILL, "filing", "user"),  # noqa: B008
        identity: Identity = PERSON,
    ) -> None:
        actor = Actor.HUMAN if identity is PERSON else Actor.AGENT
        main = "AGENT.md" if ref.kind is Kind.AGENT else "SKILL.md"
        with (
            Store.open(self.run.home, create=True) as store,
            store.transaction(actor, "test", identity=identity) as tx,
        ):
            tx.put(ref, {main: File(text.encode())})

    def versions(self) -> list[str]:
        with Store.open(self.run.home) as store:
            head = store.head(Ref.parse("filing"))
            return [
                store.file(head, "SKILL.md", number).data.decode()
                for number in range(1, head.latest + 1)
            ]

    def lying(self) -> str:
        return self.skill.read_text(encoding="utf-8")

    def synced(self) -> str:
        self.run("folders", "sync")
        return self.lying()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(CommandLine(tmp_path))


def rendered(text: str) -> str:
    return text.replace("---\n\n", f"{LINES}---\n\n")


def test_a_checkout_adds_two_lines_to_its_copy_that_are_no_edit_and_no_part_of_a_persons_edit(
    desk: Desk,
) -> None:
    desk.run("checkout", "claude-code", "--only", "filing")
    assert desk.lying() == rendered(filing())
    assert desk.synced() == rendered(filing()) and desk.versions() == [filing()]

    desk.skill.write_text(rendered(filing(body="Use two.")), encoding="utf-8")
    assert desk.synced() == rendered(filing(body="Use two.")) and desk.versions() == [
        filing(),
        filing(body="Use two."),
    ]

    desk.skill.write_text(filing(body="Use two."), encoding="utf-8")
    assert desk.synced() == rendered(filing(body="Use two.")) and len(desk.versions()) == 2
    assert desk.run("folders", "--json").json["folders"][0]["changed"] == []


def test_a_change_of_the_library_keeps_the_lines_and_the_end_of_the_delegation_takes_them_away(
    desk: Desk,
) -> None:
    desk.run("checkout", "claude-code", "--only", "filing")

    desk.put(filing(body="Use three."))
    assert desk.synced() == rendered(filing(body="Use three."))
    desk.put(filing("{agent: 'agent:clerk', when: long}"))
    assert desk.synced() == filing("{agent: 'agent:clerk', when: long}")
    desk.put(filing("{agent: 'agent:clerk', input: history}"))
    assert desk.synced() == filing("{agent: 'agent:clerk', input: history}")
    desk.put(filing("agent:clerk@1"))
    assert desk.synced() == rendered(filing("agent:clerk@1"))
    desk.put(AGENT + "File every paper.\n", Ref(Kind.AGENT, "clerk", "user"))
    desk.run("folders", "sync")
    assert desk.synced() == filing("agent:clerk@1")


def test_a_delegate_that_an_agent_named_has_no_lines_until_a_person_approves_it(desk: Desk) -> None:
    desk.put(AGENT.replace("clerk", "other"), Ref(Kind.AGENT, "other", "user"))
    desk.run("checkout", "claude-code")
    desk.put(filing("agent:other"), identity=BOT)
    assert desk.synced() == filing("agent:other")

    desk.run("approve", "filing", "--yes")

    assert desk.lying() == filing("agent:other").replace(
        "---\n\n", "context: fork\nagent: other\n---\n\n"
    )
    assert len(desk.versions()) == 2


def test_a_folder_that_a_person_keeps_gets_no_lines_and_one_proposal_of_them(desk: Desk) -> None:
    desk.skill.parent.mkdir(parents=True)
    desk.skill.write_text(filing(), encoding="utf-8")
    desk.run("init", str(desk.skill.parent.parent), "--yes")

    err = desk.run("checkout", "claude-code").err
    again = desk.run("checkout", "claude-code").err

    assert desk.lying() == filing()
    assert "filing: proposal 1 " in err and "Claude Code's Skill tool" in err
    assert "proposal" not in again
    desk.run("inbox", "approve", "1")
    assert desk.lying() == rendered(filing()) and desk.versions()[-1] == rendered(filing())


@pytest.mark.process
def test_a_copy_in_a_work_tree_gets_no_lines_and_a_proposal(desk: Desk) -> None:
    subprocess.run(["git", "init", "-q", str(desk.run.user)], check=True)

    err = desk.run("checkout", "claude-code").err

    assert desk.lying() == filing() and "filing: proposal 1 has" in err


@pytest.mark.parametrize("extra", ["context: fork\n", "agent: mine\n", "context: &a fork\n"])
def test_a_head_that_has_a_key_of_its_own_or_cannot_be_read_stays_as_it_is(extra: str) -> None:
    data = filing(extra=extra).encode()

    assert with_fork(data, "clerk") == data


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_lines_are_taken_away_byte_for_byte_and_not_where_a_person_named_another_agent(
    end: str,
) -> None:
    data = filing().replace("\n", end).encode()
    given = with_fork(data, "clerk")

    assert given != data and without_fork(given, "clerk") == data
    theirs = given.replace(b"agent: clerk", b"agent: other")
    assert without_fork(theirs, "clerk") == theirs
