"""Working the queue that hooks fill: one process at a time, each session once, none lost when it is killed."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from evolvable_store.errors import EvolvableError
from evolvable_store.review_queue import (
    QueuedSession,
    finish_session,
    give_back,
    reclaim,
    take_session,
    waiting_sessions,
)
from evolvable_tools.collecting import held_back
from evolvable_tools.evidence.taking import record_uses
from evolvable_tools.library import Caller, Library
from evolvable_tools.providers.thinker import ProviderError
from evolvable_tools.review.budgets import OverBudget
from evolvable_tools.review.results import Reviewed
from evolvable_tools.review.reviewing import review_read
from evolvable_tools.review.settings import ReviewSettings
from evolvable_tools.sessions.reading import read_session
from evolvable_tools.sessions.session import Session

SHORTEST = timedelta(minutes=1)
"""A session that took less is not reviewed unless somebody asks for it."""

FEWEST_TURNS = 2


def work_queue(
    library: Library, caller: Caller, settings: ReviewSettings, home: Path, limit: int = 50
) -> Iterator[Reviewed]:
    """Reviews the sessions that wait, the oldest first, and yields what became of each.

    One that cannot be thought about now (no budget, no answer) waits again, and no further one is tried. Nothing
    happens while another process works the queue.
    """
    if not settings.on or not (home / "reviews").is_dir():
        return
    from filelock import FileLock, Timeout

    try:
        with FileLock(home / "reviews" / "working.lock", timeout=0, mode=0o600):
            reclaim(home, 0)  # whoever took it had this lock, and is gone
            for _ in range(min(limit, len(waiting_sessions(home)))):
                entry = take_session(home)
                if entry is None:
                    return
                try:
                    yield _reviewed(library, caller, settings, entry)
                except (ProviderError, OverBudget) as error:
                    give_back(home, entry)
                    yield Reviewed(None, entry.session, "waits", error.text)
                    return
                except EvolvableError as error:
                    finish_session(entry)  # what is no transcript will not become one
                    yield Reviewed(None, entry.session, "done", error.text)
                except BaseException:
                    with contextlib.suppress(OSError):
                        give_back(home, entry)
                    raise
                else:
                    finish_session(entry)
    except Timeout:
        return


def _reviewed(library: Library, caller: Caller, settings: ReviewSettings, entry: QueuedSession) -> Reviewed:
    with held_back():
        session = read_session(Path(entry.transcript), redactor=settings.redactor)
        record_uses(library, session, home=settings.home)
    why = too_small(session)
    if why:
        return Reviewed(None, entry.session, "done", why)
    return review_read(library, caller, settings, session, "auto")


def too_small(session: Session) -> str:
    """Returns why a session is not worth a review of its own, '' when it is."""
    if session.turns < FEWEST_TURNS:
        return f"It has fewer than {FEWEST_TURNS} messages of a person."
    times = [span.at for span in session.spans if span.at is not None]
    if times and max(times) - min(times) < SHORTEST:
        return "It took less than a minute."
    return ""
