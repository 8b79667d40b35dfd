"""Commands that a person named: nobody else says which programs run here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_store.errors import Refused


@dataclass(frozen=True, slots=True)
class NamedCommand:
    """A command by its name. argv: an argument list. folder: relative words that name a file there stand for it."""

    name: str
    argv: tuple[str, ...]
    folder: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The argument list as it is run."""
        if not self.folder:
            return self.argv
        # A bare first word is a program on the PATH, whatever lies in the folder.
        return tuple(
            word if i == 0 and not Path(word).parent.name else self._word(word) for i, word in enumerate(self.argv)
        )

    def _word(self, word: str) -> str:
        path = Path(self.folder) / word
        return str(path) if not Path(word).is_absolute() and path.is_file() else word


@dataclass(frozen=True, slots=True)
class NamedCommands:
    """The commands of one role, such as executors. hint: what to do about a name that is not there."""

    role: str
    commands: Mapping[str, NamedCommand] = field(default_factory=dict)
    hint: str = ""

    def get(self, name: str) -> NamedCommand:
        """Return the command of this name. Raise Refused when the person named none so, or when it is a command."""
        found = self.commands.get(name)
        if found is not None:
            return found
        known = f" Those named: {', '.join(sorted(self.commands))}." if self.commands else ""
        if any(char in name for char in " /\\\t\n\"'"):
            text = f"A command line cannot be the {self.role} of a call or a setting: commands are named by a person."
            raise Refused(text, f"{self.hint}{known}")
        raise Refused(f"No {self.role} is named {ascii(name[:80])}.", f"{self.hint}{known}")
