"""Taking changes back (docs/promises.md)."""

import pytest

from evolvable_store.errors import InvalidArgument, NoSuchOperation, NoSuchResource
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import ApprovalLevel, Caller
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit as resources
from evolvable_tools.verbs import load
from evolvable_tools.verbs.versions import undo

PDF, CSV = Ref.parse("pdf"), Ref.parse("csv")


def edit(library, caller, ref, old, new):
    return resources.update_resource(
        library, caller, ref, f"{old} to {new}", edits=[TextEdit("SKILL.md", old, new)]
    )


def test_an_operation_is_taken_back_by_a_new_one(library, agent, person, skill):
    skill("pdf")
    done = edit(library, agent, PDF, "one", "ONE")

    undone = undo(library, person, "not better", operation=done.operation)

    assert (undone.undid, undone.restored, undone.conflicts) == (
        [done.operation],
        ["skill:pdf@3"],
        [],
    )
    assert (
        load.get_resource(library, person, PDF).text
        == load.get_resource(library, person, PDF, version=1).text
    )
    assert library.store.operation(undone.operation).intent.undoes == (done.operation,)


def test_an_undo_can_be_undone(library, agent, person, skill):
    skill("pdf")
    done = edit(library, agent, PDF, "one", "ONE")
    back = undo(library, person, "not better", operation=done.operation)

    undo(library, person, "it was", operation=back.operation)

    assert "ONE" in load.get_resource(library, person, PDF).text


def test_a_creation_is_undone_by_removal_and_a_removal_by_return(library, agent, person, skill):
    skill("pdf")
    created = library.store.operations(1)[0].id
    undone = undo(library, person, "x", operation=created)
    assert undone.restored == ["skill:pdf removed"]
    with pytest.raises(NoSuchResource):
        load.get_resource(library, person, PDF)

    back = undo(library, person, "y", operation=undone.operation)

    assert back.restored == ["skill:pdf@1"]


def test_all_of_a_session_is_taken_back_across_resources_in_one_operation(
    library, agent, person, skill
):
    skill("pdf")
    skill("csv")
    edit(library, agent, PDF, "one", "ONE")
    edit(library, agent, CSV, "one", "ONE")
    edit(library, agent, PDF, "two", "TWO")
    skill("made-by-agent", caller=agent)
    edit(library, Caller(Actor.AGENT, "another"), CSV, "ONE", "One")

    undone = undo(library, person, "that session was confused", session="session-1")

    assert undone.restored == ["skill:pdf@4", "skill:made-by-agent removed"]
    assert [conflict.ref for conflict in undone.conflicts] == ["skill:csv"]
    assert "changed it since" in undone.conflicts[0].reason
    assert (
        load.get_resource(library, person, PDF).text
        == load.get_resource(library, person, PDF, version=1).text
    )
    assert "One" in load.get_resource(library, person, CSV).text


def test_what_changed_since_beside_the_same_lines_is_left_alone_and_named(
    library, agent, person, skill
):
    skill("pdf")
    done = edit(library, agent, PDF, "one", "ONE")
    later = edit(library, person, PDF, "two", "TWO")

    undone = undo(library, person, "x", operation=done.operation)

    assert (undone.operation, undone.restored) == (None, [])
    assert f"operation {later.operation} changed it since" in undone.conflicts[0].reason
    assert load.get_resource(library, person, PDF).version == 3


def test_an_agent_cannot_undo_into_what_a_person_froze(library, agent, person, skill):
    library.level = ApprovalLevel.OFF
    skill("pdf", metadata='metadata:\n  evolvable: "false"\n')
    done = edit(library, person, PDF, "one", "ONE")

    undone = undo(library, agent, "x", operation=done.operation)

    assert "frozen" in undone.conflicts[0].reason


def test_either_an_operation_or_a_session_is_named_and_must_exist(library, person):
    with pytest.raises(InvalidArgument):
        undo(library, person, "x")
    with pytest.raises(InvalidArgument):
        undo(library, person, "x", operation=1, session="s")
    with pytest.raises(NoSuchOperation):
        undo(library, person, "x", operation=1)
    with pytest.raises(NoSuchOperation):
        undo(library, person, "x", session="s")


def test_a_creation_that_was_removed_since_needs_no_undo(library, agent, person, skill):
    library.level = ApprovalLevel.OFF
    skill("pdf")
    created = library.store.operations(1)[0].id
    resources.remove_resource(library, agent, PDF, "not needed")

    undone = undo(library, person, "x", operation=created)

    assert "removed already" in undone.conflicts[0].reason
    assert "or remove it" not in undone.conflicts[0].reason
