"""What the overview of Learn shows of evolution: its runs, rounds over sessions, versions on trial,
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
"""Things of each kind that the overview names, the newest first."""

_STATES = {"running": "good", "waiting": "doubtful", "interrupted": "bad"}


@dataclass(frozen=True, slots=True)
class Learning:
    """What there is of each kind. rounds: None before the first one."""

    runs: Sequence[RunStatus]
    rounds: RoundState | None
    trials: Sequence[PoolEntry]
    agents: "Sequence[AgsStatus]"


def draw_learning(page: PageKit, site: PageSite) -> Node:
    """Return a frame for each kind. The ledgers are read beside the page."""
    library = site.library
    key = library.store.sequence(), int(time.monotonic()) // 10
    found: Learning | None = site.value("learning", lambda: _read(library), key)
    if found is None:
        return _frame(
            page, "Evolution", (), "The ledgers are being read; this page shows them by itself."
        )
    return [
        _runs(page, found.runs),
        _rounds(page, found.rounds),
        _pool(page, found.trials),
        _agents(page, found.agents),
    ]


def _read(library: Library) -> Learning:
    home = library.store.home
    agents = []
    for folder in list(iter_runs(home, AGS_DIR))[:LISTED]:
        with contextlib.suppress(EvolvableError):  # a damaged ledger: doctor names it
            agents.append(ags.ags_status(home, folder.id, since=10**9))
    rounds = None
    with contextlib.suppress(EvolvableError):
        rounds = read_rounds(library)
    return Learning(
        list_statuses(home, LISTED), rounds, list_pool(library, ended=True).trials[:LISTED], agents
    )


def _frame(page: PageKit, title: str, rows: Sequence[Any], none: str, more: Node = None) -> Node:
    return h.section(".panel")[
        h.h2[title],
        h.ul(".rows")[rows] if rows else h.p(".none")[page.with_code(none)],
        more and h.p[more],
    ]


def _runs(page: PageKit, runs: Sequence[RunStatus]) -> Node:
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
    return _frame(page, "Evolution", rows, none, h.a(href="/evolution")["All runs"])


def _rounds(page: PageKit, rounds: RoundState | None) -> Node:
    none = "No round yet. `evolvable evolve round` learns from the sessions since the last one."
    if rounds is None or not rounds.number:
        return _frame(page, "Rounds", (), none)
    verified, good = rounds.success
    lines = [
        (
            f"Round {rounds.number}{' runs' if rounds.running else ''} over "
            f"{page.make_visible(rounds.source)}"
        ),
        f"{good:,} of {verified:,} verified sessions succeeded"
        if verified
        else "No session of it was verified",
        *(
            f"{number:,} × {page.make_visible(failure)}"
            for failure, number in rounds.failures.most_common(LISTED)
        ),
    ]
    return _frame(page, "Rounds", [h.li[line] for line in lines], none)


def _pool(page: PageKit, trials: Sequence[PoolEntry]) -> Node:
    rows = [
        h.li[
            h.span(".grow")[
                page.make_visible(f"{trial.ref}@{trial.version} against @{trial.incumbent}")
            ],
            page.tag(trial.state, "good" if trial.state == "promoted" else ""),
            h.span(".none")[page.when(trial.at)],
        ]
        for trial in trials
    ]
    return _frame(
        page,
        "Versions on trial",
        rows,
        "No version is on trial. `evolvable evolve pool` starts and ends trials.",
    )


def _agents(page: PageKit, runs: "Sequence[AgsStatus]") -> Node:
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
    return _frame(page, "Agents' runs", rows, none)
