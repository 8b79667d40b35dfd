"""Write the report of a run: one HTML page without scripts or network, the same as text, and a JSON
file.
"""

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
from evolvable_evolve.evolution.report.run_facts import (
    CandidateFacts,
    RunFacts,
    TaskChange,
    collect_facts,
)
from evolvable_evolve.evolution.task import Split
from evolvable_tools.redaction import Redactor

_BARS = "▁▂▃▄▅▆▇█"
_MAX_TASKS = 12
"""Names of tasks in one line."""


def render_text(facts: RunFacts) -> str:
    """Return the report as lines for people."""
    answer = [facts.answer] if facts.answer else []
    lines = [f"Evolution {facts.run} [{facts.label}]", *answer, facts.headline, ""]
    lines += [f"! {warning}" for warning in facts.warnings]
    measured = [
        candidate.validation.mean for candidate in facts.tried if candidate.validation is not None
    ]
    if measured:
        # A score of 1 belongs to the highest bar too.
        bars = "".join(_BARS[min(7, int(value * 8))] for value in measured)
        lines.append(f"Validation, from 0 to 1: {bars}")
    lines += [*map(_candidate_line, facts.tried), ""]
    lines += [f"Optimizer: {facts.optimizer}."] if facts.diagnosis else []
    for diagnosis in facts.diagnosis:
        lines += [
            f"  Iteration {diagnosis.iteration}: {diagnosis.said}.",
            *(f"    {line}" for line in diagnosis.lines),
        ]
    for arm, interval in (
        ("The base measured again", facts.base_again),
        ("Without anything", facts.no_skill),
    ):
        if interval is not None:
            lines.append(f"{arm}: {charts.format_mean(interval)}")
    if facts.mde is not None:
        lines.append(
            "By the noise measured, the test can show a gain from about "
            f"{100 * facts.mde:.0f} points."
        )
    tested = (facts.test or {}).items()
    lines += [
        f"Sealed test, {name.replace('_', '-')}: {charts.format_mean(interval)}"
        for name, interval in tested
    ]
    lines += [] if facts.test else ["The test is sealed."]
    lines += _change_lines(facts)
    lines += _round_cost_lines(facts)
    lines += solution_table.table_lines(facts.rounds)
    if facts.grades:
        lines += solution_table.aligned_lines(grade_table.grade_cells(facts.grades), 2)
    # All refusals, because people look for what a gate had against a candidate.
    bill, refused = facts.bill, [gate for gate in facts.gates if not gate["passed"]]
    trials = f"{bill['trials']:,} trials ({bill['cached']:,} cached)"
    lines.append(f"Took {trials}, {bill['tokens']:,} tokens, {format_price(bill)}.")
    if refused:
        lines += ["", "Refused by a gate:"]
        lines += [f"  {gate['candidate'] or '-'} {gate['gate']}: {gate['why']}" for gate in refused]
    return "\n".join(lines)


def _candidate_line(candidate: CandidateFacts) -> str:
    at = _describe_validation(candidate)
    gained = ""
    if candidate.delta is not None and candidate.parents:
        gained = f", {100 * candidate.delta:+.1f} against {candidate.parents[0]}"
    what = f": {candidate.summary}" if candidate.summary else ""
    return f"  {candidate.name:<5} {candidate.decision:<12} {at}{gained}{what}"


def _describe_validation(candidate: CandidateFacts) -> str:
    if candidate.decision == CandidateDecision.INDECISIVE:
        return f"not compared: {candidate.reason}"
    return charts.format_mean(candidate.validation) if candidate.validation else "not measured"


def _round_cost_lines(facts: RunFacts) -> list[str]:
    costs = [solution_table.RoundCost(**record) for record in facts.verdict.get("rounds", ())]
    return [f"In the test {facts.best} took: {'; '.join(map(str, costs))}."] if costs else []


def _change_lines(facts: RunFacts) -> list[str]:
    lines = [f"In test: {_describe_counts(facts.test_changes)}."] if facts.test_changes else []
    for change, split in product(("fixed", "broken", "unstable"), (Split.TRAIN, Split.VAL)):
        tasks = [flip.task for flip in facts.flips if flip.change == change and flip.split == split]
        if tasks:
            more = f" and {len(tasks) - _MAX_TASKS} more" if len(tasks) > _MAX_TASKS else ""
            lines.append(f"{change.capitalize()} in {split}: {', '.join(tasks[:_MAX_TASKS])}{more}")
    return lines


def _describe_counts(changes: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {change}" for change, number in changes.items())


def format_price(bill: Mapping[str, Any]) -> str:
    """Return the cost of a bill as text. A call without a known price is never shown as free."""
    if not bill["unpriced"]:
        return f"${bill['cost']:.4f}"
    unknown = f"{bill['unpriced']:,} without a known price"
    return f"${bill['cost']:.4f} and {unknown}" if bill["cost"] else unknown


MAX_TASK_ROWS = 300
"""Tasks in the table at most; the JSON has all."""

_UNFOLDED = 30
"""Tasks up to which the table is shown unfolded."""


def render_page(facts: RunFacts) -> str:
    """Return the report as an HTML page."""
    about_lineage = "An edge is a change, its number what it gained on validation, in points."
    page = h.html(lang="en")[
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
    return str(page)


def _section(name: str, head: str, about: str, *what: Node) -> Node:
    return section(id=name)[h.h2[head], p(class_="said")[about] if about else None, what]


def _header(facts: RunFacts) -> Node:
    sizes = ", ".join(f"{count} {split}" for split, count in facts.tasks.items())
    return [
        h.h1["Evolution ", code[facts.run], " ", span(class_="label")[facts.label]],
        p(class_="verdict")[facts.answer] if facts.answer else None,
        p(class_=f"verdict {(facts.ruling or 'open').lower().replace(' ', '-')}")[facts.headline],
        p(class_="said")[
            f"Tasks: {sizes}. Every figure here is {facts.label}. Validation chose among "
            "candidates and overstates; only the sealed test is a claim."
        ],
        [p(class_="warning")[warning] for warning in facts.warnings],
        _adoption_line(facts),
    ]


def _adoption_line(facts: RunFacts) -> Node:
    if not facts.adoption:
        return None
    end = "`evolvable undo` takes it back."
    if undone := facts.adoption.get("undone"):
        end = f"It was taken back by operation {undone}."
    return p[f"Adopted by operation {facts.adoption.get('operation')}. {end}"]


def _learning(facts: RunFacts) -> Node:
    names = list(charts.curve_axes(facts))
    switches = [
        [
            h.input(type="radio", name="over", id=f"over-{name}", checked=at == 0),
            h.label(for_=f"over-{name}")[name],
        ]
        for at, name in enumerate(names)
    ]
    base = charts.base_validation(facts)
    noise = ""
    if base is not None and facts.base_again is not None:
        noise = (
            f" The band is the base measured twice: {base.mean:.3f} and "
            f"{facts.base_again.mean:.3f}."
        )
    # Radio buttons and style sheets switch the pictures: the page has no scripts.
    keys = (
        "Square: base. Dot: admitted. Cross: not kept. Ring: indecisive. Star: sealed test. "
        "Bars: 95 %."
    )
    pictures = [h.div(class_=f"over over-{name}")[charts.draw_curve(facts, name)] for name in names]
    return _section(
        "curve", "Learning curve", keys + noise, h.div(class_="switch")[switches, pictures]
    )


def _table(heads: Iterable[str], rows: Iterable[Sequence[Node]], class_: str = "") -> Node:
    head = tr[(th[heading] for heading in heads)]
    body = (tr[(td[cell] for cell in row)] for row in rows)
    return h.div(class_="wide")[h.table(class_=class_)[h.thead[head], h.tbody[body]]]


def _candidate_section(candidate: CandidateFacts) -> Node:
    gained = ""
    changed: Node = None
    if candidate.delta is not None:
        parents = ", ".join(candidate.parents)
        gained = f" {100 * candidate.delta:+.1f} points against {parents}"
    if candidate.delta is not None and candidate.parents:
        fixed, broken = ", ".join(candidate.fixed) or "none", ", ".join(candidate.broken) or "none"
        changed = p[f"Fixed: {fixed}. Broken: {broken}."]
    tag = span(class_=f"tag {charts.gain_class(candidate.delta)}")[candidate.decision]
    at = _describe_validation(candidate)
    return details(id=candidate.name)[
        summary[h.strong[candidate.name], " ", tag, f" {at}{gained}"],
        p[candidate.summary] if candidate.summary else None,
        [p[code[operation]] for operation in candidate.operations],
        p(class_="said")[candidate.reason] if candidate.reason else None,
        [p(class_="warning")[finding] for finding in candidate.findings],
        changed,
        h.pre(class_="diff")[_diff_lines(candidate.diff)] if candidate.diff else None,
    ]


def _diff_lines(text: str) -> Node:
    kinds = {"+": "added", "-": "taken", "@": "place"}
    return [span(class_=kinds.get(line[:1], ""))[f"{line}\n"] for line in text.split("\n")]


def _diagnosis(facts: RunFacts) -> Node:
    if not facts.diagnosis:
        return None
    about = (
        f"What {facts.optimizer} found out about the training trials of each iteration. It "
        "decides nothing."
    )
    rounds = [
        details[
            summary[f"Iteration {diagnosis.iteration}: {diagnosis.said}."],
            [p[line] for line in [*diagnosis.lines, *diagnosis.details]],
        ]
        for diagnosis in facts.diagnosis
    ]
    return _section("diagnosis", "Diagnosis", about, rounds)


def _categories(facts: RunFacts) -> Node:
    names = [
        candidate.name
        for candidate in facts.tried
        if any(candidate.name in row.means for row in facts.heat)
    ]

    # Lists: htpy reads a generator when the page is made, after the loop: all rows would be the
    # last.
    rows = [
        tr[
            th[f"{row.category or '(none)'} (n = {row.n})"],
            [_heat_cell(row.means.get(name)) for name in names],
        ]
        for row in facts.heat
    ]
    heads = tr[th["category"], (th[h.a(href=f"#{name}")[name]] for name in names)]
    grid = h.div(class_="wide")[h.table(class_="grid")[h.thead[heads], h.tbody[rows]]]
    return _section("categories", "Categories", "Mean validation score of each candidate.", grid)


def _heat_cell(mean: float | None) -> Node:
    if mean is None:
        return td["-"]
    return td(class_="heat", style=f"--heat:{mean:.2f}")[f"{mean:.2f}"]


def _tasks(facts: RunFacts) -> Node:
    changes: dict[str, Mapping[str, int]] = {"Test": facts.test_changes}
    for split in (Split.TRAIN, Split.VAL):
        changes[split.capitalize()] = Counter(
            flip.change for flip in facts.flips if flip.split == split
        )
    counted = [
        f"{split}: {_describe_counts(counts)}." for split, counts in changes.items() if counts
    ]
    # The report names no test task, so their changes are counts alone.
    about = " ".join([f"The base against {facts.best}.", *counted])
    changed = [flip for flip in facts.flips if flip.change != "same"][:MAX_TASK_ROWS]
    rows: list[list[Node]] = [
        [
            _task_cell(flip),
            flip.split,
            flip.category,
            f"{flip.before:.2f} to {flip.after:.2f}",
            _change_tag(flip),
        ]
        for flip in changed
    ]
    note = " Unstable: the base does not agree with itself. A task that came out worse is no veto."
    grid = _table(("task", "split", "category", "score", ""), rows)
    folded = details(open=len(rows) <= _UNFOLDED)[summary[f"{len(rows)} tasks"], grid]
    return _section("tasks", "Tasks that changed", about + note, folded)


def _task_cell(flip: TaskChange) -> Node:
    if not flip.outputs:
        return code[flip.task]
    outputs = [p(class_="output")[output] for output in flip.outputs]
    return details[summary[code[flip.task]], outputs]


def _change_tag(flip: TaskChange) -> Node:
    kind = {"fixed": "better", "broken": "worse"}.get(flip.change, "none")
    return span(class_=f"tag {kind}")[flip.change]


def _resources(facts: RunFacts) -> Node:
    def format_number(value: float | None, form: str = ".2f") -> str:
        return "-" if value is None else f"{value:{form}}"

    rows: list[list[Node]] = []
    for resource in facts.resources:
        rows.append(
            [
                code[resource.ref],
                resource.candidate,
                f"{resource.bytes:,}",
                str(resource.trials),
                f"{resource.read:.0%}",
                format_number(resource.score_read),
                format_number(resource.score_unread),
                format_number(resource.tokens_read, ",.0f"),
            ]
        )
    heads = (
        "resource",
        "candidate",
        "bytes",
        "trials",
        "read in",
        "score read",
        "not read",
        "tokens a trial",
    )
    note = (
        "Whether the trials that had a resource also read it. An executor that does not tell "
        "reads shows 0 %."
    )
    return _section("resources", "Resources", note, _table(heads, rows, "numbers"))


def _rounds(facts: RunFacts) -> Node:
    if not facts.rounds:
        return None
    heads, *rows = solution_table.table_cells(facts.rounds)
    about = (
        "The answers as they stand after each round. Tokens, calls, cost and seconds are those of "
        "the round alone."
    )
    return _section("rounds", "Rounds of answers", about, _table(heads, rows, "numbers"))


def _grades(facts: RunFacts) -> Node:
    if not facts.grades:
        return None
    heads, *rows = grade_table.grade_cells(facts.grades)
    about = "The means that the judge gave in each dimension of its rubric, 1 to 5."
    return _section("grades", "Dimensions", about, _table(heads, rows, "numbers"))


def _bill_table(facts: RunFacts) -> Node:
    columns = ("trials", "cached", "trouble", "calls", "tokens")

    def make_row(name: str, spent: dict[str, Any]) -> list[Node]:
        numbers = [f"{spent[column]:,}" for column in columns]
        return [name.replace("role:", ""), *numbers, format_price(spent)]

    rows = [make_row(name, spent) for name, spent in facts.spent.items()]
    rows.append(make_row("all", facts.bill))
    return _table(("for", *columns, "cost"), rows, "numbers")


def _gates_section(facts: RunFacts) -> Node:
    rows = [
        [
            str(gate["iteration"]),
            gate["candidate"] or "-",
            gate["gate"],
            "passed" if gate["passed"] else "no",
            gate["why"],
        ]
        for gate in facts.gates
    ]
    grid = _table(("iteration", "candidate", "gate", "", "why"), rows)
    return _section("gates", "Gates", "Every decision and why.", grid)


def _provenance(facts: RunFacts) -> Node:
    rows = [
        [
            name.replace("_", " "),
            code[", ".join(value) if isinstance(value, list) else str(value)],
        ]
        for name, value in facts.provenance.items()
        if value not in ("", None, [])
    ]
    return _section("provenance", "Provenance", "", _table(("", ""), rows))


@dataclass(frozen=True)
class WrittenReport:
    """The paths of a run's report, and the report as text. label: the kind of its figures."""

    run: str
    label: str
    html: str
    json: str
    text: str


@translate_damage
def write_report(
    folder: RunDirectory, out: Path | None = None, redactor: Redactor | None = None
) -> WrittenReport:
    """Write report.html and report.json of a run, finished or not, by default into its folder, and
    return their paths.

    redactor: removes secrets from what is shown; by default one without a person's own patterns.
    Raises LedgerDamaged, NotFound for artefacts that are gone, OSError.
    """
    records = read_records(folder)
    facts = collect_facts(folder, fold_records(records), records, redactor)
    target = out or folder.path
    target.mkdir(parents=True, exist_ok=True)
    html, values = target / "report.html", target / "report.json"
    _write_atomic(html, render_page(facts))
    _write_atomic(values, json.dumps(asdict(facts), indent=1, ensure_ascii=False) + "\n")
    return WrittenReport(facts.run, facts.label, str(html), str(values), render_text(facts))


def _write_atomic(path: Path, content: str) -> None:
    # A browser that reloads the page while the run writes it never reads half of one.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(content, encoding="utf-8", errors="replace")
    os.replace(draft, path)
