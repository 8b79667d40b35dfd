"""Task types: a label for every session, from the types of the files that it touched and the first
verb of its task.

The labels are a closed vocabulary. A library keeps its own in `environment:task-types`; without one
the built-in words hold. A task in a language other than English gets its label from the files
alone.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_store.errors import EvolvableError, TryAgain
from evolvable_store.resource import Kind, Ref
from evolvable_tools.metrics import plain_task_type
from evolvable_tools.outcomes.detection import unquoted_text

if TYPE_CHECKING:
    from evolvable_tools.library import Library
    from evolvable_tools.outcomes.detection import ToolCall
    from evolvable_tools.sessions import Session

TASK_TYPES = Ref(Kind.ENVIRONMENT, "task-types")
"""The resource with a library's own vocabulary."""

VOCABULARY_FILE = "task-types.json"

OTHER = "other"
"""The label of a task that no word and no file type of the vocabulary says anything of."""

MAX_SENTENCES = 8
"""Sentences of a task in which its verb is looked for."""

MAX_LABEL, MAX_GROUPS, MAX_MEMBERS = 30, 60, 200
"""Characters of a label's part, parts of each sort, and words or file types of one part: what a
vocabulary may have.
"""

_WORD = re.compile(r"[^\W\d_]+")
# Also at a colon: "In this repository: fix the build".
_SENTENCE = re.compile(r"[.!?:;]\s+|\n+")
_LEADING = """please can could would will you i i'd we let lets us me need want have like help now
then also just and so next first ok okay to the should must kindly try go"""
_BEFORE = frozenset(_LEADING.split())
"""Words that may stand before the verb of an English sentence that asks for something."""
_TYPED_TOOLS = ("load_skill", "find_skill", "report_outcome")
"""Tools of the library that are told the task type."""
# Calls of these name files of skills and not of the task.
_OWN_TOOLS = ("load_skill", "find_skill", "get_resource", "update_resource", "resource_history")
_PATHS = ("file_path", "path", "notebook_path")
# A name with an ending, and not the end of a sentence or a version such as `1.2`.
_SUFFIX = re.compile(r"[\w)\]]\.([A-Za-z][A-Za-z0-9]{0,8})(?![\w.])")


@dataclass(frozen=True)
class TaskTypes:
    """A vocabulary.

    files: file type (without its dot) -> part of a label; verbs: word -> part of a label.
    """

    files: Mapping[str, str]
    verbs: Mapping[str, str]

    @property
    def labels(self) -> frozenset[str]:
        """Every label that there can be."""
        verbs, files = set(self.verbs.values()), set(self.files.values())
        pairs = (f"{verb} {file}" for verb in verbs for file in files)
        return frozenset({OTHER, *verbs, *files, *pairs})

    def label(self, task: str, paths: Iterable[str]) -> str:
        """Return the label of a task in these words that touched these files: `fix python`,
        `python`, `fix` or `other`.

        The part of a file type is that of most files, of several equal ones the first by name.
        Files that the task names count as touched.
        """
        text = unquoted_text(task)
        # The verb of a task may come after a greeting or some context, but not much later.
        first_verbs = map(_find_first_verb, _SENTENCE.split(text.casefold())[:MAX_SENTENCES])
        verb = next((self.verbs[word] for word in first_verbs if word in self.verbs), "")
        suffixes = [
            path.rpartition(".")[2].casefold()
            for path in paths
            if "." in path.rpartition("/")[2].lstrip(".")
        ]
        suffixes_in_text = [suffix.casefold() for suffix in _SUFFIX.findall(text)]
        counts = Counter(
            self.files[suffix] for suffix in (suffixes or suffixes_in_text) if suffix in self.files
        )
        # Of equal counts the first by name, so that a session has one label everywhere.
        file = min(counts, key=lambda name: (-counts[name], name), default="")
        return " ".join(part for part in (verb, file) if part) or OTHER


def _find_first_verb(sentence: str) -> str:
    """Return the first word of a sentence that does not only lead to its verb."""
    return next(
        (word for word in _WORD.findall(sentence) if word not in _BEFORE and len(word) > 1), ""
    )


def parse_task_types(text: str) -> TaskTypes:
    """Return the vocabulary of a JSON document. Raises ValueError for what is none."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return TaskTypes(_read_members(value.get("files")), _read_members(value.get("verbs")))


def _read_members(groups: Any) -> dict[str, str]:
    if not isinstance(groups, dict) or len(groups) > MAX_GROUPS:
        raise ValueError(f"it needs files and verbs, objects of at most {MAX_GROUPS} lists")
    members: dict[str, str] = {}
    for name, words in groups.items():
        if not re.fullmatch(rf"[a-z0-9-]{{1,{MAX_LABEL}}}", name):
            raise ValueError(f"{ascii(name[:40])} is no part of a label")
        is_list = isinstance(words, list) and len(words) <= MAX_MEMBERS
        if not is_list or not all(isinstance(word, str) for word in words):
            raise ValueError(f"{name} is no list of at most {MAX_MEMBERS} words")
        for word in words:
            # The first part that names a word keeps it, in the order of the document.
            members.setdefault(word.casefold().lstrip("."), name)
    return members


# The text decides, so a changed vocabulary is parsed again and an unchanged one is not.
@lru_cache(8)
def _parse_cached(text: str) -> TaskTypes | None:
    try:
        return parse_task_types(text)
    except (ValueError, RecursionError):
        return None


BUILT_IN_TEXT = Path(__file__).with_name("task_types.json").read_text(encoding="utf-8")


def task_label(library: "Library", task: str) -> str:
    """Return the label of a task by its words alone, '' where the vocabulary says
    nothing of them.
    """
    label = task_types_of(library).label(task, ())
    return label if label != OTHER else ""


def task_types_of(library: "Library") -> TaskTypes:
    """Return a library's vocabulary: its own where `environment:task-types` holds a valid one, else
    the built-in.
    """
    built_in = _parse_cached(BUILT_IN_TEXT)
    assert built_in is not None
    head = library.store.head_or_none(TASK_TYPES)
    if head is None or head.version is None:
        return built_in
    try:
        text = library.store.file(head, VOCABULARY_FILE).data.decode("utf-8", "replace")
    # The library is busy: the built-in words would give this session a label for good that its own
    # ones do not.
    except TryAgain:
        raise
    except EvolvableError:
        return built_in
    return _parse_cached(text) or built_in


def task_type_of(library: "Library", session: "Session", calls: Iterable["ToolCall"]) -> str:
    """Return the label of a session: the last that its own calls of the library's tools name, where
    they name one.

    Otherwise that of its first typed message, and of the files that its calls named. Words that are
    no label of the vocabulary name none: a label reaches texts that are written by code.
    """
    vocabulary, calls = task_types_of(library), list(calls)
    if label := _find_named_label(vocabulary, calls):
        return label
    typed_texts = (
        span.text for span in session.spans if span.origin == "user" and span.role == "user"
    )
    typed = next((text for text in typed_texts if text.strip()), "")
    paths: list[str] = []
    for call in calls:
        arguments = call.span.input or {}
        if (call.span.tool or "").endswith(_OWN_TOOLS):
            continue
        paths += [path for name in _PATHS if isinstance(path := arguments.get(name), str)]
        # Words of a command with a point may be files; very long ones are data.
        paths += [
            word
            for simple in call.commands
            for word in simple.words[1:]
            if "." in word and len(word) < 300
        ]
    # A skill is no file of the task.
    touched = [path for path in paths if not path.casefold().endswith("skill.md")]
    return vocabulary.label(typed, touched)


def _find_named_label(vocabulary: TaskTypes, calls: Iterable["ToolCall"]) -> str:
    """Return the label that the last of these calls of the library's tools names as the task type,
    '' for none.
    """
    label = ""
    for call in calls:
        words = (call.span.input or {}).get("task_type")
        if isinstance(words, str) and (call.span.tool or "").endswith(_TYPED_TOOLS):
            words = plain_task_type(words)
            label = words if words in vocabulary.labels else label
    return label
