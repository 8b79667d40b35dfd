"""The limit of what callers that are no person spend on trials of skills: `budgets.try` of the
configuration.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution import (
    Allowance,
    SpendLimit,
    add_spending,
    find_run,
    is_of_today,
    iter_run_states,
    no_spending,
)
from evolvable_server import Config
from evolvable_store import Principal

_TRY = "try"


def within_budget(
    config: Config, executor: str, judge: str, limits: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the limits of a trial that a caller begins, within the person's budget of a day.

    judge: '' for none. Raises Refused for a name that is not allowed, and where nothing is left,
    and InvalidArgument for a budget that is none.
    """
    allowance = Allowance.strictest((part.budgets.get(_TRY) for part in config.person.parts), _TRY)
    if allowance is None:
        return dict(limits)
    allowance.require_executor(executor, "budgets.try")
    if judge:
        allowance.require_executor(judge, "budgets.try", "judge")
    rest = allowance.rest(SpendLimit(**limits), _sum_day_spending(config.home), _TRY)
    return {name: value for name, value in asdict(rest).items() if value is not None}


def _sum_day_spending(home: Path) -> dict[str, float]:
    """Return the spending of the last day by trials that no person started, with what running ones
    reserve.
    """
    day = no_spending()
    for run, state in iter_run_states(home):
        begun_by = state.about.get("caller", Principal.PERSON)
        if state.settings.get("purpose") != _TRY or begun_by == Principal.PERSON:
            continue
        if is_of_today(find_run(home, run.id).ledger):
            reserved = {} if state.verdict else state.settings.get("limit", {})
            add_spending(day, state.bill, state.bill.wall, reserved)
    return day
