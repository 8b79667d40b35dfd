"""Check a task set before anything is spent on it: duplicates, leaked answers, sizes and power."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evolvable_evolve.evolution.run_config import STAGED_REPEATS
from evolvable_evolve.evolution.scorers import TaskSetScorer
from evolvable_evolve.evolution.statistics import (
    MIN_GROUPS,
    NOISE,
    POWER,
    PowerDesign,
    alpha_of_look,
    narrow_sizes,
    smallest_gain,
)
from evolvable_evolve.evolution.task import Split, Task, TaskSet, task_fixtures
from evolvable_evolve.evolution.tasks.scorer_calibration import (
    IssueLevel,
    TaskSetIssue,
    calibrate_scorers,
    format_ids,
    make_issue,
)
from evolvable_evolve.evolution.tasks.similarity import Alike, count_effective
from evolvable_store.errors import quote_text

# Names of files that suggest an answer.
_TELLING = ("expected", "answer", "gold", "solution", "truth", "tasks.jsonl")
_LONG = 20  # characters of an answer that is in a file not by chance
_COMMON = 0.5  # share of tasks with one answer: a program that always gives it passes as many


def find_leaks(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    """Yield tasks that are equal and should differ, and answers that can be read without work."""
    yield from _find_equal(taskset)
    yield from _find_nested(taskset)
    yield from _find_visible_answers(taskset)
    yield from _find_common_answer(taskset)


def visible_digest(taskset: TaskSet, task: Task) -> str:
    """Return a hash of everything that a program sees of a task; case and spaces do not count."""
    files = {
        path: hashlib.sha256(data).hexdigest()
        for path, data in task_fixtures(task, taskset.files).items()
    }
    parts = [" ".join(task.prompt.casefold().split()), files, task.setup]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "replace")).hexdigest()


def _find_equal(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in taskset.tasks:
        groups[visible_digest(taskset, task)].append(task)
    for group in groups.values():
        ids = [task.id for task in group]
        splits = sorted({task.split for task in group})
        if len({task.expected for task in group}) > 1:
            yield make_issue("contradiction", ids)
        elif len(splits) > 1:
            yield make_issue("duplicate-across-splits", ids, splits=" and ".join(splits))
        elif len(group) > 1:
            yield make_issue("duplicate", ids)


def _find_nested(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    """Yield where the workspace of one task holds the workspace of a task of another split."""
    folders = {task.files: task for task in taskset.tasks if task.files is not None}
    for task in folders.values():
        below = [
            other for folder, other in folders.items() if str(folder).startswith(f"{task.files}/")
        ]
        if inner := [other.id for other in below if other.split is not task.split]:
            yield make_issue("workspace-within", inner, outer=task.id, split=task.split)


def _find_visible_answers(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    visible, word_for_word = [], []
    for task in taskset.tasks:
        answer = (task.expected or "").strip()
        files = task_fixtures(task, taskset.files) if answer else {}
        if answer and _reveals(answer, files):
            visible.append(task.id)
        elif any(answer.encode() in data for data in files.values()):
            word_for_word.append(task.id)
    if visible:
        yield make_issue("answer-in-files", visible)
    if word_for_word:
        yield make_issue("answer-word-for-word", word_for_word)


def _reveals(answer: str, files: Mapping[str, bytes]) -> bool:
    """Return whether a file is the answer, or contains it and it is long or the name tells it."""
    answer_bytes = answer.encode()
    is_long = len(answer) >= _LONG and "\n" in answer
    for path, data in files.items():
        if data.strip() == answer_bytes:
            return True
        name = path.rpartition("/")[2].casefold()
        if answer_bytes in data and (is_long or any(word in name for word in _TELLING)):
            return True
    return False


def _find_common_answer(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    answers = [task.expected.strip().casefold() for task in taskset.tasks if task.expected]
    # Two equal answers of three say nothing.
    if len(answers) < 4:
        return
    _, count = Counter(answers).most_common(1)[0]
    if count / len(answers) >= _COMMON:
        yield make_issue("one-answer", count=count, total=len(answers))


def find_synthetic(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    """Yield a warning where tasks that a model or a program made up would decide."""
    deciding = [task for task in taskset.tasks if task.split is not Split.TRAIN]
    ids = [task.id for task in deciding if task.source == "synthetic"]
    if ids:
        yield make_issue("synthetic", ids, count=len(ids))


def count_by_split(taskset: TaskSet) -> dict[str, int]:
    """Return how many tasks each split has."""
    return {str(split): len(taskset.of(split)) for split in Split}


def count_by_category(all_: Sequence[Task]) -> dict[str, dict[str, int]]:
    """Return how many tasks each category has in each split."""
    table: dict[str, dict[str, int]] = {}
    for task in all_:
        row = table.setdefault(task.category, {str(split): 0 for split in Split})
        row[str(task.split)] += 1
    return dict(sorted(table.items()))


@dataclass(frozen=True)
class TaskTemplate:
    """Tasks that read alike: their number, and the prompts of two of them."""

    tasks: int
    examples: list[str]


_TEMPLATE_TASKS = 3  # tasks that read alike from which on they are of a template
_FEW = 0.8  # of the tasks: with fewer groups a person is asked what the templates are
_MAX_EXAMPLE = 120  # characters


def find_task_templates(taskset: TaskSet) -> list[TaskTemplate]:
    """Return the templates of a task set, the largest first. No example is a test task."""
    members: dict[str, list[Task]] = defaultdict(list)
    for task in taskset.tasks:
        members[task.kind or task.id].append(task)
    templates = []
    for own in members.values():
        if len(own) >= _TEMPLATE_TASKS:
            open_tasks = [task for task in own if task.split is not Split.TEST]
            texts = [" ".join(task.prompt.split()) for task in open_tasks[:2]]
            templates.append(TaskTemplate(len(own), [_shorten(text) for text in texts]))
    return sorted(templates, key=lambda template: (-template.tasks, template.examples))


def _shorten(text: str) -> str:
    """Return the end of a long text: the words that all tasks share are mostly at the beginning."""
    return text if len(text) <= _MAX_EXAMPLE else f"... {text[-_MAX_EXAMPLE:]}"


def asks_about_templates(taskset: TaskSet) -> bool:
    """Return whether a person should say what the templates of a task set are."""
    if taskset.alike or not find_task_templates(taskset):
        return False
    kinds = count_effective(task.kind or task.id for task in taskset.tasks)
    return kinds < _FEW * len(taskset.tasks)


_MAX_SHOWN = 6  # templates of a remark
_TEMPLATE_ISSUES = {
    "": "templates",
    Alike.ALL_KINDS: "templates-all",
    Alike.MORE_KINDS: "templates-more",
    Alike.ONLY_WORDS: "templates-words",
}


def _check_templates(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    """Yield the remark on templates: a person's answer, or that there is none.

    It says whether templates are in several splits.
    """
    if not _names_templates(taskset):
        return
    templates = find_task_templates(taskset)
    examples = "; ".join(
        " / ".join(map(quote_text, template.examples)) or "of the test"
        for template in templates[:_MAX_SHOWN]
    )
    if len(templates) > _MAX_SHOWN:
        examples += f"; and {len(templates) - _MAX_SHOWN} more"
    noun = "template" if len(templates) == 1 else "templates"
    more = ""
    templated = filter(_is_template, _list_groups(taskset))
    if any(len({task.split for task in own}) > 1 for own in templated):
        more = " They stand in several parts: what is learned from one is tested on another."
    yield make_issue(
        _TEMPLATE_ISSUES[taskset.alike],
        count=f"{len(templates)} {noun}",
        number=sum(template.tasks for template in templates),
        shown=examples,
        more=more,
        effective=count_groups(taskset),
    )


def _names_templates(taskset: TaskSet) -> bool:
    """Return whether the check reports the templates of a task set."""
    if not find_task_templates(taskset):
        return False
    return bool(taskset.alike) or asks_about_templates(taskset)


def _list_groups(taskset: TaskSet) -> list[list[Task]]:
    members: dict[str, list[Task]] = defaultdict(list)
    for task in taskset.tasks:
        if task.group:
            members[task.group].append(task)
    return list(members.values())


def _is_template(own: Sequence[Task]) -> bool:
    kinds = {task.kind for task in own}
    return len(own) >= _TEMPLATE_TASKS and bool(own[0].kind) and len(kinds) == 1


MIN_TASKS = 40
"""With fewer tasks in all, a run is exploratory and claims nothing."""

MIN_VAL_TASKS = 20
"""Validation tasks below which chance decides among candidates."""

MAX_DETECTABLE = 0.2
"""A test whose smallest detectable gain is larger gets a warning."""


@dataclass(frozen=True)
class TaskSetCheck:
    """Result of a check. With `passes` False nothing is spent on the task set.

    sizes, categories: the numbers of tasks by split. detectable: the smallest true gain, as a share
    of the tasks, that the test finds in four runs of five; None when it finds none. exploratory: no
    promotion can be claimed. looks: the earlier looks at this test. effective_n: the number of
    groups of alike tasks in its test. templates: of tasks that read alike. alike: a person's answer
    on them, '' for none. asks: whether a person should answer.
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
    remarks: list[TaskSetIssue]
    effective_n: int = 0
    templates: list[TaskTemplate] = field(default_factory=list)
    alike: str = ""
    asks: bool = False


async def check_taskset(
    taskset: TaskSet,
    *,
    looks: int = 0,
    scoring: TaskSetScorer | None = None,
    repeats: int = 0,
) -> TaskSetCheck:
    """Return the faults of a task set, and the smallest difference that it could show.

    Command scorers are run, on a few known answers each. looks: the earlier looks at its test.
    scoring: the host and the judge of scorers. repeats: of each test task; 0 for the default of a
    run.
    """
    tests = len(taskset.of(Split.TEST))
    repeats = repeats or STAGED_REPEATS
    # The next look is the one that a run would make.
    smallest = smallest_gain(PowerDesign.of(tests, repeats, look=looks + 1))
    remarks = [
        *_check_sizes(taskset),
        *_check_categories(taskset),
        *find_leaks(taskset),
        *find_synthetic(taskset),
    ]
    remarks += _check_reviewed(taskset)
    remarks += await calibrate_scorers(taskset, scoring or TaskSetScorer())
    remarks += [*_check_groups(taskset), *_check_templates(taskset)]
    remarks += _check_power(taskset, smallest, looks, repeats)
    order = list(IssueLevel)
    return TaskSetCheck(
        name=taskset.name,
        digest=taskset.digest,
        test_digest=taskset.test_digest,
        passes=all(remark.level is not IssueLevel.REFUSE for remark in remarks),
        exploratory=_is_exploratory(taskset)
        or smallest is None
        or count_groups(taskset) < MIN_GROUPS,
        sizes=count_by_split(taskset),
        categories=count_by_category(taskset.tasks),
        scorers=dict(Counter(task.scorer.type for task in taskset.tasks)),
        detectable=smallest,
        looks=looks,
        remarks=sorted(remarks, key=lambda remark: order.index(remark.level)),
        effective_n=count_groups(taskset),
        templates=find_task_templates(taskset),
        alike=taskset.alike,
        asks=asks_about_templates(taskset),
    )


def _is_exploratory(taskset: TaskSet) -> bool:
    return len(taskset.tasks) < MIN_TASKS or not taskset.of(Split.TEST)


def count_groups(taskset: TaskSet) -> int:
    """Return how many groups of tasks that are not alike the test has."""
    return count_effective(task.group or task.id for task in taskset.of(Split.TEST))


def _check_groups(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    """Yield remarks on groups of alike tasks, on groups in several splits, and on too few groups.

    Templates that have a remark of their own are not named again.
    """
    names_templates = _names_templates(taskset)
    members = [own for own in _list_groups(taskset) if not (names_templates and _is_template(own))]
    if members:
        examples = "; ".join(format_ids([task.id for task in own]) for own in members[:3])
        many = f"{len(members)} {'group' if len(members) == 1 else 'groups'}"
        yield make_issue("groups", count=many, number=sum(map(len, members)), shown=examples)
    for own in members:
        if len({task.split for task in own}) > 1:
            yield make_issue("group-parted", [task.id for task in own])
    groups = count_groups(taskset)
    # An exploratory set has a remark of its own.
    if groups < MIN_GROUPS and not _is_exploratory(taskset):
        val, tests = narrow_sizes(len(taskset.of(Split.VAL)), len(taskset.of(Split.TEST)))
        yield make_issue("few-groups", count=groups, least=MIN_GROUPS, tests=tests, val=val)


def _check_sizes(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    reasons = {
        Split.TRAIN: "nothing can be learned from",
        Split.VAL: "nothing chooses among candidates",
    }
    for split, why in reasons.items():
        if not taskset.of(split):
            yield make_issue("no-tasks", split=split, why=why)
    if 0 < (count := len(taskset.of(Split.VAL))) < MIN_VAL_TASKS:
        yield make_issue("small-val", count=count)


def _check_categories(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    table = count_by_category(taskset.tasks)
    single = [name for name, row in table.items() if sum(row.values()) == 1]
    if single and len(table) > 1:
        yield make_issue("rare-category", names=format_ids(single))
    for split in Split:
        # A category of one task cannot be in every split.
        without = [name for name, row in table.items() if not row[split] and sum(row.values()) > 1]
        if without and taskset.of(split):
            yield make_issue("category-missing", split=split, names=format_ids(without))


def _check_reviewed(taskset: TaskSet) -> Iterator[TaskSetIssue]:
    if waiting := [task.id for task in taskset.tasks if not task.reviewed]:
        yield make_issue("unreviewed", waiting)


def _check_power(
    taskset: TaskSet, smallest: float | None, looks: int, repeats: int
) -> Iterator[TaskSetIssue]:
    count = len(taskset.of(Split.TEST))
    if looks:
        times = "once" if looks == 1 else f"{looks} times"
        yield make_issue("looked-at", times=times, alpha=alpha_of_look(looks + 1))
    if _is_exploratory(taskset):
        what = f"With {len(taskset.tasks)} tasks" if count else "Without a test"
        yield make_issue("exploratory", what=what)
    elif smallest is None:
        yield make_issue("too-small", count=count, power=POWER)
    else:
        name = "hardly-detectable" if smallest > MAX_DETECTABLE else "detectable"
        times = "once" if repeats == 1 else f"{repeats} times"
        points = smallest * 100
        yield make_issue(name, count=count, points=points, power=POWER, repeats=times, noise=NOISE)
