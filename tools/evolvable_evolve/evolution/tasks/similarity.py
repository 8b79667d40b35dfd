"""Near-duplicate tasks by their texts: sketches to compare, and groups that must stay together."""

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
"""The share of the shorter text's word triples from which on the longer text contains it."""

MIN_WORDS = 8
"""A shorter text is only a duplicate of a text with the same words; words of courtesy do not count.
"""

# Words of courtesy make no other task.
_COURTESY = """
please pls plz kindly hi hello hey dear thanks thank can could would will you me us now just the a
an bitte danke svp favor favore merci gracias grazie obrigado obrigada пожалуйста спасибо
"""
_COURTESY_WORDS = frozenset(_COURTESY.split())
_SKETCH = 96  # hashes of a text's triples; enough to distinguish .8 from .6
_MAX_FILE_TEXT = 20_000  # characters of the files of one task that are compared
_MAX_COMPARED = 4_000  # of these characters, those that are compared by their structure
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TextSketch:
    """A sketch of a prompt: a hash of its words, and the lowest hashes of its word triples.

    The text cannot be read from it, but a guessed text can be recognised.
    """

    words: str
    triples: tuple[int, ...]
    core_words: str = ""
    """A hash of the words without those of courtesy; '' where it is `words`, and in old records."""
    form: str = ""
    """A hash of the form of the task among those of its set, '' where no other has it."""
    shape: tuple[int, ...] = ()
    """The lowest hashes of the word triples of the form, without the frame of the set."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the sketch of a text. Case, spaces and punctuation make no difference."""
        words = _WORD.findall(text.casefold())
        core = [word for word in words if word not in _COURTESY_WORDS]
        # A text of courtesy alone keeps its words.
        whole, core_words = _hash_words(words), _hash_words(core or words)
        if core_words == whole:
            core_words = ""
        # In a short text one changed word changes half of the triples.
        if len(words) < MIN_WORDS:
            return cls(whole, (), core_words)
        triples = (" ".join(words[at : at + 3]) for at in range(len(words) - 2))
        return cls(whole, _select_lowest(triples), core_words)

    @classmethod
    def from_json(cls, record: Any) -> Self:
        """Return the sketch that `to_json` gave.

        Raises ValueError, TypeError, KeyError for anything else.
        """
        words, core_words, form = record["words"], record.get("asked", ""), record.get("form", "")
        triples, shape = tuple(record["triples"]), tuple(record.get("shape", ()))
        has_texts = all(isinstance(text, str) for text in (words, core_words, form))
        if not has_texts or not all(isinstance(number, int) for number in (*triples, *shape)):
            raise ValueError("no sketch of a text")
        return cls(words, triples, core_words, form, shape)

    def to_json(self) -> dict[str, Any]:
        """Return the sketch as a JSON value."""
        record: dict[str, Any] = {"words": self.words, "triples": list(self.triples)}
        more = {"asked": self.core_words, "form": self.form, "shape": list(self.shape)}
        # Empty fields are left out, as in records of earlier versions.
        return record | {name: value for name, value in more.items() if value}

    @property
    def names(self) -> set[str]:
        """The hashes of the words and of the form; two texts that share one are near-duplicates."""
        hashes = {self.words, self.core_words or self.words}
        if self.form:
            hashes.add(f"form {self.form}")
        return hashes

    @cached_property
    def _triple_set(self) -> frozenset[int]:
        return frozenset(self.triples)

    def is_near(self, other: "TextSketch") -> bool:
        """Return whether two texts are near-duplicates."""
        if self.names & other.names:
            return True
        # Where both have a form, the frame of the set is left out of the comparison.
        if min(len(self.shape), len(other.shape)) >= MIN_WORDS - 2:
            return _has_most(frozenset(self.shape), frozenset(other.shape))
        return (
            bool(self.triples)
            and bool(other.triples)
            and _has_most(self._triple_set, other._triple_set)
        )

    def is_within(self, other: "TextSketch") -> bool:
        """Return whether the longer of two texts contains nearly all of the shorter one.

        A sketch that is cut off has all hashes up to its highest one, and only these are compared.
        """
        cut = [sketch.triples[-1] for sketch in (self, other) if len(sketch.triples) == _SKETCH]
        mine, theirs = self._triple_set, other._triple_set
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
    common = sum(1 for number in lowest if number in first and number in second)
    return common / len(lowest) >= NEAR_DUPLICATE


def _select_lowest(triples: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({hash_text(triple) for triple in triples})[:_SKETCH])


def _hash_words(words: Iterable[str]) -> str:
    text = " ".join(words).encode("utf-8", "replace")
    return hashlib.sha256(text).hexdigest()[:32]


def find_groups(
    texts: Mapping[str, str], named_groups: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the group of every text by its id, named by the first of the group's ids.

    Texts that read alike are one group, and those to which a person gave one name. A person's names
    can only join detected groups, and not divide them. texts: the text of each task. named_groups:
    by task, the group that a person named; '' for none.
    """
    ids = sorted(texts)
    return _join_groups(texts, find_forms([texts[id_] for id_ in ids]), named_groups or {})


def _join_groups(
    texts: Mapping[str, str], forms: Sequence[Form], named_groups: Mapping[str, str]
) -> dict[str, str]:
    """Return the group of every text: of one form, of the same words, or of one given name.

    forms: in the order of the sorted ids, () for none.
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
    """A person's answer on tasks that read alike, in the field `alike` of ENVIRONMENT.md."""

    ALL_KINDS = "all-kinds"
    """These are all the kinds of tasks that there are: a claim is about these kinds."""
    MORE_KINDS = "more-kinds"
    """These are examples, and there are more kinds: tasks that read alike count as one group."""
    ONLY_WORDS = "only-words"
    """The tasks read alike and are different: they are not grouped."""


@dataclass(frozen=True)
class TaskKinds:
    """The kinds and groups of the tasks of a set, by their ids.

    kinds: of tasks that read alike. groups: of tasks that count as one. forms: the hash and the
    shape of the prompt's form, for the record of opened tasks; tasks without a form are left out.
    """

    kinds: Mapping[str, str]
    groups: Mapping[str, str]
    forms: Mapping[str, tuple[str, tuple[int, ...]]]


def find_kinds(tasks: Iterable[Task], files: Mapping[str, bytes], alike: str = "") -> TaskKinds:
    """Return the kinds and groups of these tasks, by their prompts and their workspaces.

    Tasks of one kind are one group. alike: a person's answer. Where it says that these are all the
    kinds, or that tasks only read alike, a group has tasks of the same words or of one given name.
    """
    own = sorted(tasks, key=lambda task: task.id)
    texts = {task.id: task_text(task, files) for task in own}
    workspace_texts = [_format_workspace(task, files)[:_MAX_COMPARED] for task in own]
    workspaces = [0] * len(own)
    if any(workspace_texts):
        workspaces = [form.group for form in find_forms(workspace_texts)]
    # Equal requests with different files or another setup are different tasks.
    apart = [(group, task.setup) for group, task in zip(workspaces, own, strict=True)]
    forms = find_forms([task.prompt for task in own], apart)
    named_groups = {task.id: task.group for task in own}
    groups = kinds = _join_groups(texts, forms, named_groups)
    # The person's answer counts more than the texts.
    if alike in (Alike.ALL_KINDS, Alike.ONLY_WORDS):
        groups = _join_groups(texts, (), named_groups)
    sizes = Counter(form.group for form in forms)
    shapes = {}
    for task, form, text in zip(own, forms, workspace_texts, strict=True):
        # In a small set a form needs two tasks. A task with files is more than its prompt.
        has_form = sizes[form.group] > 1 or len(own) >= MIN_TEXTS
        if not text and len(form.tokens) > 1 and has_form:
            shape = _select_lowest(" ".join(triple) for triple in form.content)
            shapes[task.id] = (_hash_words(form.tokens), shape)
    return TaskKinds(kinds, groups, shapes)


def count_effective(groups: Iterable[str]) -> int:
    """Return the effective n of tasks: the number of their groups, each of which counts as one."""
    return len(set(groups))


def describe_claim(tasks: Sequence[Task], alike: str = "") -> str:
    """Return the scope of a claim on these tasks as a sentence, '' where no two are alike.

    alike: a person's answer. A kind is named by its category where no other kind has it, else by a
    task of it.
    """
    kinds: dict[str, list[Task]] = {}
    for task in tasks:
        kinds.setdefault(task.kind or task.id, []).append(task)
    if len(kinds) == len(tasks):
        return ""
    if alike == Alike.ALL_KINDS:
        names = ", ".join(sorted(_name_kinds(kinds.values())))
        return f"The claim is about these kinds of tasks alone: {names}."
    if alike == Alike.ONLY_WORDS:
        return (
            f"{len(tasks)} tasks read like {len(kinds)}; a person says that they only read alike."
        )
    effective = count_effective(task.group or task.id for task in tasks)
    return f"Tasks that read alike count as one: the effective n is {effective} of {len(tasks)}."


def _name_kinds(kinds: Collection[Sequence[Task]]) -> list[str]:
    categories = [{task.category for task in own} for own in kinds]
    used = Counter(name for own in categories for name in own)
    names = []
    for own, tasks in zip(categories, kinds, strict=True):
        category = next(iter(own))
        is_unique = len(own) == 1 and used[category] == 1
        names.append(category if is_unique else f"tasks like {tasks[0].id}")
    return names


def task_text(task: Task, files: Mapping[str, bytes]) -> str:
    """Return everything that a program gets of a task, as one text."""
    return f"{task.prompt}\n{_format_workspace(task, files)}"


def _format_workspace(task: Task, files: Mapping[str, bytes]) -> str:
    fixtures = task_fixtures(task, files)
    parts = [
        f"{path}\n{data.decode('utf-8', 'replace')}" for path, data in sorted(fixtures.items())
    ]
    text = "\n".join(parts)
    # A large workspace would make every comparison slow, and its beginning identifies it.
    return text[:_MAX_FILE_TEXT]


def sketch_tasks(tasks: Iterable[Task], files: Mapping[str, bytes]) -> list[TextSketch]:
    """Return the sketches of these tasks, in order, each by its own words."""
    return [TextSketch.of(task_text(task, files)) for task in tasks]


def sketch_set(taskset: TaskSet) -> dict[str, TextSketch]:
    """Return the sketches of all tasks of a set by their ids, each with its form among the others.

    So a task counts as opened where one of the same form was.
    """
    forms = find_kinds(taskset.tasks, taskset.files).forms
    plain = sketch_tasks(taskset.tasks, taskset.files)
    sketches = {}
    for task, sketch in zip(taskset.tasks, plain, strict=True):
        form, shape = forms.get(task.id, ("", ()))
        sketches[task.id] = replace(sketch, form=form, shape=shape)
    return sketches


def sketches_to_record(taskset: TaskSet, sketches: Iterable[TextSketch]) -> tuple[TextSketch, ...]:
    """Return the sketches as a look records them.

    They have no forms where a person said that the tasks are independent. Older records with forms
    still count.
    """
    if taskset.alike not in (Alike.ALL_KINDS, Alike.ONLY_WORDS):
        return tuple(sketches)
    return tuple(replace(sketch, form="", shape=()) for sketch in sketches)
