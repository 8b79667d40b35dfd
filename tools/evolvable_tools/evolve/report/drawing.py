"""Scales and shapes for pictures: SVG elements with classes, coloured by the page's style sheet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from htpy import Element, Node


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
    """Returns round values from 0 to about `high`."""
    if high <= 0:
        return [0.0]
    step = 10.0 ** (len(str(int(high))) - 1) if high >= 1 else 0.1
    while high / step > count:
        step *= 2 if str(step).lstrip("0.")[:1] in ("1", "5") else 2.5
    while high / step < count / 2.5:
        step /= 2
    return [at * step for at in range(int(high / step) + 1)]


def mark(shape: str, x: float, y: float, kind: str, said: str) -> Node:
    """Returns a mark with a tooltip. shape: dot, ring, cross, square, star."""
    body: Node
    if shape == "cross":
        body = path(d=f"M{x - 5},{y - 5}L{x + 5},{y + 5}M{x - 5},{y + 5}L{x + 5},{y - 5}", class_="stroke")
    elif shape == "square":
        body = rect(x=x - 5, y=y - 5, width=10, height=10)
    elif shape == "star":
        body = path(d=_star(x, y), class_="star")
    else:
        body = circle(cx=x, cy=y, r=5.5, class_="ring" if shape == "ring" else "")
    return g(class_=f"mark {kind}")[title()[said], body]


def whiskers(x: float, low: float, high: float) -> Node:
    """Returns an interval as a bar with ends."""
    return path(class_="whisker", d=f"M{x},{low}V{high}M{x - 3},{low}h6M{x - 3},{high}h6")


def label(x: float, y: float, said: str, anchor: str = "middle", class_: str = "label") -> Node:
    return text(x=x, y=y, text_anchor=anchor, class_=class_)[said]


def steps(points: Sequence[tuple[float, float]]) -> str:
    """Returns a path that goes level to each point's place and then to its height."""
    return "".join(f"M{x},{y}" if not at else f"H{x}V{y}" for at, (x, y) in enumerate(points))


def _star(x: float, y: float) -> str:
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
