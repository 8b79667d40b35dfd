"""What an agent proposes again is one proposal; memories follow their policy; secrets in any words are not kept."""

import pytest

from evolvable_store.errors import Refused
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref
from evolvable_store.store import Store
from evolvable_tools import inbox, resources, undo, usage
from evolvable_tools.library import Caller, Library
from evolvable_tools.policies import Level, Policy
from evolvable_tools.sessions.redact import Redactor
from evolvable_tools.sessions.user_patterns import read_patterns

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
    return resources.update(library, caller, ref, f"because of {text}", files={path: text}, **more)


def test_what_an_agent_proposes_again_stays_one_proposal_with_the_last_reason(library):
    ids = {change(library, SKILL + "More.\n", propose=True).proposal_id for _ in range(11)}
    last = resources.update(
        library,
        Caller(Actor.AGENT, "session-2"),
        PDF,
        "the last reason",
        files={"SKILL.md": SKILL + "More.\n"},
        propose=True,
    )
    other = change(library, SKILL + "Other.\n", propose=True).proposal_id
    by_hand = [change(library, SKILL + "More.\n", PERSON, propose=True).proposal_id for _ in range(2)]
    assert ids == {last.proposal_id}
    assert len({*ids, other, *by_hand}) == 4
    shown = inbox.show(library, last.proposal_id)
    assert (shown.times, shown.reason, shown.session) == (12, "the last reason", "session-2")
    inbox.reject(library, last.proposal_id, "no")
    assert change(library, SKILL + "More.\n", propose=True).proposal_id not in ids


def test_a_proposal_on_another_base_is_another_one(library):
    first = resources.remove(library, AGENT, PDF, "old", propose=True)
    change(library, SKILL + "By hand.\n", PERSON)
    second = resources.remove(library, AGENT, PDF, "old", propose=True)
    assert (first.proposal_id, second.proposal_id) == (1, 2)


def test_an_agent_changes_a_memory_as_its_policy_says_and_soul_never(library):
    asked = change(library, "Likes coffee.\n", ref=USER)
    assert (asked.version, asked.proposal_id) == (None, 1)
    assert "a person has to see this first" in asked.warnings[-1]
    assert change(library, "Likes coffee.\n", ref=USER, propose=True).warnings == []
    library.policies = {Kind.MEMORY: Policy.AUTO}
    assert change(library, "Likes coffee.\n", ref=USER).version == 2
    library.policies = {Kind.MEMORY: Policy.OFF}
    for attempt in (
        lambda: change(library, "Likes milk.\n", ref=USER),
        lambda: resources.remove(library, AGENT, USER, "tidy"),
        lambda: resources.restore(library, AGENT, USER, 1, "tidy"),
    ):
        with pytest.raises(Refused, match="Memories are changed by a person alone"):
            attempt()
    library.policies = {Kind.MEMORY: Policy.AUTO}
    with pytest.raises(Refused, match="memory:SOUL is written by a person alone"):
        change(library, "Obey.\n", ref=SOUL, propose=True)
    assert change(library, "Be kinder.\n", PERSON, ref=SOUL).version == 2


def test_an_agents_undo_leaves_memories_to_the_person(library):
    library.level = Level.OFF
    operation = change(library, "Likes milk.\n", PERSON, ref=USER).operation
    soul = change(library, "Be kinder.\n", PERSON, ref=SOUL).operation
    assert (
        "a person decides about memories" in undo.undo(library, AGENT, "back", operation=operation).conflicts[0].reason
    )
    assert "a person alone" in inbox.propose_undo(library, AGENT, "back", operation=soul).conflicts[0].reason
    assert inbox.propose_undo(library, AGENT, "back", operation=operation).proposal_ids == [1]
    library.policies = {Kind.MEMORY: Policy.AUTO}
    assert undo.undo(library, AGENT, "back", operation=operation).restored == ["memory:USER@3"]


def test_no_words_that_an_agent_hands_in_keep_a_secret(library):
    said = f"it said token {TOKEN} of Blue Heron"
    loaded = usage.load(library, AGENT, PDF)
    usage.report_outcome(
        library, AGENT, outcome="failed", use_id=loaded.use_id, evidence=said, task_type=f"Blue Heron {TOKEN}"
    )
    made = resources.update(library, AGENT, PDF, said, files={"a.md": "a\n"})
    proposed = resources.update(library, AGENT, PDF, said, files={"a.md": "b\n"}, propose=True)
    inbox.reject(library, proposed.proposal_id, said)
    undo.undo(library, AGENT, said, operation=made.operation)
    resources.remove(library, AGENT, PDF, said)
    kept = b"".join(path.read_bytes() for path in library.store.home.rglob("*") if path.is_file())
    assert TOKEN.encode() not in kept
    assert b"Blue Heron" not in kept
    assert kept.count(b"[redacted:codename]") >= 6
