"""Write the report of a run: one HTML page without scripts or network, the same as text, and a JSON file."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

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

from evolvable_tools.evolve.ledger import run_directory
from evolvable_tools.evolve.ledger.run_directory import RunDirectory, translate_damage
from evolvable_tools.evolve.ledger.run_state import fold_records
from evolvable_tools.evolve.report.charts import (
    curve_axes,
    draw_curve,
    draw_lineage,
    draw_waterfall,
    format_mean,
    gain_class,
)
from evolvable_tools.evolve.report.run_facts import CandidateFacts, RunFacts, TaskChange, collect_facts

_BARS = "▁▂▃▄▅▆▇█"
_MAX_TASKS = 12


def render_text(facts: RunFacts) -> str:
    """Return the report as lines for people."""
    lines = [f"Evolution {facts.run} [{facts.label}]", facts.headline, ""]
    lines += [f"! {warning}" for warning in facts.warnings]
    lines += _curve_lines(facts)
    lines += [_candidate_line(one) for one in facts.tried]
    lines += [
        "",
        *_noise_lines(facts),
        *_test_lines(facts),
        *_change_lines(facts),
        *_bill_lines(facts),
        *_gate_lines(facts),
    ]
    return "\n".join(lines)


def sparkline(values: list[float]) -> str:
    """Return values from 0 to 1 as a row of bars."""
    return "".join(_BARS[min(7, int(value * 8))] for value in values)


def _curve_lines(facts: RunFacts) -> list[str]:
    measured = [one.validation.mean for one in facts.tried if one.validation is not None]
    return [f"Validation, from 0 to 1: {sparkline(measured)}"] if measured else []


def _candidate_line(one: CandidateFacts) -> str:
    at = format_mean(one.validation) if one.validation else "not measured"
    gained = "" if one.delta is None or not one.parents else f", {100 * one.delta:+.1f} against {one.parents[0]}"
    what = f": {one.summary}" if one.summary else ""
    return f"  {one.name:<5} {one.decision:<12} {at}{gained}{what}"


def _noise_lines(facts: RunFacts) -> list[str]:
    found = []
    if facts.base_again is not None:
        found.append(f"The base measured again: {format_mean(facts.base_again)}")
    if facts.no_skill is not None:
        found.append(f"Without anything: {format_mean(facts.no_skill)}")
    if facts.mde is not None:
        found.append(f"By the noise measured, the test can show a gain from about {100 * facts.mde:.0f} points.")
    return found


def _test_lines(facts: RunFacts) -> list[str]:
    if not facts.test:
        return ["The test is sealed."]
    return [f"Sealed test, {name.replace('_', '-')}: {format_mean(its)}" for name, its in facts.test.items()]


def _change_lines(facts: RunFacts) -> list[str]:
    found = []
    for split in ("test", "val"):
        for change in ("fixed", "broken", "unstable"):
            tasks = [flip.task for flip in facts.flips if flip.change == change and flip.split == split]
            if tasks:
                more = f" and {len(tasks) - _MAX_TASKS} more" if len(tasks) > _MAX_TASKS else ""
                found.append(f"{change.capitalize()} in {split}: {', '.join(tasks[:_MAX_TASKS])}{more}")
    return found


def _bill_lines(facts: RunFacts) -> list[str]:
    bill = facts.bill
    return [
        f"Took {bill['trials']:,} trials ({bill['cached']:,} cached), {bill['tokens']:,} tokens, {format_price(bill)}."
    ]


def format_price(bill: Mapping[str, Any]) -> str:
    """Return what was paid; what has no known price is never called free."""
    if not bill["unpriced"]:
        return f"${bill['cost']:.4f}"
    unknown = f"{bill['unpriced']:,} without a known price"
    return f"${bill['cost']:.4f} and {unknown}" if bill["cost"] else unknown


def _gate_lines(facts: RunFacts) -> list[str]:
    refused = [one for one in facts.gates if not one["passed"]]
    return (
        ["", "Refused by a gate:", *(f"  {g['candidate'] or '-'} {g['gate']}: {g['why']}" for g in refused)]
        if refused
        else []
    )


MAX_TASK_ROWS = 300
"""Tasks in the table; the JSON has all."""

_UNFOLDED = 30  # tasks


def render_page(facts: RunFacts) -> str:
    """Return the page."""
    said = html(lang="en")[
        head[
            meta(charset="utf-8"),
            meta(name="viewport", content="width=device-width, initial-scale=1"),
            title[f"Evolution {facts.run}"],
            style[Markup(Path(__file__).with_name("style.css").read_text("utf-8"))],
        ],
        body[
            _header(facts),
            _learning(facts),
            _section(
                "lineage",
                "Lineage",
                "An edge is a change, its number what it gained on validation, in points.",
                draw_lineage(facts),
            ),
            _candidates(facts),
            _categories(facts),
            _tasks(facts),
            _resources(facts),
            _section("bill", "What it took", "", draw_waterfall(facts), _bill_table(facts)),
            _gates_section(facts),
            _provenance(facts),
        ],
    ]
    return str(said)


def _section(name: str, head: str, said: str, *what: Node) -> Node:
    return section(id=name)[h2[head], p(class_="said")[said] if said else None, what]


def _header(facts: RunFacts) -> Node:
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


def _adopted(facts: RunFacts) -> Node:
    if not facts.adoption:
        return None
    undone = facts.adoption.get("undone")
    end = f" It was taken back by operation {undone}." if undone else " `evolvable undo` takes it back."
    return p[f"Adopted by operation {facts.adoption.get('operation')}.{end}"]


def _learning(facts: RunFacts) -> Node:
    names = list(curve_axes(facts))
    switches = [
        [switch(type="radio", name="over", id=f"over-{name}", checked=at == 0), label(for_=f"over-{name}")[name]]
        for at, name in enumerate(names)
    ]
    base = next((one.validation for one in facts.tried if one.decision == "base"), None)
    noise = ""
    if base is not None and facts.base_again is not None:
        noise = f" The band is the base measured twice: {base.mean:.3f} and {facts.base_again.mean:.3f}."
    keys = "Square: base. Dot: admitted. Cross: not kept. Ring: indecisive. Star: sealed test. Bars: 95 %."
    pictures = [div(class_=f"over over-{name}")[draw_curve(facts, name)] for name in names]
    return section(id="curve")[
        h2["Learning curve"], p(class_="said")[keys + noise], div(class_="switch")[switches, pictures]
    ]


def _table(heads: Iterable[str], rows: Iterable[Sequence[Node]], class_: str = "") -> Node:
    return div(class_="wide")[
        table(class_=class_)[
            thead[tr[(th[one] for one in heads)]], tbody[(tr[(td[cell] for cell in row)] for row in rows)]
        ]
    ]


def _candidates(facts: RunFacts) -> Node:
    return section(id="candidates")[h2["Candidates"], [_candidate_section(one) for one in facts.tried]]


def _candidate_section(one: CandidateFacts) -> Node:
    gained = "" if one.delta is None else f" {100 * one.delta:+.1f} points against {', '.join(one.parents)}"
    at = format_mean(one.validation) if one.validation else "not measured"
    return details(id=one.name)[
        summary[strong[one.name], " ", span(class_=f"tag {gain_class(one.delta)}")[one.decision], f" {at}{gained}"],
        p[one.summary] if one.summary else None,
        [p[code[operation]] for operation in one.operations],
        p(class_="said")[one.reason] if one.reason else None,
        [p(class_="warning")[finding] for finding in one.findings],
        p[f"Fixed: {', '.join(one.fixed) or 'none'}. Broken: {', '.join(one.broken) or 'none'}."]
        if one.parents
        else None,
        pre(class_="diff")[_diff_lines(one.diff)] if one.diff else None,
    ]


def _diff_lines(text: str) -> Node:
    kinds = {"+": "added", "-": "taken", "@": "place"}
    return [span(class_=kinds.get(line[:1], ""))[f"{line}\n"] for line in text.splitlines()]


def _categories(facts: RunFacts) -> Node:
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


def _tasks(facts: RunFacts) -> Node:
    counted = [_count_changes(facts, split) for split in ("test", "val")]
    said = " ".join(filter(None, (f"The base against {facts.best}.", *counted)))
    shown = list(islice((flip for flip in facts.flips if flip.change != "same"), MAX_TASK_ROWS))
    rows: list[list[Node]] = [
        [_task_cell(flip), flip.split, flip.category, _score_cell(flip), _change_tag(flip)] for flip in shown
    ]
    note = " Unstable: the base does not agree with itself. A task that came out worse is no veto."
    grid = _table(("task", "split", "category", "score", ""), rows)
    folded = details(open=len(rows) <= _UNFOLDED)[summary[f"{len(rows)} tasks"], grid]
    return _section("tasks", "Tasks that changed", said + note, folded)


def _count_changes(facts: RunFacts, split: str) -> str:
    counts = Counter(flip.change for flip in facts.flips if flip.split == split)
    said = ", ".join(f"{number} {change}" for change, number in counts.items())
    return f"{split.capitalize()}: {said}." if said else ""


def _task_cell(flip: TaskChange) -> Node:
    if not flip.outputs:
        return code[flip.task]
    return details[summary[code[flip.task]], [p(class_="output")[output] for output in flip.outputs]]


def _score_cell(flip: TaskChange) -> str:
    return f"{flip.before:.2f} to {flip.after:.2f}"


def _change_tag(flip: TaskChange) -> Node:
    return span(class_=f"tag {'better' if flip.change == 'fixed' else 'worse' if flip.change == 'broken' else 'none'}")[
        flip.change
    ]


def _resources(facts: RunFacts) -> Node:
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


def _bill_table(facts: RunFacts) -> Node:
    def row(name: str, spent: dict[str, object]) -> list[Node]:
        numbers = (spent["trials"], spent["cached"], spent["trouble"], spent["calls"], spent["tokens"])
        return [name.replace("role:", ""), *(f"{number:,}" for number in numbers), format_price(spent)]

    rows = [*(row(name, spent) for name, spent in facts.spent.items()), row("all", facts.bill)]
    heads = ("for", "trials", "cached", "trouble", "calls", "tokens", "cost")
    return _table(heads, rows, "numbers")


def _gates_section(facts: RunFacts) -> Node:
    rows = [
        [str(one["iteration"]), one["candidate"] or "-", one["gate"], "passed" if one["passed"] else "no", one["why"]]
        for one in facts.gates
    ]
    return _section(
        "gates", "Gates", "Every decision and why.", _table(("iteration", "candidate", "gate", "", "why"), rows)
    )


def _provenance(facts: RunFacts) -> Node:
    rows = [
        [name.replace("_", " "), code[", ".join(value) if isinstance(value, list) else str(value)]]
        for name, value in facts.provenance.items()
        if value not in ("", None, [])
    ]
    return _section("provenance", "Provenance", "", _table(("", ""), rows))


@dataclass(frozen=True)
class WrittenReport:
    """Where the report of a run is, and the same as text. label: what its figures are."""

    run: str
    label: str
    html: str
    json: str
    text: str


@translate_damage
def write_report(folder: RunDirectory, out: Path | None = None) -> WrittenReport:
    """Write report.html and report.json of a run, finished or not, by default into its folder; returns where.

    Raises LedgerDamaged, NotFound for artefacts that are gone, OSError.
    """
    records = [*run_directory.read_ledger(folder.ledger), *run_directory.read_ledger(folder.test_ledger)]
    known = collect_facts(folder, fold_records(records), records)
    place = out or folder.path
    place.mkdir(parents=True, exist_ok=True)
    html, values = place / "report.html", place / "report.json"
    _write_atomic(html, render_page(known))
    _write_atomic(values, json.dumps(asdict(known), indent=1, ensure_ascii=False) + "\n")
    return WrittenReport(known.run, known.label, str(html), str(values), render_text(known))


def _write_atomic(path: Path, content: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8", errors="replace")
    os.replace(draft, path)
