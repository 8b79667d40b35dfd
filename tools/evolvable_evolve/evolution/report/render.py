"""Write the report of a run: one HTML page without scripts or network, the same as text, and a JSON file."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import htpy as h
from htpy import Node, code, details, p, section, span, summary, td, th, tr
from markupsafe import Markup

from evolvable_evolve.evolution.ledger import (
    CandidateDecision,
    RunDirectory,
    fold_records,
    read_records,
    translate_damage,
)
from evolvable_evolve.evolution.report import charts, grade_table, solution_table
from evolvable_evolve.evolution.report.run_facts import CandidateFacts, RunFacts, TaskChange, collect_facts
from evolvable_evolve.evolution.task import Split
from evolvable_tools.redaction import Redactor

_BARS = "▁▂▃▄▅▆▇█"
_MAX_TASKS = 12  # names of tasks in one line


def render_text(facts: RunFacts) -> str:
    """Return the report as lines for people."""
    answer = [facts.answer] if facts.answer else []
    lines = [f"Evolution {facts.run} [{facts.label}]", *answer, facts.headline, ""]
    lines += [f"! {warning}" for warning in facts.warnings]
    measured = [one.validation.mean for one in facts.tried if one.validation is not None]
    if measured:
        # A score of 1 belongs to the highest bar too.
        bars = "".join(_BARS[min(7, int(value * 8))] for value in measured)
        lines.append(f"Validation, from 0 to 1: {bars}")
    lines += [*map(_candidate_line, facts.tried), ""]
    lines += [f"Optimizer: {facts.optimizer}."] if facts.diagnosis else []
    for one in facts.diagnosis:
        lines += [f"  Iteration {one.iteration}: {one.said}.", *(f"    {line}" for line in one.lines)]
    again = (("The base measured again", facts.base_again), ("Without anything", facts.no_skill))
    lines += [f"{what}: {charts.format_mean(its)}" for what, its in again if its is not None]
    if facts.mde is not None:
        lines.append(f"By the noise measured, the test can show a gain from about {100 * facts.mde:.0f} points.")
    tested = (facts.test or {}).items()
    lines += [f"Sealed test, {name.replace('_', '-')}: {charts.format_mean(its)}" for name, its in tested]
    lines += [] if facts.test else ["The test is sealed."]
    lines += _change_lines(facts)
    lines += _round_cost_lines(facts)
    lines += solution_table.table_lines(facts.rounds)
    lines += solution_table.aligned_lines(grade_table.grade_cells(facts.grades), 2) if facts.grades else []
    # All refusals, because people look for what a gate had against a candidate.
    bill, refused = facts.bill, [one for one in facts.gates if not one["passed"]]
    took = f"{bill['trials']:,} trials ({bill['cached']:,} cached), {bill['tokens']:,} tokens, {format_price(bill)}"
    lines.append(f"Took {took}.")
    if refused:
        lines += ["", "Refused by a gate:"]
        lines += [f"  {one['candidate'] or '-'} {one['gate']}: {one['why']}" for one in refused]
    return "\n".join(lines)


def _candidate_line(one: CandidateFacts) -> str:
    at = _describe_validation(one)
    gained = "" if one.delta is None or not one.parents else f", {100 * one.delta:+.1f} against {one.parents[0]}"
    what = f": {one.summary}" if one.summary else ""
    return f"  {one.name:<5} {one.decision:<12} {at}{gained}{what}"


def _describe_validation(one: CandidateFacts) -> str:
    if one.decision == CandidateDecision.INDECISIVE:
        return f"not compared: {one.reason}"
    return charts.format_mean(one.validation) if one.validation else "not measured"


def _round_cost_lines(facts: RunFacts) -> list[str]:
    costs = [solution_table.RoundCost(**one) for one in facts.verdict.get("rounds", ())]
    return [f"In the test {facts.best} took: {'; '.join(map(str, costs))}."] if costs else []


def _change_lines(facts: RunFacts) -> list[str]:
    found = [f"In test: {_counted(facts.test_changes)}."] if facts.test_changes else []
    for change, split in product(("fixed", "broken", "unstable"), (Split.TRAIN, Split.VAL)):
        tasks = [flip.task for flip in facts.flips if flip.change == change and flip.split == split]
        if tasks:
            more = f" and {len(tasks) - _MAX_TASKS} more" if len(tasks) > _MAX_TASKS else ""
            found.append(f"{change.capitalize()} in {split}: {', '.join(tasks[:_MAX_TASKS])}{more}")
    return found


def _counted(changes: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {change}" for change, number in changes.items())


def format_price(bill: Mapping[str, Any]) -> str:
    """Return what was paid. A call without a known price is never shown as free."""
    if not bill["unpriced"]:
        return f"${bill['cost']:.4f}"
    unknown = f"{bill['unpriced']:,} without a known price"
    return f"${bill['cost']:.4f} and {unknown}" if bill["cost"] else unknown


MAX_TASK_ROWS = 300
"""The most tasks in the table; the JSON has all."""

_UNFOLDED = 30  # tasks up to which the table is open


def render_page(facts: RunFacts) -> str:
    """Return the report as an HTML page."""
    about_lineage = "An edge is a change, its number what it gained on validation, in points."
    said = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title[f"Evolution {facts.run}"],
            h.style[Markup(Path(__file__).with_name("style.css").read_text("utf-8"))],
        ],
        h.body[
            _header(facts),
            _learning(facts),
            _section("lineage", "Lineage", about_lineage, charts.draw_lineage(facts)),
            _section("candidates", "Candidates", "", *map(_candidate_section, facts.tried)),
            _diagnosis(facts),
            _categories(facts),
            _tasks(facts),
            _resources(facts),
            _rounds(facts),
            _grades(facts),
            _section("bill", "What it took", "", charts.draw_waterfall(facts), _bill_table(facts)),
            _gates_section(facts),
            _provenance(facts),
        ],
    ]
    return str(said)


def _section(name: str, head: str, said: str, *what: Node) -> Node:
    return section(id=name)[h.h2[head], p(class_="said")[said] if said else None, what]


def _header(facts: RunFacts) -> Node:
    sizes = ", ".join(f"{count} {split}" for split, count in facts.tasks.items())
    return [
        h.h1["Evolution ", code[facts.run], " ", span(class_="label")[facts.label]],
        p(class_="verdict")[facts.answer] if facts.answer else None,
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
    names = list(charts.curve_axes(facts))
    switches = [
        [h.input(type="radio", name="over", id=f"over-{name}", checked=at == 0), h.label(for_=f"over-{name}")[name]]
        for at, name in enumerate(names)
    ]
    base = next((one.validation for one in facts.tried if one.decision == "base"), None)
    noise = ""
    if base is not None and facts.base_again is not None:
        noise = f" The band is the base measured twice: {base.mean:.3f} and {facts.base_again.mean:.3f}."
    # Radio buttons and style sheets switch the pictures: the page has no scripts.
    keys = "Square: base. Dot: admitted. Cross: not kept. Ring: indecisive. Star: sealed test. Bars: 95 %."
    pictures = [h.div(class_=f"over over-{name}")[charts.draw_curve(facts, name)] for name in names]
    return _section("curve", "Learning curve", keys + noise, h.div(class_="switch")[switches, pictures])


def _table(heads: Iterable[str], rows: Iterable[Sequence[Node]], class_: str = "") -> Node:
    head, body = tr[(th[one] for one in heads)], (tr[(td[cell] for cell in row)] for row in rows)
    return h.div(class_="wide")[h.table(class_=class_)[h.thead[head], h.tbody[body]]]


def _candidate_section(one: CandidateFacts) -> Node:
    gained = "" if one.delta is None else f" {100 * one.delta:+.1f} points against {', '.join(one.parents)}"
    at = _describe_validation(one)
    tag, changes = span(class_=f"tag {charts.gain_class(one.delta)}")[one.decision], (one.fixed, one.broken)
    fixed, broken = (", ".join(tasks) or "none" for tasks in changes)
    return details(id=one.name)[
        summary[h.strong[one.name], " ", tag, f" {at}{gained}"],
        p[one.summary] if one.summary else None,
        [p[code[operation]] for operation in one.operations],
        p(class_="said")[one.reason] if one.reason else None,
        [p(class_="warning")[finding] for finding in one.findings],
        p[f"Fixed: {fixed}. Broken: {broken}."] if one.parents and one.delta is not None else None,
        h.pre(class_="diff")[_diff_lines(one.diff)] if one.diff else None,
    ]


def _diff_lines(text: str) -> Node:
    kinds = {"+": "added", "-": "taken", "@": "place"}
    return [span(class_=kinds.get(line[:1], ""))[f"{line}\n"] for line in text.split("\n")]


def _diagnosis(facts: RunFacts) -> Node:
    if not facts.diagnosis:
        return None
    about = f"What {facts.optimizer} found out about the training trials of each iteration. It decides nothing."
    rounds = [
        details[summary[f"Iteration {one.iteration}: {one.said}."], [p[line] for line in [*one.lines, *one.details]]]
        for one in facts.diagnosis
    ]
    return _section("diagnosis", "Diagnosis", about, rounds)


def _categories(facts: RunFacts) -> Node:
    names = [one.name for one in facts.tried if any(one.name in row.means for row in facts.heat)]

    def cell(mean: float | None) -> Node:
        return td["-"] if mean is None else td(class_="heat", style=f"--heat:{mean:.2f}")[f"{mean:.2f}"]

    # Lists: htpy reads a generator when the page is made, after the loop: all rows would be the last.
    rows = [
        tr[th[f"{row.category or '(none)'} (n = {row.n})"], [cell(row.means.get(name)) for name in names]]
        for row in facts.heat
    ]
    heads = tr[th["category"], (th[h.a(href=f"#{name}")[name]] for name in names)]
    grid = h.div(class_="wide")[h.table(class_="grid")[h.thead[heads], h.tbody[rows]]]
    return _section("categories", "Categories", "Mean validation score of each candidate.", grid)


def _tasks(facts: RunFacts) -> Node:
    changes: dict[str, Mapping[str, int]] = {"Test": facts.test_changes}
    for split in (Split.TRAIN, Split.VAL):
        changes[split.capitalize()] = Counter(flip.change for flip in facts.flips if flip.split == split)
    counted = [f"{split}: {_counted(found)}." for split, found in changes.items() if found]
    # The report names no test task, so their changes are counts alone.
    said = " ".join([f"The base against {facts.best}.", *counted])
    shown = [flip for flip in facts.flips if flip.change != "same"][:MAX_TASK_ROWS]
    rows: list[list[Node]] = [
        [_task_cell(flip), flip.split, flip.category, f"{flip.before:.2f} to {flip.after:.2f}", _change_tag(flip)]
        for flip in shown
    ]
    note = " Unstable: the base does not agree with itself. A task that came out worse is no veto."
    grid = _table(("task", "split", "category", "score", ""), rows)
    folded = details(open=len(rows) <= _UNFOLDED)[summary[f"{len(rows)} tasks"], grid]
    return _section("tasks", "Tasks that changed", said + note, folded)


def _task_cell(flip: TaskChange) -> Node:
    if not flip.outputs:
        return code[flip.task]
    return details[summary[code[flip.task]], [p(class_="output")[output] for output in flip.outputs]]


def _change_tag(flip: TaskChange) -> Node:
    kind = {"fixed": "better", "broken": "worse"}.get(flip.change, "none")
    return span(class_=f"tag {kind}")[flip.change]


def _resources(facts: RunFacts) -> Node:
    def shown(value: float | None, form: str = ".2f") -> str:
        return "-" if value is None else f"{value:{form}}"

    rows: list[list[Node]] = []
    for one in facts.resources:
        about = (code[one.ref], one.candidate, f"{one.bytes:,}", str(one.trials), f"{one.read:.0%}")
        rows.append([*about, shown(one.score_read), shown(one.score_unread), shown(one.tokens_read, ",.0f")])
    heads = ("resource", "candidate", "bytes", "trials", "read in", "score read", "not read", "tokens a trial")
    said = "Whether the trials that had a resource also read it. An executor that does not tell reads shows 0 %."
    return _section("resources", "Resources", said, _table(heads, rows, "numbers"))


def _rounds(facts: RunFacts) -> Node:
    if not facts.rounds:
        return None
    heads, *rows = solution_table.table_cells(facts.rounds)
    said = "The answers as they stand after each round. Tokens, calls, cost and seconds are those of the round alone."
    return _section("rounds", "Rounds of answers", said, _table(heads, rows, "numbers"))


def _grades(facts: RunFacts) -> Node:
    if not facts.grades:
        return None
    heads, *rows = grade_table.grade_cells(facts.grades)
    said = "The means that the judge gave in each dimension of its rubric, 1 to 5."
    return _section("grades", "Dimensions", said, _table(heads, rows, "numbers"))


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
    grid = _table(("iteration", "candidate", "gate", "", "why"), rows)
    return _section("gates", "Gates", "Every decision and why.", grid)


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
def write_report(folder: RunDirectory, out: Path | None = None, redactor: Redactor | None = None) -> WrittenReport:
    """Write report.html and report.json of a run, finished or not, by default into its folder, and return their paths.

    redactor: removes secrets from what is shown; by default one without a person's own patterns. Raises LedgerDamaged,
    NotFound for artefacts that are gone, OSError.
    """
    records = read_records(folder)
    known = collect_facts(folder, fold_records(records), records, redactor)
    place = out or folder.path
    place.mkdir(parents=True, exist_ok=True)
    html, values = place / "report.html", place / "report.json"
    _write_atomic(html, render_page(known))
    _write_atomic(values, json.dumps(asdict(known), indent=1, ensure_ascii=False) + "\n")
    return WrittenReport(known.run, known.label, str(html), str(values), render_text(known))


def _write_atomic(path: Path, content: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8", errors="replace")
    # A browser that reloads the page while the run writes it never reads half of one.
    os.replace(draft, path)
