"""What waits for hosts, publishing it, and the text that says what each move changed."""

from collections.abc import Callable

import pytest

from evolvable_server.mcp.resources import resolve
from evolvable_store.errors import EvolvableError, NoSuchVersion, Refused
from evolvable_store.objects import File, Manifest, TreeEntry
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, release
from evolvable_tools.verbs.host_catalog import HostCatalog, _left_out

PDF = Ref.parse("pdf")

Skill = Callable[..., Ref]


def edited(library: Library, caller: Caller, ref: Ref, old: str, new: str) -> None:
    edit.update_resource(
        library, caller, ref, f"{new} is better", edits=[TextEdit("SKILL.md", old, new)]
    )


def test_what_waits_is_published_in_one_move(
    library: Library, person: Caller, agent: Caller, skill: Skill
) -> None:
    skill("pdf")
    skill("csv")
    edited(library, agent, PDF, "two", "second")
    edited(library, agent, Ref.parse("csv"), "two", "second")
    waits = release.channel_status(library)
    assert [(step.ref, step.before, step.after, step.what) for step in waits.waiting] == [
        ("skill:csv", 1, 2, "newer"),
        ("skill:pdf", 1, 2, "newer"),
    ]
    assert release.publish(library, person, "look first", dry_run=True).steps == waits.waiting
    done = release.publish(library, person, "weekly")
    assert (done.steps, done.move) == (waits.waiting, 3)
    assert release.channel_status(library).waiting == []
    assert release.publish(library, person, "again").move is None


def test_a_version_can_be_named_forward_and_back(
    library: Library, person: Caller, skill: Skill
) -> None:
    skill("pdf")
    edited(library, person, PDF, "two", "second")
    edited(library, person, PDF, "three", "third")
    assert release.publish(library, person, "some", refs=[PDF.at(2)]).steps[0].after == 2
    back = release.publish(library, person, "was better", refs=[PDF.at(1)])
    assert (back.steps[0].before, back.steps[0].after, back.steps[0].what) == (2, 1, "older")
    assert release.publish(library, person, "same", refs=[PDF.at(1)]).unchanged == ["skill:pdf"]
    with pytest.raises(NoSuchVersion):
        release.publish(library, person, "none", refs=[PDF.at(9)])


def test_an_agent_moves_nothing(library: Library, agent: Caller, skill: Skill) -> None:
    skill("pdf")
    for move in (
        lambda: release.publish(library, agent, "mine"),
        lambda: release.withdraw_skills(library, agent, [PDF], "mine"),
        lambda: release.set_policy(library, agent, "live", "mine"),
    ):
        with pytest.raises(Refused, match="a person's decision"):
            move()


def test_a_withdrawn_skill_comes_back_only_by_name(
    library: Library, person: Caller, skill: Skill
) -> None:
    skill("pdf")
    release.withdraw_skills(library, person, [PDF], "wrong")
    assert release.channel_status(library).withdrawn == ["skill:pdf"]
    assert release.publish(library, person, "all").steps == []
    assert release.publish(library, person, "mended", refs=[PDF]).steps[0].after == 1


def test_a_removal_waits_hidden_and_is_published_as_one(
    library: Library, person: Caller, skill: Skill
) -> None:
    skill("pdf")
    edit.remove_resource(library, person, PDF, "not needed")
    (step,) = release.channel_status(library).waiting
    assert (step.before, step.after, step.what) == (1, None, "removed")
    assert release.channel_status(library).seen == 0
    assert release.publish(library, person, "gone").steps == [step]


def test_the_changelog_says_what_hosts_see_change_and_who_made_it(
    library: Library, person: Caller, agent: Caller, skill: Skill
) -> None:
    skill("pdf")
    edited(library, agent, PDF, "two", "second")
    edit.update_resource(library, person, PDF, "a reference", files={"notes.md": "x"})
    move = release.publish(library, person, "weekly review").move
    found = release.changelog(library, move)
    (changes,) = found.skills
    assert changes.files == {"SKILL.md": "changed", "notes.md": "added"}
    assert [(v.version, v.actor, v.reason) for v in changes.versions] == [
        (3, "human", "a reference"),
        (2, "agent", "second is better"),
    ]
    assert f"Move {move}," in found.text and "by human: weekly review" in found.text
    assert "skill:pdf  1 -> 3 (newer)" in found.text
    assert "by agent: second is better (SKILL.md)" in found.text


@pytest.mark.parametrize(
    "wrong",
    [
        lambda library, person: release.set_policy(library, person, "always", "x"),
        lambda library, person: release.publish(library, person, " ", refs=[PDF]),
        lambda library, person: release.publish(library, person, "x", refs=[Ref.parse("nope")]),
        lambda library, person: release.publish(
            library, person, "x", refs=[Ref.parse("memory:USER")]
        ),
        lambda library, person: release.changelog(library, 99),
        lambda library, person: release.channel_log(library, 0),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(
    library: Library, person: Caller, skill: Skill, wrong: Callable[[Library, Caller], object]
) -> None:
    skill("pdf")
    with pytest.raises(EvolvableError) as refusal:
        wrong(library, person)
    assert refusal.value.hint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\nname: other\ndescription: d\n---\nx\n", "gives the name 'other'"),
        ("\n---\nname: pdf\ndescription: d\n---\nx\n", "does not begin with its frontmatter"),
        ("---\nname: pdf\n---\nx\n", "no description"),
        ("no frontmatter\n", "no frontmatter"),
        (f"---\nname: pdf\ndescription: {'d' * 1025}\n---\nx\n", "1,025 characters"),
    ],
)
def test_what_breaks_the_specification_is_left_out_with_the_reason(
    library: Library, text: str, reason: str
) -> None:
    """A person's own folder is taken in leniently; hosts are held to the specification."""
    with library.store.transaction(Actor.HUMAN, "by hand") as tx:
        tx.put(PDF, {"SKILL.md": File(text.encode())})
    (step,) = release.channel_status(library).left_out
    assert any(reason in text for text in step.left_out), step


def test_what_is_over_the_limits_of_hosts_is_left_out() -> None:
    """The library's own limits are as tight today, so no whole skill can show it."""
    many = Manifest({f"{number}.md": TreeEntry("0" * 64, 40_000, 0o644) for number in range(513)})
    reasons = _left_out("pdf", many, None)
    assert any("513 files" in reason for reason in reasons)
    assert any("20,520,000 bytes" in reason for reason in reasons)


def test_a_file_whose_address_a_project_takes_keeps_its_skill_out(
    library: Library, skill: Skill, person: Caller
) -> None:
    skill("acme")
    skill("acme/pdf")
    edit.update_resource(
        library, person, Ref.parse("acme"), "x", files={"pdf/SKILL.md": "---\nname: pdf\n---\n"}
    )
    release.publish(library, person, "all")
    (step,) = release.channel_status(library).left_out
    assert "is taken by" in step.left_out[0] and "project acme" in step.left_out[0]
    assert [str(held.ref) for held in HostCatalog(library.store).skills(["acme", "user"])] == [
        "skill:acme",
        "skill:acme/pdf",
    ]


def test_what_an_agent_makes_takes_no_address_from_a_skill_that_hosts_see(
    library: Library, skill: Skill, person: Caller, agent: Caller
) -> None:
    skill("acme")
    edit.update_resource(library, person, Ref.parse("acme"), "x", files={"pdf/run.sh": "good\n"})
    release.publish(library, person, "all")
    skill("acme/pdf")
    edit.update_resource(library, agent, Ref.parse("acme/pdf"), "x", files={"run.sh": "evil\n"})
    release.publish(library, person, "all")

    for uri in ("skill://acme/pdf/run.sh", "skill://version.2/acme/pdf/run.sh"):
        assert str(resolve(library.store, uri).head.ref) == "skill:acme"
    (step,) = release.channel_status(library).left_out
    (reason,) = step.left_out
    assert step.ref == "skill:acme/pdf"
    assert "is taken by" in reason and reason.endswith(" skill:acme")
