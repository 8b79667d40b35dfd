"""Quality over latency as one picture: every way to find a point, named where it stands.

Needs matplotlib.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from lookup.comparison import Measured

_OURS, _PEER, _INK, _FAINT = "#0b6e4f", "#8a8f98", "#22262b", "#e6e8eb"
_NEAR = 0.06  # of quality, about the height of a name


def draw(measured: Sequence[Measured], file: Path) -> None:
    """Write an SVG of hit@1 over the median latency, in the largest library that was measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 11, "text.color": _INK}
    )
    size = max(one.size for one in measured)
    shown = [one for one in measured if one.size == size]
    figure, axes = plt.subplots(figsize=(8, 4.8), facecolor="white")
    axes.set_xscale("log")
    for one in shown:
        colour = _OURS if one.ours else _PEER
        axes.plot(
            [one.p50 * 1e3, one.p95 * 1e3],
            [one.quality.macro.hit1] * 2,
            color=colour,
            lw=1.5,
            alpha=0.5,
        )
        axes.plot(one.p50 * 1e3, one.quality.macro.hit1, "o", color=colour, ms=9 if one.ours else 7)
        crowded = _is_crowded(one, shown)
        axes.annotate(
            f"{one.way}  {one.quality.macro.hit1:.3f}".replace("0.", "."),
            (one.p50 * 1e3, one.quality.macro.hit1),
            xytext=(-9, -4) if crowded else (0, 9),
            ha="right" if crowded else "left",
            textcoords="offset points",
            color=colour if one.ours else _INK,
            weight="bold" if one.ours else "normal",
        )
    _frame(axes, shown)
    axes.set_title(
        f"Finding the right one of {size:,} skills", loc="left", weight="bold", color=_INK, pad=14
    )
    figure.tight_layout()
    figure.savefig(file, format="svg", metadata={"Date": None})
    plt.close(figure)


def _is_crowded(one: Measured, shown: Sequence[Measured]) -> bool:
    """Return whether another way stands just above, so that its name must go beside the point."""
    height, wide = one.quality.macro.hit1, math.log(one.p50)
    others = (other for other in shown if other is not one)
    return any(
        0 <= other.quality.macro.hit1 - height < _NEAR and abs(math.log(other.p50) - wide) < 2
        for other in others
    )


def _frame(axes: object, shown: Sequence[Measured]) -> None:
    from matplotlib.axes import Axes
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    assert isinstance(axes, Axes)
    slowest, fastest = max(one.p95 for one in shown) * 1e3, min(one.p50 for one in shown) * 1e3
    axes.set_xlim(fastest / 3, slowest * 2.5)
    axes.set_ylim(0, max(one.quality.macro.hit1 for one in shown) * 1.15)
    axes.xaxis.set_major_locator(FixedLocator([0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(
        "milliseconds a task: dot p50, line to p95 (peers in process, Evolvable through "
        "MCP on stdio)"
    )
    axes.set_ylabel("first match is right (mean over families)")
    axes.grid(color=_FAINT)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
