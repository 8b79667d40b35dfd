"""What each idea adds: any functions from a task to ranked ids, on the same libraries and tasks."""

from collections.abc import Callable, Iterable, Sequence

from lookup.data import Library, Record, answerable
from lookup.scoring import Quality, quality

Idea = tuple[str, Callable[[str], Sequence[str]]]
"""A name, and a way to rank the ids of one library for a task, best first."""


def rated(ideas: Iterable[Idea], library: Library, queries: Sequence[Record]) -> list[tuple[str, Quality]]:
    """Returns what each idea is worth on the tasks that the library can answer, in the order given."""
    asked = answerable(queries, library.ids)
    return [(name, quality((query, rank(query["text"])) for query in asked)) for name, rank in ideas]


def table(rows: Sequence[tuple[str, Quality]]) -> str:
    """Returns a Markdown table with the gain of every idea over the one before, in points of hit@1 and R@5."""
    lines = ["| idea | hit@1 / R@5 / nDCG@10 | gain in hit@1 | in R@5 |", "|---|---|---|---|"]
    for at, (name, its) in enumerate(rows):
        before = rows[max(0, at - 1)][1].macro
        gains = (its.macro.hit1 - before.hit1, its.macro.recall5 - before.recall5)
        shown = " | ".join(f"{100 * gain:+.1f}" if at else "" for gain in gains)
        lines.append(f"| {name} | {its.macro} | {shown} |")
    return "\n".join(lines) + "\n"
