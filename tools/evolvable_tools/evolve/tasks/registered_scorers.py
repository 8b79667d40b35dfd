"""Scorers that a task set names and the person registered: only the person's configuration says what they run."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_store.errors import Refused
from evolvable_tools.evolve.task import Task
from evolvable_tools.evolve.tasks.locate import program_of
from evolvable_tools.llm import NamedCommands


@dataclass(frozen=True, slots=True)
class RegisteredScorer:
    """A command scorer by its name. sha256: of its arguments, its program, and the files that it names."""

    name: str
    argv: tuple[str, ...]
    sha256: str

    @property
    def files(self) -> dict[str, bytes]:
        """The files that it names by whole paths."""
        return {word: Path(word).read_bytes() for word in _named_files(self.argv)}

    def to_json(self) -> dict[str, Any]:
        """Return what a run records of it."""
        return {"command": list(self.argv), "sha256": self.sha256}


def scorer_names(tasks: Sequence[Task]) -> dict[str, str]:
    """Return the names of the registered scorers that tasks use, each with the first task that uses it."""
    found: dict[str, str] = {}
    for task in tasks:
        if task.scorer.type == "command" and "name" in task.scorer.args:
            found.setdefault(str(task.scorer.args["name"]), task.id)
    return found


def registered_scorers(tasks: Sequence[Task], named: NamedCommands | None) -> dict[str, RegisteredScorer]:
    """Return the scorers that tasks name, as the person registered them.

    named: what the person registered, None where nothing is. Raise Refused for a name that is not registered, and for
    a command that would run files of the task set: nobody approved those.
    """
    commands = named or NamedCommands("scorer")
    found = {}
    for name, task in scorer_names(tasks).items():
        try:
            words = commands.get(name).words
        except Refused as error:
            raise Refused(f"Task {task} names the scorer {ascii(name)}. {error.text}", error.hint) from None
        if any("{taskset}" in word for word in words):
            text = f"The scorer {name} names files of a task set ({{taskset}}), and a registered scorer gets none."
            raise Refused(text, "Write such a command as `argv` in the task set, where it is approved with its files.")
        found[name] = RegisteredScorer(name, words, _sha256(words))
    return found


def refuse_changed(found: Mapping[str, RegisteredScorer], recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise Refused where a scorer is not what a run recorded when it began."""
    for name, scorer in found.items():
        if scorer.sha256 != recorded.get(name, {}).get("sha256"):
            hint = "Start a new run, or have the person register the command as it was."
            raise Refused(f"The scorer {name} is another command now than when the run began.", hint)


def _sha256(words: Sequence[str]) -> str:
    files = [[word, hashlib.sha256(Path(word).read_bytes()).hexdigest()] for word in _named_files(words)]
    return hashlib.sha256(json.dumps([list(words), program_of(words[0]), files]).encode()).hexdigest()


def _named_files(words: Sequence[str]) -> list[str]:
    return [word for word in words if Path(word).is_absolute() and Path(word).is_file()]
