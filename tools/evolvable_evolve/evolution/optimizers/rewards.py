"""Reinforce++ and GRPO: rollouts of one task are compared with each other, and the proposer gets
their contrasts.

The instances of Autogenesis (arXiv 2604.15034, E.3.6 and E.3.7), with these differences: rewards
are scores of training tasks, the answer under the base is the reference, and the gate decides
whether an edit is kept. The signals computed from the rewards are recorded as a diagnosis.
Contrasts are chosen by rewards alone, and an objective decides nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from evolvable_evolve.evolution import search_operators
from evolvable_evolve.evolution.candidates import Program
from evolvable_evolve.evolution.optimizers import surrogates
from evolvable_evolve.evolution.optimizers.optimizer import Optimizer
from evolvable_evolve.evolution.proposers import EditPlan, Evidence, QuestionGuide
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.search_operators import make_evidence
from evolvable_evolve.evolution.task import Trial

# No comparison and no other iteration has these repeats, so no rollout comes from the cache.
FIRST_SAMPLE, ROUND = 10_000, 16
"""The first number of the repeats that are rollouts, and how many numbers each iteration has."""

CONTRASTS = (
    "contrasts names rollouts of one task under the same resources, of which one passed and "
    "another failed. better and worse are samples of the evidence; advantage is the distance to "
    "the mean of the task, in standard deviations. What the better one did and the worse one did "
    "not is what the resources should ask for. Signals are no scores."
)
"""Further instructions to a proposer where rollouts are compared."""

MAX_PASSED = 2
"""Tasks of a batch that passed without a contrast and are shown, at most."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The rollouts of one task that are compared, each with its signals."""

    rollouts: Sequence[Evidence]

    @property
    def best(self) -> Evidence:
        return max(self.rollouts, key=lambda rollout: rollout.trial.score or 0.0)

    @property
    def worst(self) -> Evidence:
        return min(self.rollouts, key=lambda rollout: rollout.trial.score or 0.0)

    @property
    def differs(self) -> bool:
        """Whether one passed and another failed: only then the group shows how a good rollout
        differs.
        """
        return self.best.passed and not self.worst.passed

    @property
    def gap(self) -> float:
        """The advantage of the best rollout over the worst."""
        best, worst = self.best.sample or {}, self.worst.sample or {}
        return best.get("advantage", 0.0) - worst.get("advantage", 0.0)


def grpo(run: RunContext) -> Optimizer:
    """Return GRPO: as many rollouts of each task as `samples` says, compared within their task."""
    return _make_optimizer(run, _sample_groups)


def reinforce_pp(run: RunContext) -> Optimizer:
    """Return Reinforce++: one new rollout of each task, compared with the one before it."""
    return _make_optimizer(run, _sample_successors)


def _make_optimizer(run: RunContext, sample: Any) -> Optimizer:
    async def reflect(traces: Sequence[Evidence], program: Program) -> Sequence[EditPlan]:
        # A continued run finds its rollouts in the ledger.
        groups = await sample(run, traces, program)
        rollouts, guide = _compare_groups(groups)
        # Without a failure there is nothing to repair.
        if all(rollout.passed for rollout in rollouts):
            return []
        return await search_operators.reflect(run, rollouts, program, guide)

    select = partial(search_operators.select_intents, run)
    return Optimizer(reflect, select, partial(search_operators.build, run))


async def _sample_groups(
    run: RunContext, traces: Sequence[Evidence], program: Program
) -> list[_Group]:
    """Run each task of the batch several times, and record the signals of each group."""
    by_task = await _run_rollouts(run, traces, program, run.settings.rollouts)
    groups, records = list[_Group](), list[dict[str, Any]]()
    failed = _count_failed(traces)
    for trace in traces:
        # A trial that did not count is no part of a group, and has no advantage.
        trials = by_task[trace.task.id]
        ratios = [surrogates.text_similarity(trace.trial.output, trial.output) for trial in trials]
        signal = surrogates.group_signal([trial.score or 0.0 for trial in trials], ratios)
        records.append({"task": trace.task.id, **asdict(signal)})
        rollouts = []
        rows = zip(trials, signal.advantages, ratios, strict=True)
        for number, (trial, advantage, ratio) in enumerate(rows, 1):
            sample = _make_sample(number, len(trials), advantage=advantage, ratio=ratio)
            rollouts.append(make_evidence(run, trace.task, trial, program, failed, sample))
        if rollouts:
            groups.append(_Group(rollouts))
    _record_signals(run, records, groups)
    return groups


async def _sample_successors(
    run: RunContext, traces: Sequence[Evidence], program: Program
) -> list[_Group]:
    """Run each task of the batch once more, and record the signals of each new rollout."""
    by_task = await _run_rollouts(run, traces, program, 1)
    reference = await run.measure(
        [(run.base, trace.task, 0) for trace in traces], f"train/{run.state.iteration}/base"
    )
    groups, records = list[_Group](), list[dict[str, Any]]()
    failed = _count_failed(traces)
    for trace, base in zip(traces, reference, strict=True):
        base_output = base.output if base.outcome.counts else ""
        # The rollout that the batch already has is the first of the pair.
        pair = [replace(trace, sample=_make_sample(1, 2))]
        for trial in by_task[trace.task.id]:
            ratio = surrogates.text_similarity(trace.trial.output, trial.output)
            to_base = surrogates.text_similarity(base_output, trial.output)
            signal = surrogates.reinforce_signal(trial.score or 0.0, ratio, to_base)
            records.append({"task": trace.task.id, **asdict(signal)})
            sample = _make_sample(2, 2, advantage=signal.advantage, ratio=ratio)
            pair.append(make_evidence(run, trace.task, trial, program, failed, sample))
        groups.append(_Group(pair))
    _record_signals(run, records, groups)
    return groups


async def _run_rollouts(
    run: RunContext, traces: Sequence[Evidence], program: Program, count: int
) -> dict[str, list[Trial]]:
    """Run each task `count` times more under the program, and return by task the trials that count.

    They are billed as trials.
    """
    first = FIRST_SAMPLE + run.state.iteration * ROUND
    requests = [
        (program, trace.task, first + number) for trace in traces for number in range(count)
    ]
    trials = await run.measure(requests, f"train/{run.state.iteration}/samples")
    by_task: dict[str, list[Trial]] = {trace.task.id: [] for trace in traces}
    for trial in trials:
        if trial.outcome.counts:
            by_task[trial.task].append(trial)
    return by_task


def _count_failed(traces: Sequence[Evidence]) -> Counter[str]:
    """Return the number of failed tasks by category."""
    return Counter(trace.task.category for trace in traces if not trace.passed)


def _make_sample(number: int, of: int, **signals: float) -> dict[str, float]:
    return {"number": number, "of": of} | {name: round(value, 4) for name, value in signals.items()}


def _record_signals(
    run: RunContext, signals: Sequence[Mapping[str, Any]], groups: Sequence[_Group]
) -> None:
    """Record the signals of an iteration, where the ledger does not have them yet."""
    number = run.state.iteration
    # A continued run comes here again.
    if not any(record["iteration"] == number for record in run.state.signals):
        contrasts = sum(group.differs for group in groups)
        name = run.settings.optimizer
        run.note(
            "signals", iteration=number, optimizer=name, groups=list(signals), contrasts=contrasts
        )


def _compare_groups(groups: Sequence[_Group]) -> tuple[list[Evidence], QuestionGuide]:
    """Return the rollouts for the proposer, with its guide to them.

    They are the worst and the best of each group with a contrast, and the worst of each other one.
    """
    # The widest contrast first, because a question may be cut to a few.
    contrasts = sorted((group for group in groups if group.differs), key=lambda group: -group.gap)
    alike = [group.worst for group in groups if not group.differs]
    rollouts = [rollout for group in contrasts for rollout in (group.worst, group.best)]
    rollouts += [rollout for rollout in alike if not rollout.passed]
    rollouts += [rollout for rollout in alike if rollout.passed][:MAX_PASSED]
    pairs = [
        {
            "task": group.best.task.id,
            "better": dict(group.best.sample or {}),
            "worse": dict(group.worst.sample or {}),
        }
        for group in contrasts
    ]
    return rollouts, QuestionGuide(CONTRASTS, {"contrasts": pairs})
