"""The report as one HTML page that needs nothing else: no script, no network, its own pictures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from htpy import (
    Node,
    a,
    body,
    code,
    details,
    div,
    h1,
    h2,
    head,
    html,
    label,
    meta,
    p,
    pre,
    section,
    span,
    strong,
    style,
    summary,
    table,
    tbody,
    td,
    th,
    thead,
    title,
    tr,
)
from htpy import (
    input as switch,
)
from markupsafe import Markup

from evolvable_tools.evolve.report.curve import axes, curve, spoken
from evolvable_tools.evolve.report.facts import Facts, Flip, Tried
from evolvable_tools.evolve.report.lineage import lineage, shade
from evolvable_tools.evolve.report.style import STYLE
from evolvable_tools.evolve.report.text import price
from evolvable_tools.evolve.report.waterfall import waterfall

MOST_FLIPS = 300
"""Tasks in the table; the JSON has all."""

_UNFOLDED = 30  # tasks


def page(facts: Facts) -> str:
    """Returns the page."""
    said = html(lang="en")[
        head[
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            title[f"Evolution {facts.run}"],
            style[Markup(STYLE)],
        ],
        body[
            _top(facts),
            _learning(facts),
            _section(
                "lineage",
                "Lineage",
                "An edge is a change, its number what it gained on validation, in points.",
                lineage(facts),
            ),
            _candidates(facts),
            _categories(facts),
            _tasks(facts),
            _resources(facts),
            _section("bill", "What it took", "", waterfall(facts), _bill(facts)),
            _gates(facts),
            _provenance(facts),
        ],
    ]
    return str(said)


def _section(name: str, head: str, said: str, *what: Node) -> Node:
    return section(id=name)[h2[head], p(class_="said")[said] if said else None, what]


def _top(facts: Facts) -> Node:
    sizes = ", ".join(f"{count} {split}" for split, count in facts.tasks.items())
    return [
        h1["Evolution ", code[facts.run], " ", span(class_="label")[facts.label]],
        p(class_=f"verdict {(facts.ruling or 'open').lower().replace(' ', '-')}")[facts.headline],
        p(class_="said")[
            f"Tasks: {sizes}. Every figure here is {facts.label}. Validation chose among candidates and overstates;"
            " only the sealed test is a claim."
        ],
        [p(class_="warning")[warning] for warning in facts.warnings],
        _adopted(facts),
    ]


def _adopted(facts: Facts) -> Node:
    if not facts.adoption:
        return None
    undone = facts.adoption.get("undone")
    end = f" It was taken back by operation {undone}." if undone else " `evolvable undo` takes it back."
    return p[f"Adopted by operation {facts.adoption.get('operation')}.{end}"]


def _learning(facts: Facts) -> Node:
    names = list(axes(facts))
    switches = [
        [switch(type="radio", name="over", id=f"over-{name}", checked=at == 0), label(for_=f"over-{name}")[name]]
        for at, name in enumerate(names)
    ]
    base = next((one.validation for one in facts.tried if one.decision == "base"), None)
    noise = ""
    if base is not None and facts.base_again is not None:
        noise = f" The band is the base measured twice: {base.mean:.3f} and {facts.base_again.mean:.3f}."
    keys = "Square: base. Dot: admitted. Cross: not kept. Ring: indecisive. Star: sealed test. Bars: 95 %."
    pictures = [div(class_=f"over over-{name}")[curve(facts, name)] for name in names]
    return section(id="curve")[
        h2["Learning curve"], p(class_="said")[keys + noise], div(class_="switch")[switches, pictures]
    ]


def _table(heads: Iterable[str], rows: Iterable[Sequence[Node]], class_: str = "") -> Node:
    return div(class_="wide")[
        table(class_=class_)[
            thead[tr[(th[one] for one in heads)]], tbody[(tr[(td[cell] for cell in row)] for row in rows)]
        ]
    ]


def _candidates(facts: Facts) -> Node:
    return section(id="candidates")[h2["Candidates"], [_candidate(one) for one in facts.tried]]


def _candidate(one: Tried) -> Node:
    gained = "" if one.delta is None else f" {100 * one.delta:+.1f} points against {', '.join(one.parents)}"
    at = spoken(one.validation) if one.validation else "not measured"
    return details(id=one.name)[
        summary[strong[one.name], " ", span(class_=f"tag {shade(one.delta)}")[one.decision], f" {at}{gained}"],
        p[one.summary] if one.summary else None,
        [p[code[operation]] for operation in one.operations],
        p(class_="said")[one.reason] if one.reason else None,
        [p(class_="warning")[finding] for finding in one.findings],
        p[f"Fixed: {', '.join(one.fixed) or 'none'}. Broken: {', '.join(one.broken) or 'none'}."]
        if one.parents
        else None,
        pre(class_="diff")[_diff(one.diff)] if one.diff else None,
    ]


def _diff(text: str) -> Node:
    kinds = {"+": "added", "-": "taken", "@": "place"}
    return [span(class_=kinds.get(line[:1], ""))[f"{line}\n"] for line in text.splitlines()]


def _categories(facts: Facts) -> Node:
    names = [one.name for one in facts.tried if any(one.name in row.means for row in facts.heat)]
    rows = [
        tr[
            th[f"{row.category or '(none)'} (n = {row.n})"],
            # A list: htpy reads a generator when the page is made, after the loop: all rows would be the last.
            [
                td(class_="heat", style=f"--heat:{row.means[name]:.2f}")[f"{row.means[name]:.2f}"]
                if name in row.means
                else td["-"]
                for name in names
            ],
        ]
        for row in facts.heat
    ]
    heads = tr[th["category"], (th[a(href=f"#{name}")[name]] for name in names)]
    grid = div(class_="wide")[table(class_="grid")[thead[heads], tbody[rows]]]
    return _section("categories", "Categories", "Mean validation score of each candidate.", grid)


def _tasks(facts: Facts) -> Node:
    counted = [_counted(facts, split) for split in ("test", "val")]
    said = " ".join(filter(None, (f"The base against {facts.best}.", *counted)))
    shown = list(islice((flip for flip in facts.flips if flip.change != "same"), MOST_FLIPS))
    rows: list[list[Node]] = [[_task(flip), flip.split, flip.category, _scores(flip), _tag(flip)] for flip in shown]
    note = " Unstable: the base does not agree with itself. A task that came out worse is no veto."
    grid = _table(("task", "split", "category", "score", ""), rows)
    folded = details(open=len(rows) <= _UNFOLDED)[summary[f"{len(rows)} tasks"], grid]
    return _section("tasks", "Tasks that changed", said + note, folded)


def _counted(facts: Facts, split: str) -> str:
    counts = Counter(flip.change for flip in facts.flips if flip.split == split)
    said = ", ".join(f"{number} {change}" for change, number in counts.items())
    return f"{split.capitalize()}: {said}." if said else ""


def _task(flip: Flip) -> Node:
    if not flip.outputs:
        return code[flip.task]
    return details[summary[code[flip.task]], [p(class_="output")[output] for output in flip.outputs]]


def _scores(flip: Flip) -> str:
    return f"{flip.before:.2f} to {flip.after:.2f}"


def _tag(flip: Flip) -> Node:
    return span(class_=f"tag {'better' if flip.change == 'fixed' else 'worse' if flip.change == 'broken' else 'none'}")[
        flip.change
    ]


def _resources(facts: Facts) -> Node:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    rows: list[list[Node]] = [
        [
            code[one.ref],
            one.candidate,
            f"{one.bytes:,}",
            str(one.trials),
            f"{one.read:.0%}",
            share(one.score_read),
            share(one.score_unread),
            "-" if one.tokens_read is None else f"{one.tokens_read:,.0f}",
        ]
        for one in facts.resources
    ]
    heads = ("resource", "candidate", "bytes", "trials", "read in", "score read", "not read", "tokens a trial")
    said = "Whether the trials that had a resource also read it. An executor that does not tell reads shows 0 %."
    return _section("resources", "Resources", said, _table(heads, rows, "numbers"))


def _bill(facts: Facts) -> Node:
    def row(name: str, spent: dict[str, object]) -> list[Node]:
        numbers = (spent["trials"], spent["cached"], spent["trouble"], spent["calls"], spent["tokens"])
        return [name.replace("role:", ""), *(f"{number:,}" for number in numbers), price(spent)]

    rows = [*(row(name, spent) for name, spent in facts.spent.items()), row("all", facts.bill)]
    heads = ("for", "trials", "cached", "trouble", "calls", "tokens", "cost")
    return _table(heads, rows, "numbers")


def _gates(facts: Facts) -> Node:
    rows = [
        [str(one["iteration"]), one["candidate"] or "-", one["gate"], "passed" if one["passed"] else "no", one["why"]]
        for one in facts.gates
    ]
    return _section(
        "gates", "Gates", "Every decision and why.", _table(("iteration", "candidate", "gate", "", "why"), rows)
    )


def _provenance(facts: Facts) -> Node:
    rows = [
        [name.replace("_", " "), code[", ".join(value) if isinstance(value, list) else str(value)]]
        for name, value in facts.provenance.items()
        if value not in ("", None, [])
    ]
    return _section("provenance", "Provenance", "", _table(("", ""), rows))
