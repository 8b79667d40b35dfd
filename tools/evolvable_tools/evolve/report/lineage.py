"""The lineage: which candidate was made of which, and what each step gained."""

from htpy import Node

from evolvable_tools.evolve.report.drawing import circle, g, label, link, path, svg, title
from evolvable_tools.evolve.report.facts import Facts, Tried

_STEP, _ROW, _LEFT, _TOP = 96, 54, 40, 30
_MOST_SAID = 60


def lineage(facts: Facts) -> Node:
    """Returns the tree from left to right, one column for each iteration; a node leads to its diff below."""
    places = _places(facts.tried)
    width = _LEFT * 2 + _STEP * max((one.iteration for one in facts.tried), default=0) + 60
    height = _TOP * 2 + _ROW * max(row for _, row in places.values())
    return svg(viewBox=f"0 0 {width} {height}", style=f"max-width:{width}px", role="img", aria_label="lineage")[
        [_edges(one, places) for one in facts.tried],
        [_node(one, places) for one in facts.tried],
    ]


def _places(tried: list[Tried]) -> dict[str, tuple[float, int]]:
    """Returns a column and a row for each: a first child stays in its parent's row, the next opens one."""
    places: dict[str, tuple[float, int]] = {}
    taken: set[str] = set()
    rows = 0
    for one in tried:
        parent = one.parents[0] if one.parents else ""
        if parent in places and parent not in taken:
            row = places[parent][1]
            taken.add(parent)
        else:
            row, rows = (0, rows) if not places else (rows + 1, rows + 1)
        places[one.name] = (_LEFT + _STEP * one.iteration, row)
    return places


def _at(one: str, places: dict[str, tuple[float, int]]) -> tuple[float, float]:
    x, row = places[one]
    return x, _TOP + _ROW * row


def _edges(one: Tried, places: dict[str, tuple[float, int]]) -> Node:
    x, y = _at(one.name, places)
    drawn = []
    for parent in one.parents:
        if parent in places:
            x0, y0 = _at(parent, places)
            middle = (x0 + x) / 2
            drawn.append(path(class_="edge", d=f"M{x0},{y0}C{middle},{y0} {middle},{y} {x},{y}"))
    return drawn


def _node(one: Tried, places: dict[str, tuple[float, int]]) -> Node:
    x, y = _at(one.name, places)
    gained = "" if one.delta is None else f"{100 * one.delta:+.1f}"
    said = f"{one.name}: {one.decision}. {'; '.join(one.operations)[:_MOST_SAID] or one.summary[:_MOST_SAID]}"
    return link(href=f"#{one.name}")[
        g(class_=f"node {shade(one.delta)} {one.decision}")[title()[said], circle(cx=x, cy=y, r=15)],
        label(x, y + 4, one.name, class_="in-node"),
        label(x, y + 30, gained),
    ]


def shade(delta: float | None) -> str:
    """Returns the class that a gain is coloured by."""
    if delta is None:
        return "none"
    return "better" if delta > 0 else "worse" if delta < 0 else "equal"
