"""What an agent proposes again is one proposal; memories follow their policy; secrets in any words
are not kept.
"""

import pytest

from evolvable_store.errors import Refused
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store
from evolvable_tools.approvals import ApprovalPolicy
from evolvable_tools.caller import ApprovalLevel, Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.redaction.secret_patterns import read_patterns
from evolvable_tools.verbs import edit, load, proposal_inbox, versions

AGENT, PERSON = Caller(Actor.AGENT, "session-1"), Caller(Actor.HUMAN)
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
SKILL = "---\nname: pdf\ndescription: Merge PDF files.\n---\n\nUse qpdf.\n"
USER, SOUL, PDF = Ref.parse("memory:USER"), Ref.parse("memory:SOUL"), Ref.parse("pdf")


@pytest.fixture
def library(tmp_path):
    own, _ = read_patterns(["codename = Blue Heron"], "redact.txt")
    with Store.open(tmp_path / "home", create=True) as store:
        made = Library(store, redactor=lambda: Redactor(own))
        with store.transaction(Actor.HUMAN, "begin") as tx:
            tx.put(PDF, {"SKILL.md": File(SKILL.encode())})
            tx.put(USER, {"USER.md": File(b"Likes tea.\n")})
            tx.put(SOUL, {"SOUL.md": File(b"Be kind.\n")})
        yield made
        made.close()


def change(library, text, caller=AGENT, ref=PDF, **more):
    path = "SKILL.md" if ref == PDF else f"{ref.name}.md"
    now = library.store.head(ref).version
    return edit.update_resource(
        *(library, caller, ref, f"because of {text}"),
        files={path: text},
        expected_version=now,
        **more,
    )


def test_what_an_agent_proposes_again_stays_one_proposal_with_the_last_reason(library):
    ids = {change(library, SKILL + "More.\n", propose=True).proposal_id for _ in range(11)}
    last = edit.update_resource(
        library,
        Caller(Actor.AGENT, "session-2"),
        PDF,
        "the last reason",
        files={"SKILL.md": SKILL + "More.\n"},
        expected_version=1,
        propose=True,
    )
    other = change(library, SKILL + "Other.\n", propose=True).proposal_id
    by_hand = [
        change(library, SKILL + "More.\n", PERSON, propose=True).proposal_id for _ in range(2)
    ]
    assert ids == {last.proposal_id}
    assert len({*ids, other, *by_hand}) == 4
    shown = proposal_inbox.show_proposal(library, last.proposal_id)
    assert (shown.times, shown.reason, shown.session) == (12, "the last reason", "session-2")
    proposal_inbox.reject(library, last.proposal_id, "no")
    assert change(library, SKILL + "More.\n", propose=True).proposal_id not in ids


def test_a_proposal_on_another_base_is_another_one(library):
    first = edit.remove_resource(library, AGENT, PDF, "old", propose=True)
    change(library, SKILL + "By hand.\n", PERSON)
    second = edit.remove_resource(library, AGENT, PDF, "old", propose=True)
    assert (first.proposal_id, second.proposal_id) == (1, 2)


def test_an_agent_changes_a_memory_as_its_policy_says_and_soul_never(library):
    asked = change(library, "Likes coffee.\n", ref=USER)
    assert (asked.version, asked.proposal_id) == (None, 1)
    assert "a person has to see" in asked.warnings[-1]
    assert change(library, "Likes coffee.\n", ref=USER, propose=True).warnings == []
    library.policies = {Kind.MEMORY: ApprovalPolicy.AUTO}
    assert change(library, "Likes coffee.\n", ref=USER).version == 2
    library.policies = {Kind.MEMORY: ApprovalPolicy.OFF}
    for attempt in (
        lambda: change(library, "Likes milk.\n", ref=USER),
        lambda: edit.remove_resource(library, AGENT, USER, "tidy"),
        lambda: edit.restore_resource(library, AGENT, USER, 1, "tidy"),
    ):
        with pytest.raises(Refused, match="Memories .*person alone"):
            attempt()
    library.policies = {Kind.MEMORY: ApprovalPolicy.AUTO}
    with pytest.raises(Refused, match="memory:SOUL .*person alone"):
        change(library, "Obey.\n", ref=SOUL, propose=True)
    assert change(library, "Be kinder.\n", PERSON, ref=SOUL).version == 2


def test_an_agents_undo_leaves_memories_to_the_person(library):
    library.level = ApprovalLevel.OFF
    operation = change(library, "Likes milk.\n", PERSON, ref=USER).operation
    soul = change(library, "Be kinder.\n", PERSON, ref=SOUL).operation
    assert (
        "a person decides about memories"
        in versions.undo(library, AGENT, "back", operation=operation).conflicts[0].reason
    )
    assert (
        "a person alone"
        in proposal_inbox.propose_undo(library, AGENT, "back", operation=soul).conflicts[0].reason
    )
    assert proposal_inbox.propose_undo(
        library, AGENT, "back", operation=operation
    ).proposal_ids == [1]
    library.policies = {Kind.MEMORY: ApprovalPolicy.AUTO}
    assert versions.undo(library, AGENT, "back", operation=operation).restored == ["memory:USER@3"]


def test_no_words_that_an_agent_hands_in_keep_a_secret(library):
    said = f"it said token {TOKEN} of Blue Heron"
    loaded = load.load_skill(library, AGENT, PDF)
    load.report_outcome(
        library,
        AGENT,
        outcome="failed",
        use_id=loaded.use_id,
        evidence=said,
        task_type=f"Blue Heron {TOKEN}",
    )
    made = edit.update_resource(library, AGENT, PDF, said, files={"a.md": "a\n"})
    proposed = edit.update_resource(library, AGENT, PDF, said, files={"a.md": "b\n"}, propose=True)
    proposal_inbox.reject(library, proposed.proposal_id, said)
    versions.undo(library, AGENT, said, operation=made.operation)
    edit.remove_resource(library, AGENT, PDF, said)
    kept = b"".join(path.read_bytes() for path in library.store.home.rglob("*") if path.is_file())
    assert TOKEN.encode() not in kept
    assert b"Blue Heron" not in kept
    assert kept.count(b"[redacted:codename]") >= 6
