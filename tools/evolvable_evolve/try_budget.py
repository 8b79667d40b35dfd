"""What callers that are no person may spend on trials of skills: `budgets.try` of the person's configuration."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evolvable_evolve.ags import Allowance
from evolvable_evolve.evolution import SpendLimit, find_run, iter_run_states
from evolvable_server import Config
from evolvable_store import Principal
from evolvable_store.errors import Refused

_TRY = "try"
_DAY = 24 * 3600.0


def try_allowance(config: Config) -> Allowance | None:
    """Return what callers that are no person may try with, None where nothing is set. Raises InvalidArgument."""
    account, *others = (Allowance.from_config(one.budgets.get(_TRY), _TRY) for one in config.person.parts)
    for other in filter(None, others if account is not None else ()):
        account = account.stricter(other) if account is not None else None
    return account


def within_budget(config: Config, names: list[str], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits of a trial that a caller begins, within what the person set for a day.

    names: of the executor and the judge. Raises Refused for a name that is not allowed, and where nothing is left.
    """
    allowance = try_allowance(config)
    if allowance is None:
        return dict(wanted)
    for name in filter(None, names):
        if name not in allowance.executors:
            listed = ", ".join(allowance.executors) or "none"
            raise Refused(f"{ascii(name[:80])} is not allowed to callers.", f"budgets.try allows: {listed}.")
    rest = allowance.rest(SpendLimit(**wanted), day_spent(config.home), _TRY)
    return {name: value for name, value in asdict(rest).items() if value is not None}


def day_spent(home: Path) -> dict[str, float]:
    """Return what trials of callers that are no person spent in the last day, or may still spend."""
    total = dict.fromkeys(("cost", "tokens", "calls", "wall", "unpriced"), 0.0)
    for run, state in iter_run_states(home):
        begun_by = state.about.get("caller", Principal.PERSON)
        changed = find_run(home, run.id).ledger.stat().st_mtime
        if state.settings.get("purpose") != _TRY or begun_by == Principal.PERSON or time.time() - changed > _DAY:
            continue
        bill = state.bill
        used = {
            "cost": bill.cost,
            "tokens": bill.tokens,
            "calls": bill.calls,
            "wall": bill.wall,
            "unpriced": bill.unpriced,
        }
        limit = {} if state.verdict else state.settings.get("limit", {})
        for name in total:
            total[name] += max(used[name], limit.get(name) or 0.0)
    return total
