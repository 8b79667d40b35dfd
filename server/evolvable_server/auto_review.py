"""The process of automatic reviews: it reviews the sessions that ended and are due, and then ends.

All windows share one: a lock lets one process work the queue, and that process looks again after it
released the lock. So a process that finds the lock taken leaves no session behind. No process waits
between reviews: one starts at the end of a session and at the start of a server.
"""

import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from evolvable_server import plugins
from evolvable_server.app import (
    ListedFolders,
    approvals_lock,
    make_caller,
    marks_agents,
    scopes_seen,
)
from evolvable_server.auto_queue import due_sessions, is_due, reviewer_name
from evolvable_server.auto_switch import read_switch
from evolvable_server.config import MARKS, Config, read_config
from evolvable_server.model_setup import Redaction, approval_policies, review_settings
from evolvable_server.person_config import registered_homes
from evolvable_store import Identity, Principal, QueuedSession
from evolvable_store.errors import EvolvableError
from evolvable_tools import ApprovalLevel, Caller, Library
from evolvable_tools.review import (
    Reviewed,
    ReviewSettings,
    parse_budget,
    stricter_budget,
    work_queue,
)

# The maximum is 19: a review waits for everything that the person runs, and still gets ahead of
# idle work.
NICE = 15
"""How much is added to the niceness of the process, and so to that of the client that it asks."""

_NOT_MARKS = ("CLAUDE_PROJECT_DIR", "CLAUDE_CODE_SSE_PORT")
"""Further variables of a client for its children, which a client of ours must not inherit."""


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without a client's variables; the person's own settings stay."""
    removed = {*MARKS, *_NOT_MARKS}
    return {name: value for name, value in environment.items() if name not in removed}


class AutoReviews:
    """One run over the sessions that are due, in one library."""

    def __init__(self, config: Config, library: Library, until: contextlib.ExitStack) -> None:
        """until: closes the models that are asked."""
        self._config, self._library, self._until = config, library, until
        self._switch = read_switch(config.home)
        # As an agent: a lesson that a model writes must not count as a person's decision.
        self._caller = make_caller(config, library, Identity(Principal.AGENT, "auto-review"))
        # A reviewer is set up once and asked for all its sessions; `_until` closes it.
        self._settings = functools.cache(self._make_settings)

    def run(self) -> list[Reviewed]:
        """Review until no session is due or the due ones have to wait; return the result of each
        session.
        """
        done = list[Reviewed]()
        home = self._config.home
        while due_sessions(self._config):
            reviews = work_queue(self._library, self._caller, None, home, choose=self._choose)
            results = list(reviews)
            done += results
            # `waits` means that the budget or the model allows no review now: another round would
            # loop without an end.
            if not results or any(result.state == "waits" for result in results):
                break
        if done:
            with contextlib.suppress(EvolvableError):  # the next review looks again
                plugins.hooks().after_review(library=self._library, caller=self._caller)
        return done

    def _choose(self, entry: QueuedSession) -> tuple[Caller, ReviewSettings] | None:
        """Return who reviews a session and how, None for one that is not due."""
        reviewer = reviewer_name(self._config, entry)
        if not reviewer or not is_due(entry, self._switch, datetime.now(UTC)):
            return None
        scopes = scopes_seen(self._config, self._library, Path(entry.cwd))
        return replace(self._caller, project=entry.cwd, scopes=scopes), self._settings(reviewer)

    def _make_settings(self, reviewer: str) -> ReviewSettings:
        config = replace(self._config, review=reviewer)
        settings = self._until.enter_context(review_settings(config))
        # Both the configuration and the switch limit the day: of each limit the lower one holds.
        requested = parse_budget(self._switch.budget, settings.budget)
        budget = stricter_budget(settings.budget, requested)
        return replace(settings, budget=budget, auto_refs=frozenset(self._switch.skills))


@contextlib.contextmanager
def open_library(config: Config) -> Iterator[Library]:
    """Yield the library as a review needs it: with the person's policies and the lock.

    Raise as Library.open.
    """
    with Library.open(
        config.home,
        registered=registered_homes,
        redactor=Redaction(config.home).redactor,
        policies=approval_policies(config),
        level=ApprovalLevel(config.approve),
        lock=approvals_lock(config),
        marks_agents=marks_agents(config),
        trusted_folders=(listed_folders := ListedFolders(config.home)),
        followed_folders=listed_folders.list_followed,
    ) as library:
        yield library


def review_due(config: Config) -> Sequence[Reviewed]:
    """Review the sessions that are due.

    Raise EvolvableError for a library that cannot be opened now.
    """
    # Before the library is opened: in most cases nothing is due.
    if not due_sessions(config):
        return []
    with contextlib.ExitStack() as until, open_library(config) as library:
        return AutoReviews(config, library, until).run()


def main() -> None:
    """Run the process of automatic reviews, at a low priority and without output.

    A session whose review fails waits in the queue.
    """
    if hasattr(os, "nice"):
        os.nice(NICE)
    # A client's hook started this process. The client that reviews must not take itself for that
    # client's child.
    environment = own_environment(os.environ)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    # Nobody reads this process's output: a failure stays in the queue, and the next start tries
    # again.
    with contextlib.suppress(EvolvableError, OSError):
        review_due(read_config())


if __name__ == "__main__":
    main()
