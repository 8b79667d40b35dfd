"""Checking a task set before anything is spent on it: could its figures mean anything?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolvable_tools.evolve.scorers.judge import Judge
from evolvable_tools.evolve.statistics.looks import alpha_of
from evolvable_tools.evolve.statistics.mde import POWER, detectable
from evolvable_tools.evolve.task import Split, TaskSet
from evolvable_tools.evolve.tasksets.knowns import known_remarks
from evolvable_tools.evolve.tasksets.leaks import by_category, by_split, leak_remarks, made_up
from evolvable_tools.evolve.tasksets.registered import RegisteredScorer
from evolvable_tools.evolve.tasksets.remarks import Level, Remark, named
from evolvable_tools.sandbox import Sandbox

EXPLORATORY_BELOW = 40
"""With fewer tasks in all nothing is claimed: a run is exploratory."""

FEW = 20
"""Validation tasks below which chance decides among candidates."""

BLUNT = 0.2
"""A test that finds no smaller gain than this is warned about."""


@dataclass(frozen=True)
class TaskSetCheck:
    """What a check found. With `passes` false nothing is spent on the task set.

    sizes, categories: tasks by split. detectable: the smallest true gain, as a share of the tasks, that the test would
    find in four runs of five; None when it would find none. exploratory: no promotion can be claimed. looks: how often
    this test was looked at before.
    """

    name: str
    digest: str
    test_digest: str
    passes: bool
    exploratory: bool
    sizes: dict[str, int]
    categories: dict[str, dict[str, int]]
    scorers: dict[str, int]
    detectable: float | None
    looks: int
    remarks: list[Remark]


async def check(
    taskset: TaskSet,
    *,
    looks: int = 0,
    judge: Judge | None = None,
    environment: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    registered: Mapping[str, RegisteredScorer] | None = None,
    hidden: Sequence[Path] = (),
) -> TaskSetCheck:
    """Returns what is wrong with a task set, and what difference it could show.

    Command scorers are run, on a few known answers each. looks: how often its test was looked at. environment: all that
    a scorer's process gets, by default ours. sandbox: what command scorers and setup commands run in. registered: the
    scorers that its tasks name. hidden: folders that setup commands do not see there.
    """
    smallest = detectable(len(taskset.of(Split.TEST)), look=looks + 1)
    remarks = [*_sizes(taskset), *_categories(taskset), *leak_remarks(taskset), *made_up(taskset)]
    commands = {name: one.argv for name, one in (registered or {}).items()}
    remarks += await known_remarks(
        taskset, judge=judge, environment=environment, sandbox=sandbox, registered=commands, hidden=hidden
    )
    remarks += _power(taskset, smallest, looks)
    scorers: dict[str, int] = {}
    for task in taskset.tasks:
        scorers[task.scorer.type] = scorers.get(task.scorer.type, 0) + 1
    order = list(Level)
    return TaskSetCheck(
        name=taskset.name,
        digest=taskset.digest,
        test_digest=taskset.test_digest,
        passes=all(remark.level is not Level.REFUSE for remark in remarks),
        exploratory=_exploratory(taskset) or smallest is None,
        sizes=by_split(taskset),
        categories=by_category(taskset.tasks),
        scorers=scorers,
        detectable=smallest,
        looks=looks,
        remarks=sorted(remarks, key=lambda remark: order.index(remark.level)),
    )


def _exploratory(taskset: TaskSet) -> bool:
    return len(taskset.tasks) < EXPLORATORY_BELOW or not taskset.of(Split.TEST)


def _sizes(taskset: TaskSet) -> Iterator[Remark]:
    for split, why in ((Split.TRAIN, "nothing can be learned from"), (Split.VAL, "nothing chooses among candidates")):
        if not taskset.of(split):
            hint = f'Add tasks, or set "split": "{split}" on some; `evolvable taskset split` deals them out.'
            yield Remark(Level.REFUSE, "no-tasks", f"There are no tasks in {split}: {why}.", hint)
    if 0 < len(taskset.of(Split.VAL)) < FEW:
        text = f"With {len(taskset.of(Split.VAL))} tasks in val the choice among candidates is mostly chance."
        yield Remark(Level.WARN, "small-val", text, "40 are a good beginning.")


def _categories(taskset: TaskSet) -> Iterator[Remark]:
    table = by_category(taskset.tasks)
    single = [name for name, row in table.items() if sum(row.values()) == 1]
    if single and len(table) > 1:
        text = f"Categories of a single task: {named(single)}. They cannot be both learned from and tested."
        yield Remark(Level.WARN, "rare-category", text, "Put them into a larger category.")
    for split in Split:
        without = [name for name, row in table.items() if not row[split] and sum(row.values()) > 1]
        if without and taskset.of(split):
            yield Remark(Level.NOTE, "category-missing", f"{split} has no task of category {named(without)}.")


def _power(taskset: TaskSet, smallest: float | None, looks: int) -> Iterator[Remark]:
    n = len(taskset.of(Split.TEST))
    if looks:
        times = "once" if looks == 1 else f"{looks} times"
        text = f"This test was looked at {times} before; the next look has to pass at p <= {alpha_of(looks + 1):.4f}."
        yield Remark(Level.WARN, "looked-at", text, "A fresh test gives its power back.")
    if _exploratory(taskset):
        what = f"With {len(taskset.tasks)} tasks" if n else "Without a test"
        text = f"{what} a run is exploratory: it can find ideas, and nothing is promoted."
        yield Remark(
            Level.WARN, "exploratory", text, "160 tasks give 40 to learn from, 40 to choose by, and 80 to test."
        )
    elif smallest is None:
        text = f"{n} test tasks would show no gain, however large, in {POWER:.0%} of runs."
        yield Remark(Level.WARN, "too-small", text, "Add tests: 100 are a good number.")
    else:
        level = Level.WARN if smallest > BLUNT else Level.NOTE
        text = (
            f"{n} test tasks find a true gain of {smallest * 100:.0f} points or more in {POWER:.0%} of runs; a smaller"
            " one will mostly end as NOT SUPPORTED, however real it is."
        )
        yield Remark(level, "detectable", text, "More tests find smaller gains." if level is Level.WARN else "")
