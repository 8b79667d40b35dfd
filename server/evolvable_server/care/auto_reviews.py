"""Automatic reviews as a person switches them: on and off by project, by skill, and what they may
still take today.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from evolvable_server.auto_queue import TRIES, reviewer_name
from evolvable_server.auto_switch import AutoSwitch, read_switch, write_switch
from evolvable_server.config import Config
from evolvable_server.model_setup import budget_limits
from evolvable_store import waiting_sessions
from evolvable_tools import Library, count
from evolvable_tools.review import BudgetLeft, budget_left, parse_budget, stricter_budget


@dataclass(frozen=True)
class AutoStatus:
    """Where automatic reviews are on. here: whether in this project. left: of today's budget.

    waiting: how many sessions are queued there. failed: the sessions whose reviews failed, each
    with the reason. nobody: sessions whose client cannot answer without a person.
    """

    here: bool
    projects: list[str]
    skills: list[str]
    left: BudgetLeft
    waiting: int
    failed: list[str] = field(default_factory=list)
    nobody: list[str] = field(default_factory=list)


def auto_status(config: Config, library: Library) -> AutoStatus:
    """Return the status of automatic reviews, without a change."""
    switch = read_switch(config.home)
    limits = budget_limits(config)[2]
    budget = stricter_budget(limits, parse_budget(switch.budget, limits))
    # Sessions without a reviewer are counted too: the person reviews those by hand.
    queued = [entry for entry in waiting_sessions(config.home) if switch.covers(entry.cwd)]
    day = datetime.now(UTC).date().isoformat()
    return AutoStatus(
        switch.covers(str(config.project)),
        list(switch.projects),
        list(switch.skills),
        budget_left(library.store.backend.reviews, budget, day),
        len(queued),
        [f"{entry.session}: {entry.why}" for entry in queued if entry.tries >= TRIES],
        [entry.session for entry in queued if not reviewer_name(config, entry)],
    )


def switch_on(config: Config, refs: Sequence[str] = (), budget: str | None = None) -> None:
    """Switch automatic reviews on for the project that is open, or have lessons of these skills
    made at once.
    """
    # The real path: `AutoSwitch.covers` compares real paths.
    now, here = read_switch(config.home), os.path.realpath(config.project)
    if budget is not None:
        parse_budget(budget)
    projects = now.projects if refs else tuple(dict.fromkeys([*now.projects, here]))
    # The default price comes first: of two prices in the text the later one counts, which is the
    # person's.
    chosen = now.budget if budget is None else f"price=5/25,{budget}"
    write_switch(
        config.home,
        AutoSwitch(
            projects,
            tuple(dict.fromkeys([*now.skills, *refs])),
            chosen,
        ),
    )


def switch_off(config: Config, refs: Sequence[str] = ()) -> None:
    """Take back `switch_on`: for these skills, or for every project that the open one lies in."""
    now, here = read_switch(config.home), Path(os.path.realpath(config.project))
    projects = (
        now.projects
        if refs
        else tuple(project for project in now.projects if not here.is_relative_to(project))
    )
    write_switch(
        config.home,
        AutoSwitch(projects, tuple(skill for skill in now.skills if skill not in refs), now.budget),
    )


def budget_words(left: BudgetLeft) -> str:
    """Return what a day may still cost, in words."""
    money = (
        ""
        if left.money is None or left.of_money is None
        else f", ${left.money:.2f} of ${left.of_money:.2f}"
    )
    tokens = f"{left.tokens:,} of {left.of_tokens:,} tokens"
    return f"{left.calls} of {left.of_calls} calls, {tokens}{money} (until midnight UTC)"


def auto_line(config: Config, library: Library) -> str:
    """Return the line of a status on automatic reviews, '' where they are off."""
    if not read_switch(config.home).projects:
        return ""
    found = auto_status(config, library)
    here = (
        "automatic here"
        if found.here
        else f"automatic in {count(len(found.projects), 'project')}, not here"
    )
    failed = (
        f"; {count(len(found.failed), 'review')} failed: evolvable learn review auto"
        if found.failed
        else ""
    )
    return f"{here}; left today: {budget_words(found.left)}{failed}"
