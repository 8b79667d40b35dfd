"""Tables as tab-separated values and JSON, undo of the last operation, and who did what at 80
columns.
"""

import json
import os
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from remote_place import git

from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.store import Store

posix = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX terminal")
AGENT = Identity(Principal.AGENT, "client:claude-code")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A library with a skill of a person that an agent changed, and one whose texts have tabs and
    line ends.
    """
    made = CommandLine(tmp_path)
    monkeypatch.chdir(made.project)
    Store.open(made.home, create=True).close()
    made(
        "update",
        "pdf",
        "--create",
        "--file",
        "SKILL.md=-",
        "-m",
        "it was\tneeded",
        stdin=skill_text("pdf"),
    )
    made(
        "update",
        "pdf",
        "--file",
        "SKILL.md=-",
        "-m",
        "shorter",
        stdin=skill_text("pdf", body="two"),
    )
    change(
        made,
        "pdf",
        "an agent found a shorter way that takes many words to explain at this width of a screen",
    )
    return made


def change(run: CommandLine, name: str, reason: str) -> None:
    with (
        Store.open(run.home) as store,
        store.transaction(Actor.AGENT, reason, identity=AGENT) as tx,
    ):
        tx.put(Ref.parse(name), {"SKILL.md": File(skill_text(name, body=reason).encode())})


def test_tsv_has_the_titles_and_every_column_of_every_row_and_nothing_else(run):
    lines = run("log", "--format", "tsv").out.splitlines()

    assert lines[0].split("\t") == ["operation", "when", "author", "why", "what"]
    assert [line.split("\t")[3] for line in lines[1:]] == [
        "an agent found a shorter way that takes many words to explain at this width of a screen",
        "shorter",
        "it was needed",
    ]


@posix
def test_tsv_on_a_terminal_is_not_cut(run):
    assert run.on_screen("log", "--format", "tsv", columns=60) == run("log", "--format", "tsv").out


@pytest.mark.parametrize(
    "words", [["list"], ["history", "pdf"], ["folders"], ["inbox"], ["learn", "stats"]]
)
def test_format_json_is_what_json_is(run, words):
    assert (
        json.loads(run(*words, "--format", "json").out).keys() == run(*words, "--json").json.keys()
    )
    assert "\n\n" not in run(*words, "--format", "tsv").out


@posix
@pytest.mark.parametrize("words", [["log"], ["history", "pdf"]])
def test_who_made_a_change_stays_at_80_columns(run, words):
    shown = run.on_screen(*words, columns=80)

    assert "agent (Claude Code)" in shown and "author" in shown.splitlines()[0]
    assert max(map(len, shown.splitlines())) <= 80


@posix
@pytest.mark.process
def test_undo_alone_offers_the_last_operation_of_the_person(run):
    talk = run.talk("undo")
    talk.until("Your last change is operation 2, ")
    talk.until("shorter: skill:pdf@2")
    talk.until("Take back operation 2? [y/N]: ")
    talk.type("n\n")

    assert "Nothing was taken back." in talk.end()
    assert run("history", "pdf", "--json").json["head"] == 3


@posix
@pytest.mark.process
def test_undo_alone_passes_over_what_was_taken_back_already(run):
    run("update", "csv", "--create", "--file", "SKILL.md=-", stdin=skill_text("csv"))
    run("undo", 4)
    talk = run.talk("undo")
    talk.until("Take back operation 2? [y/N]: ")
    talk.type("\n")
    talk.end()


@posix
@pytest.mark.process
def test_undo_alone_offers_what_the_person_saved_in_an_editor(run):
    run.save(run.user / ".claude/skills", "notes", skill_text("notes", body="Old."))
    run("init", run.user / ".claude/skills")
    run.save(run.user / ".claude/skills", "notes", skill_text("notes", body="New."))
    run("folders", "sync")
    talk = run.talk("undo")
    shown = talk.until("Take back operation 5? [y/N]: ")
    talk.type("y\n")
    talk.end()

    assert "edited in" in shown and "skill:notes@2" in shown
    assert "Old." in run("get", "notes").out


@posix
@pytest.mark.process
def test_undo_alone_names_what_an_agent_changed_later(run):
    talk = run.talk("undo")
    talk.until("Others changed something later, and it stays:")
    talk.until("operation 3 by agent (Claude Code): skill:pdf@3")
    talk.until("Take back operation 2? [y/N]: ")
    talk.type("\n")
    talk.end()


@posix
@pytest.mark.process
def test_undo_alone_offers_no_import_and_names_its_number(run):
    (run.root / "other").mkdir()
    other = CommandLine(run.root / "other")
    other.save(other.user / ".claude/skills", "notes", skill_text("notes"))
    other("init", other.user / ".claude/skills")
    shown = other.talk("undo").end()

    assert "You made no change" in shown and "evolvable undo 1" in shown
    assert (other.user / ".claude/skills/notes/SKILL.md").is_file()


@posix
@pytest.mark.process
def test_undo_alone_names_the_last_import_where_a_repository_brought_it(run):
    (run.root / "other").mkdir()
    other = CommandLine(run.root / "other")
    other.save(other.user / ".claude/skills", "notes", skill_text("notes"))
    other("init", other.user / ".claude/skills")
    skills = other.root / "checkout/.claude/skills"
    other.save(skills, "csv", skill_text("csv"))
    git(other.root, "init", "-q", "checkout")
    git(other.root / "checkout", "add", ".")
    git(other.root / "checkout", "commit", "-qm", "first")
    other("init", skills)

    shown = other.talk("undo").end()

    second = other("log", "--json").json["operations"][0]
    assert (
        second["author"] == "repository"
        and f"last import is operation {second['operation']}:" in shown
    )


def test_undo_alone_in_a_script_is_wrong_usage(run):
    assert "Name an operation" in run("undo", code=2).err


@posix
@pytest.mark.process
def test_a_long_table_opens_in_the_pager_and_pager_cat_switches_it_off(run, tmp_path):
    for number in range(50):
        change(run, "pdf", f"step {number}")
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n", encoding="utf-8")
    pager.chmod(0o755)
    paged = run.talk("log", "--limit", "60", PAGER=str(pager)).end()

    assert "step 49" not in paged and "step 49" in (tmp_path / "paged").read_text(encoding="utf-8")
    assert "step 49" in run.talk("log", "--limit", "60", PAGER="cat").end()


@posix
@pytest.mark.process
def test_colours_are_for_terminals_and_no_color_switches_them_off(run):
    assert "\x1b[1m" in run.talk("list").end()
    assert "\x1b[" not in run.talk("list", NO_COLOR="1").end()
    assert "\x1b[" not in run.talk("find", "pdf", NO_COLOR="1").end()
    assert "\x1b[" not in run.process("list").out
