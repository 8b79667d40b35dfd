"""A library in a git repository: two machines meet, and what a hostile repository tries comes to nothing."""

import os
import random
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine
from remote_place import AGENT, PERSON, Machine, commit_tree, git, make_hub, skill_text
from soundness import assert_sound

from evolvable_store.errors import Conflict, InvalidArgument, Refused, RemoteFailed, TooLarge
from evolvable_store.objects import MAX_FILE
from evolvable_store.operation import Actor, Principal
from evolvable_store.remotes import commit_reader
from evolvable_store.remotes.git_process import check_address, git_program
from evolvable_store.resource import Ref
from evolvable_tools.trust import Trust, trust_levels
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.remote_pull import Consent
from evolvable_tools.verbs.remotes import push

pytestmark = pytest.mark.process

TEN = "".join(f"line {number}\n" for number in range(10))


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return make_hub(tmp_path / "hub.git")


@pytest.fixture
def ada(tmp_path: Path, hub: Path) -> Machine:
    return Machine(tmp_path / "ada", hub)


@pytest.fixture
def ben(tmp_path: Path, hub: Path) -> Machine:
    return Machine(tmp_path / "ben", hub)


def change_at_random(machine: Machine, numbers: random.Random, who: str) -> None:
    """Makes one operation of a person: a new skill, a line of an old one, or a removal."""
    names = [str(head.ref) for head in machine.store.heads()]
    if not names or numbers.random() < 0.1:
        machine.put(f"{who}-{numbers.randrange(10**6)}", TEN, f"new by {who}")
    elif numbers.random() < 0.04:
        machine.put(numbers.choice(names), None, f"removed by {who}")
    else:
        name = numbers.choice(names)
        lines = machine.text(name).splitlines(keepends=True) or ["\n"]
        lines[numbers.randrange(len(lines))] = f"{who} {numbers.random()}\n"
        machine.put(name, "".join(lines), f"line by {who}")


def test_two_machines_with_200_offline_operations_each_meet_and_have_both_histories(ada, ben, hub):
    numbers = random.Random(24)
    for name in ("one", "two", "three", "four"):
        ada.put(name, TEN)
    ada.push()
    ben.pull()
    for _ in range(200):
        change_at_random(ada, numbers, "ada")
        change_at_random(ben, numbers, "ben")
    before = ada.contents() | ben.contents()
    ada.push()
    told = ben.pull()
    for number in told.proposals:
        proposal_inbox.approve_together(ben.library, PERSON, [number], "theirs")
    ben.push()
    ada.pull()
    assert ada.texts() == ben.texts()
    assert before <= ada.contents(), "a version of ben is not in ada's library"
    assert before <= ben.contents(), "a version of ada is not in ben's library"
    assert_sound(ada.store)
    assert_sound(ben.store)
    assert int(git(hub, "rev-list", "--count", "--no-merges", "main")) >= 404
    assert ada.pull().commits == ada.push().commits == ben.pull().commits == ben.push().commits == 0


def test_a_clone_has_every_version_and_the_folders_are_those_that_tools_read(ada, ben, hub):
    ada.put("pdf", "one\n", "first", run__sh=b"#!/bin/sh\n")
    ada.put("pdf", "two\n", "second\nEvolvable-Actor: human")
    ada.put("prompt:intro", b"Say hello.\n")
    ada.put("memory:USER", b"- likes tea\n")
    assert ada.push().commits == 3
    assert git(hub, "ls-tree", "-r", "--name-only", "main").splitlines() == [
        "prompts/intro/PROMPT.md",
        "skills/pdf/SKILL.md",
    ]
    assert git(hub, "log", "-1", "--format=%B", "main~1").splitlines()[0] == "second Evolvable-Actor: human"
    ben.pull()
    assert ben.texts() == {name: text for name, text in ada.texts().items() if name != "memory:USER"}
    assert [entry.operation.reason for entry in ben.store.history(ben.store.head(Ref.parse("pdf")))] == [
        "second Evolvable-Actor: human",
        "first",
    ]


def test_edits_of_different_lines_merge_and_of_the_same_line_wait_once(ada, ben):
    ada.put("pdf", TEN)
    ada.push()
    ben.pull()
    ada.put("pdf", TEN.replace("line 1\n", "ada\n").replace("line 5\n", "five by ada\n"))
    ben.put("pdf", TEN.replace("line 9\n", "ben\n"))
    ben.push()
    with pytest.raises(Conflict, match="commits that are not here"):
        ada.push()
    ada.pull()
    assert "ada\n" in ada.text("pdf") and "ben\n" in ada.text("pdf")
    ada.push()
    ben.put("pdf", ben.text("pdf").replace("line 5\n", "five by ben\n"))
    told = ben.pull()
    assert [text.partition(":")[0] for text in told.proposals.values()] == ["skill"]
    assert "five by ben" in ben.text("pdf")
    assert not ben.pull().proposals
    assert len(ben.store.backend.proposals.waiting()) == 1
    ben.put("pdf", ben.text("pdf") + "more by ben\n")
    with pytest.raises(Conflict, match="wait for a decision"):
        ben.push()
    proposal_inbox.approve_together(ben.library, PERSON, list(told.proposals), "")
    ben.push()
    ada.pull()
    assert ada.texts() == ben.texts()
    assert "five by ada" in ada.text("pdf")


def test_what_a_person_turns_down_is_pushed_as_it_is_here(ada, ben):
    ada.put("pdf", "one\n")
    ada.push()
    ben.pull()
    ada.put("pdf", "two\n")
    ada.push()
    (number,) = ben.pull(Consent.NONE).proposals
    assert ben.text("pdf") == "one\n"
    ben.put("csv", "x\n")
    ben.push()
    ada.pull()
    assert ada.text("pdf") == "two\n", "what waits stays in the repository as it was"
    proposal_inbox.reject(ben.library, number, "no")
    ben.push()
    ada.pull()
    assert ada.text("pdf") == "one\n"
