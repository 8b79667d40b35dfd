"""The tables of the benchmark of evolution."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from support import Row

from evolvable_evolve.evolution.statistics.staged_test import clopper_pearson_upper
from evolvable_tools import metrics

_ALPHA, _NULL_WORLD, _NULL_ALPHA = 0.05, "nothing helps", 0.025
_POWER = {
    ("useful is frequent", "ours"): (0.70, 800),
    ("useful is frequent", "ours, 1,100 trials planned"): (0.80, 1_100),
    ("useful is rare", "ours"): (0.25, 860),
    ("heterogeneous, useful is frequent", "ours"): (0.55, 800),
    ("heterogeneous, useful is frequent", "ours, 1,100 trials planned"): (0.60, 1_300),
    ("staged, runs 2, 2, 2", "friendly", "+10"): (0.74, 325),
    ("staged, runs 2, 2, 2", "heterogeneous", "+10"): (0.67, 325),
    ("narrower, 20 tasks, 5 runs", "steps", "+15"): (0.78, 200),
    ("narrower, 20 tasks, 5 runs", "slopes", "+15"): (0.78, 200),
}
"""The least power, and the most trials on average, of loops in a world and of tests at a gain."""
_SCORE = {("ten categories, one missing rule each", "ours"): (0.76, 680)}
"""The least lower end of the interval of the mean true score of what is run afterwards, and the
most trials.
"""

_POWER_SEEDS = 100
"""Runs from which on a power is judged. With fewer a miss counts only where it is no chance."""


@dataclass(frozen=True, slots=True)
class Line:
    """One loop in one scenario, over all seeds.

    Shares are counts here; gains are shares of tasks.
    """

    scenario: str
    loop: str
    sizes: tuple[int, int, int]
    runs: int
    false: int
    harmful: int
    right: int
    possible: int
    gain: float
    claimed: float
    regret: float
    trials: float
    score: float = 0.0
    score_error: float = 0.0

    @property
    def score_interval(self) -> tuple[float, float]:
        """The normal 95 % interval of the mean true score of what is run afterwards."""
        width = NormalDist().inv_cdf(0.975) * self.score_error
        return self.score - width, self.score + width

    @property
    def false_interval(self) -> tuple[float, float]:
        """Wilson's interval of the share of false promotions."""
        return metrics.wilson_interval(self.false, self.runs)

    @property
    def false_limit(self) -> float:
        """The one-sided exact upper 95 % limit of the share of false promotions."""
        return clopper_pearson_upper(self.false, self.runs)


@dataclass(frozen=True, slots=True)
class AloneLine:
    """A test alone in one world, at one true gain: how often it is significant, and
    what it takes.
    """

    test: str
    world: str
    gain: str
    runs: int
    passed: int
    trials: float


def test_table(lines: Iterable[AloneLine]) -> str:
    """Return the lines of the test alone as a table in Markdown."""
    rows = [
        f"| {line.test} | {line.world} | {line.gain} | {share(line.passed, line.runs)} | "
        f"{clopper_pearson_upper(line.passed, line.runs):.1%} | {line.trials:,.0f} |\n"
        for line in lines
    ]
    head = (
        "| test | world | true gain | significant | upper 95 % limit | trials |\n"
        "|---|---|---|---|---|---|\n"
    )
    return head + "".join(rows)


HEAD = (
    "| proposals | loop | false promotions | at most | of them harmful | power | true gain | "
    "claimed | regret | trials | for each true one |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|\n"
)


def table(lines: Iterable[Line]) -> str:
    """Return the lines as tables in Markdown, one for each division of the tasks."""
    by_sizes: dict[tuple[int, int, int], list[Line]] = {}
    for line in lines:
        by_sizes.setdefault(line.sizes, []).append(line)
    return "\n".join(_table(sizes, some) for sizes, some in by_sizes.items())


def _table(sizes: tuple[int, int, int], lines: Iterable[Line]) -> str:
    lines = list(lines)
    train, val, test = sizes
    title = (
        f"Simulated, {lines[0].runs:,} seeds, {train} train, {val} validation, {test or 'no'} "
        "test tasks:\n\n"
    )
    return title + HEAD + "".join(_row(line) for line in lines)


def _row(line: Line) -> str:
    low, high = line.false_interval
    power = "" if not line.possible else share(line.right, line.possible)
    cells = (
        line.scenario,
        f"**{line.loop}**" if line.loop.startswith("ours") else line.loop,
        f"{line.false / line.runs:.1%} [{low:.1%}, {high:.1%}]",
        f"{line.false_limit:.1%}",
        f"{line.harmful / line.runs:.1%}",
        power,
        f"{100 * line.gain:+.1f}",
        f"{100 * line.claimed:+.1f}",
        f"{100 * line.regret:.1f}",
        f"{line.trials:,.0f}",
        f"{line.trials * line.runs / line.right:,.0f}" if line.right else "",
    )
    return "| " + " | ".join(cells) + " |\n"


def share(count: int, of: int) -> str:
    """Return a share with its interval."""
    low, high = metrics.wilson_interval(count, of)
    return f"{count / of:.1%} [{low:.1%}, {high:.1%}]"


def judged(alone: Sequence[AloneLine], lines: Sequence[Line], quick: bool) -> Iterator[Row]:
    """Yield what is measured beside its target.

    quick: so few seeds show that a rate is high, not that it is low.
    """
    for case in alone:
        what = f"the test alone; {case.test}; {case.world}"
        if case.gain == "+0":
            low, _ = metrics.wilson_interval(case.passed, case.runs)
            limit = clopper_pearson_upper(case.passed, case.runs)
            yield _false_row(what, case.passed / case.runs, low, limit, _ALPHA, quick)
        key = case.test, case.world, case.gain
        if key in _POWER:
            yield _power_row(
                f"{what}, {case.gain} points", case.passed, case.runs, case.trials, _POWER[key]
            )
    for line in lines:
        what = f"{line.loop}; {line.scenario}"
        alpha = _NULL_ALPHA if (line.scenario, line.loop) == (_NULL_WORLD, "ours") else _ALPHA
        yield _false_row(
            what, line.false / line.runs, line.false_interval[0], line.false_limit, alpha, quick
        )
        if target := _POWER.get((line.scenario, line.loop)):
            yield _power_row(f"{what}, power", line.right, line.possible, line.trials, target)
        if target := _SCORE.get((line.scenario, line.loop)):
            yield _score_row(f"{what}, true score", line, target)


def _score_row(what: str, line: Line, target: tuple[float, int]) -> Row:
    (low, high), (least, most) = line.score_interval, target
    measured = f"{line.score:.3f} [{low:.3f}, {high:.3f}] at {line.trials:,.0f} trials"
    return Row(
        what, measured, f"from {least:.2f} up at {most:,}", low >= least and line.trials <= most
    )


def _false_row(what: str, rate: float, low: float, limit: float, alpha: float, quick: bool) -> Row:
    met = (low if quick else limit) <= alpha
    return Row(what, f"{rate:.1%}, at most {limit:.1%}", f"at most {alpha:.1%}", met)


def _power_row(what: str, found: int, of: int, trials: float, target: tuple[float, int]) -> Row:
    least, most = target
    _, high = metrics.wilson_interval(found, of)
    met = found / of >= least and round(trials) <= most
    figure, aim = f"{found / of:.1%} at {trials:,.0f} trials", f"at least {least:.0%} at {most:,}"
    return Row(what, figure, aim, met if of >= _POWER_SEEDS or high < least else None)


def looks_text(several: Mapping[bool, int], looks: int, runs: int) -> str:
    """Return what several runs on one test come to, with looks counted and without."""
    return (
        f"Simulated, {looks} runs one after the other on one sealed test, no proposal of any use, "
        f"{runs:,} seeds: any promotes in {share(several[True], runs)} with looks counted, in "
        f"{share(several[False], runs)} without.\n"
    )
