"""The store against a plain model of it: a dict of lists, changed by the same random steps."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from samples import FROZEN, Clock
from soundness import all_changes, assert_sound, replayed, whole_history

from evolvable_store.errors import (
    AlreadyExists,
    Frozen,
    NoSuchResource,
    NoSuchVersion,
    VersionConflict,
)
from evolvable_store.objects import File, Files
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.transaction import Transaction

REFS = [Ref.parse(text).within("user") for text in ("pdf", "xls", "memory:USER")] + [
    Ref.parse("acme/pdf")
]
TEXTS = st.sampled_from([b"", b"a", b"b", FROZEN.encode(), b"\x00\xff", b"long " * 200])
FILES = st.fixed_dictionaries(
    {"SKILL.md": st.builds(File, TEXTS)},
    optional={
        "scripts/run.sh": st.builds(File, TEXTS, st.sampled_from([0o644, 0o755])),
        "notes.md": st.builds(File, TEXTS),
    },
)
ACTORS = st.sampled_from([Actor.HUMAN, Actor.AGENT])


@dataclass
class Model:
    """One resource: all contents it ever had, and which number is the head (0: none)."""

    contents: list[Files] = field(default_factory=list)
    head: int = 0

    @property
    def frozen(self) -> bool:
        return (
            bool(self.contents)
            and self.contents[-1].get("SKILL.md", File(b"")).data == FROZEN.encode()
        )

    def put(self, files: Files) -> None:
        if not self.contents or self.contents[-1] != files:
            self.contents.append(files)
        self.head = len(self.contents)


class Library(RuleBasedStateMachine):
    """Does every step to a library and to the model, and compares what each then says."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="evolvable-", ignore_cleanup_errors=True)
        self.clock = Clock()
        self.store = self.opened()
        self.model = {ref: Model() for ref in REFS}

    def opened(self) -> Store:
        return Store.open(Path(self.folder.name) / "home", create=True, clock=self.clock)

    def teardown(self) -> None:
        assert_sound(self.store)
        self.store.close()
        self.folder.cleanup()

    def transaction(self, actor: Actor) -> Transaction:
        return self.store.transaction(actor, "step")

    def refusal(self, ref: Ref, actor: Actor) -> type[Exception] | None:
        """Returns what the store must raise when this actor changes this resource."""
        return (
            Frozen
            if ref.kind == "skill" and self.model[ref].frozen and actor is not Actor.HUMAN
            else None
        )

    @initialize()
    def is_empty(self) -> None:
        assert (self.store.heads(), self.store.sequence()) == ([], 0)

    @rule(ref=st.sampled_from(REFS), files=FILES, actor=ACTORS, expects=st.booleans())
    def put(self, ref: Ref, files: Files, actor: Actor, expects: bool) -> None:
        expected = self.model[ref].head if expects else None
        refusal = self.refusal(ref, actor)
        if refusal:
            with pytest.raises(refusal), self.transaction(actor) as tx:
                tx.put(ref, files, expected_version=expected)
            return
        before = self.model[ref].head
        self.model[ref].put(files)
        with self.transaction(actor) as tx:
            tx.put(ref, files, expected_version=expected)
        (written,) = tx.written
        assert (written.version, written.previous or 0) == (self.model[ref].head, before)
        assert written.changed == (before != self.model[ref].head) == (tx.operation is not None)

    @rule(ref=st.sampled_from(REFS), files=FILES, actor=ACTORS, wrong=st.integers(-2, 9))
    def put_on_a_wrong_version(self, ref: Ref, files: Files, actor: Actor, wrong: int) -> None:
        if wrong == self.model[ref].head:
            wrong += 1
        with pytest.raises(VersionConflict) as conflict, self.transaction(actor) as tx:
            tx.put(ref, files, expected_version=wrong)
        assert conflict.value.head == self.model[ref].head

    @rule(ref=st.sampled_from(REFS), files=FILES)
    def create(self, ref: Ref, files: Files) -> None:
        if self.model[ref].head:
            with pytest.raises(AlreadyExists), self.transaction(Actor.HUMAN) as tx:
                tx.put(ref, files, create=True)
        else:
            with self.transaction(Actor.HUMAN) as tx:
                tx.put(ref, files, create=True)
            self.model[ref].put(files)

    @rule(ref=st.sampled_from(REFS), number=st.integers(0, 9), actor=ACTORS)
    def restore(self, ref: Ref, number: int, actor: Actor) -> None:
        model = self.model[ref]
        refusal = self.refusal(ref, actor)
        if not model.contents:
            refusal = NoSuchResource
        elif not refusal and not 1 <= number <= len(model.contents):
            refusal = NoSuchVersion
        if refusal:
            with pytest.raises(refusal), self.transaction(actor) as tx:
                tx.restore(ref, number)
            return
        with self.transaction(actor) as tx:
            tx.restore(ref, number, expected_version=model.head)
        model.put(model.contents[number - 1])
        assert tx.written[0].version == model.head

    @rule(ref=st.sampled_from(REFS), actor=ACTORS)
    def remove(self, ref: Ref, actor: Actor) -> None:
        refusal = self.refusal(ref, actor) or (None if self.model[ref].head else NoSuchResource)
        if refusal:
            with pytest.raises(refusal), self.transaction(actor) as tx:
                tx.remove(ref)
            return
        with self.transaction(actor) as tx:
            tx.remove(ref)
        self.model[ref].head = 0

    @rule(files=FILES, stale=st.booleans())
    def put_all_at_once(self, files: Files, stale: bool) -> None:
        """One operation over all resources; a stale expectation at its end must undo what came
        before.
        """
        if stale:
            with pytest.raises(VersionConflict), self.transaction(Actor.HUMAN) as tx:
                for ref in REFS:
                    tx.put(ref, files)
                tx.put(REFS[0], files, expected_version=99)
            return
        with self.transaction(Actor.HUMAN) as tx:
            for ref in REFS:
                tx.put(ref, files)
        for model in self.model.values():
            model.put(files)

    @rule(ref=st.sampled_from(REFS), number=st.integers(0, 9))
    def read_a_version(self, ref: Ref, number: int) -> None:
        contents = self.model[ref].contents
        head = self.store.head_or_none(ref)
        if head is None:
            assert contents == []
        elif 1 <= number <= len(contents):
            assert self.store.files(head, number) == contents[number - 1]
            assert self.store.file(head, "SKILL.md", number) == contents[number - 1]["SKILL.md"]
        else:
            with pytest.raises(NoSuchVersion):
                self.store.files(head, number)

    @rule(ref=st.sampled_from(REFS))
    def read_a_history(self, ref: Ref) -> None:
        head = self.store.head_or_none(ref)
        if head is not None:
            pasts = whole_history(self.store, head)
            assert [self.store.files(head, past.version.number) for past in pasts] == self.model[
                ref
            ].contents

    @rule()
    def follow_the_log(self) -> None:
        assert replayed(all_changes(self.store)) == {
            ref: model.head for ref, model in self.model.items() if model.head
        }

    @rule(days=st.integers(-4000, 4000))
    def move_the_clock(self, days: int) -> None:
        self.clock.now = Clock().now
        self.clock.move(days=days)

    @precondition(lambda self: self.store.sequence() > 0)
    @rule()
    def close_and_open_again(self) -> None:
        self.store.close()
        self.store = self.opened()

    @invariant()
    def the_heads_are_the_models(self) -> None:
        assert {head.ref: head.version for head in self.store.heads()} == {
            ref: model.head for ref, model in self.model.items() if model.head
        }
        for ref, model in self.model.items():
            if model.head:
                head = self.store.head(ref)
                assert (head.version, head.latest) == (model.head, len(model.contents))
                assert self.store.files(head) == model.contents[-1]


def run(examples: int, steps: int) -> None:
    slow_disk = [HealthCheck.too_slow, HealthCheck.data_too_large]
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=slow_disk,
    )
    run_state_machine_as_test(Library, settings=how)  # type: ignore[no-untyped-call]


@pytest.mark.process
def test_random_steps_lead_the_store_and_a_plain_model_to_the_same_state() -> None:
    run(examples=60, steps=40)


@pytest.mark.nightly
def test_ten_thousand_random_steps_lead_to_the_same_state() -> None:
    run(examples=300, steps=50)
