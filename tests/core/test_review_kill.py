"""kill -9 of real processes that review: whatever stage it hits, the review goes on and nothing is
doubled.
"""

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from labelled_sessions import Labelled, labelled
from model_api import HANGS, ModelApi, says
from processes import poll
from samples import teach

from evolvable_store.review_queue import enqueue
from evolvable_store.storage.proposals import ReviewState
from evolvable_store.store import Store

pytestmark = pytest.mark.process

SESSION = next(one for one in labelled() if one.name == "alembic")
SAID = "We always generate migrations with alembic revision"


def candidates() -> list[dict[str, Any]]:
    """One edit, and long prompts beside it, so that judging them takes a while."""
    evidence = [{"span": "s5", "quote": SAID}]
    edit = {"op": "text", "old": "By hand.", "new": "With alembic revision."}
    first = {
        "kind": "skill-edit",
        "target": "skill:db-migrations",
        "claim": "Migrations are generated.",
        "edits": [edit],
    }
    body = "\n".join(
        f"Step {n}: look at migration {n * 7} that alembic made, and at what it changes."
        for n in range(700)
    )
    more = [
        {
            "kind": "prompt",
            "name": f"migrate-{n}",
            "claim": f"Migration {n} is generated.",
            "files": [
                {
                    "path": "PROMPT.md",
                    "text": f"---\nname: migrate-{n}\ndescription: Part {n}.\n---\n\n{n}\n{body}\n",
                }
            ],
        }
        for n in range(7)
    ]
    return [{**one, "evidence": evidence} for one in (first, *more)]


ANSWER = says(json.dumps({"candidates": candidates()}))


class Place:
    """A library, a session to review, and a process that reviews it through an API that answers by
    a script.
    """

    def __init__(self, root: Path) -> None:
        self.evolvable = CommandLine(root)
        with Store.open(self.evolvable.home, create=True) as store:
            teach(store, "db-migrations", "Write database migrations.", body="By hand.")
        self.transcript = SESSION.write(self.evolvable.project)
        self.store = Store.open(self.evolvable.home)

    def settings(self, api: ModelApi) -> dict[str, str]:
        self.evolvable.configure(
            f'[models]\nanthropic = "{api.url}"\n[roles]\nreviewer = "anthropic"\n'
        )
        return {"ANTHROPIC_API_KEY": "sk-ant-test"}

    @contextmanager
    def reviewing(self, api: ModelApi, *words: object) -> Iterator["subprocess.Popen[str]"]:
        """Yields a process that reviews, and kills it with SIGKILL at the end."""
        process = self.evolvable.start(
            "review", *words, env={**self.evolvable.environment, **self.settings(api)}
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=30)

    def state(self) -> ReviewState | None:
        """Returns how far the only review has come."""
        reviews = self.store.backend.reviews.newest(5)
        assert len(reviews) <= 1
        return reviews[0].state if reviews else None

    def goes_on(self, api: ModelApi, *words: object) -> None:
        """Reviews to the end, twice, and fails if anything is doubled or missing."""
        self.evolvable("review", *words, **self.settings(api))
        done = self.evolvable("review", self.transcript, "--json", **self.settings(api)).json
        waiting = self.store.backend.proposals.waiting()
        episodes = self.store.backend.reviews.episodes(
            keys(self.store), besides="nobody", limit=500
        )
        assert [one["proposal_id"] for one in done["proposals"]] == [one.id for one in waiting]
        assert len({str(one.ref) for one in waiting}) == len(waiting) == 8, done["refused"]
        assert len({(one.turn, one.key) for one in episodes}) == len(episodes) > 0
        assert self.state() is ReviewState.DONE
        assert not list((self.evolvable.home / "reviews").rglob("*.json"))


def keys(store: Store) -> list[str]:
    with store.backend.reading() as db:
        return [row[0] for row in db.execute("SELECT DISTINCT key FROM episode").fetchall()]


def opened(process: "subprocess.Popen[str]", path: Path) -> bool:
    """Returns whether a process has a file open."""
    folder = Path(f"/proc/{process.pid}/fd")
    try:
        return any(os.readlink(link) == str(path) for link in folder.iterdir())
    except OSError:
        return False


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path.resolve())
    yield made
    made.store.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at open files in /proc")
def test_killed_before_anything_is_kept_it_starts_over(place: Place) -> None:
    database = place.evolvable.home / "library.db"
    with ModelApi(ANSWER) as api:
        # Nobody else can keep anything while this one may.
        with place.store.backend.writing(), place.reviewing(api, place.transcript) as process:
            poll(lambda: opened(process, database), "the library to be opened")
        assert (place.state(), api.asked) == (None, [])
        place.goes_on(api, place.transcript)
        assert len(api.asked) == 1


def test_killed_while_somebody_thinks_the_queue_asks_again_and_counts_both(place: Place) -> None:
    session = {"session_id": SESSION.session_id, "transcript_path": str(place.transcript)}
    assert enqueue(str(place.evolvable.home), session)
    with ModelApi(HANGS, ANSWER) as api:
        with place.reviewing(api, "--queue"):
            poll(lambda: api.asked, "the model to be asked")
        assert place.state() is ReviewState.BEGUN
        place.goes_on(api, "--queue")
        assert len(api.asked) == 2
    assert place.store.backend.reviews.spending_of(place.store.now()[:10]).calls == 2


def test_killed_once_the_answer_is_kept_it_is_not_asked_for_again(place: Place) -> None:
    with ModelApi(ANSWER) as api:
        with place.reviewing(api, place.transcript):
            poll(lambda: place.state() is ReviewState.ANSWERED, "the answer to be kept")
        assert place.state() is ReviewState.ANSWERED
        place.goes_on(api, place.transcript)
        assert len(api.asked) == 1


@pytest.mark.nightly
def test_killed_at_any_moment_it_goes_on(tmp_path: Path) -> None:
    """Eighty reviews of eighty sessions in one library, each killed after another while and then
    finished.
    """
    place = Place(tmp_path.resolve())
    rng = random.Random(11)
    hit: dict[str, int] = {}
    for number in range(80):
        one = Labelled(f"number-{number}", SESSION.events, frozenset())
        transcript = one.write(place.evolvable.project)
        name = {
            "kind": "prompt",
            "name": f"prompt-{number}",
            "claim": f"Migration {number} is generated.",
        }
        text = (
            f"---\nname: prompt-{number}\ndescription: Part {number}.\n---\n\n"
            f"Use alembic, migration {number}.\n"
        )
        candidate = {
            **name,
            "files": [{"path": "PROMPT.md", "text": text}],
            "evidence": [{"span": "s5", "quote": SAID}],
        }
        answer = says(json.dumps({"candidates": [candidate]}))
        with ModelApi(answer, answer) as api:
            budget = {"EVOLVABLE_REVIEW_BUDGET": "calls=1000,tokens=100000000"}
            settings = {**place.evolvable.environment, **place.settings(api), **budget}
            process = place.evolvable.start("review", transcript, env=settings)
            if number % 2:  # the second half of a review is over soon
                poll(lambda api=api: api.asked, "the model to be asked")
            time.sleep(rng.uniform(0, 0.2 if number % 2 else 2.5))
            process.kill()
            process.communicate(timeout=30)
            found = place.store.backend.reviews.of(one.session_id)
            state = str(found[0].state) if found else "nothing"
            hit[state] = hit.get(state, 0) + 1
            asked = len(api.asked)
            done = place.evolvable(
                "review", transcript, "--json", **{**place.settings(api), **budget}
            ).json
            assert len(done["proposals"]) == 1, (state, done)
            assert len(api.asked) == asked + (state in ("nothing", "begun"))
    assert len(place.store.backend.proposals.waiting(500)) == 80
    assert len(place.store.backend.reviews.newest(500)) == 80
    place.store.close()
    print(hit)
