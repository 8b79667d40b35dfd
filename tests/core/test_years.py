"""What years leave behind becomes coarser, and every count stays."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from samples import skill
from soundness import assert_sound

from evolvable_store.gc import collect
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.audit import Decision
from evolvable_store.storage.evidence import Use
from evolvable_store.storage.folding import FoldedRows
from evolvable_store.storage.observations import Impression, IngestedSession
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store

PDF, CSV = Ref.parse("skill:pdf").within("user"), Ref.parse("skill:csv").within("user")
PERSON = Identity(Principal.PERSON, "terminal")
Put = Callable[..., object]
START = datetime(2026, 1, 1, 9, tzinfo=UTC)


def moment(day: float) -> str:
    return (START + timedelta(days=day)).isoformat(timespec="microseconds")


def fill(store: Store, put: Put, days: int = 200, a_day: int = 7) -> dict[Ref, int]:
    """Writes two skills, and impressions of them on each of so many days."""
    put("pdf", "one")
    put("csv", "two")
    ids = {ref: store.head(ref).id for ref in (PDF, CSV)}
    rows = [
        Impression(f"search-{day}-{number}", identity, 1, moment(day + number / 24), f"s{day}")
        for day in range(days)
        for number in range(a_day)
        for identity in ids.values()
    ]
    store.backend.observations.add_impressions(rows, [])
    return ids


def test_folding_keeps_every_count_of_impressions(store: Store, put: Put) -> None:
    ids = fill(store, put)
    windows = [moment(day) for day in (-1, 110, 150)] + [
        moment(day)[:10] for day in range(0, 200, 9)
    ]
    before = [store.backend.evidence.count_impressions(since) for since in windows]
    assert store.backend.folding.count(moment(110)) == FoldedRows(110 * 7 * 2, 0)
    assert store.backend.folding.fold(moment(110), moment(200)) == FoldedRows(110 * 7 * 2, 0)
    assert [store.backend.evidence.count_impressions(since) for since in windows] == before
    assert set(before[0]) == set(ids.values())
    assert store.backend.maintenance.table_sizes()["shown"] == 90 * 7 * 2
    assert store.backend.maintenance.table_sizes()["shown_day"] == 110 * 2
    assert_sound(store)


def test_folding_twice_adds_to_the_same_day_and_counts_nothing_twice(
    store: Store, put: Put
) -> None:
    ids = fill(store, put, days=10)
    before = store.backend.evidence.count_impressions("")
    for day in (4.1, 4.1, 4.2, 9.15):
        store.backend.folding.fold(moment(day), moment(10))
        assert store.backend.evidence.count_impressions("") == before
    assert before[ids[PDF]].times == 70


def test_uses_and_the_session_that_a_transcript_names_later_stay_as_they_are(
    store: Store, put: Put
) -> None:
    ids = fill(store, put, days=3)
    store.backend.evidence.add_use(Use("use-1", moment(0), ids[PDF], 1, "search-0-0", "s0"))
    attempts = store.backend.evidence.list_attempts()
    store.backend.folding.fold(moment(2), moment(3))
    assert store.backend.evidence.list_attempts() == attempts
    assert store.backend.observations.take(
        IngestedSession("s0", "codex", "d", 9, moment(0), None), [], uses=["use-1"]
    )
    assert store.backend.evidence.count_impressions("")[ids[PDF]].times == 21


def refused(store: Store, day: float, text: bytes, decided: float | None = None) -> int:
    draft = Draft(
        PDF, 1, {**skill("one"), "notes.md": File(text)}, "because", grounds='{"says": "notes"}'
    )
    identity = store.backend.proposals.add(moment(day), Actor.AGENT, None, draft)
    moments = [] if decided is None else [moment(decided)]
    audited = [Decision(at, "reject", f"{PDF} (proposal {identity})", PERSON) for at in moments]
    assert store.backend.proposals.reject(identity, "no", *audited)
    return identity


def test_a_refused_proposal_loses_its_files_and_keeps_hash_ref_and_reason(
    store: Store, put: Put
) -> None:
    put("pdf", "one")
    old, young = refused(store, 0, b"old" * 50), refused(store, 150, b"young")
    waits = store.backend.proposals.add(
        moment(0), Actor.AGENT, None, Draft(PDF, 1, {"SKILL.md": File(b"waits")}, "waits")
    )
    was = store.backend.proposals.get(old)
    assert store.backend.folding.fold(moment(110), moment(200)) == FoldedRows(0, 1)
    assert collect(store).blobs == 1
    now = store.backend.proposals.get(old)
    assert (now.manifest, now.ref, now.reason, now.grounds) == (
        was.manifest,
        was.ref,
        was.reason,
        was.grounds,
    )
    assert now.files_removed_at == moment(200)
    assert store.backend.blob(was.manifest["notes.md"].sha256) is None
    assert store.backend.blob(was.manifest["SKILL.md"].sha256) is not None, "a version has it too"
    for kept in (young, waits):
        manifest = store.backend.proposals.get(kept).manifest
        assert all(store.backend.blob(entry.sha256) is not None for entry in manifest.values())
    assert not store.backend.proposals.reopen(old)
    assert store.backend.proposals.reopen(young)
    assert_sound(store)


@pytest.mark.parametrize(("decided", "removed"), [(109, 1), (111, 0)])
def test_the_decision_says_how_old_a_refusal_is(
    store: Store, put: Put, decided: float, removed: int
) -> None:
    put("pdf", "one")
    refused(store, 0, b"old", decided)
    assert store.backend.folding.fold(moment(110), moment(200)).proposals == removed


def test_the_same_bytes_come_back_with_a_new_proposal(store: Store, put: Put) -> None:
    put("pdf", "one")
    refused(store, 0, b"again")
    store.backend.folding.fold(moment(110), moment(200))
    collect(store)
    again = store.backend.proposals.get(refused(store, 201, b"again"))
    assert store.backend.blob(again.manifest["notes.md"].sha256) is not None
    assert collect(store).blobs == 0
