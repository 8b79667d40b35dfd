"""Complete the tasks of sessions from each other, so that the check accepts their task set.

A task for a judge has one good and one bad answer, and the calibration needs more. Tasks of one
project are one category only where several sessions have them. Pure functions: no model is asked,
nothing is run.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from evolvable_evolve.evolution.scorers import MIN_KNOWN_ANSWERS, known_samples
from evolvable_evolve.evolution.task import Split, TaskSet
from evolvable_evolve.evolution.tasks.diagnostics import find_leaks
from evolvable_evolve.evolution.tasks.scorer_calibration import IssueLevel
from evolvable_evolve.evolution.tasks.session_tasks import SessionTask
from evolvable_evolve.evolution.tasks.similarity import TextSketch, find_kinds

OTHER = "other"
"""The category of tasks whose project no other session has."""

_MIN_MEMBERS = 2  # groups of tasks from which on a project is a category


@dataclass(frozen=True, slots=True)
class JudgedTask:
    """A task that a judge scores, with its known answers and their sessions."""

    task: SessionTask
    good: tuple[str, ...]
    bad: tuple[str, ...]
    sessions: tuple[str, ...]


def join_answers(tasks: Sequence[SessionTask]) -> list[JudgedTask]:
    """Return the tasks; those with one request and one correction are joined, with all answers."""
    alike: dict[tuple[str, str], list[SessionTask]] = defaultdict(list)
    for task in tasks:
        alike[same_words(task.prompt), same_words(task.correction)].append(task)
    joined = []
    for own in alike.values():
        good = tuple(dict.fromkeys(task.good for task in own))
        # An answer that was accepted once is not a bad one.
        bad = tuple(dict.fromkeys(task.bad for task in own if task.bad not in good))
        sessions = tuple(task.session for task in own)
        joined.append(JudgedTask(own[0], good, bad, sessions))
    return joined


def same_words(text: str) -> str:
    """Return a key of the text that ignores case and spaces."""
    return " ".join(text.casefold().split())


def complete_bad(tasks: Sequence[JudgedTask], other_bad: int) -> list[JudgedTask]:
    """Return the tasks with answers to other prompts as bad ones, as many as a calibration needs.

    other_bad: the number of bad answers that other tasks of the judge have.
    """
    count = other_bad + sum(len(task.bad) for task in tasks)
    completed = list[JudgedTask]()
    for task in tasks:
        wrong = list(_other_answers(task, tasks))[: max(0, MIN_KNOWN_ANSWERS - count)]
        count += len(wrong)
        completed.append(replace(task, bad=(*task.bad, *wrong)))
    return completed


# Words around an answer that change nothing about it.
_OPENERS = ("Here it is:\n\n{}", "{}\n\nTell me if anything is unclear.", "Sure.\n\n{}")


def complete_from_birth(
    tasks: Sequence[JudgedTask], other_counts: tuple[int, int]
) -> list[JudgedTask]:
    """Return the tasks with their own answers in other words, as many as a judge needs.

    Words around an answer make it neither right nor wrong, so these are known answers too.
    other_counts: the numbers of good and bad answers that other tasks of the judge have.
    """
    counts = {
        "good": other_counts[0] + sum(len(task.good) for task in tasks),
        "bad": other_counts[1] + sum(len(task.bad) for task in tasks),
    }
    completed = list[JudgedTask]()
    for task in tasks:
        own: dict[str, tuple[str, ...]] = {}
        for side, answers in (("good", task.good), ("bad", task.bad)):
            forms = [form.format(answer) for form in _OPENERS for answer in answers]
            # Only as many as are missing: real answers calibrate better than these.
            more = forms[: max(0, MIN_KNOWN_ANSWERS - counts[side])]
            own[side] = (*answers, *more)
            counts[side] += len(more)
        completed.append(replace(task, good=own["good"], bad=own["bad"]))
    return completed


def _other_answers(task: JudgedTask, tasks: Sequence[JudgedTask]) -> Iterator[str]:
    """Yield the good answers to prompts that ask for something else: here they are wrong."""
    own, own_answers = TextSketch.of(task.task.prompt), {*task.good, *task.bad}
    for other in tasks:
        if other is not task and not own.is_near(TextSketch.of(other.task.prompt)):
            yield from (answer for answer in other.good if answer not in own_answers)


def count_known_answers(taskset: TaskSet | None, rubric: str) -> tuple[int, int]:
    """Return the numbers of good and bad answers of a judge, both 0 without a task set."""
    samples = known_samples(taskset.tasks).get(rubric, []) if taskset else []
    good = sum(sample.good for sample in samples)
    return good, len(samples) - good


def find_refused(taskset: TaskSet, new: Sequence[str]) -> dict[str, str]:
    """Return new tasks that the check would refuse beside others, with the reason of each.

    They are those of one issue, {} where there is none.
    """
    for issue in find_leaks(taskset):
        if issue.level is IssueLevel.REFUSE and issue.rule in _REFUSED:
            own = [id_ for id_ in new if id_ in issue.tasks]
            # Where all tasks of the issue are new, the first can stay.
            refused = own[1:] if len(own) == len(issue.tasks) else own
            if refused:
                return dict.fromkeys(refused, _REFUSED[issue.rule])
    return {}


_REFUSED = {
    "contradiction": "another session asked the same, and its answer was corrected otherwise",
    "duplicate": "another part of the task set has an equal task",
}


def find_shortage(taskset: TaskSet) -> str:
    """Return what the task set lacks for its check, '' for nothing."""
    empty = [str(split) for split in (Split.TRAIN, Split.VAL) if not taskset.of(split)]
    if not empty:
        return ""
    return (
        f"There is no task in {' and '.join(empty)} yet, and `evolvable evolve taskset check` "
        "refuses the task set until tasks of another session are added: what is learned from one "
        "is chosen by another."
    )


def choose_categories(taskset: TaskSet, projects: Mapping[str, str]) -> dict[str, str]:
    """Return the category of each new task: its project where several sessions have it, else
    `other`.

    A task alone in `other` joins the largest category. projects: of the new tasks, by id.
    """
    groups = find_kinds(taskset.tasks, taskset.files).groups
    members: dict[str, set[str]] = defaultdict(set)
    for task in taskset.tasks:
        # Groups and not tasks: five tasks of one session are one.
        members[projects.get(task.id, task.category)].add(groups[task.id])
    chosen = {
        id_: name if len(members[name]) >= _MIN_MEMBERS else OTHER for id_, name in projects.items()
    }
    sizes: dict[str, set[str]] = defaultdict(set)
    for task in taskset.tasks:
        sizes[chosen.get(task.id, task.category)].add(groups[task.id])
    larger = [name for name in sorted(sizes) if name != OTHER]
    # The check of a task set warns of a category of one.
    if larger and len(sizes[OTHER]) == 1:
        largest = max(larger, key=lambda name: len(sizes[name]))
        chosen = {id_: largest if name == OTHER else name for id_, name in chosen.items()}
    return chosen
