"""Sessions that wait for a review: one entry each, taken once, whoever asks and whatever lies
there.
"""

import json
import os
import threading
from pathlib import Path

import pytest

from evolvable_store import review_queue
from evolvable_store.review_queue import enqueue


def queue(home: Path, session: str, **more: str) -> None:
    assert enqueue(str(home), {"session_id": session, "event": "Stop", **more})


def test_an_entry_says_what_its_client_said(tmp_path: Path) -> None:
    queue(tmp_path, "s1", transcript_path="/t.jsonl", cwd="/p", client="codex")
    (entry,) = review_queue.waiting_sessions(tmp_path)

    assert (entry.session, entry.transcript, entry.cwd, entry.client, entry.event) == (
        *("s1", "/t.jsonl", "/p", "codex", "Stop"),
    )
    assert entry.at.endswith("Z") and len(entry.at) == 20


def test_eight_that_take_at_once_get_every_entry_once(tmp_path: Path) -> None:
    for number in range(40):
        queue(tmp_path, f"s{number}")
    taken: list[str] = []

    def work() -> None:
        while (entry := review_queue.take_session(tmp_path)) is not None:
            taken.append(entry.session)
            review_queue.finish_session(entry)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(taken) == sorted(f"s{number}" for number in range(40))
    assert not list((tmp_path / "reviews/taken").iterdir())


def test_the_entry_of_one_session_can_be_taken(tmp_path: Path) -> None:
    queue(tmp_path, "s1")
    queue(tmp_path, "s2")
    entry = review_queue.take_session(tmp_path, "s2")

    assert entry is not None and entry.session == "s2"
    assert review_queue.take_session(tmp_path, "s2") is None
    assert [entry.session for entry in review_queue.waiting_sessions(tmp_path)] == ["s1"]


def test_what_is_given_back_waits_again_unless_the_session_went_on(tmp_path: Path) -> None:
    queue(tmp_path, "s1", cwd="/old")
    entry = review_queue.take_session(tmp_path)
    assert entry is not None
    review_queue.give_back(tmp_path, entry)
    assert [entry.cwd for entry in review_queue.waiting_sessions(tmp_path)] == ["/old"]

    entry = review_queue.take_session(tmp_path)
    assert entry is not None
    queue(tmp_path, "s1", cwd="/new")
    review_queue.give_back(tmp_path, entry)
    assert [entry.cwd for entry in review_queue.waiting_sessions(tmp_path)] == ["/new"]


def test_what_a_process_took_and_never_finished_comes_back(tmp_path: Path) -> None:
    queue(tmp_path, "s1")
    entry = review_queue.take_session(tmp_path)
    assert entry is not None
    draft = tmp_path / "reviews/queue/s2.json.1-2.new"
    draft.write_text("half", encoding="utf-8")

    assert review_queue.reclaim(tmp_path) == 0
    for path in (entry.place, draft):
        os.utime(path, (1, 1))
    assert review_queue.reclaim(tmp_path) == 1
    assert [entry.session for entry in review_queue.waiting_sessions(tmp_path)] == ["s1"]
    assert not draft.exists()


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b"\xff", b'{"session_id": 3}', b'{"cwd": "/"}']
)
def test_a_broken_entry_is_in_nobodys_way(tmp_path: Path, broken: bytes) -> None:
    queue(tmp_path, "s1")
    (tmp_path / "reviews/queue/a.json").write_bytes(broken)

    assert [entry.session for entry in review_queue.waiting_sessions(tmp_path)] == ["s1"]
    assert (entry := review_queue.take_session(tmp_path)) is not None and entry.session == "s1"
    assert review_queue.take_session(tmp_path) is None


def test_when_nobody_reviews_the_oldest_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolvable_store.review_queue.MAX_WAITING", 3)
    for number in range(5):
        queue(tmp_path, f"s{number}")
        os.utime(tmp_path / f"reviews/queue/s{number}.json", (number, number))

    assert [entry.session for entry in review_queue.waiting_sessions(tmp_path)] == [
        "s2",
        "s3",
        "s4",
    ]


def test_a_place_without_a_library_or_a_session_is_left_as_it_is(tmp_path: Path) -> None:
    assert not enqueue(str(tmp_path / "none"), {"session_id": "s1"})
    assert not enqueue(str(tmp_path), {"event": "Stop"})
    assert (
        review_queue.waiting_sessions(tmp_path / "none") == []
        and review_queue.take_session(tmp_path) is None
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["CON", "nul", "Com1", "lpt9"])
def test_a_session_that_is_called_as_a_device_of_windows_gets_another_file(
    tmp_path: Path, name: str
) -> None:
    queue(tmp_path, name)
    (file,) = (tmp_path / "reviews/queue").iterdir()

    assert file.name.partition(".")[0].casefold() != name.casefold()
    assert (entry := review_queue.take_session(tmp_path, name)) is not None
    review_queue.give_back(tmp_path, entry)
    assert [entry.session for entry in review_queue.waiting_sessions(tmp_path)] == [name]


def test_a_session_may_be_called_anything(tmp_path: Path) -> None:
    names = ["../../etc", "a" * 5_000, "with space", "\ud800", "nul\0", "ünï"]
    for name in names:
        queue(tmp_path, name)

    files = list((tmp_path / "reviews/queue").iterdir())
    assert len(files) == len(names) and all(len(path.name) < 120 for path in files)
    assert {json.loads(path.read_text(encoding="utf-8"))["session_id"] for path in files} >= {
        "../../etc",
        "ünï",
    }
