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
    """The answers of one program on one split after a round; an answer that the round did not
    change counts again.

    n: answers. outcomes: how many ended in each of the eight ways, which add up to n; empty for
    other tasks. ar, am: mean milliseconds and megabytes of accepted answers. apc: mean cases that
    an answer passed before the first failure, over those that ran a case. The rest is what this
    round alone took; cost None: not all of it has a price.
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
    """Return a row for each round of each arm and split; no rows where no answer was improved and
    no task is code.

    arms: names of programs by digest. splits: of the tasks that are shown, by id. A trial that
    infrastructure ended, or that a killed process left, counts for nothing.
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
        found = rounds.pop((trial["key"], record["attempt"]), [])
        # A task without a split is sealed or unknown, and is not shown.
        place = trial["program"], splits.get(trial["task"], "")
        if (
            not TrialOutcome(trial["outcome"]).counts
            or trial["key"] in counted
            or place not in groups
        ):
            continue
        counted.add(trial["key"])
        has_rounds = has_rounds or bool(found) or "code" in record
        groups[place].append(
            [_answer(round_record) for round_record in found] or [_only_answer(record)]
        )
    return [
        row
        for (arm, split), all_ in groups.items()
        if has_rounds
        for row in _rows(arms[arm], split, all_)
    ]


def places_of_run(state: RunState, finalist: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return arms and splits of a run: its base and its best on validation, and on the test once it
    has a verdict.
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
    """Return the rows of a run."""
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
        return (
            f"round {self.round} {self.gain:+.3f} for {spent}"
            if self.round
            else f"first answers {spent}"
        )


def round_costs(rows: Sequence[SolutionRow], finalist: str) -> list[RoundCost]:
    """Return what the first answers and each round of the finalist took in the test; nothing
    without rounds.
    """
    mine = [
        row for row in rows if (row.arm, row.split) == (finalist, Split.TEST) and row.round != FINAL
    ]
    round_means = [row.mean for row in mine]
    found = [
        RoundCost(
            number,
            row.mean - round_means[max(0, number - 1)],
            row.tokens,
            row.calls,
            row.cost,
            row.seconds,
        )
        for number, row in enumerate(mine)
    ]
    return found if len(found) > 1 else []


def _answer(record: LedgerRecord) -> _Answer:
    spent = to_bill(ModelUsage(**record["usage"]))
    return _Answer(
        record["score"] or 0.0,
        record.get("code", ""),
        record.get("code_metrics", {}),
        spent,
        record["wall"],
    )


def _only_answer(record: LedgerRecord) -> _Answer:
    trial = parse_trial(record["trial"])
    metrics = record.get("code_metrics", {})
    return _Answer(
        trial.score or 0.0, record.get("code", ""), metrics, to_bill(trial.usage), trial.wall
    )


def _rows(arm: str, split: str, trials: Sequence[_Answers]) -> Iterator[SolutionRow]:
    most = max(map(len, trials), default=0)
    for number in range(most):
        # A trial with fewer rounds keeps its last answer.
        standing = [answers[min(number, len(answers) - 1)] for answers in trials]
        yield _row(
            arm,
            split,
            str(number),
            standing,
            [answers[number] for answers in trials if number < len(answers)],
        )
    if most:
        yield _row(
            arm,
            split,
            FINAL,
            [answers[-1] for answers in trials],
            [answer for all_ in trials for answer in all_],
        )


def _row(arm: str, split: str, number: str, standing: _Answers, answers: _Answers) -> SolutionRow:
    bill = sum((answer.bill for answer in answers), Bill())
    codes = [answer for answer in standing if answer.code]
    # Time and memory of a wrong program say nothing.
    accepted = [answer for answer in codes if answer.code == CodeOutcome.PASSED]
    return SolutionRow(
        arm,
        split,
        number,
        len(standing),
        fmean(answer.score for answer in standing),
        {str(kind): sum(answer.code == kind for answer in codes) for kind in CodeOutcome}
        if codes
        else {},
        _mean(accepted, "runtime_ms"),
        _mean(accepted, "memory_mb"),
        _mean(codes, "cases_passed"),
        bill.tokens,
        bill.calls,
        # A sum without the unknown prices would look cheaper than it was.
        None if bill.unpriced else bill.cost,
        sum(answer.wall for answer in answers),
    )


def _mean(answers: _Answers, name: str) -> float | None:
    found = [answer.metrics[name] for answer in answers if name in answer.metrics]
    return fmean(found) if found else None


HEADS = (
    "program",
    "split",
    "round",
    "n",
    "score",
    *CodeOutcome,
    "AR ms",
    "AM MB",
    "APC",
    "tokens",
    "calls",
    "cost",
    "s",
)
"""The columns of the table; those of programming problems are left out where no task is one."""


def table_cells(rows: Sequence[SolutionRow]) -> list[list[str]]:
    """Return the table with its heads as texts."""
    code = any(row.outcomes for row in rows)
    cells = [[str(head) for head in HEADS]]
    for row in rows:
        outcomes = [str(row.outcomes.get(str(kind), 0)) for kind in CodeOutcome]
        mean_cells = [
            _format_number(row.ar, ".1f"),
            _format_number(row.am, ".1f"),
            _format_number(row.apc, ".2f"),
        ]
        spent = [
            f"{row.tokens:,}",
            f"{row.calls:,}",
            _format_number(row.cost, ".4f"),
            f"{row.seconds:.1f}",
        ]
        cells.append(
            [
                row.arm,
                row.split,
                row.round,
                str(row.n),
                f"{row.mean:.3f}",
                *outcomes,
                *mean_cells,
                *spent,
            ]
        )
    # The first five columns and the costs are for every kind of task.
    left_out = set() if code else set(range(5, 5 + len(CodeOutcome) + 3))
    return [[cell for at, cell in enumerate(line) if at not in left_out] for line in cells]


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
