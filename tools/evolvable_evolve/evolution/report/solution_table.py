"""Answers of each round: scores, the outcomes of programming problems, and the cost of rounds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from evolvable_evolve.evolution.ledger import LedgerRecord, RunState
from evolvable_evolve.evolution.task import CodeOutcome, ModelUsage, Split, TrialOutcome
from evolvable_evolve.evolution.trials import ROUND, Bill, parse_trial, to_bill

FINAL = "final"
"""The row of the final answers, with what all rounds took."""


@dataclass(frozen=True)
class SolutionRow:
    """The answers of one program on one split after a round.

    An answer that the round did not change counts again. n: answers. outcomes: how many ended in
    each of the eight ways, which add up to n; empty for other tasks. ar, am: mean milliseconds and
    megabytes of accepted answers. apc: mean cases that an answer passed before the first failure,
    over those that ran a case. tokens, calls, cost, seconds: of this round alone; cost is None
    where not all of it has a price.
    """

    arm: str
    split: str
    round: str
    n: int
    mean: float
    outcomes: dict[str, int]
    ar: float | None
    am: float | None
    apc: float | None
    tokens: int
    calls: int
    cost: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer of the ledger. bill: of this answer alone."""

    score: float
    code: str
    metrics: Mapping[str, float]
    bill: Bill
    wall: float


_Answers = Sequence[_Answer]


def collect_rounds(
    records: Iterable[LedgerRecord], arms: Mapping[str, str], splits: Mapping[str, str]
) -> list[SolutionRow]:
    """Return a row for each round of each arm and split.

    There are no rows where no answer was improved and no task is code. arms: names of programs by
    digest. splits: of the tasks that are shown, by id. A trial that infrastructure ended, or that a
    killed process left, counts for nothing.
    """
    rounds: dict[tuple[str, int], list[LedgerRecord]] = {}
    groups: dict[tuple[str, str], list[_Answers]] = {
        (arm, split): [] for arm in arms for split in dict.fromkeys(splits.values())
    }
    counted: set[str] = set()
    has_rounds = False
    for record in records:
        if record["type"] == ROUND:
            rounds.setdefault((record["key"], record["attempt"]), []).append(record)
        if record["type"] != "trial" or record["trial"]["cached"]:
            continue
        trial = record["trial"]
        # The rounds of an attempt are recorded before its trial.
        of_trial = rounds.pop((trial["key"], record["attempt"]), [])
        if not TrialOutcome(trial["outcome"]).counts or trial["key"] in counted:
            continue
        # A task without a split is sealed or unknown, and is not shown.
        place = trial["program"], splits.get(trial["task"], "")
        if place not in groups:
            continue
        counted.add(trial["key"])
        has_rounds = has_rounds or bool(of_trial) or "code" in record
        answers = [_parse_answer(round_record) for round_record in of_trial]
        groups[place].append(answers or [_parse_only_answer(record)])
    if not has_rounds:
        return []
    return [
        row
        for (arm, split), trials in groups.items()
        for row in _make_rows(arms[arm], split, trials)
    ]


def places_of_run(state: RunState, finalist: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the arms and splits of a run: its base and its finalist, on validation, and on the
    test once it has a verdict.
    """
    splits = {task: split for task, (split, _) in state.tasks.items() if split == Split.VAL}
    splits |= {
        task: str(Split.TEST) for task in state.verdict.get("base", {}) if task not in state.tasks
    }
    arms = {
        digest: state.candidates[digest].name
        for digest in (state.base, finalist)
        if digest in state.candidates
    }
    return arms, splits


def rounds_of_run(
    state: RunState, records: Iterable[LedgerRecord], finalist: str
) -> list[SolutionRow]:
    """Return the rows of a run for its base and its finalist."""
    return collect_rounds(records, *places_of_run(state, finalist))


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What one round of the finalist took in the sealed test.

    gain: of the mean score over the round before it.
    """

    round: int
    gain: float
    tokens: int
    calls: int
    cost: float | None
    seconds: float

    def __str__(self) -> str:
        """Return the cost in words."""
        money = "an unknown price" if self.cost is None else f"${self.cost:.4f}"
        spent = f"{self.calls:,} calls, {self.tokens:,} tokens, {money}"
        if not self.round:
            return f"first answers {spent}"
        return f"round {self.round} {self.gain:+.3f} for {spent}"


def round_costs(rows: Sequence[SolutionRow], finalist: str) -> list[RoundCost]:
    """Return the costs of the first answers and of each round of the finalist in the test.

    The list is empty without rounds.
    """
    tested = [row for row in rows if row.arm == finalist and row.split == Split.TEST]
    of_rounds = [row for row in tested if row.round != FINAL]
    if len(of_rounds) < 2:
        return []
    costs, before = [], of_rounds[0].mean
    for number, row in enumerate(of_rounds):
        gain = row.mean - before
        costs.append(RoundCost(number, gain, row.tokens, row.calls, row.cost, row.seconds))
        before = row.mean
    return costs


def _parse_answer(record: LedgerRecord) -> _Answer:
    metrics = record.get("code_metrics", {})
    bill = to_bill(ModelUsage(**record["usage"]))
    return _Answer(record["score"] or 0.0, record.get("code", ""), metrics, bill, record["wall"])


def _parse_only_answer(record: LedgerRecord) -> _Answer:
    """Return the answer of a trial without rounds."""
    trial = parse_trial(record["trial"])
    metrics = record.get("code_metrics", {})
    return _Answer(
        trial.score or 0.0, record.get("code", ""), metrics, to_bill(trial.usage), trial.wall
    )


def _make_rows(arm: str, split: str, trials: Sequence[_Answers]) -> Iterator[SolutionRow]:
    """Yield a row for each round of these trials, and one for their final answers."""
    most = max(map(len, trials), default=0)
    for number in range(most):
        # A trial with fewer rounds keeps its last answer.
        standing = [answers[min(number, len(answers) - 1)] for answers in trials]
        new = [answers[number] for answers in trials if number < len(answers)]
        yield _make_row(arm, split, str(number), standing, new)
    if most:
        final = [answers[-1] for answers in trials]
        yield _make_row(arm, split, FINAL, final, [answer for some in trials for answer in some])


def _make_row(arm: str, split: str, number: str, standing: _Answers, new: _Answers) -> SolutionRow:
    """Return the row of a round.

    standing: the answer of each trial after it. new: the answers that it made, which it is billed
    for.
    """
    bill = sum((answer.bill for answer in new), Bill())
    codes = [answer for answer in standing if answer.code]
    outcomes: dict[str, int] = {}
    if codes:
        outcomes = {str(kind): sum(answer.code == kind for answer in codes) for kind in CodeOutcome}
    # Time and memory of a wrong program say nothing.
    accepted = [answer for answer in codes if answer.code == CodeOutcome.PASSED]
    return SolutionRow(
        arm,
        split,
        number,
        len(standing),
        fmean(answer.score for answer in standing),
        outcomes,
        _mean(accepted, "runtime_ms"),
        _mean(accepted, "memory_mb"),
        _mean(codes, "cases_passed"),
        bill.tokens,
        bill.calls,
        # A sum without the unknown prices would look cheaper than it was.
        None if bill.unpriced else bill.cost,
        sum(answer.wall for answer in new),
    )


def _mean(answers: _Answers, name: str) -> float | None:
    """Return the mean of a metric over the answers that have it, None without one."""
    values = [answer.metrics[name] for answer in answers if name in answer.metrics]
    return fmean(values) if values else None


_NAME_HEADS, _CODE_HEADS = ("program", "split", "round", "n", "score"), ("AR ms", "AM MB", "APC")
HEADS = (*_NAME_HEADS, *CodeOutcome, *_CODE_HEADS, "tokens", "calls", "cost", "s")
"""The columns of the table; those of programming problems are left out where no task is one."""


def table_cells(rows: Sequence[SolutionRow]) -> list[list[str]]:
    """Return the table with its heads as texts."""
    cells = [[str(head) for head in HEADS]]
    for row in rows:
        cells.append(
            [
                row.arm,
                row.split,
                row.round,
                str(row.n),
                f"{row.mean:.3f}",
                *(str(row.outcomes.get(str(kind), 0)) for kind in CodeOutcome),
                _format_number(row.ar, ".1f"),
                _format_number(row.am, ".1f"),
                _format_number(row.apc, ".2f"),
                f"{row.tokens:,}",
                f"{row.calls:,}",
                _format_number(row.cost, ".4f"),
                f"{row.seconds:.1f}",
            ]
        )
    if any(row.outcomes for row in rows):
        return cells
    first = len(_NAME_HEADS)
    last = first + len(CodeOutcome) + len(_CODE_HEADS)
    return [[*line[:first], *line[last:]] for line in cells]


def table_lines(rows: Sequence[SolutionRow]) -> list[str]:
    """Return the table as lines of text, none without rows."""
    return aligned_lines(table_cells(rows), 3) if rows else []


def aligned_lines(cells: Sequence[Sequence[str]], names: int) -> list[str]:
    """Return a table as lines of text. names: columns at the left that hold names, not numbers."""
    widths = [max(len(line[at]) for line in cells) for at in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at < names else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]


def _format_number(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"
