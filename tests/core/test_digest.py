"""The digest of a week: what agents learned, what helped, what nobody used, what was taken back,
each with its undo.
"""

import shlex
from datetime import timedelta

import pytest
from command_line import CommandLine
from earned import verified

from evolvable_store.errors import InvalidArgument
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.care import DigestPart, digest_markdown, weekly_digest
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit, load, undo
from evolvable_tools.verbs.proposal_inbox import approve_together
from evolvable_tools.verbs.search import find_skill

pytestmark = pytest.mark.process

PDF = Ref.parse("pdf")


def change(library, caller, ref, old, new, why="a better word", **more):
    return edit.update_resource(
        library, caller, ref, why, edits=[TextEdit("SKILL.md", old, new)], **more
    )


def undos(part):
    return [(line.refs, line.undo) for line in part.lines]


def test_what_an_agent_learned_stands_there_with_its_undo_until_it_is_taken_back(
    library, agent, person, skill
):
    skill("pdf")
    done = change(library, agent, PDF, "one", "ONE")

    assert undos(weekly_digest(library, person).learned) == [
        (["skill:pdf@2"], f"evolvable undo {done.operation}")
    ]

    back = undo(library, person, "worse", operation=done.operation)
    found = weekly_digest(library, person)
    assert (found.learned.lines, undos(found.taken_back)) == (
        [],
        [(["skill:pdf@3"], f"evolvable undo {back.operation}")],
    )

    undo(library, person, "it was good", operation=back.operation)
    found = weekly_digest(library, person)
    assert [line.undo for line in found.learned.lines] == [f"evolvable undo {done.operation}"]
    assert found.taken_back.lines == []


def test_a_proposal_that_a_person_approved_is_learned_from_its_agent(library, agent, person, skill):
    skill("pdf")
    waiting = change(library, agent, PDF, "one", "ONE", "qpdf is faster", propose=True)
    assert weekly_digest(library, person).learned.lines == []

    approve_together(library, person, [waiting.proposal_id], "")

    (line,) = weekly_digest(library, person).learned.lines
    assert line.author.startswith("agent, approved by you") and "qpdf is faster" in line.reason


def test_what_a_person_changed_is_not_what_agents_learned(library, person, skill):
    skill("pdf")
    change(library, person, PDF, "one", "ONE")

    assert weekly_digest(library, person).learned == DigestPart([], 0)


def test_what_helped_and_what_nobody_used_are_told_apart_by_the_uses_of_the_days(
    library, person, skill
):
    real = library.store.clock
    library.store.clock = lambda: real() - timedelta(days=8)
    skill("pdf"), skill("csv"), skill("xml")
    library.store.clock = real
    verified(library, "pdf", "a", "succeeded")
    verified(library, "pdf", "b", "failed")
    find_skill(library, Caller(Actor.AGENT, "c"), "works with csv", to_agent=True)

    found = weekly_digest(library, person)

    assert [(line.refs, line.text) for line in found.helped.lines] == [
        (["skill:pdf@1"], "helped 1 of 2 times")
    ]
    assert [line.refs for line in found.unused.lines] == [["skill:csv"], ["skill:xml"]]
    assert found.unused.lines[0].undo == "evolvable remove skill:csv"
    unused = found.unused.lines[0].text
    assert "shown once" in unused and "never opened in 7 days" in unused


def test_what_came_in_these_days_is_not_what_nobody_used(library, person, skill):
    skill("pdf")

    assert weekly_digest(library, person).unused == DigestPart([], 0)


def test_what_is_older_than_the_days_is_not_in_it(library, agent, person, skill):
    skill("pdf")
    verified(library, "pdf", "a", "succeeded")
    change(library, agent, PDF, "one", "ONE")
    real = library.store.clock
    library.store.clock = lambda: real() + timedelta(days=8)

    found = weekly_digest(library, person)

    assert (found.learned.number, found.helped.number) == (0, 0)
    assert [line.refs for line in found.unused.lines] == [["skill:pdf"]]
    assert weekly_digest(library, person, days=9).learned.number == 1
    with pytest.raises(InvalidArgument, match="days is 0"):
        weekly_digest(library, person, days=0)


def test_an_undo_of_what_helped_takes_back_no_other_resource_of_the_same_operation(library, person):
    with library.store.transaction(Actor.HUMAN, "all at once") as tx:
        for name in ("pdf", "csv"):
            text = f"---\nname: {name}\ndescription: Works with {name}.\n---\n\none\n"
            tx.put(Ref.parse(name), {"SKILL.md": File(text.encode())}, create=True)
    verified(library, "pdf", "a", "succeeded")

    assert undos(weekly_digest(library, person).helped) == [
        (["skill:pdf@1"], "evolvable remove skill:pdf")
    ]


def test_an_agent_is_told_no_reasons_and_a_document_has_no_markup_of_theirs(
    library, agent, person, skill
):
    skill("pdf")
    change(
        library, agent, PDF, "one", "ONE", "see [here](http://evil.example)\n# Approved <b>\u202e"
    )

    assert [line.reason for line in weekly_digest(library, agent).learned.lines] == [""]
    text = digest_markdown(weekly_digest(library, person))
    assert "\\[here\\]\\(http://evil.example\\) \\# Approved \\<b\\>" in text
    assert "\u202e" not in text and "\n# Approved" not in text


def test_the_command_prints_it_writes_it_and_replaces_no_other_file(tmp_path):
    run = CommandLine(tmp_path)
    run.person = True
    text = "---\nname: pdf\ndescription: Works with PDF files.\n---\n\none\n"
    run("init", run.save(run.user / ".claude/skills", "pdf", text).parent)
    run.person = False
    run("update", "pdf", "--edit", "SKILL.md", "one", "ONE", "-m", "louder")
    run.person = True

    shown = run("digest").out
    learned = run("digest", "--json").json["learned"]["lines"][0]
    assert "What agents learned" in shown and learned["undo"] in shown and "louder" in shown

    target, other = tmp_path / "week.md", tmp_path / "notes.md"
    run("digest", "--write", str(target))
    run("digest", "--write", str(target), "--days", "3")
    assert (
        target.read_text().startswith("# Evolvable: the last 3 days\n")
        and learned["undo"] in target.read_text()
    )
    other.write_text("mine")
    assert "holds no digest" in run("digest", "--write", str(other), code=None).err
    assert other.read_text() == "mine"

    run(*shlex.split(learned["undo"])[1:], "-m", "quiet", "--yes")
    again = run("digest", "--json").json
    assert again["learned"]["number"] == 0 and again["taken_back"]["number"] == 1


def test_reading_it_counts_as_no_use(library, person, skill):
    real = library.store.clock
    library.store.clock = lambda: real() - timedelta(days=8)
    skill("pdf")
    library.store.clock = real
    weekly_digest(library, person)
    assert load.get_resource(library, person, PDF).version == 1
    assert weekly_digest(library, person).unused.number == 1
