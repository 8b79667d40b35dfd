"""The queue of sessions that wait for a review, worked off by one process at a time, each session
once.
"""

import contextlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from filelock import FileLock, Timeout

from evolvable_store import (
    QueuedSession,
    finish_session,
    give_back,
    reclaim,
    take_session,
    waiting_sessions,
)
from evolvable_store.errors import EvolvableError, Invalid, LibraryError, LibraryReadOnly
from evolvable_store.storage import ReviewState
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.llm import ProviderError
from evolvable_tools.review.review_config import OverBudget, ReviewSettings
from evolvable_tools.review.review_results import Reviewed
from evolvable_tools.review.service import ReviewWork
from evolvable_tools.review.session_signals import signals
from evolvable_tools.sessions import Session

SHORTEST = timedelta(minutes=1)
"""A session that took less is reviewed only on request, unless the person corrected it."""

TELLING = frozenset({"correction", "user_statement", "asked_for_skill"})
"""Signals of what a person said: they are worth a review however short the session was."""

# With one message nothing was corrected or accepted, so there is no outcome to learn from.
FEWEST_TURNS = 2

Chooser = Callable[[QueuedSession], tuple[Caller, ReviewSettings] | None]
"""Returns who reviews a session and how, None for one that is left alone."""


def work_queue(
    library: Library,
    caller: Caller,
    settings: ReviewSettings | None,
    home: Path,
    limit: int = 50,
    *,
    choose: Chooser | None = None,
) -> Iterator[Reviewed]:
    """Review the sessions that wait, the oldest first, and yield the result of each.

    A session that cannot be reviewed now (no budget, no answer, a library that cannot be written)
    waits again, and no further one is tried. A failed answer is counted in its entry. One whose
    transcript cannot be read now waits again too, and the next one is tried. Only what will never
    be a transcript is struck off. Nothing happens while another process works the queue. choose:
    for automatic reviews, in place of `settings`: which sessions, and how.
    """
    if (settings is not None and not settings.on) or not (home / "reviews").is_dir():
        return
    try:
        with FileLock(home / "reviews" / "working.lock", timeout=0, mode=0o600):
            reclaim(home, 0)  # the process that took it held this lock, and is gone
            for waiting in waiting_sessions(home)[:limit]:
                how = (caller, settings) if settings is not None else None
                if choose is not None:
                    how = choose(waiting)
                if how is None or (entry := take_session(home, waiting.session)) is None:
                    continue
                result, blocks = _work_entry(ReviewWork(library, *how), home, entry)
                yield result
                if blocks:
                    return
    except Timeout:
        return


def reclaim_abandoned(home: Path) -> int:
    """Give back what a process took from the queue and did not finish, as it was killed, and return
    how many.

    Nothing happens while a process works the queue.
    """
    try:
        if not any((home / "reviews" / "taken").iterdir()):
            return 0
        with FileLock(home / "reviews" / "working.lock", timeout=0, mode=0o600):
            return reclaim(home, 0)
    except (FileNotFoundError, Timeout):
        return 0


def _work_entry(work: ReviewWork, home: Path, entry: QueuedSession) -> tuple[Reviewed, bool]:
    """Review one session that was taken from the queue, and return what became of it, and whether
    the next would wait too.

    Whatever happens, its entry is finished or given back.
    """
    try:
        result = _review_entry(work, entry)
        if result.state == ReviewState.BEGUN and work.settings.reviewer_model is not None:
            raise ProviderError("Two answers of the reviewer could not be used.", result.why)
        finish_session(entry)
        return result, False
    except Invalid as error:
        finish_session(entry)  # what is no transcript will not become one
        return Reviewed(None, entry.session, "done", error.text), False
    except EvolvableError as error:
        give_back(home, entry, error.text if isinstance(error, ProviderError) else "")
        blocks = isinstance(error, ProviderError | OverBudget | LibraryError)
        return Reviewed(None, entry.session, "waits", error.text), blocks
    except OSError as error:
        give_back(home, entry)
        why = f"It cannot be read: {error.strerror}."
        return Reviewed(None, entry.session, "waits", why), False
    # Also for KeyboardInterrupt: the entry would else stay taken until the next process reclaims
    # it.
    except BaseException:
        with contextlib.suppress(OSError):
            give_back(home, entry)
        raise


def _review_entry(work: ReviewWork, entry: QueuedSession) -> Reviewed:
    if work.library.store.read_only:  # nothing of it could be kept
        raise LibraryReadOnly(
            f"{work.library.store.home} cannot be written.", "The review waits until it can."
        )
    session = work.read(Path(entry.transcript))
    why = too_small(session)
    return Reviewed(None, entry.session, "done", why) if why else work.review(session, "auto")


def too_small(session: Session) -> str:
    """Return why a session is not worth a review of its own, '' when it is."""
    if session.turns < FEWEST_TURNS:
        return f"It has fewer than {FEWEST_TURNS} messages of a person."
    times = [span.at for span in session.spans if span.at is not None]
    if not times or max(times) - min(times) >= SHORTEST:
        return ""
    if any(signal.code in TELLING for signal in signals(session)):
        return ""
    return "It took less than a minute, and nobody corrected it."
