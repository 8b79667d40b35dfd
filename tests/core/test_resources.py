"""The verbs that change one resource."""

import pytest

from evolvable_store.errors import (
    AlreadyExists,
    EditConflict,
    Frozen,
    InvalidArgument,
    InvalidPath,
    InvalidResource,
    NoSuchFile,
    NoSuchResource,
    NoSuchVersion,
    VersionConflict,
)
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import ApprovalLevel
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit as resources
from evolvable_tools.verbs import load

PDF = Ref.parse("pdf")


def test_an_edit_makes_a_version_and_says_what_changed(library, agent, skill):
    skill("pdf")

    done = resources.update_resource(
        library, agent, PDF, "clearer", edits=[TextEdit("SKILL.md", "two", "second")]
    )

    assert (done.ref, done.version, done.previous_version, done.changed) == (
        "skill:pdf",
        2,
        1,
        ["SKILL.md"],
    )
    assert "second" in load.get_resource(library, agent, PDF).text
    operation = library.store.operation(done.operation)
    assert (operation.actor, operation.reason, operation.session) == (
        Actor.AGENT,
        "clearer",
        "session-1",
    )


def test_files_are_added_replaced_and_deleted_beside_the_rest(library, agent, skill):
    skill("pdf")
    resources.update_resource(
        library, agent, PDF, "more", files={"references/a.md": "A", "references/b.md": "B"}
    )

    done = resources.update_resource(
        library, agent, PDF, "less", files={"references/a.md": None, "references/b.md": "B2"}
    )

    assert done.changed == ["references/a.md", "references/b.md"]
    assert sorted(load.get_resource(library, agent, PDF).files) == ["SKILL.md", "references/b.md"]


def test_equal_content_succeeds_and_makes_no_version(library, agent, skill):
    skill("pdf")
    text = load.get_resource(library, agent, PDF).text

    done = resources.update_resource(library, agent, PDF, "again", files={"SKILL.md": text})

    assert (done.version, done.operation, done.changed) == (1, None, [])


def test_a_stale_expected_version_is_a_conflict_that_names_both(library, agent, skill):
    skill("pdf")
    resources.update_resource(library, agent, PDF, "a", edits=[TextEdit("SKILL.md", "one", "ONE")])

    with pytest.raises(VersionConflict, match=r"version 1\b.*version 2\b") as conflict:
        resources.update_resource(
            library, agent, PDF, "b", edits=[TextEdit("SKILL.md", "two", "TWO")], expected_version=1
        )
    assert (conflict.value.expected, conflict.value.head) == (1, 2)


@pytest.fixture
def others(library, monkeypatch):
    """Return a list of numbers: for each, another change comes first, as long as there are any."""
    real, left = library.store.transaction, list[int]()

    def somebody_is_faster(*arguments, **more):
        if left:
            number = left.pop()
            files = library.store.files(library.store.head(PDF))
            with real(Actor.HUMAN, "in between") as tx:
                tx.put(PDF, {**files, f"{number}.md": File(b"theirs")})
        return real(*arguments, **more)

    monkeypatch.setattr(library.store, "transaction", somebody_is_faster)
    monkeypatch.setattr(resources, "_LONGEST_PAUSE", 0.0)
    return left


@pytest.mark.parametrize("count", [1, 40])
def test_without_expected_version_an_edit_is_applied_to_whatever_the_head_is_by_then(
    library, agent, skill, others, count
):
    skill("pdf")
    others += range(count)

    done = resources.update_resource(
        library, agent, PDF, "mine", edits=[TextEdit("SKILL.md", "one", "ONE")]
    )

    assert done.version == count + 2
    assert "ONE" in load.get_resource(library, agent, PDF).text
    assert len(library.store.files(library.store.head(PDF))) == count + 1


def test_an_edit_that_others_are_faster_than_for_long_is_refused_with_the_versions(
    library, agent, skill, others, monkeypatch
):
    skill("pdf")
    monkeypatch.setattr(resources, "RETRY_SECONDS", 0.0)
    others += range(2)

    with pytest.raises(VersionConflict, match=r"version 1\b.*version 2\b") as conflict:
        resources.update_resource(
            library, agent, PDF, "mine", edits=[TextEdit("SKILL.md", "one", "ONE")]
        )
    assert (conflict.value.expected, conflict.value.head) == (1, 2)


@pytest.mark.parametrize(
    ("old", "words"), [("nowhere", "is not there"), ("o", "times"), ("", "is not there")]
)
def test_an_edit_whose_old_text_is_not_there_exactly_once_is_refused(
    library, agent, skill, old, words
):
    skill("pdf")

    with pytest.raises(EditConflict, match=words):
        resources.update_resource(
            library, agent, PDF, "x", edits=[TextEdit("SKILL.md", old, "new")]
        )


def test_an_edit_matches_across_line_ends(library, agent, skill):
    """Clients write \\n, whatever the file has; the file keeps its own line ends."""
    skill("pdf")
    resources.update_resource(
        library, agent, PDF, "from Windows", files={"a.md": "one\r\ntwo\r\nthree\r\n"}
    )

    resources.update_resource(
        library, agent, PDF, "x", edits=[TextEdit("a.md", "one\ntwo", "one\nnew\ntwo")]
    )

    head = library.store.head(PDF)
    assert library.store.file(head, "a.md").data == b"one\r\nnew\r\ntwo\r\nthree\r\n"
    with pytest.raises(EditConflict, match="CRLF"):
        resources.update_resource(
            library, agent, PDF, "x", edits=[TextEdit("a.md", "two\nfour", "x")]
        )


def test_a_new_resource_must_have_a_free_name(library, agent, skill):
    skill("pdf")

    with pytest.raises(AlreadyExists):
        resources.update_resource(
            library, agent, PDF, "x", files={"SKILL.md": "---\n"}, create=True
        )


def test_every_problem_of_a_new_resource_is_told_at_once(library, agent):
    with pytest.raises(InvalidResource) as caught:
        resources.update_resource(
            library,
            agent,
            PDF,
            "x",
            files={"SKILL.md": "---\nname: yes\nname: x\n\n", "a.md": "", "A.md": ""},
            create=True,
        )

    assert len(caught.value.problems) >= 2
    assert library.store.heads() == []


def test_an_old_fault_does_not_stop_a_change_that_makes_nothing_worse(library, agent):
    with library.store.transaction(Actor.HUMAN, "taken in from a folder") as tx:
        tx.put(PDF, {"SKILL.md": File(b"no frontmatter\n")})

    assert (
        resources.update_resource(
            library, agent, PDF, "typo", edits=[TextEdit("SKILL.md", "no ", "No ")]
        ).version
        == 2
    )


def test_a_copy_gets_its_own_name(library, agent, skill):
    skill("pdf", "original")

    resources.update_resource(
        library, agent, Ref.parse("pdf-forms"), "split", create=True, copy_of=Ref.parse("pdf@1")
    )

    text = load.get_resource(library, agent, Ref.parse("pdf-forms")).text
    assert text.startswith("---\nname: pdf-forms\n") and "original" in text


def test_a_path_out_of_the_resource_is_refused(library, agent, skill):
    skill("pdf")

    with pytest.raises(InvalidPath):
        resources.update_resource(library, agent, PDF, "x", files={"../evil.md": "x"})
    with pytest.raises(NoSuchFile):
        resources.update_resource(library, agent, PDF, "x", files={"not-there.md": None})


def test_nothing_to_do_and_no_reason_are_refused(library, agent, skill):
    skill("pdf")

    with pytest.raises(InvalidArgument, match="Nothing to change"):
        resources.update_resource(library, agent, PDF, "x")
    with pytest.raises(InvalidArgument, match="reason"):
        resources.update_resource(library, agent, PDF, "  ", files={"a.md": "x"})


def test_a_frozen_skill_is_changed_by_persons_only(library, agent, person, skill):
    library.level = ApprovalLevel.OFF
    skill("pdf", metadata='metadata:\n  evolvable: "false"\n')
    edit = [TextEdit("SKILL.md", "one", "ONE")]

    with pytest.raises(Frozen):
        resources.update_resource(library, agent, PDF, "x", edits=edit)
    with pytest.raises(Frozen):
        resources.remove_resource(library, agent, PDF, "x")

    assert resources.update_resource(library, person, PDF, "x", edits=edit).version == 2


def test_restoring_makes_a_new_version_with_the_old_content(library, agent, skill):
    skill("pdf")
    resources.update_resource(library, agent, PDF, "a", edits=[TextEdit("SKILL.md", "one", "ONE")])

    done = resources.restore_resource(library, agent, PDF, 1, "was better")

    assert (done.version, done.changed) == (3, ["SKILL.md"])
    assert (
        load.get_resource(library, agent, PDF, version=1).text
        == load.get_resource(library, agent, PDF).text
    )
    with pytest.raises(NoSuchVersion, match="no version 9"):
        resources.restore_resource(library, agent, PDF, 9, "x")


def test_a_removed_resource_says_how_to_bring_it_back_and_its_versions_stay(library, agent, skill):
    library.level = ApprovalLevel.OFF
    skill("pdf")
    resources.remove_resource(library, agent, PDF, "unused")

    with pytest.raises(NoSuchResource, match="its 1 versions are kept") as caught:
        load.get_resource(library, agent, PDF)
    assert "restore_resource with version 1" in caught.value.hint
    assert "one" in load.get_resource(library, agent, PDF, version=1).text
    assert resources.restore_resource(library, agent, PDF, 1, "needed").version == 1


def test_a_projects_resource_hides_the_users_of_the_same_name(library, person, skill):
    skill("pdf", "the user's")
    skill("acme/pdf", "the project's")
    from evolvable_tools.caller import Caller

    inside = Caller(Actor.AGENT, None, ("acme", "user"))
    assert "the project's" in load.get_resource(library, inside, PDF).text
    assert "the user's" in load.get_resource(library, person, PDF).text
    assert "the user's" in load.get_resource(library, inside, Ref.parse("user/pdf")).text


def test_a_proposal_changes_nothing_until_a_person_approves_it(library, agent, person, skill):
    from evolvable_tools.verbs import proposal_inbox

    skill("pdf")
    done = resources.update_resource(
        library, agent, PDF, "better", edits=[TextEdit("SKILL.md", "one", "ONE")], propose=True
    )
    assert (done.version, done.operation) == (None, None)
    assert "ONE" not in load.get_resource(library, agent, PDF).text
    (waiting,) = proposal_inbox.list_waiting(library)
    assert (waiting.proposal_id, waiting.ref, waiting.base, waiting.files) == (
        done.proposal_id,
        "skill:pdf",
        1,
        ["SKILL.md"],
    )
    assert "+ONE" in proposal_inbox.show_proposal(library, done.proposal_id).diff

    decided = proposal_inbox.approve_together(library, person, [done.proposal_id], "good")[0]

    assert decided.version == 2
    assert "ONE" in load.get_resource(library, agent, PDF).text
    assert proposal_inbox.list_waiting(library) == []
    with pytest.raises(InvalidArgument, match="approved already"):
        proposal_inbox.reject(library, done.proposal_id, "too late")


def test_a_proposal_is_merged_with_what_happened_since(library, agent, person, skill):
    from evolvable_store.errors import Conflict
    from evolvable_tools.verbs import proposal_inbox

    skill("pdf", "one", "", "two", "", "three")
    first = resources.update_resource(
        library, agent, PDF, "a", edits=[TextEdit("SKILL.md", "one", "ONE")], propose=True
    )
    second = resources.update_resource(
        library, agent, PDF, "b", edits=[TextEdit("SKILL.md", "three", "3")], propose=True
    )
    resources.update_resource(
        library, person, PDF, "c", edits=[TextEdit("SKILL.md", "three", "THREE")]
    )

    proposal_inbox.approve_together(library, person, [first.proposal_id], "fine")[0]

    text = load.get_resource(library, agent, PDF).text
    assert "ONE" in text and "THREE" in text
    with pytest.raises(Conflict, match=r"same places .*proposal \d+: SKILL\.md"):
        proposal_inbox.approve_together(library, person, [second.proposal_id], "fine")[0]
    assert proposal_inbox.reject(library, second.proposal_id, "overtaken").state == "rejected"


def test_the_files_of_a_proposal_are_not_collected(library, agent, skill):
    from evolvable_store.gc import collect
    from evolvable_tools.verbs import proposal_inbox

    skill("pdf")
    done = resources.update_resource(
        library, agent, PDF, "a", files={"b.md": "only proposed"}, propose=True
    )

    collect(library.store)

    assert "only proposed" in proposal_inbox.show_proposal(library, done.proposal_id).diff


def test_what_a_person_has_just_saved_counts_before_an_agents_change(library, agent, tmp_path):
    """Also when they have just frozen it."""
    library.level = ApprovalLevel.OFF
    skills = tmp_path / "skills"
    (skills / "pdf").mkdir(parents=True)
    text = "---\nname: pdf\ndescription: Works with pdf.\n---\n\none\n"
    (skills / "pdf/SKILL.md").write_text(text, encoding="utf-8")
    library.working_copies.add(skills)
    frozen = text.replace("---\n\n", 'metadata:\n  evolvable: "false"\n---\n\n')
    (skills / "pdf/SKILL.md").write_text(frozen, encoding="utf-8")

    with pytest.raises(Frozen):
        resources.update_resource(
            library, agent, PDF, "x", edits=[TextEdit("SKILL.md", "one", "ONE")]
        )

    assert load.get_resource(library, agent, PDF).text == frozen


def test_a_proposal_can_be_decided_on_once(library, agent, person, skill, monkeypatch):
    from evolvable_tools.verbs import proposal_inbox

    skill("pdf")
    done = resources.update_resource(
        library, agent, PDF, "a", edits=[TextEdit("SKILL.md", "one", "ONE")], propose=True
    )
    real = library.take_in

    def rejected_meanwhile(refs):
        library.store.backend.proposals.reject(done.proposal_id, "no")
        real(refs)

    monkeypatch.setattr(library, "take_in", rejected_meanwhile)
    with pytest.raises(InvalidArgument, match="decided on already"):
        proposal_inbox.approve_together(library, person, [done.proposal_id], "yes")[0]

    assert load.get_resource(library, agent, PDF).version == 1
