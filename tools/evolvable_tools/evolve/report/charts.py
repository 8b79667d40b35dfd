"""The report's charts as SVG: the learning curve, the lineage of candidates, and the bill."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from htpy import Element, Node

from evolvable_tools.evolve.report.run_facts import CandidateFacts, MeanInterval, RunFacts


def _shape(name: str) -> Callable[..., Element]:
    element = Element(name)

    def made(**attributes: str | float) -> Element:
        return element(
            **{key: f"{value:g}" if isinstance(value, float) else value for key, value in attributes.items()}
        )

    return made


circle, g, line, path, rect, text = map(_shape, ("circle", "g", "line", "path", "rect", "text"))
link, title, svg = map(_shape, ("a", "title", "svg"))


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` to places from `start` to `end`, linearly."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        return round(self.start + (value - self.low) / span * (self.end - self.start), 1)


def ticks(high: float, count: int = 5) -> list[float]:
    """Return round values from 0 to about `high`."""
    if high <= 0:
        return [0.0]
    step = 10.0 ** (len(str(int(high))) - 1) if high >= 1 else 0.1
    while high / step > count:
        step *= 2 if str(step).lstrip("0.")[:1] in ("1", "5") else 2.5
    while high / step < count / 2.5:
        step /= 2
    return [at * step for at in range(int(high / step) + 1)]


def mark(shape: str, x: float, y: float, kind: str, said: str) -> Node:
    """Return a mark with a tooltip. shape: dot, ring, cross, square, star."""
    body: Node
    if shape == "cross":
        body = path(d=f"M{x - 5},{y - 5}L{x + 5},{y + 5}M{x - 5},{y + 5}L{x + 5},{y - 5}", class_="stroke")
    elif shape == "square":
        body = rect(x=x - 5, y=y - 5, width=10, height=10)
    elif shape == "star":
        body = path(d=_star_path(x, y), class_="star")
    else:
        body = circle(cx=x, cy=y, r=5.5, class_="ring" if shape == "ring" else "")
    return g(class_=f"mark {kind}")[title()[said], body]


def whiskers(x: float, low: float, high: float) -> Node:
    """Return an interval as a bar with ends."""
    return path(class_="whisker", d=f"M{x},{low}V{high}M{x - 3},{low}h6M{x - 3},{high}h6")


def label(x: float, y: float, said: str, anchor: str = "middle", class_: str = "label") -> Node:
    return text(x=x, y=y, text_anchor=anchor, class_=class_)[said]


def step_path(points: Sequence[tuple[float, float]]) -> str:
    """Return a path that goes level to each point's place and then to its height."""
    return "".join(f"M{x},{y}" if not at else f"H{x}V{y}" for at, (x, y) in enumerate(points))


def _star_path(x: float, y: float) -> str:
    points = (
        (0, -8),
        (2.4, -2.8),
        (8, -2.4),
        (3.6, 1.2),
        (5, 7),
        (0, 3.8),
        (-5, 7),
        (-3.6, 1.2),
        (-8, -2.4),
        (-2.4, -2.8),
    )
    return "M" + "L".join(f"{round(x + dx, 1)},{round(y + dy, 1)}" for dx, dy in points) + "Z"


CURVE_WIDTH, CURVE_HEIGHT = 860, 320
_CURVE_LEFT, _CURVE_RIGHT, _CURVE_TOP, _CURVE_BOTTOM = 48, 140, 16, 44

MARK_SHAPES: Mapping[str, str] = {"base": "square", "admitted": "dot", "indecisive": "ring"}
"""How a decision is drawn; whatever was not kept is a cross."""


def curve_axes(facts: RunFacts) -> dict[str, Callable[[CandidateFacts], float]]:
    """Return what the curve can be drawn over: iterations, evaluations, and dollars where any were spent."""
    found: dict[str, Callable[[CandidateFacts], float]] = {
        "iterations": lambda one: float(one.iteration),
        "evaluations": lambda one: float(one.evaluations),
    }
    if any(one.cost for one in facts.tried):
        found["dollars"] = lambda one: one.cost
    return found


def draw_curve(facts: RunFacts, over: str) -> Node:
    """Return the picture over one axis. The score goes from 0 to 1, always."""
    where = curve_axes(facts)[over]
    furthest = max([where(one) for one in facts.tried] + [1.0 if over == "iterations" else 0.0]) or 1.0
    x = Scale(0, furthest, _CURVE_LEFT + 12, CURVE_WIDTH - _CURVE_RIGHT)
    y = Scale(0, 1, CURVE_HEIGHT - _CURVE_BOTTOM, _CURVE_TOP)
    return svg(viewBox=f"0 0 {CURVE_WIDTH} {CURVE_HEIGHT}", role="img", aria_label=f"validation over {over}")[
        _draw_frame(x, y, furthest, over),
        _draw_noise(facts, y),
        path(class_="best", d=step_path(_best_points(facts, where, x, y))),
        (_draw_candidate(one, x(where(one)), y) for one in facts.tried),
        _draw_test(facts, y),
    ]


def _draw_frame(x: Scale, y: Scale, furthest: float, over: str) -> Node:
    right, bottom = CURVE_WIDTH - _CURVE_RIGHT + 12, CURVE_HEIGHT - _CURVE_BOTTOM
    rows = [0.0, 0.25, 0.5, 0.75, 1.0]
    whole = over != "dollars"
    return [
        [line(x1=_CURVE_LEFT, x2=right, y1=y(value), y2=y(value), class_="grid") for value in rows],
        [label(_CURVE_LEFT - 6, y(value) + 4, f"{value:.2f}", "end", "tick") for value in rows],
        [
            label(x(value), bottom + 18, f"{value:,.0f}" if whole else f"${value:g}", class_="tick")
            for value in ticks(furthest)
            if not whole or value == int(value)
        ],
        label((_CURVE_LEFT + right) / 2, CURVE_HEIGHT - 6, over),
    ]


def _draw_noise(facts: RunFacts, y: Scale) -> Node:
    base = next((one.validation for one in facts.tried if one.decision == "base"), None)
    if base is None or facts.base_again is None:
        return None
    high, low = max(base.mean, facts.base_again.mean), min(base.mean, facts.base_again.mean)
    band = max(2.0, y(low) - y(high))
    return rect(
        x=_CURVE_LEFT, y=y(high), width=CURVE_WIDTH - _CURVE_RIGHT + 12 - _CURVE_LEFT, height=band, class_="noise"
    )


def _best_points(
    facts: RunFacts, where: Callable[[CandidateFacts], float], x: Scale, y: Scale
) -> list[tuple[float, float]]:
    points, best = list[tuple[float, float]](), -1.0
    for one in facts.tried:
        if one.validation is not None and one.decision in ("base", "admitted") and one.validation.mean > best:
            best = one.validation.mean
            points.append((x(where(one)), y(best)))
    if points:
        points.append((CURVE_WIDTH - _CURVE_RIGHT + 12.0, points[-1][1]))
    return points


def _draw_candidate(one: CandidateFacts, x: float, y: Scale) -> Node:
    kind = one.decision if one.decision in MARK_SHAPES else "rejected"
    if one.validation is None:
        return mark("cross", x, y(0), "unmeasured", f"{one.name}: {one.decision}, not measured. {one.reason}")
    at, said = one.validation, f"{one.name}, {one.decision}: {format_mean(one.validation)}. {one.reason}"
    return [
        whiskers(x, y(at.low), y(at.high)),
        mark(MARK_SHAPES.get(one.decision, "cross"), x, y(at.mean), kind, said),
        label(x + 8, y(at.mean) - 8, one.name, "start"),
    ]


def _draw_test(facts: RunFacts, y: Scale) -> Node:
    right = CURVE_WIDTH - _CURVE_RIGHT + 12
    rule = line(x1=right, x2=right, y1=_CURVE_TOP, y2=CURVE_HEIGHT - _CURVE_BOTTOM, class_="grid")
    if not facts.test:
        return [rule, label(right + 8, _CURVE_TOP + 12, "test sealed", "start")]
    drawn: list[Node] = [rule, label(right + 8, CURVE_HEIGHT - 6, "sealed test", "start")]
    for at, (name, kind) in enumerate((("base", "base"), ("finalist", "admitted"), ("no_skill", "rejected"))):
        its = facts.test.get(name)
        if its is not None:
            x = right + 26 + 40 * at
            drawn += [whiskers(x, y(its.low), y(its.high)), mark("star", x, y(its.mean), kind, _arm_tooltip(name, its))]
            drawn.append(
                label(x, CURVE_HEIGHT - _CURVE_BOTTOM + 18, {"no_skill": "none", "finalist": "new"}.get(name, name))
            )
    return drawn


def _arm_tooltip(name: str, its: MeanInterval) -> str:
    return f"{name.replace('_', '-')} on the test: {format_mean(its)}"


def format_mean(its: MeanInterval) -> str:
    """Return a mean with its interval and n."""
    return f"{its.mean:.3f} (95 % {its.low:.3f} to {its.high:.3f}, n = {its.n})"


_STEP, _ROW, _LEFT, _TOP = 96, 54, 40, 30
_MAX_TOOLTIP = 60


def draw_lineage(facts: RunFacts) -> Node:
    """Return the tree from left to right, one column for each iteration; a node leads to its diff below."""
    places = _node_places(facts.tried)
    width = _LEFT * 2 + _STEP * max((one.iteration for one in facts.tried), default=0) + 60
    height = _TOP * 2 + _ROW * max(row for _, row in places.values())
    return svg(viewBox=f"0 0 {width} {height}", style=f"max-width:{width}px", role="img", aria_label="lineage")[
        [_draw_edges(one, places) for one in facts.tried],
        [_draw_node(one, places) for one in facts.tried],
    ]


def _node_places(tried: list[CandidateFacts]) -> dict[str, tuple[float, int]]:
    """Return a column and a row for each: a first child stays in its parent's row, the next opens one."""
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


def _node_position(one: str, places: dict[str, tuple[float, int]]) -> tuple[float, float]:
    x, row = places[one]
    return x, _TOP + _ROW * row


def _draw_edges(one: CandidateFacts, places: dict[str, tuple[float, int]]) -> Node:
    x, y = _node_position(one.name, places)
    drawn = []
    for parent in one.parents:
        if parent in places:
            x0, y0 = _node_position(parent, places)
            middle = (x0 + x) / 2
            drawn.append(path(class_="edge", d=f"M{x0},{y0}C{middle},{y0} {middle},{y} {x},{y}"))
    return drawn


def _draw_node(one: CandidateFacts, places: dict[str, tuple[float, int]]) -> Node:
    x, y = _node_position(one.name, places)
    gained = "" if one.delta is None else f"{100 * one.delta:+.1f}"
    said = f"{one.name}: {one.decision}. {'; '.join(one.operations)[:_MAX_TOOLTIP] or one.summary[:_MAX_TOOLTIP]}"
    return link(href=f"#{one.name}")[
        g(class_=f"node {gain_class(one.delta)} {one.decision}")[title()[said], circle(cx=x, cy=y, r=15)],
        label(x, y + 4, one.name, class_="in-node"),
        label(x, y + 30, gained),
    ]


def gain_class(delta: float | None) -> str:
    """Return the class that a gain is coloured by."""
    if delta is None:
        return "none"
    return "better" if delta > 0 else "worse" if delta < 0 else "equal"


_WIDTH, _BAR, _WATERFALL_LEFT, _RIGHT = 860, 26, 150, 130


def bill_unit(facts: RunFacts) -> tuple[str, str]:
    """Return by what the bill is drawn, and how it is written: dollars if any, else tokens, else trials."""
    if facts.bill["cost"]:
        return "cost", "${:,.4f}"
    return ("tokens", "{:,.0f} tokens") if facts.bill["tokens"] else ("trials", "{:,.0f} trials")


def draw_waterfall(facts: RunFacts) -> Node:
    """Return one bar for each purpose, where the one before ended, and the sum."""
    by, written = bill_unit(facts)
    whole = facts.bill[by] or 1
    rows = [(name.replace("role:", ""), spent[by]) for name, spent in facts.spent.items()]
    x = Scale(0, whole, _WATERFALL_LEFT, _WIDTH - _RIGHT)
    drawn: list[Node] = []
    reached = 0.0
    for at, (name, value) in enumerate([*rows, ("all", whole if facts.bill[by] else 0)]):
        start = 0.0 if name == "all" else reached
        top = 6 + at * _BAR
        width = max(1.0, x(start + value) - x(start))
        drawn += [
            label(_WATERFALL_LEFT - 8, top + 14, name, "end"),
            rect(x=x(start), y=top, width=width, height=_BAR - 9, class_="bar all" if name == "all" else "bar"),
            label(x(start) + width + 6, top + 14, written.format(value), "start"),
        ]
        reached += value
    height = 12 + _BAR * (len(rows) + 1)
    return svg(viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label="what it took")[drawn]
