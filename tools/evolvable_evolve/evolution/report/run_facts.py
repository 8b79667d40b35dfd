"""The facts of a run that a report shows, as plain values: judges, provenance, resources,
candidates, verdict.
"""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from importlib.metadata import version
from typing import Any

from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.ledger import (
    CandidateDecision,
    LedgerRecord,
    RunCandidate,
    RunDirectory,
    RunState,
    mean,
)
from evolvable_evolve.evolution.report.grade_table import GradeRow, collect_grades
from evolvable_evolve.evolution.report.round_diagnosis import RoundDiagnosis, collect_diagnosis
from evolvable_evolve.evolution.report.solution_table import (
    RoundCost,
    SolutionRow,
    places_of_run,
    round_costs,
    rounds_of_run,
)
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.statistics import paired_interval
from evolvable_evolve.evolution.task import Split, TrialOutcome
from evolvable_evolve.evolution.verdict_line import verdict_line
from evolvable_tools import wilson_interval
from evolvable_tools.redaction import Redactor


def _describe_calibration(record: LedgerRecord) -> str:
    """Return who judged a rubric, and how often it was right in calibration."""
    counts = record["calibration"]
    return (
        f"{record['by']} ({record['label']}): right on {counts['good_right']} of {counts['good']} "
        f"good and {counts['bad_right']} of {counts['bad']} bad known answers "
        f"({record['agreement']:.0%})"
    )


_OPTIONS = (
    *("brain", "mode", "optimizer", "iterations", "judge", "parent", "admit", "frontier"),
    *("repeats", "test_repeats", "fail_below", "concurrency", "trials", "open_above", "stalls"),
    *("screen_above", "samples", "rejections", "test_alpha", "least_gain", "cost_rise"),
    *("coverage", "stale_hours", "target", "batch", "edits"),
)
"""Settings with an option of the same name; the option of `fail_below` has another."""


def collect_provenance(state: RunState, finalist: str) -> dict[str, Any]:
    """Return what is needed to repeat the run and to distinguish it from another.

    finalist: the digest of its program.
    """
    settings = state.settings
    judges = "; ".join(map(_describe_calibration, state.judges))
    return {
        "evolvable": version("evolvable"),
        "task_set": f"{settings.get('task_set', '')}@{settings.get('task_set_version', '')}",
        "task_set_digest": settings.get("task_set_digest", ""),
        "test_digest": settings.get("test_digest", ""),
        "executor": state.fingerprint,
        "brain": settings.get("brain", ""),
        **({"judge": judges} if state.judges else {}),
        "seed": settings.get("seed"),
        "base_digest": state.base,
        "finalist_digest": finalist,
        "program": [f"{pin['ref']}@{pin['version']}" for pin in settings.get("program", ())],
        "command": reproduce_command(settings),
    }


def reproduce_command(settings: Mapping[str, Any]) -> str:
    """Return the command for settings as the ledger holds them, '' for a run that no
    command began.
    """
    if not settings.get("task_set_digest"):
        return ""
    defaults = {
        setting.name: setting.default
        for setting in fields(RunSettings)
        if setting.default is not MISSING
    }
    words = ["evolvable", "evolve", "start", str(settings["task_set"])]
    for pin in settings.get("program", ()):
        words += ["--program", str(pin["ref"])]
    words += ["--executor", _executor_option(settings["executor"]), "--seed", str(settings["seed"])]
    if rounds := settings["executor"].get("rounds"):
        words += ["--rounds", str(rounds)]
    for name in _OPTIONS:
        chosen = _to_words(settings.get(name))
        # Options with their default would make the command long.
        if name in settings and chosen != _to_words(defaults.get(name)):
            option = "--pass-at" if name == "fail_below" else f"--{name.replace('_', '-')}"
            words += [option, *chosen]
    limits = settings.get("limit", {})
    for name in ("cost", "tokens", "calls"):
        if limits.get(name) is not None:
            words += [f"--max-{name}", f"{limits[name]:g}"]
    return shlex.join(words)


def _to_words(value: Any) -> list[str]:
    """Return the words of an option's value: two for a pair."""
    values = value if isinstance(value, list | tuple) else (value,)
    return [str(word) for word in values]


def _executor_option(executor: Mapping[str, Any]) -> str:
    if executor.get("kind") == "command":
        return shlex.join(map(str, executor.get("command", ())))
    model = executor.get("model")
    return f"{executor.get('kind', '')}:{model}" if model else str(executor.get("kind", ""))


@dataclass(frozen=True)
class ResourceUse:
    """The use of one resource under one candidate.

    bytes: of all its files. trials: those that counted with it installed. read: the share of them
    that read it. score_read, score_unread: mean scores of those that did and did not. tokens_read:
    mean tokens of those that did, None where none are reported.
    """

    ref: str
    candidate: str
    bytes: int
    trials: int
    read: float
    score_read: float | None
    score_unread: float | None
    tokens_read: float | None


def collect_resource_use(
    records: Iterable[LedgerRecord], programs: Mapping[str, Program], names: Mapping[str, str]
) -> list[ResourceUse]:
    """Return every resource of every candidate that was run, in the order of the candidates."""
    trials: dict[str, list[LedgerRecord]] = defaultdict(list)
    for record in records:
        if record["type"] == "trial" and TrialOutcome(record["trial"]["outcome"]).counts:
            trials[record["trial"]["program"]].append(record["trial"])
    return [
        _measure_use(part.ref, names.get(digest, digest[:12]), part.size, trials[digest])
        for digest, program in programs.items()
        for part in program.parts
        if trials[digest]
    ]


def _measure_use(ref: str, candidate: str, size: int, trials: list[LedgerRecord]) -> ResourceUse:
    read = [trial for trial in trials if ref in trial["read"]]
    unread = [trial for trial in trials if ref not in trial["read"]]
    tokens = [trial["usage"]["input_tokens"] + trial["usage"]["output_tokens"] for trial in read]
    return ResourceUse(
        ref,
        candidate,
        size,
        len(trials),
        len(read) / len(trials),
        score_read=_mean_score(read),
        score_unread=_mean_score(unread),
        tokens_read=mean(tokens) if any(tokens) else None,
    )


def _mean_score(trials: Iterable[LedgerRecord]) -> float | None:
    return mean(trial["score"] for trial in trials if trial["score"] is not None)


# An output is redacted before it is cut to the shorter length: half a secret is not recognised.
MAX_OUTPUT_SHOWN, MAX_OUTPUT_READ = 400, 2_000
"""Characters of an output in the report, and how many are searched for secrets before it is cut."""


@dataclass(frozen=True)
class MeanInterval:
    """The mean score of one program over `n` tasks, with both ends of its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class CandidateFacts:
    """One candidate, the base included.

    validation: None while it is not measured. delta, fixed, broken: against the first parent. They
    are empty for an indecisive candidate, of which too few tasks counted on both sides. diff:
    against the first parent. changed: refs of the resources that it changes.
    """

    name: str
    digest: str
    iteration: int
    parents: tuple[str, ...]
    operations: tuple[str, ...]
    summary: str
    changed: tuple[str, ...]
    decision: str
    reason: str
    validation: MeanInterval | None
    delta: float | None
    fixed: tuple[str, ...]
    broken: tuple[str, ...]
    findings: tuple[str, ...]
    size: int
    evaluations: int
    cost: float
    diff: str


@dataclass(frozen=True)
class TaskChange:
    """One task under the base and under the best.

    change: fixed, broken, unstable (the base differs from itself), same. outputs: the last output
    of each arm, cut, with its outcome.
    """

    task: str
    category: str
    split: str
    before: float
    after: float
    change: str
    outputs: list[str]


@dataclass(frozen=True)
class CategoryScores:
    """The scores of one category.

    n: its validation tasks. means: of each candidate that was measured, by name.
    """

    category: str
    n: int
    means: dict[str, float]


@dataclass(frozen=True)
class RunFacts:
    """All facts of a run, for people.

    label: the kind of its figures: simulated, scripted or a model's name. answer: the verdict in
    words that name the resource, '' before it. heat: validation scores by category. best: the name
    of the finalist, or of the best so far. base_again: the base measured a second time (A/A). test:
    by arm (base, finalist, no_skill), None while sealed. flips: of tasks that are not sealed.
    test_changes: how many test tasks were fixed, broken or the same. No report names them, so that
    no program can be fitted to them. rounds: the answers of each round. diagnosis: the optimizer's
    findings on trials, by round.
    """

    run: str
    label: str
    phase: str
    headline: str
    answer: str
    ruling: str
    best: str
    exploratory: bool
    warnings: list[str]
    tasks: dict[str, int]
    tried: list[CandidateFacts]
    frontier: list[str]
    base_again: MeanInterval | None
    no_skill: MeanInterval | None
    mde: float | None
    test: dict[str, MeanInterval] | None
    verdict: dict[str, Any]
    heat: list[CategoryScores]
    flips: list[TaskChange]
    test_changes: dict[str, int]
    resources: list[ResourceUse]
    spent: dict[str, dict[str, Any]]
    bill: dict[str, Any]
    gates: list[dict[str, Any]]
    adoption: dict[str, Any]
    provenance: dict[str, Any]
    rounds: list[SolutionRow] = field(default_factory=list)
    grades: list[GradeRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    optimizer: str = ""
    diagnosis: list[RoundDiagnosis] = field(default_factory=list)


# All but `type` map test tasks to scores, and no report names a test task.
_OMITTED_FIELDS = ("type", "base", "finalist", "no_skill")
"""Fields of the verdict that no report shows."""


def collect_facts(
    folder: RunDirectory,
    state: RunState,
    records: Sequence[LedgerRecord],
    redactor: Redactor | None = None,
) -> RunFacts:
    """Return the facts of a run, at any time. records: of both of its ledgers.

    redactor: removes secrets from the texts of models and candidates; by default one without a
    person's own patterns.
    """
    clean = redactor or Redactor()
    names = {digest: candidate.name for digest, candidate in state.candidates.items()}
    finalist = str(state.verdict.get("candidate") or state.best)
    best = names.get(finalist, "")
    rounds = rounds_of_run(state, records, finalist)
    arms = {
        name: mean_interval(state.verdict.get(name)) for name in ("base", "finalist", "no_skill")
    }
    programs = {digest: folder.program(digest) for digest in state.candidates}
    judge_warnings = [judge["warning"] for judge in state.judges if judge["warning"]]
    is_search = state.settings.get("purpose") != "measure"
    return RunFacts(
        run=state.run,
        label=state.label,
        phase=str(state.phase),
        headline=headline(state, best),
        answer=verdict_line(state, records),
        ruling=str(state.verdict.get("verdict", "")),
        best=best,
        exploratory=state.exploratory,
        warnings=[*state.preflight.get("warnings", ()), *dict.fromkeys(judge_warnings)],
        tasks=_count_tasks(state),
        tried=_collect_candidates(folder, state, records, names, clean),
        frontier=[names[digest] for digest in state.frontier],
        base_again=mean_interval(state.calibration.get("again")),
        no_skill=mean_interval(state.calibration.get("no_skill")),
        mde=state.calibration.get("mde"),
        test={name: interval for name, interval in arms.items() if interval is not None} or None,
        verdict=_describe_verdict(state, round_costs(rounds, best)),
        heat=_collect_categories(state),
        flips=_collect_changes(state, finalist, records, clean),
        test_changes={change: len(tasks) for change, tasks in changed_test_tasks(state).items()},
        resources=collect_resource_use(records, programs, names),
        spent={purpose: spent.to_json() for purpose, spent in sorted(state.spent.items())},
        bill=state.bill.to_json(),
        gates=[asdict(gate) | {"candidate": names.get(gate.candidate, "")} for gate in state.gates],
        adoption={key: value for key, value in state.adoption.items() if key != "type"},
        provenance=collect_provenance(state, finalist),
        optimizer=str(state.settings.get("optimizer", "")) if is_search else "",
        diagnosis=[
            _redact_diagnosis(diagnosis, clean) for diagnosis in collect_diagnosis(folder, state)
        ],
        rounds=rounds,
        grades=collect_grades(records, *places_of_run(state, finalist)),
    )


def _collect_candidates(
    folder: RunDirectory,
    state: RunState,
    records: Sequence[LedgerRecord],
    names: Mapping[str, str],
    redactor: Redactor,
) -> list[CandidateFacts]:
    """Return the facts of all candidates that were tried."""
    diffs = {
        record["candidate"]: record.get("diff") for record in records if record["type"] == "built"
    }
    return [
        _collect_candidate(folder, candidate, names, diffs.get(candidate.digest), redactor)
        for candidate in state.candidates.values()
    ]


def _count_tasks(state: RunState) -> dict[str, int]:
    """Return the number of tasks of each split."""
    sizes = dict(Counter(split for split, _ in state.tasks.values()))
    # The ledger names the tasks of the test in the verdict alone.
    if sealed := len(state.verdict.get("base", {})):
        sizes[str(Split.TEST)] = sealed
    return sizes


def _describe_verdict(state: RunState, costs: Sequence[RoundCost]) -> dict[str, Any]:
    """Return the fields of the verdict that a report shows, with the costs of rounds."""
    verdict = state.verdict
    if costs:
        verdict = {**verdict, "rounds": [asdict(cost) for cost in costs]}
    return {key: value for key, value in verdict.items() if key not in _OMITTED_FIELDS}


def headline(state: RunState, best: str) -> str:
    """Return the run in one sentence with its numbers; nothing is claimed before the verdict."""
    verdict = state.verdict
    if not verdict:
        sentences = [f"The run is not finished ({state.stopped or state.phase})."]
        if best not in ("", "base"):
            sentences.append(f"The best so far is {best}, provisionally.")
        return " ".join([*sentences, "Nothing is claimed."])
    if not verdict.get("n"):
        return f"{verdict['verdict']}: {verdict['why']}"
    low, high = verdict["interval"]
    effective = f" (effective n {verdict['groups']})" if "groups" in verdict else ""
    tested = f"on {verdict['n']} sealed tasks{effective}"
    return (
        f"{verdict['verdict']}: {best} against the base {tested} {100 * verdict['delta']:+.1f} "
        f"points (95 % {100 * low:+.1f} to {100 * high:+.1f}), {_ordinal(verdict['look'])} look "
        f"at this test set. {verdict['why']}"
    )


def _ordinal(look: int) -> str:
    # 11th, 12th and 13th, but 21st, 22nd and 23rd.
    if 10 <= look % 100 <= 20:
        return f"{look}th"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(look % 10, "th")
    return f"{look}{ending}"


def mean_interval(scores: Mapping[str, float] | None) -> MeanInterval | None:
    """Return the mean over tasks with its interval, None without scores.

    The interval is Wilson's where every task passes or fails, else one by resampling tasks.
    """
    values = list((scores or {}).values())
    if not values:
        return None
    if all(value in (0.0, 1.0) for value in values):
        low, high = wilson_interval(round(sum(values)), len(values))
    else:
        low, high = paired_interval(values)
    return MeanInterval(sum(values) / len(values), low, high, len(values))


def _collect_candidate(
    folder: RunDirectory,
    candidate: RunCandidate,
    names: Mapping[str, str],
    diff: str | None,
    redactor: Redactor,
) -> CandidateFacts:
    # Fields with the same name and meaning are copied.
    copied = {
        column.name: getattr(candidate, column.name)
        for column in fields(CandidateFacts)
        if hasattr(candidate, column.name)
    }
    computed = {
        "parents": tuple(names.get(parent, parent[:12]) for parent in candidate.parents),
        "decision": str(candidate.decision or "under way"),
        "validation": mean_interval(candidate.scores),
        "diff": folder.read_artifact(diff).decode("utf-8", "replace") if diff else "",
    }
    if candidate.decision is CandidateDecision.INDECISIVE:
        # The tasks that counted are no sample of all: missing ones may depend on the candidate.
        computed |= {"delta": None, "fixed": (), "broken": ()}
    facts = CandidateFacts(**copied | computed)
    return replace(
        facts,
        summary=redactor.redact(facts.summary)[0],
        reason=redactor.redact(facts.reason)[0],
        diff=redactor.redact(facts.diff)[0],
        operations=tuple(redactor.redact(text)[0] for text in facts.operations),
        findings=tuple(redactor.redact(text)[0] for text in facts.findings),
    )


def _redact_diagnosis(diagnosis: RoundDiagnosis, redactor: Redactor) -> RoundDiagnosis:
    return replace(diagnosis, details=[redactor.redact(text)[0] for text in diagnosis.details])


def _collect_categories(state: RunState) -> list[CategoryScores]:
    by_category: dict[str, list[str]] = defaultdict(list)
    for task, (split, category) in state.tasks.items():
        if split == Split.VAL:
            by_category[category].append(task)
    rows, candidates = [], state.candidates.values()
    for category, tasks in sorted(by_category.items()):
        scores = {
            candidate.name: [candidate.scores[task] for task in tasks if task in candidate.scores]
            for candidate in candidates
        }
        category_means = {
            name: sum(values) / len(values) for name, values in scores.items() if values
        }
        rows.append(CategoryScores(category, len(tasks), category_means))
    return rows


def _collect_changes(
    state: RunState, finalist: str, records: Iterable[LedgerRecord], redactor: Redactor
) -> list[TaskChange]:
    """Return the validation tasks that both the base and the finalist were measured on, those that
    changed first.
    """
    base, best = state.candidates.get(state.base), state.candidates.get(finalist)
    again = state.calibration.get("again", {})
    outputs = _collect_outputs(records, (state.base, finalist), redactor)
    changes = []
    if base is not None and best is not None:
        for task in base.scores.keys() & best.scores.keys():
            before, after = base.scores[task], best.scores[task]
            is_unstable = task in again and again[task] != before
            change = _name_change(before, after, is_unstable)
            split, category = state.tasks.get(task, (str(Split.VAL), ""))
            changes.append(TaskChange(task, category, split, before, after, change, outputs[task]))
    order = ("fixed", "broken", "unstable", "same")
    return sorted(changes, key=lambda flip: (order.index(flip.change), flip.split, flip.task))


def changed_test_tasks(state: RunState) -> dict[str, list[str]]:
    """Return the ids of the opened test tasks by outcome: fixed, broken, same.

    Only a person sees them.
    """
    before, after = state.verdict.get("base", {}), state.verdict.get("finalist", {})
    by_change: dict[str, list[str]] = {}
    for task in sorted(before.keys() & after.keys()):
        # A narrow claim is measured on validation tasks as well, which are no test tasks.
        if task not in state.tasks:
            change = _name_change(before[task], after[task], is_unstable=False)
            by_change.setdefault(change, []).append(task)
    return by_change


def _name_change(before: float, after: float, is_unstable: bool) -> str:
    """Return the name of a change of score. is_unstable: whether the base differs from itself."""
    if is_unstable:
        return "unstable"
    if before == after:
        return "same"
    return "fixed" if after > before else "broken"


def _collect_outputs(
    records: Iterable[LedgerRecord], arms: tuple[str, str], redactor: Redactor
) -> dict[str, list[str]]:
    """Return by task the last outputs of the base and the best in validation, without secrets and
    cut.

    arms: the digests of the base and of the best.
    """
    last: dict[str, dict[str, LedgerRecord]] = defaultdict(dict)
    for record in records:
        batch = str(record.get("batch", "")).partition("/")[0]
        if record["type"] != "trial" or batch not in ("calibrate", "val"):
            continue
        trial = record["trial"]
        if trial["program"] in arms:
            last[trial["task"]]["base" if trial["program"] == arms[0] else "best"] = trial
    outputs: dict[str, list[str]] = defaultdict(list)
    for task, by_arm in last.items():
        for arm in ("base", "best"):
            if (trial := by_arm.get(arm)) is not None:
                clean, _ = redactor.redact(str(trial["output"])[:MAX_OUTPUT_READ])
                excerpt = " ".join(clean.split())[:MAX_OUTPUT_SHOWN]
                outputs[task].append(f"{arm}, {trial['outcome']}: {excerpt or '(no output)'}")
    return outputs
