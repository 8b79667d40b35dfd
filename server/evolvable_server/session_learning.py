"""Learn from the transcripts of this person's clients, the existing ones and those of later
sessions.
"""

import logging
from collections.abc import Callable

from filelock import FileLock, Timeout

from evolvable_server.config import Config
from evolvable_server.learning_consent import check_own, consent, transcript_places
from evolvable_server.model_setup import Redaction
from evolvable_store.errors import EvolvableError, LibraryBusy, Refused
from evolvable_tools import Library, count
from evolvable_tools.outcomes import PastSessions, count_transcripts, learn_from_past

# The lock guards the transcripts: two processes would learn one session twice.
_LOCK = "learning.lock"

log = logging.getLogger(__name__)


def count_sessions(config: Config) -> int:
    """Return how many transcripts the clients of this person have written.

    None of them is opened.
    """
    return count_transcripts(transcript_places(config).folders)


def learn_past_sessions(
    config: Config,
    library: Library,
    progress: Callable[[int, int], None] = lambda done, of: None,
    stop: Callable[[], bool] = lambda: False,
) -> PastSessions:
    """Store the tasks that the transcripts of this person's clients teach.

    Raise Refused without consent, and LibraryBusy.
    """
    check_own(config.home)
    if not consent(config.home):
        raise Refused(
            "Nobody allowed this library to learn from past sessions.",
            "A person at a terminal does: evolvable learn tasks --from-sessions",
        )
    places = transcript_places(config)
    try:
        # Without a wait: the process that holds the lock does the work already.
        with FileLock(config.home / _LOCK, timeout=0, mode=0o600):
            return learn_from_past(
                library,
                places.folders,
                redactor=Redaction(config.home).redactor(),
                home=places.user,
                progress=progress,
                stop=stop,
            )
    except Timeout:
        raise LibraryBusy(
            "Another process reads the sessions now.", "Try again in a moment."
        ) from None


def describe_past_sessions(done: PastSessions) -> list[str]:
    """Return lines about the result of a run over past sessions."""
    if not done.found:
        return ["No client wrote a session here."]
    learned = f"{count(done.learned, 'task')} learned"
    lines = [f"Read {done.read:,} of {count(done.found, 'session')}: {learned}."]
    if done.unreadable:
        lines.append(
            f"Left out: {count(done.unreadable, 'file')} that are links, too large, or no "
            "transcripts."
        )
    if done.learned:
        lines.append("List, correct and remove them: evolvable learn tasks")
    return lines


def learn_ended_sessions(config: Config, library: Library, stop: Callable[[], bool]) -> None:
    """Store the tasks of sessions that ended since the last run, where the person allows it.

    Raise nothing.
    """
    if config.review == "off" or not consent(config.home):
        return
    try:
        learn_past_sessions(config, library, stop=stop)
    except LibraryBusy:
        pass  # the next start reads on
    except (EvolvableError, OSError) as error:
        log.warning("Past sessions were not read: %s", error)
