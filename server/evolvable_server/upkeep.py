"""Fold and remove old rows and runs of a library: by `gc --older`, and by itself after a year."""

import logging
from dataclasses import astuple, dataclass, field
from datetime import timedelta

from evolvable_server import plugins
from evolvable_store import collect, days_of_use, format_time, plan_day, planned_day
from evolvable_store.errors import EvolvableError
from evolvable_store.workingcopy import Trash
from evolvable_tools import Library
from evolvable_tools.verbs.library_status import YEAR_DAYS

NOTICE_DAYS = 7
"""Days of use for which `status` announces that old rows are going to be folded."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoldedLibrary:
    """What was folded or removed, or would be.

    impressions: those that became counts of a day. proposals: the refused ones that lost their
    files. blobs, bytes: the file contents that were removed with them, as stored. runs: the removed
    ones. kept: old run -> what refers to it.
    """

    older_than_days: int
    impressions: int
    proposals: int
    blobs: int
    bytes: int
    runs: list[str] = field(default_factory=list)
    kept: dict[str, list[str]] = field(default_factory=dict)


def fold_library(
    library: Library, days: int, *, dry_run: bool = False, shrink: bool = False
) -> FoldedLibrary:
    """Fold the rows that are older than `days`, and remove files and runs that nothing refers to.

    Each step is a transaction of its own: after an error the next call goes on. Raise LibraryBusy
    and the like.
    """
    store = library.store
    before = format_time(store.clock() - timedelta(days=days))
    # Rows that are still in memory are counted too.
    if not dry_run:
        library.impressions.flush()
    parts: list[tuple[list[str], dict[str, list[str]]]] = plugins.hooks().remove_old_runs(
        library=library, before=before, dry_run=dry_run
    )
    removed = [run for runs, _ in parts for run in runs]
    kept_runs = {run: reasons for _, kept in parts for run, reasons in kept.items()}
    folding = store.backend.folding
    rows = folding.count(before) if dry_run else folding.fold(before, store.now())
    blobs = collect(store, dry_run, shrink=shrink)
    return FoldedLibrary(
        days, rows.impressions, rows.proposals, blobs.blobs, blobs.bytes, removed, kept_runs
    )


def keep_up(library: Library) -> FoldedLibrary | None:
    """Do the upkeep of a library, about once a day; return what was folded, None for nothing.

    The trash expires. Rows older than a year are planned to be folded after NOTICE_DAYS, and folded
    then. A library of several homes is left to the people who keep it. Raise EvolvableError, after
    which a later call does it.
    """
    store = library.store
    Trash(store.home).expire(store.clock().timestamp())
    if store.read_only or store.backend.shared:
        return None
    soon = format_time(store.clock() - timedelta(days=YEAR_DAYS - NOTICE_DAYS))
    # Nothing is due, as after a `gc --older`: a plan that was made is dropped.
    if not any(astuple(store.backend.folding.count(soon))):
        plan_day(store.home, None)
        return None
    planned = planned_day(store.home)
    if planned is None:
        plan_day(store.home, days_of_use(store.home) + NOTICE_DAYS)
        return None
    if days_of_use(store.home) < planned:
        return None
    folded = fold_library(library, YEAR_DAYS)
    # Last: after a kill in between, the rows are folded again, which changes nothing more.
    plan_day(store.home, None)
    return folded


def keep_up_quietly(library: Library) -> None:
    """Do the upkeep in the background of a server; log an error."""
    try:
        keep_up(library)
    except (EvolvableError, OSError) as error:
        log.info("What is old was not folded, and will be later: %s", error)
