"""The frames of evolution in the overview of Learn: runs, rounds over sessions, versions on trial,
agents' runs.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import htpy as h
from htpy import Node

from evolvable_evolve import ags
from evolvable_evolve.evolution import AGS_DIR, RunStatus, iter_runs, list_statuses
from evolvable_evolve.rounds import PoolEntry, RoundState, list_pool, read_rounds
from evolvable_server.page_kit import PageKit, PageSite
from evolvable_store.errors import EvolvableError
from evolvable_tools import Library

if TYPE_CHECKING:
    from evolvable_evolve.ags import AgsStatus

LISTED = 5
"""Entries of each kind that the overview names, the newest first."""

_STATES = {"running": "good", "waiting": "doubtful", "interrupted": "bad"}


@dataclass(frozen=True, slots=True)
class Learning:
    """The newest entries of each kind. rounds: None where their state cannot be read."""

    runs: Sequence[RunStatus]
    rounds: RoundState | None
    trials: Sequence[PoolEntry]
    agents: "Sequence[AgsStatus]"


def draw_learning(page: PageKit, site: PageSite) -> Node:
    """Return a frame for each kind. The ledgers are read in the background."""
    library = site.library
    # Each ten seconds too: a run that writes its ledger changes nothing in the library.
    key = library.store.sequence(), int(time.monotonic()) // 10
    learning: Learning | None = site.value("learning", lambda: _read_learning(library), key)
    if learning is None:
        reading = "The ledgers are being read; this page shows them by itself."
        return _draw_frame(page, "Evolution", (), reading)
    return [
        _draw_runs(page, learning.runs),
        _draw_rounds(page, learning.rounds),
        _draw_pool(page, learning.trials),
        _draw_agents(page, learning.agents),
    ]


def _read_learning(library: Library) -> Learning:
    home = library.store.home
    agents = []
    for folder in list(iter_runs(home, AGS_DIR))[:LISTED]:
        with contextlib.suppress(EvolvableError):  # a damaged ledger: doctor names it
            # A number above every record, so that no events are described.
            agents.append(ags.ags_status(home, folder.id, since=10**9))
    rounds = None
    with contextlib.suppress(EvolvableError):
        rounds = read_rounds(library)
    trials = list_pool(library, ended=True).trials[:LISTED]
    return Learning(list_statuses(home, LISTED), rounds, trials, agents)


def _draw_frame(
    page: PageKit, title: str, rows: Sequence[Any], none: str, more: Node = None
) -> Node:
    return h.section(".panel")[
        h.h2[title],
        h.ul(".rows")[rows] if rows else h.p(".none")[page.with_code(none)],
        more and h.p[more],
    ]


def _draw_runs(page: PageKit, runs: Sequence[RunStatus]) -> Node:
    rows = [
        h.li[
            h.a(".grow", href=f"/evolution/{status.run}")[
                status.run, h.span(".none")[" ", page.make_visible(status.line)]
            ],
            page.tag(status.verdict or status.state, _STATES.get(status.state, "")),
        ]
        for status in runs
    ]
    none = "No run yet. `evolvable evolve start` starts one on a task set of yours."
    return _draw_frame(page, "Evolution", rows, none, h.a(href="/evolution")["All runs"])


def _draw_rounds(page: PageKit, rounds: RoundState | None) -> Node:
    none = "No round yet. `evolvable evolve round` learns from the sessions since the last one."
    if rounds is None or not rounds.number:
        return _draw_frame(page, "Rounds", (), none)
    verified, good = rounds.success
    runs = " runs" if rounds.running else ""
    succeeded = "No session of it was verified"
    if verified:
        succeeded = f"{good:,} of {verified:,} verified sessions succeeded"
    lines = [f"Round {rounds.number}{runs} over {page.make_visible(rounds.source)}", succeeded]
    lines += [
        f"{number:,} × {page.make_visible(failure)}"
        for failure, number in rounds.failures.most_common(LISTED)
    ]
    return _draw_frame(page, "Rounds", [h.li[line] for line in lines], none)


def _draw_pool(page: PageKit, trials: Sequence[PoolEntry]) -> Node:
    rows: list[Node] = []
    for trial in trials:
        versions = page.make_visible(f"{trial.ref}@{trial.version} against @{trial.incumbent}")
        state = page.tag(trial.state, "good" if trial.state == "promoted" else "")
        since = h.span(".none")[page.when(trial.at)]
        rows.append(h.li[h.span(".grow")[versions], state, since])
    none = "No version is on trial. `evolvable evolve pool` starts and ends trials."
    return _draw_frame(page, "Versions on trial", rows, none)


def _draw_agents(page: PageKit, runs: "Sequence[AgsStatus]") -> Node:
    rows = [
        h.li[
            h.a(".grow", href=f"/agents/{status.run}")[
                page.make_visible(status.task)[:120],
                h.span(".none")[" ", page.make_visible(status.line)],
            ],
            page.tag(status.state, _STATES.get(status.state, "")),
        ]
        for status in runs
    ]
    none = "Agents have done no task together. `evolvable lab ags run TASK` starts one."
    return _draw_frame(page, "Agents' runs", rows, none)
