"""The report for a terminal: the same in plain text."""

from collections.abc import Mapping
from typing import Any

from evolvable_tools.evolve.report.curve import spoken
from evolvable_tools.evolve.report.facts import Facts, Tried

_BARS = "▁▂▃▄▅▆▇█"
_MOST = 12


def text(facts: Facts) -> str:
    """Returns the report as lines for people."""
    lines = [f"Evolution {facts.run} [{facts.label}]", facts.headline, ""]
    lines += [f"! {warning}" for warning in facts.warnings]
    lines += _curve(facts)
    lines += [_candidate(one) for one in facts.tried]
    lines += ["", *_noise(facts), *_test(facts), *_flips(facts), *_bill(facts), *_gates(facts)]
    return "\n".join(lines)


def spark(values: list[float]) -> str:
    """Returns values from 0 to 1 as a row of bars."""
    return "".join(_BARS[min(7, int(value * 8))] for value in values)


def _curve(facts: Facts) -> list[str]:
    measured = [one.validation.mean for one in facts.tried if one.validation is not None]
    return [f"Validation, from 0 to 1: {spark(measured)}"] if measured else []


def _candidate(one: Tried) -> str:
    at = spoken(one.validation) if one.validation else "not measured"
    gained = "" if one.delta is None or not one.parents else f", {100 * one.delta:+.1f} against {one.parents[0]}"
    what = f": {one.summary}" if one.summary else ""
    return f"  {one.name:<5} {one.decision:<12} {at}{gained}{what}"


def _noise(facts: Facts) -> list[str]:
    found = []
    if facts.base_again is not None:
        found.append(f"The base measured again: {spoken(facts.base_again)}")
    if facts.no_skill is not None:
        found.append(f"Without anything: {spoken(facts.no_skill)}")
    if facts.mde is not None:
        found.append(f"By the noise measured, the test can show a gain from about {100 * facts.mde:.0f} points.")
    return found


def _test(facts: Facts) -> list[str]:
    if not facts.test:
        return ["The test is sealed."]
    return [f"Sealed test, {name.replace('_', '-')}: {spoken(its)}" for name, its in facts.test.items()]


def _flips(facts: Facts) -> list[str]:
    found = []
    for split in ("test", "val"):
        for change in ("fixed", "broken", "unstable"):
            tasks = [flip.task for flip in facts.flips if flip.change == change and flip.split == split]
            if tasks:
                more = f" and {len(tasks) - _MOST} more" if len(tasks) > _MOST else ""
                found.append(f"{change.capitalize()} in {split}: {', '.join(tasks[:_MOST])}{more}")
    return found


def _bill(facts: Facts) -> list[str]:
    bill = facts.bill
    return [f"Took {bill['trials']:,} trials ({bill['cached']:,} cached), {bill['tokens']:,} tokens, {price(bill)}."]


def price(bill: Mapping[str, Any]) -> str:
    """Returns what was paid; what has no known price is never called free."""
    if not bill["unpriced"]:
        return f"${bill['cost']:.4f}"
    unknown = f"{bill['unpriced']:,} without a known price"
    return f"${bill['cost']:.4f} and {unknown}" if bill["cost"] else unknown


def _gates(facts: Facts) -> list[str]:
    refused = [one for one in facts.gates if not one["passed"]]
    return (
        ["", "Refused by a gate:", *(f"  {g['candidate'] or '-'} {g['gate']}: {g['why']}" for g in refused)]
        if refused
        else []
    )
