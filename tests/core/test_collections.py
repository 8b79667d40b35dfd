"""Collections: a person chooses which skills Claude Code lists by itself; the files of the client
are real ones.
"""

import json
import os
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, skill_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolvable_tools.verbs.collections import (
    BUDGET,
    ListedSkill,
    Shown,
    measure_listing,
    plan_overrides,
)

HIDDEN = "user-invocable-only"


@pytest.fixture
def machine(tmp_path: Path) -> CommandLine:
    """A machine whose ~/.claude/skills holds five skills and is watched."""
    line = CommandLine(tmp_path)
    for name in ("csv", "forms", "pdf", "slides", "tables"):
        line.save(line.user / ".claude/skills", name, skill_text(name, f"Works with {name}."))
    line("init", line.user / ".claude/skills", "--yes")
    return line


def client_settings(line: CommandLine) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (line.user / ".claude/settings.json").read_text(encoding="utf-8")
    )
    return found


def test_a_collection_decides_what_the_client_lists_and_stop_puts_its_settings_back_byte_by_byte(
    machine,
) -> None:
    path = machine.user / ".claude/settings.json"
    before = '{\n  // mine\n  "model": "opus"\n}\n'
    path.write_text(before, encoding="utf-8")
    machine("collection", "add", "work", "pdf", "csv")
    used = machine("collection", "use", "work").out
    assert without_comments(path)["skillOverrides"] == {
        "forms": HIDDEN,
        "slides": HIDDEN,
        "tables": HIDDEN,
    }
    assert "// mine" in path.read_text(encoding="utf-8")
    assert "2 skills, " in used and "find_skill alone: forms, slides, tables" in used
    [backup] = path.parent.glob("settings.json.backup-*")
    assert backup.read_text(encoding="utf-8") == before
    machine("collection", "stop")
    assert path.read_text(encoding="utf-8") == before
    assert sorted(one.name for one in (machine.user / ".claude/skills").iterdir()) == [
        "csv",
        "forms",
        "pdf",
        "slides",
        "tables",
    ]


def test_a_collection_that_is_not_there_is_answered_with_those_that_are(machine) -> None:
    assert "collection add NAME REF` makes one" in machine("collection", "show", "nix", code=1).err
    machine("collection", "add", "work", "pdf")
    assert "There is: work." in machine("collection", "show", "nix", code=1).err


def test_a_change_that_needs_no_file_names_none_that_says_so(machine) -> None:
    machine("collection", "add", "all", "pdf", "csv", "forms", "slides", "tables")
    for words in (("use", "all"), ("stop",)):
        said = machine("collection", *words).out
        assert "settings.json does not exist" in said and "not needed" in said
        assert "says so already" not in said


def without_comments(path: Path) -> dict[str, Any]:
    lines = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.strip().startswith("//")
    ]
    found: dict[str, Any] = json.loads("\n".join(lines))
    return found


def test_find_skill_finds_what_the_client_does_not_list(machine) -> None:
    machine("collection", "add", "work", "pdf")
    machine("collection", "use", "work")
    found = machine("find", "--json", "works with slides").json
    assert found["matches"][0]["ref"] == "skill:slides"


def test_another_collection_replaces_the_first_and_what_the_person_set_by_hand_stays(
    machine,
) -> None:
    (machine.user / ".claude/settings.json").write_text(
        '{"skillOverrides": {"pdf": "off", "csv": "name-only"}}'
    )
    machine("collection", "add", "work", "pdf", "forms")
    machine("collection", "add", "home", "slides")
    said = machine("collection", "use", "work")
    assert client_settings(machine)["skillOverrides"] == {
        "pdf": "off",
        "csv": "name-only",
        "slides": HIDDEN,
        "tables": HIDDEN,
    }
    assert "own settings decide about csv, pdf" in said.err
    machine("collection", "use", "home")
    hidden = {"forms": HIDDEN, "tables": HIDDEN}
    assert client_settings(machine)["skillOverrides"] == {
        "pdf": "off",
        "csv": "name-only",
        **hidden,
    }
    machine("collection", "stop")
    assert client_settings(machine) == {"skillOverrides": {"pdf": "off", "csv": "name-only"}}


def test_in_a_project_a_collection_lists_what_the_users_own_choice_hides(machine) -> None:
    machine.save(machine.project / ".claude/skills", "deploy", skill_text("deploy"))
    machine("init", machine.project / ".claude/skills", "--scope", "acme", "--yes")
    machine("collection", "add", "work", "pdf")
    machine("collection", "add", "site", "slides", "deploy", EVOLVABLE_SCOPE="acme")
    machine("collection", "use", "work")
    done = machine(
        "collection", "use", "site", "--project", "--json", CLAUDE_PROJECT_DIR=str(machine.project)
    ).json
    local = json.loads(
        (machine.project / ".claude/settings.local.json").read_text(encoding="utf-8")
    )
    assert local["skillOverrides"] == {"pdf": HIDDEN, "slides": "on"}
    assert done["listed"] == ["deploy", "slides"]
    shown = machine("collection", "--json", CLAUDE_PROJECT_DIR=str(machine.project)).json
    assert [(one["collection"], one["skills"]) for one in shown["lists"]] == [
        ("work", 1),
        ("site", 2),
    ]


@pytest.mark.process  # doctor looks for a sandbox
def test_a_skill_that_comes_later_is_listed_and_named_until_the_collection_is_used_again(
    machine,
) -> None:
    machine("collection", "add", "work", "pdf")
    machine("collection", "use", "work")
    machine.save(machine.user / ".claude/skills", "new", skill_text("new"))
    machine("sync")
    said = machine("collection").out
    assert "not in the collection" in said and "listed: new" in said
    assert any(
        "new" in note and "collection use work" in note
        for note in machine("doctor", "--json", code=None).json["notes"]
    )
    machine("collection", "use", "work")
    assert client_settings(machine)["skillOverrides"]["new"] == HIDDEN
    assert "not in the collection" not in machine("collection").out


def test_removing_a_collection_says_how_to_make_it_again_and_changes_no_skill(machine) -> None:
    machine("collection", "add", "work", "pdf", "csv")
    said = machine("collection", "remove", "work").out
    assert "evolvable client collection add work skill:csv skill:pdf" in said
    assert machine("collection", "--json").json["collections"] == []
    assert len(machine("list", "--json").json["resources"]) == 5
    machine("collection", "add", "work", "skill:csv", "skill:pdf")
    assert machine("collection", "remove", "work", "csv", "--json").json["skills"] == ["skill:pdf"]


def test_a_dry_run_shows_the_change_and_makes_none(machine) -> None:
    machine("collection", "add", "work", "pdf")
    said = machine("collection", "use", "work", "--dry-run").out
    assert '"forms": "user-invocable-only"' in said and "would list" in said
    assert not (machine.user / ".claude/settings.json").exists()
    assert machine("collection", "--json").json["lists"][0]["collection"] == ""


@pytest.mark.parametrize(
    "words",
    [
        ("add", "work", "pdf"),
        ("remove", "work"),
        ("use", "work"),
        ("stop",),
    ],
)
def test_an_agent_changes_no_collection_and_no_list(machine, words: tuple[str, ...]) -> None:
    machine("collection", "add", "work", "csv")
    machine.person = False
    refused = machine("collection", *words, code=1).err
    assert "Only a person decides" in refused
    assert not (machine.user / ".claude/settings.json").exists()
    machine.person = True
    assert machine("collection", "--json").json["collections"][0]["skills"] == ["skill:csv"]


def test_a_repository_cannot_lead_the_settings_of_a_project_elsewhere(machine) -> None:
    (machine.project / ".git").mkdir()
    machine.save(machine.project / ".claude/skills", "deploy", skill_text("deploy"))
    target = machine.user / "precious.json"
    target.write_text("{}", encoding="utf-8")
    (machine.project / ".claude/settings.local.json").symlink_to(target)
    machine("init", machine.project / ".claude/skills", "--scope", "acme", "--yes")
    machine("collection", "add", "work", "pdf")
    refused = machine(
        "collection", "use", "work", "--project", code=1, CLAUDE_PROJECT_DIR=str(machine.project)
    ).err
    assert "leads out of the repository" in refused
    assert target.read_text(encoding="utf-8") == "{}"
    where = machine("collection", "--json", CLAUDE_PROJECT_DIR=str(machine.project)).json["lists"]
    assert [one["collection"] for one in where] == ["", ""]


@pytest.mark.parametrize("broken", ["{", '{"skillOverrides": []', "[1]", '{"a": 1} x'])
def test_broken_settings_stay_as_they_are_and_nothing_is_noted(machine, broken: str) -> None:
    path = machine.user / ".claude/settings.json"
    path.write_text(broken, encoding="utf-8")
    machine("collection", "add", "work", "pdf")
    assert "is broken" in machine("collection", "use", "work", code=1).err
    assert path.read_text(encoding="utf-8") == broken
    assert machine("collection", "--json").json["lists"][0]["collection"] == ""


STEPS = ("open", "os.rename", "os.remove", "os.chmod", "os.mkdir")
"""Audit events of the interpreter before each of which the process may end."""


def ends_before(line: CommandLine, step: int, *words: str) -> bool:
    """Run a command in a process of its own that ends before this step; return whether it got that
    far.
    """
    child = os.fork()
    if child == 0:
        seen = 0

        def end(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            seen += event in STEPS and str(line.root) in str(arguments)
            if seen > step:
                os._exit(9)

        try:
            sys.addaudithook(end)
            line(*words, code=None)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a POSIX system")
def test_a_choice_that_ends_at_any_step_can_be_taken_back_byte_by_byte(machine) -> None:
    path = machine.user / ".claude/settings.json"
    path.write_text('{"model": "opus"}', encoding="utf-8")
    machine("collection", "add", "work", "pdf")
    machine("collection", "add", "home", "csv")
    step = 0
    while True:
        machine("collection", "use", "work")
        ended = ends_before(machine, step, "collection", "use", "home")
        machine("collection", "stop")
        assert client_settings(machine) == {"model": "opus"}, (
            f"step {step}: settings of a collection stayed"
        )
        if not ended:
            break
        step += 1
    assert step > 5, "the process ended while it worked"


@pytest.mark.process
def test_two_choices_at_once_leave_settings_that_can_be_taken_back(machine) -> None:
    path = machine.user / ".claude/settings.json"
    path.write_text('{"model": "opus"}', encoding="utf-8")
    machine("collection", "add", "work", "pdf")
    machine("collection", "add", "home", "csv")
    with ThreadPoolExecutor() as pool:
        for _ in range(4):
            both = [
                pool.submit(machine.on_terminal, "collection", *words)
                for words in (("use", "home"), ("stop",))
            ]
            assert not any("Error" in one.result() for one in both)
            machine("collection", "stop")
            assert client_settings(machine) == {"model": "opus"}


def test_settings_of_another_kind_stay_and_are_not_ours_to_take_out(machine) -> None:
    path = machine.user / ".claude/settings.json"
    path.write_text('{"skillOverrides": {"pdf": 7, "zzz": true}}', encoding="utf-8")
    machine("collection", "add", "work", "pdf")
    machine("collection", "use", "work")
    used = client_settings(machine)["skillOverrides"]
    assert (used["pdf"], used["zzz"]) == (7, True) and used["csv"] == HIDDEN
    machine("collection", "stop")
    assert client_settings(machine) == {"skillOverrides": {"pdf": 7, "zzz": True}}


@pytest.mark.parametrize("name", ["Work", "a b", "-", "../x", "x" * 65, "Отчёт", "a\x1b[31m"])
def test_a_collection_has_a_plain_name(machine, name: str) -> None:
    assert "is no name of a collection" in machine("collection", "add", name, "pdf", code=1).err


def test_only_skills_of_the_library_are_in_a_collection(machine) -> None:
    assert (
        "clients list skills alone"
        in machine("collection", "add", "work", "memory:USER", code=1).err.lower()
    )
    assert "nosuch" in machine("collection", "add", "work", "nosuch", code=1).err
    assert "needs the name of a collection" in machine("collection", "use", code=1).err


def test_uninstalling_puts_the_settings_back(machine) -> None:
    machine("collection", "add", "work", "pdf")
    machine("collection", "use", "work")
    said = machine("uninstall", "--yes").out
    assert "Removed." in said
    assert "skillOverrides" not in client_settings(machine)


def test_uninstalling_with_data_leaves_nothing_of_a_choice(machine) -> None:
    machine("collection", "add", "work", "pdf")
    machine("collection", "use", "work")
    machine("uninstall", "--data", "--yes")
    assert not machine.home.exists() or list(machine.home.iterdir()) == []


def test_a_backup_keeps_the_collections(machine) -> None:
    machine("collection", "add", "work", "pdf")
    machine("backup", machine.root / "copy")
    shown = machine("--home", machine.root / "copy", "collection", "--json").json
    assert shown["collections"] == [
        {"name": "work", "skills": ["skill:pdf"], "gone": [], "used": []}
    ]


def test_a_removed_skill_stays_in_its_collection_and_returns_with_it(machine) -> None:
    machine("collection", "add", "work", "pdf", "csv")
    machine("remove", "pdf")
    assert machine("collection", "--json").json["collections"][0] == {
        "name": "work",
        "skills": ["skill:csv"],
        "gone": ["skill:pdf"],
        "used": [],
    }
    machine("restore", "pdf", "1")
    assert machine("collection", "show", "work", "--json").json["skills"][1]["ref"] == "skill:pdf"


def test_the_tables_are_of_the_library_file(machine) -> None:
    machine("collection", "add", "work", "pdf")
    with sqlite3.connect(machine.home / "library.db") as db:
        assert db.execute("SELECT count(*) FROM collection").fetchone() == (1,)


def test_a_choice_of_an_older_release_can_be_taken_back(machine) -> None:
    path = machine.user / ".claude/settings.json"
    path.write_text('{"model": "opus"}', encoding="utf-8")
    machine("collection", "add", "work", "pdf")
    machine("collection", "use", "work")
    with sqlite3.connect(machine.home / "library.db") as db:
        written = json.loads(db.execute("SELECT written FROM listing").fetchone()[0])
        older = {skill: value for skill, (value,) in written.items()}
        db.execute("UPDATE listing SET written = ?", (json.dumps(older),))
    machine("collection", "stop")
    assert client_settings(machine) == {"model": "opus"}


SKILLS = st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 9)), max_size=12)
STATES = st.lists(st.sampled_from(list(Shown)), max_size=12)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SKILLS, st.integers(0, 2**12 - 1), STATES)
def test_what_a_plan_lists_is_what_was_chosen_whatever_others_say(drawn, bits, states) -> None:
    skills = [
        ListedSkill(n, f"s{n}", f"skill:s{n}", length, uses)
        for n, (length, uses) in enumerate(drawn)
    ]
    chosen = {skill.id for skill in skills if bits >> skill.id & 1}
    below = {f"s{number}": shown for number, shown in enumerate(states)}
    plan = plan_overrides(skills, chosen, {}, below)
    shown = {**below, **{name: Shown(value) for name, value in plan.items()}}
    listing = measure_listing(skills, shown)
    assert {skill.name for skill in skills if skill.id in chosen} == {
        skill.name for skill in skills if shown.get(skill.name, Shown.WHOLE) is Shown.WHOLE
    }
    kept = listing.size - sum(skill.size - len(skill.name) - 2 for skill in listing.bare)
    assert kept <= BUDGET and listing.skills + len(listing.hidden) == len(skills)
