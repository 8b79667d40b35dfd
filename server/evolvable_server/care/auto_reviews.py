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
    """Where automatic reviews are on, and what they may still cost.

    here: whether they are on in this project. left: the rest of today's budget. waiting: how many
    sessions are queued in their projects. failed: the sessions whose reviews failed, each with the
    reason. nobody: the sessions that no client or model can review without a person.
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
    switch, project = read_switch(config.home), os.path.realpath(config.project)
    if budget is not None:
        # Raises for a budget that cannot be read, before the switch is written.
        parse_budget(budget)
    projects = switch.projects if refs else tuple(dict.fromkeys([*switch.projects, project]))
    skills = tuple(dict.fromkeys([*switch.skills, *refs]))
    # The default price comes first: of two prices in the text the later one counts, which is the
    # person's.
    limits = switch.budget if budget is None else f"price=5/25,{budget}"
    write_switch(config.home, AutoSwitch(projects, skills, limits))


def switch_off(config: Config, refs: Sequence[str] = ()) -> None:
    """Take back `switch_on`: for these skills, or for every project that the open one lies in."""
    switch, here = read_switch(config.home), Path(os.path.realpath(config.project))
    projects = switch.projects
    if not refs:
        projects = tuple(project for project in projects if not here.is_relative_to(project))
    skills = tuple(skill for skill in switch.skills if skill not in refs)
    write_switch(config.home, AutoSwitch(projects, skills, switch.budget))


def budget_words(left: BudgetLeft) -> str:
    """Return what a day may still cost, in words."""
    money = ""
    if left.money is not None and left.of_money is not None:
        money = f", ${left.money:.2f} of ${left.of_money:.2f}"
    tokens = f"{left.tokens:,} of {left.of_tokens:,} tokens"
    return f"{left.calls} of {left.of_calls} calls, {tokens}{money} (until midnight UTC)"


def auto_line(config: Config, library: Library) -> str:
    """Return the line of a status on automatic reviews, '' where they are off."""
    if not read_switch(config.home).projects:
        return ""
    status = auto_status(config, library)
    where = "automatic here"
    if not status.here:
        where = f"automatic in {count(len(status.projects), 'project')}, not here"
    failed = ""
    if status.failed:
        number = count(len(status.failed), "review")
        failed = f"; {number} failed: evolvable learn review auto"
    return f"{where}; left today: {budget_words(status.left)}{failed}"
