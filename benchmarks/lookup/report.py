"""What was measured as rows with targets, and as one Markdown table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from support import Row, at_least, at_most, ms, ratio

from lookup.comparison import Measured
from lookup.none_fits import Negatives, percent
from lookup.scoring import Verdict, abstention, calibration_error, reliability
from lookup.speed import Intake, Times

_GOALS = {
    (True, 10_000): (0.63, 0.77),
    (False, 10_000): (0.61, 0.76),
    (True, 1_000): (0.76, 0.87),
    (True, 100): (0.88, 0.96),
    # Without an embedder at most two points are lost.
    (False, 1_000): (0.74, 0.85),
    (False, 100): (0.86, 0.94),
}
"""hit@1 and R@5 to reach, by whether there is an embedder and the size of the library."""

_LATENCY = {
    (True, 10_000): (0.012, 0.030),
    (True, 100_000): (0.060, 0.150),
    (False, 10_000): (0.008, None),
}
"""p50 and p95 not to exceed, in seconds, on a machine of the speed of that on which
they were set.
"""

_FTS5 = {10_000: (0.0089, 0.026), 100_000: (0.084, 0.220)}
"""p50 and p95 of FTS5 over one table with the body there, so that these limits can be told on any
machine.
"""

_KEPT, _FALSE = 0.80, 0.15
_SMALLEST_HELD_TO = 100
_MEMORY, _EIGHT, _SEARCHABLE = 60.0, 900.0, 8.0


def comparison_table(measured: Sequence[Measured], trivial: float | None) -> str:
    """Return the Markdown table of all ways; times, start and memory are those in the largest
    library.
    """
    sizes = sorted({one.size for one in measured})
    largest = {one.way: one for one in measured if one.size == sizes[-1]}
    scores = {(one.way, one.size): str(one.quality.macro) for one in measured}
    heads = ["", *(f"{size:,} skills" for size in sizes), "p50 / p95", "start", "memory", "prepare"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for way, one in largest.items():
        cells = [f"**{way}**" if one.ours else way, *(scores[way, size] for size in sizes)]
        cells += [f"{one.p50 * 1e3:.1f} / {one.p95 * 1e3:.1f} ms", f"{one.start:.2f} s"]
        cells += [f"{one.memory:.0f} MB", f"{one.prepare:.1f} s"]
        lines.append(f"| {' | '.join(cells)} |")
    if trivial is not None:
        cells = [
            "a trivial tool call through the same pipe",
            *("" for _ in sizes),
            f"{trivial * 1e3:.1f} ms",
        ]
        lines.append(f"| {' | '.join([*cells, '', '', ''])} |")
    lines += ["", _NOTE.format(sizes[-1])]
    return "\n".join(lines) + "\n"


_NOTE = """hit@1 / R@5 / nDCG@10, means over families of tasks. Times, start and memory with {:,}
skills, on a shared machine. The peers are written here from their descriptions; their time is taken
inside their process, that of Evolvable through MCP on stdio, limit 10. start: from the process to
the first answer over a known library. memory: above an empty Python process. prepare: from texts to
searchable, without vectors that were in the cache. These skills name no triggers."""


def quality_rows(measured: Sequence[Measured], embedder: Mapping[str, bool]) -> list[Row]:
    """Return hit@1 and R@5 of each run of Evolvable, beside what they shall reach."""
    rows = []
    for one in measured:
        if not one.ours:
            continue
        goals = _GOALS.get((embedder[one.way], one.size), (None, None))
        for name, value, goal in zip(
            ("hit@1", "R@5"),
            (one.quality.macro.hit1, one.quality.macro.recall5),
            goals,
            strict=True,
        ):
            what = f"{one.way}, {one.size:,} skills: {name}"
            rows.append(at_least(what, value, goal, _three) if goal else Row(what, _three(value)))
    return rows


def none_fits_rows(name: str, found: Mapping[int, Sequence[Verdict]]) -> list[Row]:
    """Return what is kept and what is false in libraries of each size; over all tasks, and over
    families.
    """
    rows = []
    for size, verdicts in found.items():
        told = abstention(verdicts)
        kept, wrong = (
            f"{name}, {size:,} skills: right answers kept",
            f"{name}, {size:,} skills: false answers",
        )
        if size >= _SMALLEST_HELD_TO:
            rows += [
                at_least(kept, told.kept, _KEPT, percent),
                at_most(wrong, told.false, _FALSE, percent),
            ]
        else:
            rows += [Row(kept, percent(told.kept)), Row(wrong, percent(told.false))]
        both = f"{percent(told.kept_macro)}, {percent(told.false_macro)}"
        rows.append(Row(f"{name}, {size:,} skills: both as means over families", both))
    return rows


def reliability_rows(name: str, verdicts: Sequence[Verdict]) -> list[Row]:
    """Return the reliability curve of the confidence and its expected calibration error."""
    curve = reliability([(one.confidence, one.right) for one in verdicts])
    rows = [
        Row(f"{name}, said {b.said:.0%}", f"right {b.right:.0%}", f"of {b.count:,}") for b in curve
    ]
    return [*rows, Row(f"{name}, expected calibration error", f"{calibration_error(curve):.3f}")]


def negative_rows(name: str, told: Negatives) -> list[Row]:
    """Return what tasks get that call for no skill."""
    return [
        Row(
            f"{name}: the skill that must not come first does",
            f"{told.forbidden_first} of {told.named}",
        ),
        Row(
            f"{name}: answered, though its own library has nothing",
            f"{told.answered} of {told.nothing}",
        ),
    ]


def time_rows(name: str, embedder: bool, size: int, times: Times) -> list[Row]:
    """Return the latency through MCP on stdio in a library of this size."""
    rows = []
    goals = _LATENCY.get((embedder, size), (None, None))
    for part, value, goal in zip(("p50", "p95"), (times.p50, times.p95), goals, strict=True):
        what = f"{name}, {size:,} skills, through MCP: {part}"
        rows.append(at_most(what, value, goal, ms) if goal else Row(what, ms(value)))
    rows += _beside_rows(goals, size, times)
    rows.append(Row("  of which a trivial tool call, p50", ms(times.trivial)))
    what = f"{name}, {size:,} skills, 20,000 characters: p50"
    rows.append(
        at_most(what, times.long, 2 * goals[0], ms) if goals[0] else Row(what, ms(times.long))
    )
    return [*rows, at_most("  of what an ordinary task takes", times.long_ratio, 2.0, ratio)]


def _beside_rows(goals: tuple[float | None, float | None], size: int, times: Times) -> list[Row]:
    """Return the latency as parts of what FTS5 took for the same tasks in turn."""
    every = zip(
        ("p50", "p95"),
        (times.p50, times.p95),
        (times.peer50, times.peer95),
        goals,
        _FTS5.get(size, ()),
        strict=False,
    )
    rows = []
    for part, value, theirs, goal, theirs_there in every:
        what = f"  beside FTS5 with the body in turn, {ms(theirs)}: {part}"
        limit = goal / theirs_there if goal else None
        rows.append(
            at_most(what, value / theirs, limit, ratio)
            if limit
            else Row(what, ratio(value / theirs))
        )
    return rows


def memory_row(name: str, embedder: bool, size: int, above: float) -> Row:
    """Return what a server holds above one with an empty library."""
    what = f"{name}, {size:,} skills: memory above an empty server"
    return Row(what, _mb(above)) if embedder else at_most(what, above, _MEMORY, _mb)


def eight_row(name: str, held: float) -> Row:
    return at_most(f"{name}: eight open servers in all (PSS)", held, _EIGHT, _mb)


def intake_rows(told: Intake) -> list[Row]:
    """Return how fast a folder of skills becomes searchable."""
    rate = f"{told.count / told.searchable:,.0f} a second"
    what = f"{told.count:,} skills searchable by text"
    return [
        Row("taken in by the command", f"{told.taken:.1f} s"),
        at_most(what, told.searchable, _SEARCHABLE, _s),
        Row("  rate", rate),
    ]


def markdown(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| | | target | |", "|---|---|---|---|"]
    for row in rows:
        met = "" if row.met is None else "met" if row.met else "MISSED"
        lines.append(f"| {row.what.strip()} | {row.figure} | {row.target} | {met} |")
    return "\n".join(lines) + "\n"


def write(file: Path, table: str, rows: Sequence[Row]) -> None:
    """Write both tables to a Markdown file."""
    file.write_text(f"{table}\n{markdown(rows)}", encoding="utf-8")


def _three(value: float) -> str:
    return f"{value:.3f}"


def _mb(value: float) -> str:
    return f"{value:.0f} MB"


def _s(value: float) -> str:
    return f"{value:.1f} s"
