"""The report's charts as SVG: the learning curve, the lineage of candidates, and the bill."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from htpy import Element, Node

from evolvable_evolve.evolution.report.run_facts import CandidateFacts, MeanInterval, RunFacts


def _define_element(name: str) -> Callable[..., Element]:
    """Return a function that makes an element of SVG, of which htpy has none."""
    element = Element(name)

    def make_element(**attributes: str | float) -> Element:
        # Floats are written short, to keep the page small.
        written = {
            key: f"{value:g}" if isinstance(value, float) else value
            for key, value in attributes.items()
        }
        return element(**written)

    return make_element


circle, g, line = map(_define_element, ("circle", "g", "line"))
path, rect, text = map(_define_element, ("path", "rect", "text"))
link, title, svg = map(_define_element, ("a", "title", "svg"))


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map of values from `low` to `high` to places from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        # With one value there is no span to divide by.
        span = (self.high - self.low) or 1.0
        place = self.start + (value - self.low) / span * (self.end - self.start)
        return round(place, 1)


def ticks(high: float, count: int = 5) -> list[float]:
    """Return round values from 0 to about `high`."""
    if high <= 0:
        return [0.0]
    step = 10.0 ** (len(str(int(high))) - 1) if high >= 1 else 0.1
    while high / step > count:
        # Steps of 1, 2 and 5 and their multiples by ten.
        step *= 2 if str(step).lstrip("0.")[:1] in ("1", "5") else 2.5
    while high / step < count / 2.5:
        step /= 2
    return [at * step for at in range(int(high / step) + 1)]


def mark(shape: str, x: float, y: float, kind: str, tooltip: str) -> Node:
    """Return a mark with a tooltip. shape: dot, ring, cross, square, star."""
    body: Node
    match shape:
        case "cross":
            body = path(
                d=f"M{x - 5},{y - 5}L{x + 5},{y + 5}M{x - 5},{y + 5}L{x + 5},{y - 5}",
                class_="stroke",
            )
        case "square":
            body = rect(x=x - 5, y=y - 5, width=10, height=10)
        case "star":
            body = path(d=_STAR, transform=f"translate({x},{y})", class_="star")
        case _:
            body = circle(cx=x, cy=y, r=5.5, class_="ring" if shape == "ring" else "")
    return g(class_=f"mark {kind}")[title()[tooltip], body]


def whiskers(x: float, low: float, high: float) -> Node:
    """Return an interval as a bar with ends."""
    return path(class_="whisker", d=f"M{x},{low}V{high}M{x - 3},{low}h6M{x - 3},{high}h6")


def label(x: float, y: float, caption: str, anchor: str = "middle", class_: str = "label") -> Node:
    """Return a caption whose `anchor` (start, middle or end) is at x."""
    return text(x=x, y=y, text_anchor=anchor, class_=class_)[caption]


def step_path(points: Sequence[tuple[float, float]]) -> str:
    """Return a path of steps: level to each point's place, and then to its height."""
    return "".join(f"M{x},{y}" if not at else f"H{x}V{y}" for at, (x, y) in enumerate(points))


_STAR = "M0,-8L2.4,-2.8L8,-2.4L3.6,1.2L5,7L0,3.8L-5,7L-3.6,1.2L-8,-2.4L-2.4,-2.8Z"

CURVE_WIDTH, CURVE_HEIGHT = 860, 320
_CURVE_LEFT, _CURVE_RIGHT, _CURVE_TOP, _CURVE_BOTTOM = 48, CURVE_WIDTH - 128, 16, CURVE_HEIGHT - 44

MARK_SHAPES: Mapping[str, str] = {"base": "square", "admitted": "dot", "indecisive": "ring"}
"""The shape of a decision; every other decision is a cross."""


def curve_axes(facts: RunFacts) -> dict[str, Callable[[CandidateFacts], float]]:
    """Return the axes of the curve by name: iterations, evaluations, and dollars where any were
    spent.
    """
    axes: dict[str, Callable[[CandidateFacts], float]] = {
        "iterations": lambda candidate: float(candidate.iteration),
        "evaluations": lambda candidate: float(candidate.evaluations),
    }
    if any(candidate.cost for candidate in facts.tried):
        axes["dollars"] = lambda candidate: candidate.cost
    return axes


def base_validation(facts: RunFacts) -> MeanInterval | None:
    """Return the validation score of the base, None while it is not measured."""
    bases = (candidate.validation for candidate in facts.tried if candidate.decision == "base")
    return next(bases, None)


def draw_curve(facts: RunFacts, over: str) -> Node:
    """Return the picture over one axis. The score goes from 0 to 1, always."""
    where = curve_axes(facts)[over]
    # The axis of iterations reaches to 1 at least, and no axis has a length of 0.
    least = 1.0 if over == "iterations" else 0.0
    furthest = max([least, *map(where, facts.tried)]) or 1.0
    x = Scale(0, furthest, _CURVE_LEFT + 12, _CURVE_RIGHT - 12)
    y = Scale(0, 1, _CURVE_BOTTOM, _CURVE_TOP)
    viewport = f"0 0 {CURVE_WIDTH} {CURVE_HEIGHT}"
    return svg(viewBox=viewport, role="img", aria_label=f"validation over {over}")[
        _draw_frame(x, y, furthest, over),
        _draw_noise(facts, y),
        path(class_="best", d=step_path(_trace_best(facts, where, x, y))),
        (_draw_candidate(candidate, x(where(candidate)), y) for candidate in facts.tried),
        _draw_test(facts, y),
    ]


def _draw_frame(x: Scale, y: Scale, furthest: float, over: str) -> Node:
    rows = [0.0, 0.25, 0.5, 0.75, 1.0]
    whole = over != "dollars"
    # Half an iteration or a tenth of a trial does not exist.
    columns = [value for value in ticks(furthest) if not whole or value == int(value)]
    captions = [f"{value:,.0f}" if whole else f"${value:g}" for value in columns]
    return [
        [
            line(x1=_CURVE_LEFT, x2=_CURVE_RIGHT, y1=y(value), y2=y(value), class_="grid")
            for value in rows
        ],
        [label(_CURVE_LEFT - 6, y(value) + 4, f"{value:.2f}", "end", "tick") for value in rows],
        [
            label(x(value), _CURVE_BOTTOM + 18, caption, class_="tick")
            for value, caption in zip(columns, captions, strict=True)
        ],
        label((_CURVE_LEFT + _CURVE_RIGHT) / 2, CURVE_HEIGHT - 6, over),
    ]


def _draw_noise(facts: RunFacts, y: Scale) -> Node:
    base = base_validation(facts)
    if base is None or facts.base_again is None:
        return None
    low, high = sorted((base.mean, facts.base_again.mean))
    # At least two points high, so that two equal means are still visible.
    height = max(2.0, y(low) - y(high))
    return rect(
        x=_CURVE_LEFT, y=y(high), width=_CURVE_RIGHT - _CURVE_LEFT, height=height, class_="noise"
    )


def _trace_best(
    facts: RunFacts, where: Callable[[CandidateFacts], float], x: Scale, y: Scale
) -> list[tuple[float, float]]:
    """Return the points of the best score so far, up to the right end of the curve."""
    points, best = list[tuple[float, float]](), -1.0
    for candidate in facts.tried:
        if candidate.validation is None or candidate.decision not in ("base", "admitted"):
            continue
        if candidate.validation.mean > best:
            best = candidate.validation.mean
            points.append((x(where(candidate)), y(best)))
    if points:
        points.append((float(_CURVE_RIGHT), points[-1][1]))
    return points


def _draw_candidate(candidate: CandidateFacts, x: float, y: Scale) -> Node:
    name, decision, reason = candidate.name, candidate.decision, candidate.reason
    score = candidate.validation
    if score is None:
        tooltip = f"{name}: {decision}, not measured. {reason}"
        return mark("cross", x, y(0), "unmeasured", tooltip)
    if decision == "indecisive":
        return mark("ring", x, y(0), "indecisive", f"{name}: not compared. {reason}")
    kind = decision if decision in MARK_SHAPES else "rejected"
    tooltip = f"{name}, {decision}: {format_mean(score)}. {reason}"
    return [
        whiskers(x, y(score.low), y(score.high)),
        mark(MARK_SHAPES.get(decision, "cross"), x, y(score.mean), kind, tooltip),
        label(x + 8, y(score.mean) - 8, name, "start"),
    ]


def _draw_test(facts: RunFacts, y: Scale) -> Node:
    rule = line(x1=_CURVE_RIGHT, x2=_CURVE_RIGHT, y1=_CURVE_TOP, y2=_CURVE_BOTTOM, class_="grid")
    if not facts.test:
        return [rule, label(_CURVE_RIGHT + 8, _CURVE_TOP + 12, "test sealed", "start")]
    drawn: list[Node] = [rule, label(_CURVE_RIGHT + 8, CURVE_HEIGHT - 6, "sealed test", "start")]
    arms = (
        ("base", "base", "base"),
        ("finalist", "admitted", "new"),
        ("no_skill", "rejected", "none"),
    )
    for at, (name, kind, caption) in enumerate(arms):
        interval = facts.test.get(name)
        if interval is not None:
            x = _CURVE_RIGHT + 26 + 40 * at
            tooltip = f"{name.replace('_', '-')} on the test: {format_mean(interval)}"
            drawn += [
                whiskers(x, y(interval.low), y(interval.high)),
                mark("star", x, y(interval.mean), kind, tooltip),
                label(x, _CURVE_BOTTOM + 18, caption),
            ]
    return drawn


def format_mean(interval: MeanInterval) -> str:
    """Return a mean with its interval and n."""
    return f"{interval.mean:.3f} (95 % {interval.low:.3f} to {interval.high:.3f}, n = {interval.n})"


_STEP, _ROW, _LEFT, _TOP = 96, 54, 40, 30
_MAX_TOOLTIP = 60
"""Characters of the operations in a tooltip."""


def draw_lineage(facts: RunFacts) -> Node:
    """Return the tree of candidates from left to right, one column for each iteration.

    A node is a link to its diff below.
    """
    places = _place_nodes(facts.tried)
    columns = max((candidate.iteration for candidate in facts.tried), default=0)
    width = _LEFT * 2 + _STEP * columns + 60
    height = _TOP + max(y for _, y in places.values())
    return svg(
        viewBox=f"0 0 {width} {height}",
        width=width,
        class_="natural",
        role="img",
        aria_label="lineage",
    )[
        [_draw_edges(candidate, places) for candidate in facts.tried],
        [_draw_node(candidate, places) for candidate in facts.tried],
    ]


def _place_nodes(tried: list[CandidateFacts]) -> dict[str, tuple[int, int]]:
    """Return the place of each candidate: a first child in its parent's row, each further one in a
    new row.
    """
    places: dict[str, tuple[int, int]] = {}
    taken_rows: set[str] = set()
    for candidate in tried:
        parent = candidate.parents[0] if candidate.parents else ""
        if parent in places and parent not in taken_rows:
            y = places[parent][1]
            taken_rows.add(parent)
        else:
            y = max((y + _ROW for _, y in places.values()), default=_TOP)
        places[candidate.name] = (_LEFT + _STEP * candidate.iteration, y)
    return places


def _draw_edges(candidate: CandidateFacts, places: dict[str, tuple[int, int]]) -> Node:
    x, y = places[candidate.name]
    drawn = []
    for x0, y0 in (places[parent] for parent in candidate.parents if parent in places):
        middle = (x0 + x) / 2
        drawn.append(path(class_="edge", d=f"M{x0},{y0}C{middle},{y0} {middle},{y} {x},{y}"))
    return drawn


def _draw_node(candidate: CandidateFacts, places: dict[str, tuple[int, int]]) -> Node:
    x, y = places[candidate.name]
    gained = "" if candidate.delta is None else f"{100 * candidate.delta:+.1f}"
    what = ("; ".join(candidate.operations) or candidate.summary)[:_MAX_TOOLTIP]
    tooltip = f"{candidate.name}: {candidate.decision}. {what}"
    kind = f"node {gain_class(candidate.delta)} {candidate.decision}"
    return link(href=f"#{candidate.name}")[
        g(class_=kind)[title()[tooltip], circle(cx=x, cy=y, r=15)],
        label(x, y + 4, candidate.name, class_="in-node"),
        label(x, y + 30, gained),
    ]


def gain_class(delta: float | None) -> str:
    """Return the CSS class that a gain is coloured by."""
    if delta is None:
        return "none"
    return "better" if delta > 0 else "worse" if delta < 0 else "equal"


_WIDTH, _BAR, _WATERFALL_LEFT, _RIGHT = 860, 26, 150, 130

_UNITS = {"cost": "${:,.4f}", "tokens": "{:,.0f} tokens", "trials": "{:,.0f} trials"}
"""Units of the bill with their format; the first of which there is any is drawn."""


def draw_waterfall(facts: RunFacts) -> Node:
    """Return one bar for each purpose, beginning where the one before ended, and the sum."""
    unit = next((unit for unit in _UNITS if facts.bill[unit]), "trials")
    total = facts.bill[unit]
    rows = [(name.replace("role:", ""), spent[unit]) for name, spent in facts.spent.items()]
    rows.append(("all", total))
    x = Scale(0, total or 1, _WATERFALL_LEFT, _WIDTH - _RIGHT)
    drawn: list[Node] = []
    reached = 0.0
    for at, (name, value) in enumerate(rows):
        start = 0.0 if name == "all" else reached
        top = 6 + at * _BAR
        width = max(1.0, x(start + value) - x(start))
        drawn += [
            label(_WATERFALL_LEFT - 8, top + 14, name, "end"),
            rect(
                x=x(start),
                y=top,
                width=width,
                height=_BAR - 9,
                class_="bar all" if name == "all" else "bar",
            ),
            label(x(start) + width + 6, top + 14, _UNITS[unit].format(value), "start"),
        ]
        reached += value
    height = 12 + _BAR * len(rows)
    viewport = f"0 0 {_WIDTH} {height}"
    return svg(viewBox=viewport, role="img", aria_label="what it took")[drawn]
