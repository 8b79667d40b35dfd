"""The tables of the benchmark of evolution."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evolvable_tools import metrics
from evolvable_tools.evolve.statistics.staged_test import clopper_pearson_upper


@dataclass(frozen=True, slots=True)
class Line:
    """One loop in one scenario, over all seeds. Shares are counts here; gains are shares of tasks."""

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

    @property
    def false_interval(self) -> tuple[float, float]:
        """Wilson's interval of the share of false promotions."""
        return metrics.wilson_interval(self.false, self.runs)

    @property
    def false_limit(self) -> float:
        """The one-sided exact upper 95 % limit of the share of false promotions."""
        return clopper_pearson_upper(self.false, self.runs)


@dataclass(frozen=True, slots=True)
class TestLine:
    """The sealed test alone in one world, at one true gain: how often it is significant, and what it takes."""

    world: str
    gain: str
    runs: int
    passed: int
    trials: float


def test_table(lines: Iterable[TestLine]) -> str:
    """Return the lines of the test alone as a table in Markdown."""
    rows = [
        f"| {line.world} | {line.gain} | {share(line.passed, line.runs)} | "
        f"{clopper_pearson_upper(line.passed, line.runs):.1%} | {line.trials:,.0f} |\n"
        for line in lines
    ]
    head = "| world | true gain | significant | upper 95 % limit | trials |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


HEAD = (
    "| proposals | loop | false promotions | at most | of them harmful | power | true gain | claimed | regret"
    " | trials | for each true one |\n"
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
    title = f"Simulated, {lines[0].runs:,} seeds, {train} train, {val} validation, {test or 'no'} test tasks:\n\n"
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


def looks_text(several: Mapping[bool, int], looks: int, runs: int) -> str:
    """Return what several runs on one test come to, with looks counted and without."""
    return (
        f"Simulated, {looks} runs one after the other on one sealed test, no proposal of any use, {runs:,} seeds: any "
        f"promotes in {share(several[True], runs)} with looks counted, in {share(several[False], runs)} without.\n"
    )
