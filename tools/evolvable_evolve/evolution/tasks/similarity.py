"""Near-duplicate tasks by their text: sketches that can be compared, and groups that must stay
together.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from evolvable_evolve.evolution.task import Task, TaskSet, task_fixtures
from evolvable_evolve.evolution.tasks.templates import MIN_TEXTS, Form, find_forms, hash_text

NEAR_DUPLICATE = 0.8
"""The share of common word triples from which on two texts are near-duplicates."""

WITHIN = 0.9
"""The share of the shorter text's word triples from which on it is contained in the longer one."""

MIN_WORDS = 8
"""A shorter text is only a duplicate of one with the same words, those of courtesy aside."""

# A "please" more or less makes no other task.
_COURTESY = """
please pls plz kindly hi hello hey dear thanks thank can could would will you me us now just the a
an bitte danke svp favor favore merci gracias grazie obrigado obrigada пожалуйста спасибо
"""
_COURTESY_WORDS = frozenset(_COURTESY.split())
_SKETCH = 96  # hashes of a text's triples; enough to distinguish .8 from .6
_MAX_FILE_TEXT = 20_000  # characters of the files of one task that are compared
_MAX_COMPARED = 4_000  # characters of them that are compared by their structure
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TextSketch:
    """A sketch of a prompt: a hash of its words, and the lowest hashes of its word triples.

    The text cannot be read from it, but a guessed text can be recognised.
    """

    words: str
    triples: tuple[int, ...]
    core_words: str = ""
    """A hash of the words without those of courtesy; '' where that is `words`, and in records of
    earlier versions.
    """
    form: str = ""
    """A hash of the form of the task among those of its set, '' where no other has it."""
    shape: tuple[int, ...] = ()
    """The lowest hashes of the word triples of the form, without what frames the whole set."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the sketch of a text. Case, spaces and punctuation make no difference."""
        words = _WORD.findall(text.casefold())
        # A text of courtesy alone keeps its words.
        whole, core_words = (
            _hash_words(words),
            _hash_words([word for word in words if word not in _COURTESY_WORDS] or words),
        )
        core_words = core_words if core_words != whole else ""
        # So few triples say nothing: one changed word changes half of them.
        if len(words) < MIN_WORDS:
            return cls(whole, (), core_words)
        return cls(
            whole, _lowest(" ".join(words[at : at + 3]) for at in range(len(words) - 2)), core_words
        )

    @classmethod
    def from_json(cls, record: Any) -> Self:
        """Return the sketch that `to_json` gave.

        Raises ValueError, TypeError, KeyError for anything else.
        """
        texts = record["words"], record.get("asked", ""), record.get("form", "")
        numbers = tuple(record["triples"]), tuple(record.get("shape", ()))
        if not all(isinstance(text, str) for text in texts) or not all(
            isinstance(n, int) for own in numbers for n in own
        ):
            raise ValueError("no sketch of a text")
        return cls(
            texts[0],
            numbers[0],
            texts[1],
            texts[2],
            numbers[1],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the sketch as a JSON value."""
        more = {"asked": self.core_words, "form": self.form, "shape": list(self.shape)}
        # Empty fields are left out, as in records of earlier versions.
        return {"words": self.words, "triples": list(self.triples)} | {
            name: value for name, value in more.items() if value
        }

    @property
    def names(self) -> set[str]:
        """The hashes by which texts with the same words are found: two that share one are
        near-duplicates.
        """
        return {self.words, self.core_words or self.words} | (
            {f"form {self.form}"} if self.form else set()
        )

    @cached_property
    def _set(self) -> frozenset[int]:
        return frozenset(self.triples)

    def is_near(self, other: "TextSketch") -> bool:
        """Return whether two texts are near-duplicates."""
        if self.names & other.names:
            return True
        # Where both have a form, the frame of the set is left out of the comparison.
        if min(len(self.shape), len(other.shape)) >= MIN_WORDS - 2:
            return _has_most(frozenset(self.shape), frozenset(other.shape))
        return bool(self.triples) and bool(other.triples) and _has_most(self._set, other._set)

    def is_within(self, other: "TextSketch") -> bool:
        """Return whether all but little of the shorter of two texts is contained in the
        longer one.

        Both sketches know all hashes up to the highest of a sketch that is cut off; only those are
        compared.
        """
        cut = [sketch.triples[-1] for sketch in (self, other) if len(sketch.triples) == _SKETCH]
        mine, theirs = self._set, other._set
        if cut:
            mine, theirs = (
                frozenset(number for number in hashes if number <= min(cut))
                for hashes in (mine, theirs)
            )
        fewer = min(len(mine), len(theirs))
        return fewer >= MIN_WORDS - 2 and len(mine & theirs) / fewer >= WITHIN


def _has_most(first: frozenset[int], second: frozenset[int]) -> bool:
    """Return whether two sets of lowest hashes are of texts with four of five triples in common."""
    # The lowest hashes of the union are a fair sample of all triples (a bottom-k sketch).
    lowest = sorted(first | second)[:_SKETCH]
    return (
        sum(1 for number in lowest if number in first and number in second) / len(lowest)
        >= NEAR_DUPLICATE
    )


def _lowest(triples: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({hash_text(triple) for triple in triples})[:_SKETCH])


def _hash_words(words: Iterable[str]) -> str:
    return hashlib.sha256(
        " ".join(words).encode(
            "utf-8",
            "replace",
        )
    ).hexdigest()[:32]


def find_groups(
    texts: Mapping[str, str], named_groups: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the group of every text by its id: those that read alike, and those to which a person
    gave one name.

    A group is named by the first of its ids. A person's names can only join detected groups, and
    not part them.

    texts: the text of each task. named_groups: the group that a person named, by task; '' for none.
    """
    ids = sorted(texts)
    return _join_groups(texts, find_forms([texts[id_] for id_ in ids]), named_groups or {})


def _join_groups(
    texts: Mapping[str, str], forms: Sequence[Form], named_groups: Mapping[str, str]
) -> dict[str, str]:
    """Return groups: texts of one form, those with the same words, and those of one given name.

    forms: by sorted id.
    """
    ids = sorted(texts)
    leader = dict(zip(ids, ids, strict=True))

    # Union-find; the path is halved on the way, so that long chains stay cheap.
    def find(id_: str) -> str:
        while leader[id_] != id_:
            leader[id_] = leader[leader[id_]]
            id_ = leader[id_]
        return id_

    def join(id_: str, other_id: str) -> None:
        # The first id leads, whatever the order of joins, so that names of groups are stable.
        first, second = sorted((find(id_), find(other_id)))
        leader[second] = first

    by_name: dict[str, str] = {}
    for at, id_ in enumerate(ids):
        if forms:
            join(ids[forms[at].group], id_)
        for name in TextSketch.of(texts[id_]).names:
            join(by_name.setdefault(name, id_), id_)
        if name := named_groups.get(id_, ""):
            join(by_name.setdefault(f"given {name}", id_), id_)
    return {id_: find(id_) for id_ in ids}


class Alike(StrEnum):
    """A person's word on tasks that read alike, in the field `alike` of ENVIRONMENT.md."""

    ALL_KINDS = "all-kinds"
    """These are all the kinds of tasks that there are: a claim is about these kinds."""
    MORE_KINDS = "more-kinds"
    """These are examples, and there are more kinds: tasks that read alike count as one group."""
    ONLY_WORDS = "only-words"
    """The tasks read alike and are different: they are not grouped."""


@dataclass(frozen=True)
class TaskKinds:
    """Alike tasks of a set, by their ids. kinds: by the texts of tasks. groups: those that count as
    one.

    forms: of the prompts, for the record of opened tasks; '' and () where a form says nothing.
    """

    kinds: Mapping[str, str]
    groups: Mapping[str, str]
    forms: Mapping[str, tuple[str, tuple[int, ...]]]


def find_kinds(tasks: Iterable[Task], files: Mapping[str, bytes], alike: str = "") -> TaskKinds:
    """Return which of these tasks are alike: in their prompts, and in the files that they begin
    with.

    alike: a person's word. Tasks of one kind are one group, except where the person said that they
    are all the kinds there are, or only read alike: then tasks with the same words are one group,
    and those of one given group.
    """
    own = sorted(tasks, key=lambda task: task.id)
    texts = {task.id: task_text(task, files) for task in own}
    workspace_texts = [_workspace_text(task, files)[:_MAX_COMPARED] for task in own]
    workspaces = (
        [form.group for form in find_forms(workspace_texts)] if any(workspace_texts) else []
    )
    # Equal requests with different files or another setup are different tasks.
    apart = [(workspaces[at] if workspaces else 0, task.setup) for at, task in enumerate(own)]
    forms = find_forms([task.prompt for task in own], apart)
    named_groups = {task.id: task.group for task in own}
    groups = kinds = _join_groups(texts, forms, named_groups)
    # The person's word counts more than the texts.
    if alike in (Alike.ALL_KINDS, Alike.ONLY_WORDS):
        groups = _join_groups(texts, (), named_groups)
    sizes = Counter(form.group for form in forms)
    shapes = {
        task.id: (_hash_words(form.tokens), _lowest(" ".join(triple) for triple in form.content))
        for task, form, text in zip(own, forms, workspace_texts, strict=True)
        # A form alone in a small set is no form, and one with files is not described by its prompt.
        if not text and len(form.tokens) > 1 and (sizes[form.group] > 1 or len(own) >= MIN_TEXTS)
    }
    return TaskKinds(kinds, groups, shapes)


def count_effective(groups: Iterable[str]) -> int:
    """Return the effective n of tasks: the number of their groups, each of which counts as one."""
    return len(set(groups))


def describe_claim(tasks: Sequence[Task], alike: str = "") -> str:
    """Return what a claim on these tasks is about, as a sentence; '' where no two of them are
    alike.

    alike: a person's word. A kind is named by its category where no other kind has it, else by a
    task of it.
    """
    kinds: dict[str, list[Task]] = {}
    for task in tasks:
        kinds.setdefault(task.kind or task.id, []).append(task)
    if len(kinds) == len(tasks):
        return ""
    if alike == Alike.ALL_KINDS:
        return (
            "The claim is about these kinds of tasks alone: "
            f"{', '.join(sorted(_kind_names(kinds.values())))}."
        )
    if alike == Alike.ONLY_WORDS:
        return (
            f"{len(tasks)} tasks read like {len(kinds)}; a person says that they only read alike."
        )
    effective = count_effective(task.group or task.id for task in tasks)
    return f"Tasks that read alike count as one: the effective n is {effective} of {len(tasks)}."


def _kind_names(kinds: Collection[Sequence[Task]]) -> list[str]:
    categories = [{task.category for task in own} for own in kinds]
    used = Counter(name for own in categories for name in own)
    return [
        next(iter(own))
        if len(own) == 1 and used[next(iter(own))] == 1
        else f"tasks like {tasks[0].id}"
        for own, tasks in zip(categories, kinds, strict=True)
    ]


def task_text(task: Task, files: Mapping[str, bytes]) -> str:
    """Return all that a program gets of a task, as one text."""
    return f"{task.prompt}\n{_workspace_text(task, files)}"


def _workspace_text(task: Task, files: Mapping[str, bytes]) -> str:
    fixtures = task_fixtures(task, files)
    text = "\n".join(
        f"{path}\n{data.decode('utf-8', 'replace')}" for path, data in sorted(fixtures.items())
    )
    # A large workspace would make every comparison slow, and its beginning tells it.
    return text[:_MAX_FILE_TEXT]


def sketch_tasks(tasks: Iterable[Task], files: Mapping[str, bytes]) -> list[TextSketch]:
    """Return the sketches of these tasks, in order, each by its own words."""
    return [TextSketch.of(task_text(task, files)) for task in tasks]


def sketch_set(taskset: TaskSet) -> dict[str, TextSketch]:
    """Return the sketches of all tasks of a set by their ids, each with its form among the others.

    So a task counts as opened where one of the same form was.
    """
    forms = find_kinds(taskset.tasks, taskset.files).forms
    plain = zip(taskset.tasks, sketch_tasks(taskset.tasks, taskset.files), strict=True)
    return {
        task.id: replace(sketch, form=form, shape=shape)
        for task, sketch in plain
        for form, shape in [forms.get(task.id, ("", ()))]
    }


def sketches_to_record(taskset: TaskSet, sketches: Iterable[TextSketch]) -> tuple[TextSketch, ...]:
    """Return the sketches as a look records them: without forms where a person said that tasks are
    independent.

    Sketches that were recorded with a form before count on.
    """
    plain = taskset.alike in (Alike.ALL_KINDS, Alike.ONLY_WORDS)
    return tuple(replace(sketch, form="", shape=()) if plain else sketch for sketch in sketches)
