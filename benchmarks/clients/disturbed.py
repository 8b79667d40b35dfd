"""What disturbs automatic reviews in Claude Code and Codex: nothing is lost, and nothing is done
twice.

Each session has a place of its own: a correction ends it, something is in the way, and once that is
over the next session of the same client has the lesson made. The plugin's hooks do all of it; the
model is scripted.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

from automatic import answer, half_an_hour_passes, review_state
from claude import IN_PLUGIN, Claude
from codex import SERVER as CODEX_SERVER
from codex import Codex
from model import Model
from place import PLUGIN, Place, wait_for
from reviewing import (
    TALK,
    Conversation,
    candidates,
    evolvable,
    is_worker,
    on_path,
    with_claude,
    with_codex,
)
from talks import Check

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from library_trouble import held

SECONDS = 400
"""How long a review may take on a busy machine; a client asks a model that is out of reach again
for minutes.
"""


class Answers:
    """Answers the questions of reviews.

    down: hang up instead. hold: wait until `go` before the first answer.
    """

    def __init__(self) -> None:
        self.down, self.hold = False, False
        self.asked, self.go = threading.Event(), threading.Event()

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        self.asked.set()
        if self.hold:
            self.hold = False
            self.go.wait(SECONDS)
        if self.down:
            raise ConnectionResetError("the model is out of reach")
        return candidates(data)


class Window:
    """A client with automatic reviews in a place, and the model that answers both."""

    def __init__(
        self, place: Place, model: Model, reviewer: Answers, say: Callable[[str, str | None], str]
    ) -> None:
        self.place, self.model, self.reviewer, self.say = place, model, reviewer, say

    def correct(self) -> str:
        """Hold a session that ends with a correction, and return its id."""
        session = self.say(TALK[0], None)
        self.say(TALK[1], session)
        return session

    @property
    def workers(self) -> list[int]:
        """The processes of reviews."""
        found = Path("/proc").glob("[0-9]*/cmdline")
        return [int(path.parent.name) for path in found if is_worker(path, self.place)]

    def rests(self) -> None:
        """Return when no process of reviews is left. Raises TimeoutError."""
        wait_for(lambda: not self.workers, "a worker stays", SECONDS)

    def lesson(self, session: str, asked: int) -> Iterator[Check]:
        """Yield whether the one lesson of a session waits after so many questions, and nothing else
        does.
        """
        try:
            wait_for(lambda: evolvable(self.place, "inbox")["proposals"], "no lesson came", SECONDS)
        except TimeoutError:
            yield "the lesson waits", False, review_state(self.place, self.model)
            return
        self.rests()
        waiting = [one["session"] for one in evolvable(self.place, "inbox")["proposals"]]
        yield "one lesson waits, of that session", waiting == [session], str(waiting)
        about = [str(data["session"]) for data in self.model.reviewed]
        yield (
            f"the reviewer was asked {asked} times, about that session",
            about == [session] * asked,
            str(about),
        )
        left = [one["session_id"] for one in self.place.queued()]
        yield "it waits in the queue no more", session not in left, str(left)


def two_windows(window: Window) -> Iterator[Check]:
    """Two sessions with a correction end at once."""
    sessions = [window.say(TALK[0], None) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda session: window.say(TALK[1], session), sessions))
    wait_for(
        lambda: len(window.model.reviewed) >= 2, review_state(window.place, window.model), SECONDS
    )
    window.rests()
    about = sorted(str(data["session"]) for data in window.model.reviewed)
    yield "the reviewer was asked once about each", about == sorted(sessions), str(about)
    waiting = evolvable(window.place, "inbox")["proposals"]
    yield "the lesson that both teach waits once", len(waiting) == 1, str(waiting)
    yield "nothing is left in the queue", window.place.queued() == [], str(window.place.queued())


def killed(window: Window) -> Iterator[Check]:
    """The process of reviews is killed while its client answers."""
    window.reviewer.hold = True
    session = window.correct()
    yield (
        "the reviewer is asked",
        window.reviewer.asked.wait(SECONDS),
        review_state(window.place, window.model),
    )
    for worker in window.workers:
        os.killpg(worker, signal.SIGKILL)
    window.rests()
    window.reviewer.go.set()
    yield "no lesson was made", evolvable(window.place, "inbox")["proposals"] == [], ""
    window.say("Hello.", None)
    yield from window.lesson(session, asked=2)


def no_network(window: Window) -> Iterator[Check]:
    """The model hangs up on the review, and answers the next one."""
    window.reviewer.down = True
    session = window.correct()
    failed = {"session_id": session, "tries": "1"}
    wait_for(lambda: _has(window.place, failed), review_state(window.place, window.model), SECONDS)
    window.rests()
    yield (
        "no lesson was made, and the session waits",
        evolvable(window.place, "inbox")["proposals"] == [],
        "",
    )
    window.reviewer.down = False
    window.model.reviewed.clear()
    half_an_hour_passes(window.place)
    window.say("Hello.", None)
    yield from window.lesson(session, asked=1)


def no_budget(window: Window) -> Iterator[Check]:
    """The budget of the day is too small for a question, and is raised."""
    evolvable(window.place, "review", "auto", "on", "--budget", "tokens=100")
    session = window.correct()
    window.rests()
    waits = _has(window.place, {"session_id": session}) and not _has(window.place, {"tries": "1"})
    yield (
        "the session waits, and nobody was asked",
        waits and not window.model.reviewed,
        str(window.place.queued()),
    )
    evolvable(window.place, "review", "auto", "on", "--budget", "tokens=300000")
    window.say("Hello.", None)
    yield from window.lesson(session, asked=1)


def busy(window: Window) -> Iterator[Check]:
    """Another process writes the library while the session ends."""
    session = window.say(TALK[0], None)
    window.rests()
    with held(window.place.library / "library.db"):
        window.say(TALK[1], session)
        window.rests()
        waits = _has(window.place, {"session_id": session})
        yield (
            "the session waits, and nobody was asked",
            waits and not window.model.reviewed,
            str(window.place.queued()),
        )
    window.say("Hello.", None)
    yield from window.lesson(session, asked=1)


def _has(place: Place, said: Mapping[str, str]) -> bool:
    """Return whether an entry of the queue says this."""
    return any(said.items() <= entry.items() for entry in place.queued())


Disturbance = Callable[[Window], Iterator[Check]]

DISTURBANCES: Mapping[str, Disturbance] = {
    "two windows at once": two_windows,
    "killed": killed,
    "no network": no_network,
    "no budget": no_budget,
    "a busy library": busy,
}


@contextmanager
def _claude(binary: Path, place: Place, model: Model) -> Iterator[Conversation]:
    client = Claude(binary, place, model, PATH=on_path(place, binary, "claude"))
    place.address(model.url)
    yield with_claude(client, "--plugin-dir", str(PLUGIN))


@contextmanager
def _codex(binary: Path, place: Place, model: Model) -> Iterator[Conversation]:
    codex = Codex(binary, place, model)
    codex.run("plugin", "marketplace", "add", str(PLUGIN.parents[1]))
    codex.run("plugin", "add", "evolvable@evolvable")
    yield with_codex(codex, "--dangerously-bypass-hook-trust", PATH=on_path(place, binary, "codex"))


def disturbed(
    binary: Path, place: Place, *, client: Callable[..., Any], server: str, by: Disturbance
) -> Iterator[Check]:
    """Hold the session of one disturbance."""
    reviewer = Answers()
    with (
        Model(repeat(partial(answer, server=server)), reviewer) as model,
        client(binary, place, model) as talk,
    ):
        evolvable(place, "review", "auto", "on")
        yield from by(Window(place, model, reviewer, talk.say))


def sessions_of(name: str) -> dict[str, Callable[[Path, Place], Iterator[Check]]]:
    """Return the sessions of a client, `claude` or `codex`, by their titles."""
    client, server = {"claude": (_claude, IN_PLUGIN), "codex": (_codex, CODEX_SERVER)}[name]
    start = {"claude": "claude -p", "codex": "codex exec"}[name]
    return {
        f"{start}, automatic review, {title}": partial(
            disturbed, client=client, server=server, by=by
        )
        for title, by in DISTURBANCES.items()
    }
