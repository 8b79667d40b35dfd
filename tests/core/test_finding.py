"""The verbs that find: for a task, or page by page."""

import pytest

from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit as resources
from evolvable_tools.verbs import load
from evolvable_tools.verbs.search import find_skill, list_resources


def test_a_match_names_its_version_and_how_proven_it_is(library, agent, skill):
    skill("pdf", description="Merge, split and fill PDF forms.")
    loaded = load.load_skill(library, agent, Ref.parse("pdf"))
    load.report_outcome(library, agent, outcome="succeeded", use_id=loaded.use_id)

    found = find_skill(library, agent, "fill a PDF form")

    (match,) = found.matches
    assert (match.ref, match.version, match.maturity, found.verdict) == (
        "skill:pdf",
        1,
        "Growing",
        "sure",
    )
    assert found.search_id.startswith("search-")


@pytest.mark.parametrize("task", ["fill a PDF form", "merge pdf files", "PDF forms"])
def test_a_few_words_find_a_skill_in_a_library_of_two(library, agent, skill, task):
    skill("pdf", description="Merge, split and fill PDF forms.")
    skill("csv", description="Clean and summarise CSV tables.")

    found = find_skill(library, agent, task)

    assert (found.matches[0].ref, found.verdict) == ("skill:pdf", "sure")


@pytest.mark.parametrize(
    "task", ["bake sourdough bread with rye", "clean up my kitchen", "tell me a joke"]
)
def test_a_task_that_no_skill_is_for_is_told_so(library, agent, skill, task):
    skill("pdf", description="Merge, split and fill PDF forms.")
    skill("csv", description="Clean and summarise CSV tables.")

    assert find_skill(library, agent, task).verdict == "none"


def test_ranking_stays_sound_through_many_updates_and_removals(library, agent, person, skill):
    """FTS5 goes on counting rows that were deleted from a table without contents."""
    for name in ("write-a-skill", "review-a-change", "debug-a-test", "plan-a-move", "csv"):
        skill(name, "a text about it", description=f"A guide to {name}.")
    skill("pdf", "a body", description="Merge, split and fill PDF forms.")
    find_skill(library, agent, "anything")
    for number in range(12):
        resources.update_resource(
            library, person, Ref.parse("pdf"), "x", files={"n.md": str(number)}
        )
        edit = [TextEdit("SKILL.md", "a body", f"a body{'!' * number}")] if number == 1 else []
        if edit:
            resources.update_resource(library, person, Ref.parse("pdf"), "x", edits=edit)
        find_skill(library, agent, "anything")
    resources.remove_resource(library, person, Ref.parse("csv"), "x")

    found = find_skill(library, agent, "fill a PDF form")

    assert found.matches[0].ref == "skill:pdf"
    assert all(match.confidence < found.matches[0].confidence for match in found.matches[1:])


def test_other_kinds_are_found_the_same_way(library, agent, person):
    text = "---\nname: reviewer\ndescription: Reviews pull requests.\n---\n\nLook closely.\n"
    resources.update_resource(
        library, person, Ref.parse("agent:reviewer"), "x", files={"AGENT.md": text}, create=True
    )

    assert (
        find_skill(library, agent, "review a pull request", kind=Kind.AGENT).matches[0].ref
        == "agent:reviewer"
    )
    assert find_skill(library, agent, "review a pull request").matches == []


def test_pages_follow_each_other_without_gaps(library, agent, skill):
    for number in range(7):
        skill(f"skill-{number}")
    seen, cursor = [], None
    while True:
        page = list_resources(library, agent, limit=3, cursor=cursor)
        seen += [listed.ref for listed in page.resources]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert seen == [f"skill:skill-{number}" for number in range(7)]


def test_a_list_can_be_narrowed_by_kind_scope_and_words(library, agent, person, skill):
    skill("pdf")
    skill("acme/pdf-forms")
    skill("csv", description="Tables of numbers.")

    assert [r.ref for r in list_resources(library, agent, query="numbers").resources] == [
        "skill:csv"
    ]
    assert [r.ref for r in list_resources(library, agent, scope="acme").resources] == [
        "skill:acme/pdf-forms"
    ]
    assert list_resources(library, agent, kind=Kind.MEMORY).resources == []
    with pytest.raises(InvalidArgument, match="is no cursor"):
        list_resources(library, agent, cursor="nonsense")
