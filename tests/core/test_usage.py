"""Loading, reading, telling outcomes, and the history of a resource."""

import json
from pathlib import Path

import pytest

from evolvable_store.errors import (
    InvalidArgument,
    NoSuchFile,
    NoSuchResource,
    NoSuchUse,
    NoSuchVersion,
)
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit, load
from evolvable_tools.verbs.versions import resource_history

PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON)
PDF = Ref.parse("pdf")


def test_loading_names_the_version_and_the_other_files_and_counts_a_use(library, agent, skill):
    skill("pdf")
    edit.update_resource(library, agent, PDF, "more", files={"scripts/run.py": "print(1)\n"})

    loaded = load.load_skill(library, agent, PDF)

    assert (loaded.ref, loaded.version, loaded.path) == ("skill:pdf", 2, "SKILL.md")
    assert loaded.files["scripts/run.py"] == 9
    told = load.report_outcome(library, agent, outcome="succeeded", use_id=loaded.use_id)
    assert (told.loaded, told.succeeded, told.success, told.maturity) == (1, 1, 1.0, "Growing")


def test_reading_counts_nothing_and_every_version_stays_readable(library, agent, skill):
    """docs/promises.md."""
    skill("pdf")
    first = load.get_resource(library, agent, PDF).text
    edit.update_resource(library, agent, PDF, "a", edits=[TextEdit("SKILL.md", "one", "ONE")])

    assert load.get_resource(library, agent, Ref.parse("pdf@1")).text == first
    assert load.get_resource(library, agent, PDF, version=1).text == first
    assert library.evidence.tally(library.store.head(PDF).id).loaded == 0


def test_a_file_that_is_not_text_is_said_to_be_so(library, agent, skill):
    skill("pdf")
    with library.store.transaction(Actor.HUMAN, "x") as tx:
        tx.put(
            PDF,
            {**library.store.files(library.store.head(PDF)), "logo.png": File(b"\x89PNG\x00\xff")},
        )

    loaded = load.load_skill(library, agent, PDF, path="logo.png")

    assert (loaded.text, loaded.size) == (None, 6)


def test_what_is_not_there_is_answered_with_what_is(library, agent, skill):
    skill("pdf-reader")

    with pytest.raises(NoSuchResource) as caught:
        load.load_skill(library, agent, Ref.parse("pdf-raeder"))
    assert "Did you mean pdf-reader?" in caught.value.hint
    with pytest.raises(NoSuchFile) as missing:
        load.load_skill(library, agent, Ref.parse("pdf-reader"), path="api.md")
    assert "SKILL.md" in missing.value.hint
    with pytest.raises(NoSuchVersion, match="no version 7"):
        load.load_skill(library, agent, Ref.parse("pdf-reader@7"))


def test_a_name_that_another_scope_has_is_named_with_its_scope(library, agent):
    with library.store.transaction(Actor.HUMAN, "x") as tx:
        tx.put(
            Ref(Kind.SKILL, "deploy", "app"),
            {"SKILL.md": File(b"---\nname: deploy\ndescription: Deploys.\n---\n")},
        )

    with pytest.raises(NoSuchResource) as caught:
        load.load_skill(library, agent, Ref.parse("skill:deploy"))

    assert "Did you mean skill:app/deploy?" in caught.value.hint


def test_a_later_word_about_the_same_use_counts_instead_of_the_earlier(library, agent, skill):
    skill("pdf")
    loaded = load.load_skill(library, agent, PDF)
    load.report_outcome(library, agent, outcome="failed", use_id=loaded.use_id)

    told = load.report_outcome(
        library, agent, outcome="succeeded", use_id=loaded.use_id, usage="used"
    )

    assert (told.succeeded, told.failed) == (1, 0)


def test_an_outcome_needs_a_known_use_or_a_ref_and_known_words(library, agent, skill):
    skill("pdf")

    load.load_skill(library, agent, PDF)
    assert load.report_outcome(library, agent, outcome="partial", ref=PDF).partial == 1
    with pytest.raises(NoSuchUse):
        load.report_outcome(library, agent, outcome="failed", use_id="use-nope")
    with pytest.raises(InvalidArgument, match="is no outcome"):
        load.report_outcome(library, agent, outcome="great", ref=PDF)
    with pytest.raises(InvalidArgument, match="either"):
        load.report_outcome(library, agent, outcome="failed")


def test_the_history_says_when_who_why_and_which_files(library, agent, skill):
    skill("pdf")
    edit.update_resource(library, agent, PDF, "shorter", edits=[TextEdit("SKILL.md", "two\n", "")])
    edit.update_resource(library, agent, PDF, "script", files={"scripts/run.py": "print(1)\n"})

    told = resource_history(library, PERSON, PDF, limit=2)

    assert [(v.version, v.actor, v.reason, v.files) for v in told.versions] == [
        (3, "agent", "script", ["scripts/run.py"]),
        (2, "agent", "shorter", ["SKILL.md"]),
    ]
    assert told.diff is None


def test_the_diff_between_two_versions_is_unified_and_names_them(library, agent, skill):
    skill("pdf")
    edit.update_resource(library, agent, PDF, "shorter", edits=[TextEdit("SKILL.md", "two\n", "")])
    edit.update_resource(library, agent, PDF, "script", files={"scripts/run.py": "print(1)"})

    told = resource_history(library, PERSON, PDF, from_version=1, to_version=3)

    assert "--- SKILL.md@1\n+++ SKILL.md@3\n" in told.diff
    assert "\n-two\n" in told.diff
    assert "--- /dev/null\n+++ scripts/run.py@3\n" in told.diff
    assert told.diff.endswith("+print(1)\n\\ No newline at end of file\n")


def test_only_a_line_feed_ends_a_line_in_a_diff(library, agent, skill):
    """attacks.json unicode-13 and unicode-14: U+2028 and U+0085 must not split lines."""
    skill("pdf", "a\u2028b\u0085c")
    edit.update_resource(
        library, agent, PDF, "x", edits=[TextEdit("SKILL.md", "a\u2028b", "A\u2028b")]
    )

    assert (
        "-a\u2028b\u0085c\n+A\u2028b\u0085c\n"
        in resource_history(library, agent, PDF, from_version=1).diff
    )


@pytest.mark.process
def test_a_long_diff_is_cut_and_says_so(library, agent, skill):
    skill("pdf")
    edit.update_resource(library, agent, PDF, "x", files={"big.md": "line\n" * 20_000})

    text = resource_history(library, PERSON, PDF, from_version=1).diff

    assert len(text) < 50_000
    assert text.endswith(" get_resource.\n")


ATTACKS = json.loads((Path(__file__).parents[1] / "data/attacks.json").read_text(encoding="utf-8"))[
    "cases"
]


@pytest.mark.parametrize(
    "attack",
    [c for c in ATTACKS if c["category"] == "name" and c["expect"] == "reject"],
    ids=lambda c: c["id"],
)
def test_hostile_names_are_refused_by_every_verb_with_a_clear_text(library, agent, attack):
    from evolvable_store.errors import InvalidRef

    with pytest.raises(InvalidRef):
        load.load_skill(library, agent, Ref.parse(f"skill:{attack['input']}"))
