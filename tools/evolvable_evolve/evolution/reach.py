"""The clearest outcome that the test of a run can have: a run that could decide nothing is refused
before its first trial.

Every figure is computed by the code that decides in the end, for the clearest outcome: each task
fails under the base and passes under the other program.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from evolvable_evolve.evolution.final import narrow_level, plan_stages
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.statistics import (
    MIN_NARROW_TASKS,
    NARROW_REPEATS,
    alpha_of_look,
    narrow_sizes,
    permutation_p_value,
    staged_sign_flip,
)
from evolvable_evolve.evolution.task import Split, Task, TaskSet
from evolvable_store.errors import InvalidArgument

_MOST_MORE = 60  # further tasks that are tried for the hint
_MOST_REPEATS = 20  # repeats that are tried for the hint


@dataclass(frozen=True, slots=True)
class BestOutcome:
    """The clearest outcome of a test. p: its p-value; level: the limit of the p-value."""

    p: float
    level: float

    @property
    def decides(self) -> bool:
        """Whether a verdict other than INDECISIVE or NOT SUPPORTED is possible."""
        return self.p <= self.level


def refuse_undecidable(
    taskset: TaskSet, settings: RunSettings, look: int, *, exploratory: bool
) -> None:
    """Raise InvalidArgument where no outcome of the run's test could decide anything.

    The message names further tasks or settings that would do.

    look: the number that the run's look at the test will have. exploratory: the claim would be
    about these tasks alone.
    """
    if not settings.open_test:
        return  # a comparison on train and validation can end in an answer at any size
    val, tests = len(taskset.of(Split.VAL)), taskset.of(Split.TEST)
    if exploratory and not sum(narrow_sizes(val, len(tests))):
        raise _make_too_few_error(taskset.name, val, len(tests))
    best = best_outcome(val, tests, settings, look, exploratory=exploratory)
    if best.decides:
        return
    count = sum(narrow_sizes(val, len(tests))) if exploratory else len(tests)
    shared = f" under each of {settings.executors} executors" if settings.executors > 1 else ""
    text = (
        f"The run could decide nothing: the clearest outcome of {count} tasks has p = "
        f"{best.p:.2g}, and look {look} at this test needs {best.level:.2g}{shared}. No "
        "trial was run."
    )
    ways = list(_find_ways_out(val, tests, settings, look, exploratory=exploratory))
    way = ", or ".join(ways) or "Take test tasks that no run has opened"
    raise InvalidArgument(text, f"{way}; then start again.")


def _make_too_few_error(name: str, val: int, tests: int) -> InvalidArgument:
    missing = max(MIN_NARROW_TASKS - val - tests, 0 if tests else 1)
    where = "val or test" if tests else "test"
    text = (
        f"A run on {name} could decide nothing: {val} val and {tests} test tasks are too few, and "
        f"a claim takes {MIN_NARROW_TASKS} of both together, with a test. No trial was run."
    )
    more = "1 more task" if missing == 1 else f"{missing} more tasks"
    hint = f"Add {more} to {where}; then start again. `evolvable evolve plan` says what they show."
    return InvalidArgument(text, hint)


def best_outcome(
    val: int, tests: Sequence[Task], settings: RunSettings, look: int, *, exploratory: bool
) -> BestOutcome:
    """Return the clearest outcome that the test of these tasks can have.

    val: tasks of validation.
    """
    if exploratory:
        count = sum(narrow_sizes(val, len(tests)))
        repeats = settings.test_repeats or NARROW_REPEATS
        return BestOutcome(_compute_narrow_p(count, repeats), narrow_level(settings, look))
    alpha = alpha_of_look(look, settings.test_alpha)
    if settings.purpose == "measure":
        # Both sides are tested, each at half of the alpha.
        one_side = _compute_staged_outcome(tests, settings, alpha / (2 * settings.executors))
        return BestOutcome(2 * one_side.p, 2 * one_side.level)
    return _compute_staged_outcome(tests, settings, alpha)


def _compute_narrow_p(count: int, repeats: int) -> float:
    """Return the least p-value: of steady arms, or of arms in which one task has both results."""
    before = {str(n): [0.0] * repeats for n in range(count)}
    after = {str(n): [1.0] * repeats for n in range(count)}
    steady = permutation_p_value(before, after)
    if repeats == 1:
        return steady
    # A steady arm counts each task once, so one mixed task can make the p-value smaller.
    mixed = [1.0] + [0.0] * (repeats - 1), [0.0] + [1.0] * (repeats - 1)
    return min(steady, permutation_p_value({**before, "0": mixed[0]}, {**after, "0": mixed[1]}))


def _compute_staged_outcome(
    tests: Sequence[Task], settings: RunSettings, alpha: float
) -> BestOutcome:
    stages = plan_stages(tests, f"{settings.seed} {settings.test_digest}")
    planned = [len(stage) for stage in stages]
    sizes = [Counter(task.group or task.id for task in stage).values() for stage in stages]
    groups = [[[1.0] * size for size in stage] for stage in sizes]
    results = [
        staged_sign_flip(groups[: number + 1], planned, alpha) for number in range(len(stages))
    ]
    # The first stage that can end the test is enough.
    result = next((stage_result for stage_result in results if stage_result.rejects), results[-1])
    return BestOutcome(result.p, result.alpha)


def _find_ways_out(
    val: int, tests: Sequence[Task], settings: RunSettings, look: int, *, exploratory: bool
) -> Iterator[str]:
    """Yield changes that would make a decision possible, each alone."""
    # Each of them is a group of its own.
    more = [replace(tests[0], id=f"more {n}", group="") for n in range(_MOST_MORE)]
    for count in range(1, _MOST_MORE + 1):
        larger = [*tests, *more[:count]]
        if best_outcome(val, larger, settings, look, exploratory=exploratory).decides:
            yield f"Add {count} test {'task' if count == 1 else 'tasks'} unlike the others"
            break
    if exploratory:
        now = settings.test_repeats or NARROW_REPEATS
        for repeats in range(now + 1, _MOST_REPEATS + 1):
            changed = replace(settings, test_repeats=repeats)
            if best_outcome(val, tests, changed, look, exploratory=True).decides:
                arms = 2 * sum(narrow_sizes(val, len(tests)))
                yield f"set test_repeats to {repeats} ({(repeats - now) * arms} more trials)"
                break
    for executors in range(settings.executors - 1, 0, -1):
        changed = replace(settings, executors=executors)
        if best_outcome(val, tests, changed, look, exploratory=exploratory).decides:
            yield f"name {executors} {'executor' if executors == 1 else 'executors'}"
            break
