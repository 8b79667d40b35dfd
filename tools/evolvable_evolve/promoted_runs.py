"""Runs of evolution whose result waits for the person: promoted by the sealed test, and not
adopted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import htpy as h
from htpy import Node

from evolvable_evolve.evolution import iter_run_states, iter_runs
from evolvable_evolve.waiting_tries import list_waiting_tries
from evolvable_server.page_kit import PageKit, PageSite

MAX_RUNS = 20
"""The newest runs, among which promoted ones are looked for."""


@dataclass(frozen=True, slots=True)
class PromotedRun:
    """One run.

    label: what its figures are. gain: in the sealed test over the base, in words with its interval.
    """

    run: str
    label: str
    gain: str
    why: str


def draw_promoted(page: PageKit, site: PageSite) -> Node:
    """Return the runs that wait, nothing where none does. They are read in the background."""
    home = site.library.store.home
    waiting = _draw_waiting_trials(page, site)
    # A ledger only grows, so a new size means new records.
    key = tuple(
        (folder.id, folder.ledger.stat().st_size)
        for folder in iter_runs(home)
        if folder.ledger.exists()
    )
    promoted = site.value("promoted", lambda: _read_promoted(site), key) if key else None
    if not promoted:
        return waiting
    rows = [
        h.li[
            h.a(href=f"/evolution/{promoted_run.run}/adopt")[f"Run {promoted_run.run}"],
            " ",
            page.tag("PROMOTE", "good"),
            " ",
            page.tag(promoted_run.label),
            f" {promoted_run.gain} ",
            h.span(".none")[page.make_visible(promoted_run.why)],
        ]
        for promoted_run in promoted
    ]
    return [
        h.h2["Results of evolution"],
        h.p["The sealed test promoted them; they are not live before you adopt."],
        h.ul[rows],
        waiting,
    ]


def _draw_waiting_trials(page: PageKit, site: PageSite) -> Node:
    """Return the trials of skills that an agent asked for and only a person begins."""
    rows = [
        h.li[
            h.a(href=f"/evolution/{waiting_try.run}")[f"Run {waiting_try.run}"],
            " ",
            page.make_visible(waiting_try.text.splitlines()[0]),
            " ",
            page.with_code(f"Begin it on its page, or by `{waiting_try.command}`."),
        ]
        for waiting_try in list_waiting_tries(site.library)
    ]
    return [h.h2["Trials of skills that wait"], h.ul[rows]] if rows else None


def _read_promoted(site: PageSite) -> Sequence[PromotedRun]:
    promoted: list[PromotedRun] = []
    for count, (folder, state) in enumerate(iter_run_states(site.library.store.home), 1):
        verdict = state.verdict
        if state.adoptable:
            gain = _format_gain(verdict.get("delta"), verdict.get("interval"))
            why = str(verdict.get("why", ""))
            promoted.append(PromotedRun(folder.id, state.label, gain, why))
        # Reading a run folds its ledger, so the inbox reads the newest ones alone.
        if count == MAX_RUNS:
            break
    return promoted


def _format_gain(delta: float | None, interval: Sequence[float] | None) -> str:
    if delta is None:
        return ""
    between = f" (95 % {100 * interval[0]:+.1f} to {100 * interval[1]:+.1f})" if interval else ""
    return f"{100 * delta:+.1f} points{between}"
