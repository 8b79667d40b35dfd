"""The queue of automatic reviews: which sessions are due, who reviews each, and what a person is
told of the rest.
"""

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from evolvable_server.auto_switch import AutoSwitch, read_switch, start_worker, was_declined
from evolvable_server.config import Config
from evolvable_store import QueuedSession, waiting_sessions
from evolvable_tools import Library, count
from evolvable_tools.review import reclaim_abandoned
from evolvable_tools.verbs import lessons_line, waiting_lessons

if TYPE_CHECKING:
    from subprocess import Popen

HEADLESS = {"claude-code": "claude"} | {
    name: name for name in ("codex", "copilot", "opencode", "qwen", "droid")
}
"""Client -> its command without a person, which is the name of a program and of a reviewer."""

# A second try gets past a failure that passes. Each try costs tokens of the day's budget.
TRIES = 2
"""Reviews of one session that fail before it is left to the person."""

# Sooner, the same failure would probably meet it again.
TRY_AGAIN_SECONDS = 600.0
"""How long a failed review waits for its next try."""

# A shorter time reviews sessions in which the person pauses; a longer one delays the lessons of a
# killed client.
QUIET = timedelta(minutes=30)
"""The time without an event after which a session counts as ended: a killed client reports none."""


def reviewer_name(config: Config, entry: QueuedSession) -> str:
    """Return the reviewer of a session: the configured one, else its client; '' where that has no
    program here.
    """
    if config.review not in ("handoff", "off"):
        return config.review
    name = HEADLESS.get(entry.client, "")
    return name if name and shutil.which(name) else ""


def has_ended(entry: QueuedSession, now: datetime) -> bool:
    """Return whether a session is over: its client said so, or has sent no event for QUIET."""
    if entry.event == "SessionEnd":
        return True
    try:
        return now - datetime.fromisoformat(entry.at) >= QUIET
    except (ValueError, TypeError):
        # An entry without a readable time would otherwise wait without an end.
        return True


def is_due(entry: QueuedSession, switch: AutoSwitch, now: datetime) -> bool:
    """Return whether a session is to be reviewed now, by any reviewer."""
    if not switch.covers(entry.cwd) or entry.tries >= TRIES or not has_ended(entry, now):
        return False
    # The first review needs no rest before it.
    return not entry.tries or entry.seconds_waiting() >= TRY_AGAIN_SECONDS


def due_sessions(config: Config) -> list[QueuedSession]:
    """Return the sessions that an automatic review can be made of now."""
    if config.review == "off":
        return []
    switch, now = read_switch(config.home), datetime.now(UTC)
    # Off everywhere is the usual case, and costs one look at the file.
    if not switch.projects:
        return []
    # Before the list is read: entries of a reviewer that was killed go back to the queue.
    reclaim_abandoned(config.home)
    due = (entry for entry in waiting_sessions(config.home) if is_due(entry, switch, now))
    return [entry for entry in due if reviewer_name(config, entry)]


def start_if_due(config: Config) -> "Popen[bytes] | None":
    """Start the process of reviews where something waits for it, and return it. Raise OSError."""
    return start_worker(config.home, os.environ) if due_sessions(config) else None


def review_news(config: Config, library: Library) -> str:
    """Return the line on automatic reviews that a person sees as a session begins; '' for none."""
    switch = read_switch(config.home)
    queued = [entry for entry in waiting_sessions(config.home) if switch.covers(entry.cwd)]
    failed = sum(entry.tries >= TRIES for entry in queued)
    nobody = sum(not reviewer_name(config, entry) for entry in queued)
    lessons = [
        lesson
        for lesson in waiting_lessons(library)
        if not was_declined(config.home, lesson.proposal_id)
    ]
    parts = [lessons_line(lessons)]
    if failed:
        parts.append(f"{count(failed, 'review')} failed (evolvable learn review auto)")
    if nobody:
        parts.append(f'{count(nobody, "session")} to review: say "Review the last session"')
    return "; ".join(filter(None, parts))
