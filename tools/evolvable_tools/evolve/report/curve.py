"""The learning curve: validation of each candidate, the noise of the base against itself, and the sealed test."""

from collections.abc import Callable, Mapping

from htpy import Node

from evolvable_tools.evolve.report.drawing import Scale, label, line, mark, path, rect, steps, svg, ticks, whiskers
from evolvable_tools.evolve.report.facts import Arm, Facts, Tried

WIDTH, HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 140, 16, 44

SHAPES: Mapping[str, str] = {"base": "square", "admitted": "dot", "indecisive": "ring"}
"""How a decision is drawn; whatever was not kept is a cross."""


def axes(facts: Facts) -> dict[str, Callable[[Tried], float]]:
    """Returns what the curve can be drawn over: iterations, evaluations, and dollars where any were spent."""
    found: dict[str, Callable[[Tried], float]] = {
        "iterations": lambda one: float(one.iteration),
        "evaluations": lambda one: float(one.evaluations),
    }
    if any(one.cost for one in facts.tried):
        found["dollars"] = lambda one: one.cost
    return found


def curve(facts: Facts, over: str) -> Node:
    """Returns the picture over one axis. The score goes from 0 to 1, always."""
    where = axes(facts)[over]
    furthest = max([where(one) for one in facts.tried] + [1.0 if over == "iterations" else 0.0]) or 1.0
    x = Scale(0, furthest, _LEFT + 12, WIDTH - _RIGHT)
    y = Scale(0, 1, HEIGHT - _BOTTOM, _TOP)
    return svg(viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"validation over {over}")[
        _frame(x, y, furthest, over),
        _noise(facts, y),
        path(class_="best", d=steps(_best_so_far(facts, where, x, y))),
        (_candidate(one, x(where(one)), y) for one in facts.tried),
        _test(facts, y),
    ]


def _frame(x: Scale, y: Scale, furthest: float, over: str) -> Node:
    right, bottom = WIDTH - _RIGHT + 12, HEIGHT - _BOTTOM
    rows = [0.0, 0.25, 0.5, 0.75, 1.0]
    whole = over != "dollars"
    return [
        [line(x1=_LEFT, x2=right, y1=y(value), y2=y(value), class_="grid") for value in rows],
        [label(_LEFT - 6, y(value) + 4, f"{value:.2f}", "end", "tick") for value in rows],
        [
            label(x(value), bottom + 18, f"{value:,.0f}" if whole else f"${value:g}", class_="tick")
            for value in ticks(furthest)
            if not whole or value == int(value)
        ],
        label((_LEFT + right) / 2, HEIGHT - 6, over),
    ]


def _noise(facts: Facts, y: Scale) -> Node:
    base = next((one.validation for one in facts.tried if one.decision == "base"), None)
    if base is None or facts.base_again is None:
        return None
    high, low = max(base.mean, facts.base_again.mean), min(base.mean, facts.base_again.mean)
    band = max(2.0, y(low) - y(high))
    return rect(x=_LEFT, y=y(high), width=WIDTH - _RIGHT + 12 - _LEFT, height=band, class_="noise")


def _best_so_far(facts: Facts, where: Callable[[Tried], float], x: Scale, y: Scale) -> list[tuple[float, float]]:
    points, best = list[tuple[float, float]](), -1.0
    for one in facts.tried:
        if one.validation is not None and one.decision in ("base", "admitted") and one.validation.mean > best:
            best = one.validation.mean
            points.append((x(where(one)), y(best)))
    if points:
        points.append((WIDTH - _RIGHT + 12.0, points[-1][1]))
    return points


def _candidate(one: Tried, x: float, y: Scale) -> Node:
    kind = one.decision if one.decision in SHAPES else "rejected"
    if one.validation is None:
        return mark("cross", x, y(0), "unmeasured", f"{one.name}: {one.decision}, not measured. {one.reason}")
    at, said = one.validation, f"{one.name}, {one.decision}: {spoken(one.validation)}. {one.reason}"
    return [
        whiskers(x, y(at.low), y(at.high)),
        mark(SHAPES.get(one.decision, "cross"), x, y(at.mean), kind, said),
        label(x + 8, y(at.mean) - 8, one.name, "start"),
    ]


def _test(facts: Facts, y: Scale) -> Node:
    right = WIDTH - _RIGHT + 12
    rule = line(x1=right, x2=right, y1=_TOP, y2=HEIGHT - _BOTTOM, class_="grid")
    if not facts.test:
        return [rule, label(right + 8, _TOP + 12, "test sealed", "start")]
    drawn: list[Node] = [rule, label(right + 8, HEIGHT - 6, "sealed test", "start")]
    for at, (name, kind) in enumerate((("base", "base"), ("finalist", "admitted"), ("no_skill", "rejected"))):
        its = facts.test.get(name)
        if its is not None:
            x = right + 26 + 40 * at
            drawn += [whiskers(x, y(its.low), y(its.high)), mark("star", x, y(its.mean), kind, _arm(name, its))]
            drawn.append(label(x, HEIGHT - _BOTTOM + 18, {"no_skill": "none", "finalist": "new"}.get(name, name)))
    return drawn


def _arm(name: str, its: Arm) -> str:
    return f"{name.replace('_', '-')} on the test: {spoken(its)}"


def spoken(its: Arm) -> str:
    """Returns a mean with its interval and n."""
    return f"{its.mean:.3f} (95 % {its.low:.3f} to {its.high:.3f}, n = {its.n})"
