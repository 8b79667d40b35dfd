"""What a report says of a run, as plain values: the JSON, the page and the text are made of nothing else."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolvable_tools.evolve.report.judges import judge_warnings
from evolvable_tools.evolve.report.provenance import provenance
from evolvable_tools.evolve.report.resources import Resource, resources
from evolvable_tools.evolve.run_folder import RunFolder
from evolvable_tools.evolve.run_state import Candidate, GateEntry, Record, RunState, Spent
from evolvable_tools.evolve.statistics.bootstrap import paired_interval
from evolvable_tools.evolve.task import Split
from evolvable_tools.metrics import wilson_interval

MOST_SHOWN = 400
"""Characters of an output in the report."""


@dataclass(frozen=True)
class Arm:
    """The mean score of one program over `n` tasks, with both ends of its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Tried:
    """One candidate, the base included. validation: None while it is not measured. diff: against its first parent."""

    name: str
    digest: str
    iteration: int
    parents: list[str]
    operations: list[str]
    summary: str
    changed: list[str]
    decision: str
    reason: str
    validation: Arm | None
    delta: float | None
    fixed: list[str]
    broken: list[str]
    findings: list[str]
    size: int
    evaluations: int
    cost: float
    diff: str


@dataclass(frozen=True)
class Flip:
    """One task under the base and under the best. change: fixed, broken, unstable (the base differs from itself), same.

    outputs: what either arm gave, cut, with the outcome; only of tasks that are not sealed.
    """

    task: str
    category: str
    split: str
    before: float
    after: float
    change: str
    outputs: list[str]


@dataclass(frozen=True)
class Heat:
    """One category: how many validation tasks it has, and the mean score of each candidate that was measured."""

    category: str
    n: int
    means: dict[str, float]


@dataclass(frozen=True)
class Facts:
    """All that is known of a run, for people. label: what its figures are: simulated, scripted or a model's name.

    best: the name of the finalist, or of the best so far. base_again: the base measured a second time (A/A). test: by
    arm (base, finalist, no_skill), None while sealed. per_solved: what each further solved test task costs in tokens.
    """

    run: str
    label: str
    phase: str
    headline: str
    ruling: str
    best: str
    exploratory: bool
    warnings: list[str]
    tasks: dict[str, int]
    tried: list[Tried]
    frontier: list[str]
    base_again: Arm | None
    no_skill: Arm | None
    mde: float | None
    test: dict[str, Arm] | None
    verdict: dict[str, Any]
    heat: list[Heat]
    flips: list[Flip]
    resources: list[Resource]
    spent: dict[str, dict[str, Any]]
    bill: dict[str, Any]
    gates: list[dict[str, Any]]
    adoption: dict[str, Any]
    provenance: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def facts(folder: RunFolder, state: RunState, records: Sequence[Record]) -> Facts:
    """Returns what there is to say of a run, at any time of it. records: of both of its ledgers."""
    names = {digest: one.name for digest, one in state.candidates.items()}
    diffs = {record["candidate"]: record.get("diff") for record in records if record["type"] == "built"}
    finalist = str(state.verdict.get("candidate") or state.best)
    return Facts(
        run=state.run,
        label=state.label,
        phase=str(state.phase),
        headline=headline(state, names.get(finalist, "")),
        ruling=str(state.verdict.get("verdict", "")),
        best=names.get(finalist, ""),
        exploratory=state.exploratory,
        warnings=[*state.preflight.get("warnings", ()), *judge_warnings(state)],
        tasks=_sizes(state),
        tried=[_tried(folder, one, names, diffs.get(one.digest)) for one in state.candidates.values()],
        frontier=[names[digest] for digest in state.frontier],
        base_again=arm(state.calibration.get("again")),
        no_skill=arm(state.calibration.get("no_skill")),
        mde=state.calibration.get("mde"),
        test=_test(state.verdict),
        verdict={key: value for key, value in state.verdict.items() if key not in _LONG},
        heat=_heat(state),
        flips=_flips(state, finalist, records),
        resources=resources(records, {digest: folder.program(digest) for digest in state.candidates}, names),
        spent={purpose: _spending(spent) for purpose, spent in sorted(state.spent.items())},
        bill=_spending(state.bill),
        gates=[_gate(one, names) for one in state.gates],
        adoption={key: value for key, value in state.adoption.items() if key != "type"},
        provenance=provenance(state, finalist),
    )


_LONG = ("type", "base", "finalist", "no_skill")


def headline(state: RunState, best: str) -> str:
    """Returns the run in one sentence with its numbers; nothing is claimed before the sealed test has spoken."""
    said = state.verdict
    if not said:
        shown = f" The best so far is {best}, provisionally." if best not in ("", "base") else ""
        return f"The run is not finished ({state.stopped or state.phase}).{shown} Nothing is claimed."
    if not said.get("n"):
        return f"{said['verdict']}: {said['why']}"
    low, high = said["interval"]
    return (
        f"{said['verdict']}: {best} against the base on {said['n']} sealed tasks {100 * said['delta']:+.1f} points"
        f" (95 % {100 * low:+.1f} to {100 * high:+.1f}), {_nth(said['look'])} look at this test set. {said['why']}"
    )


def _nth(look: int) -> str:
    ending = "th" if 10 <= look % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(look % 10, "th")
    return f"{look}{ending}"


def arm(scores: Mapping[str, float] | None) -> Arm | None:
    """Returns the mean over tasks; Wilson's interval where every task passes or fails, else one by resampling tasks."""
    values = list((scores or {}).values())
    if not values:
        return None
    if all(value in (0.0, 1.0) for value in values):
        low, high = wilson_interval(round(sum(values)), len(values))
    else:
        low, high = paired_interval(values)
    return Arm(sum(values) / len(values), low, high, len(values))


def _sizes(state: RunState) -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for split, _ in state.tasks.values():
        sizes[split] += 1
    sealed = len(state.verdict.get("base", {}))
    return dict(sizes) | ({str(Split.TEST): sealed} if sealed else {})


def _tried(folder: RunFolder, one: Candidate, names: Mapping[str, str], diff: str | None) -> Tried:
    return Tried(
        name=one.name,
        digest=one.digest,
        iteration=one.iteration,
        parents=[names.get(parent, parent[:12]) for parent in one.parents],
        operations=list(one.operations),
        summary=one.summary,
        changed=list(one.changed),
        decision=str(one.decision or "under way"),
        reason=one.reason,
        validation=arm(one.scores),
        delta=one.delta,
        fixed=list(one.fixed),
        broken=list(one.broken),
        findings=list(one.findings),
        size=one.size,
        evaluations=one.evaluations,
        cost=one.cost,
        diff=folder.kept(diff).decode("utf-8", "replace") if diff else "",
    )


def _test(verdict: Record) -> dict[str, Arm] | None:
    arms = {name: arm(verdict.get(name)) for name in ("base", "finalist", "no_skill")}
    found = {name: one for name, one in arms.items() if one is not None}
    return found or None


def _heat(state: RunState) -> list[Heat]:
    by_category: dict[str, list[str]] = defaultdict(list)
    for task, (split, category) in state.tasks.items():
        if split == Split.VAL:
            by_category[category].append(task)
    rows = []
    for category, tasks in sorted(by_category.items()):
        means = {}
        for one in state.candidates.values():
            scores = [one.scores[task] for task in tasks if task in one.scores]
            if scores:
                means[one.name] = sum(scores) / len(scores)
        rows.append(Heat(category, len(tasks), means))
    return rows


def _flips(state: RunState, finalist: str, records: Iterable[Record]) -> list[Flip]:
    """Returns the tasks of validation, and of the test once it was looked at; those that changed first."""
    base, best, found = state.candidates.get(state.base), state.candidates.get(finalist), []
    again, outputs = state.calibration.get("again", {}), _outputs(records, (state.base, finalist))
    if base is not None and best is not None:
        for task in base.scores.keys() & best.scores.keys():
            before, after = base.scores[task], best.scores[task]
            shaky = task in again and again[task] != before
            split, category = state.tasks.get(task, (str(Split.VAL), ""))
            found.append(Flip(task, category, split, before, after, _change(before, after, shaky), outputs[task]))
    tested, reached = state.verdict.get("base", {}), state.verdict.get("finalist", {})
    for task in tested.keys() & reached.keys():
        change = _change(tested[task], reached[task], False)
        found.append(Flip(task, "", str(Split.TEST), tested[task], reached[task], change, []))
    order = ("fixed", "broken", "unstable", "same")
    return sorted(found, key=lambda flip: (order.index(flip.change), flip.split, flip.task))


def _change(before: float, after: float, shaky: bool) -> str:
    if before == after:
        return "unstable" if shaky else "same"
    return "unstable" if shaky else "fixed" if after > before else "broken"


def _outputs(records: Iterable[Record], arms: tuple[str, str]) -> dict[str, list[str]]:
    """Returns by task what the base and the best gave last in validation."""
    last: dict[str, dict[str, str]] = defaultdict(dict)
    for record in records:
        if record["type"] == "trial" and str(record.get("batch", "")).partition("/")[0] in ("calibrate", "val"):
            trial = record["trial"]
            if trial["program"] in arms:
                who = "base" if trial["program"] == arms[0] else "best"
                said = " ".join(str(trial["output"]).split())[:MOST_SHOWN]
                last[trial["task"]][who] = f"{who}, {trial['outcome']}: {said or '(no output)'}"
    return defaultdict(list, {task: [its[who] for who in ("base", "best") if who in its] for task, its in last.items()})


def _spending(spent: Spent) -> dict[str, Any]:
    return {name: getattr(spent, name) for name in Spent.__slots__} | {"tokens": spent.tokens}


def _gate(entry: GateEntry, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "iteration": entry.iteration,
        "candidate": names.get(entry.candidate, ""),
        "gate": entry.gate,
        "passed": entry.passed,
        "why": entry.why,
    }
