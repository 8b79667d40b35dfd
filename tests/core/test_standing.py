"""`status`, `folders` and `doctor` say the same of the same thing: folders, clients, their list,
and what waits.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX links and modes"),
]

AGENT = Identity(Principal.AGENT, "client:claude-code")
NAMES = ("conflict", "behind", "changed", "gone", "spare")
LONG = "Use it when a person asks for a report, a table or a summary of these documents. " * 5


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A person with skills in three watched folders, one of them in a git work tree, and no
    connected client.
    """
    made = CommandLine(tmp_path)
    monkeypatch.chdir(made.project)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in NAMES:
        made.save(made.user / ".claude/skills", name, skill_text(name))
    made.save(made.root / "away/skills", "moved", skill_text("moved"))
    (made.project / ".git").mkdir()
    made.save(made.project / ".claude/skills", "deploy", skill_text("deploy"))
    made(
        "init",
        made.user / ".claude/skills",
        made.root / "away/skills",
        made.project / ".claude/skills",
    )
    return made


def skills(run: CommandLine) -> Path:
    return run.user / ".claude/skills"


def change(run: CommandLine, name: str) -> None:
    with (
        Store.open(run.home) as store,
        store.transaction(Actor.AGENT, "shorter", identity=AGENT) as tx,
    ):
        tx.put(Ref.parse(name), {"SKILL.md": File(skill_text(name, body="by an agent").encode())})


def conflict(run: CommandLine) -> None:
    change(run, "conflict")
    run.save(skills(run), "conflict", skill_text("conflict", body="by a person"))
    run("sync")


def wait_for_git(run: CommandLine) -> None:
    (run.project / ".git/index.lock").touch()
    run.save(run.project / ".claude/skills", "deploy", skill_text("deploy", body="Newer."))


def propose(run: CommandLine) -> None:
    with Store.open(run.home) as store:
        files = {"SKILL.md": File(skill_text("spare", body="A shorter way.").encode())}
        store.backend.proposals.add(
            store.now(),
            Actor.AGENT,
            "s1",
            Draft(Ref(Kind.SKILL, "spare", USER_SCOPE), 1, files, "a shorter way"),
        )


def crowd(run: CommandLine) -> None:
    for number in range(40):
        run.save(
            skills(run),
            f"kind-{number:02}",
            skill_text(f"kind-{number:02}", f"Kind {number:02}. {LONG}"),
        )
    run("sync")


STATES: dict[str, Callable[[CommandLine], object]] = {
    "1 conflict": conflict,
    "1 behind": lambda run: change(run, "behind"),
    "1 changed on disk": lambda run: run.save(
        skills(run), "changed", skill_text("changed", body="by hand")
    ),
    "1 not there": lambda run: (skills(run) / "gone").rename(run.root / "kept"),
    "1 not imported (bad)": lambda run: run.save(
        skills(run), "bad", '---\nname: bad\ndescription: "a\\u0080b"\n---\n'
    ),
    "waiting for git": wait_for_git,
    "missing": lambda run: (run.root / "away/skills").rename(run.root / "away/elsewhere"),
    "1 proposal: evolvable inbox": propose,
    "Codex: not connected; `evolvable connect codex` connects it": lambda run: (
        run.user / ".codex"
    ).mkdir(),
    "lose their description in Claude Code": crowd,
}
"""What a line says -> how it comes to be so, in an order in which no state ends another."""

FIRST = ("lose their description in Claude Code", "1 conflict")
"""States that a sync makes, which would end others."""


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("draw", range(3))
def test_the_three_commands_say_the_same_of_drawn_states(run, draw):
    """status has every line. folders has those of folders; doctor those that are not well."""
    drawn = random.Random(draw).sample(sorted(STATES), 5) if draw else sorted(STATES)
    for state in sorted(drawn, key=lambda state: state not in FIRST):
        STATES[state](run)
    health = run("doctor", "--json", code=None).json
    status, folders, doctor = (
        words(run(name, code=None).out) for name in ("status", "folders", "doctor")
    )

    for state in drawn:
        assert state in status and state in doctor, state
    for line in health["standing"]:
        text = words(f"{line['name']}: {line['state']}" if line["name"] else line["state"])
        assert text in status
        assert (text in doctor) is not line["well"]
        assert (text in folders) is (line["topic"] == "folder" and not line["well"])
    wrong = [
        words(f"{one['what']} {one['next']}")
        for one in health["problems"]
        if str(run.root) in one["what"]
    ]
    assert all(one in doctor and one in folders for one in wrong)
    assert not wrong or any(f"doctor {one}" in status for one in wrong)


def test_what_is_well_is_one_line_of_doctor(run):
    first, *rest = run("doctor", code=None).out.splitlines()

    assert (
        first.startswith("Well: the program, ")
        and "the library " in first
        and "3 folders in sync" in first
    )
    assert rest[-1] == "All is well." and not any(
        line.startswith(("setting", "packages", "folder")) for line in rest
    )
    assert "packages" in run("doctor", "--verbose", code=None).out
