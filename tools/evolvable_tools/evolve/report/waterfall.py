"""The bill: what each purpose and role added to it."""

from htpy import Node

from evolvable_tools.evolve.report.drawing import Scale, label, rect, svg
from evolvable_tools.evolve.report.facts import Facts

_WIDTH, _BAR, _LEFT, _RIGHT = 860, 26, 150, 130


def measure(facts: Facts) -> tuple[str, str]:
    """Returns by what the bill is drawn, and how it is written: dollars if any, else tokens, else trials."""
    if facts.bill["cost"]:
        return "cost", "${:,.4f}"
    return ("tokens", "{:,.0f} tokens") if facts.bill["tokens"] else ("trials", "{:,.0f} trials")


def waterfall(facts: Facts) -> Node:
    """Returns one bar for each purpose, where the one before ended, and the sum."""
    by, written = measure(facts)
    whole = facts.bill[by] or 1
    rows = [(name.replace("role:", ""), spent[by]) for name, spent in facts.spent.items()]
    x = Scale(0, whole, _LEFT, _WIDTH - _RIGHT)
    drawn: list[Node] = []
    reached = 0.0
    for at, (name, value) in enumerate([*rows, ("all", whole if facts.bill[by] else 0)]):
        start = 0.0 if name == "all" else reached
        top = 6 + at * _BAR
        width = max(1.0, x(start + value) - x(start))
        drawn += [
            label(_LEFT - 8, top + 14, name, "end"),
            rect(x=x(start), y=top, width=width, height=_BAR - 9, class_="bar all" if name == "all" else "bar"),
            label(x(start) + width + 6, top + 14, written.format(value), "start"),
        ]
        reached += value
    height = 12 + _BAR * (len(rows) + 1)
    return svg(viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label="what it took")[drawn]
