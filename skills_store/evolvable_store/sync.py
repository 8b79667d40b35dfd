"""What bringing a folder and the library together did, told directory by directory."""

from dataclasses import dataclass, field

from evolvable_store.bindings import Folder
from evolvable_store.operation import Principal
from evolvable_store.resource import Ref


@dataclass(frozen=True, slots=True)
class Taken:
    """A directory whose content became a version. `how`: 'new', 'edited', 'returned' or 'merged'.

    principal: who answers for it.
    """

    directory: str
    ref: Ref
    version: int
    how: str
    principal: Principal = Principal.UNKNOWN


@dataclass(frozen=True, slots=True)
class Refusal:
    """A directory that was not taken in, with every reason."""

    directory: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A directory whose content waits as a proposal; `why`: in words, '' when it was held before."""

    directory: str
    ref: Ref
    proposal: int
    why: str = ""


@dataclass(slots=True)
class Sync:
    """What one sync did. Directories are relative to the folder.

    stale: the folder itself is not there, or all that it held is gone at once, as when a disk is not mounted; nothing
    was touched. missing: directories that vanished so recently that they may come back; sync again soon. held:
    directories whose content is not served until a person decides.
    """

    folder: Folder
    taken: list[Taken] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    warnings: list[Refusal] = field(default_factory=list)
    conflicts: list[Refusal] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    held: list[HeldBack] = field(default_factory=list)
    stale: bool = False

    def add(self, other: "Sync") -> None:
        """Adds what another sync of the same folder did."""
        for name in ("taken", "written", "removed", "bound", "refused", "warnings", "conflicts", "missing", "held"):
            getattr(self, name).extend(getattr(other, name))
        self.stale = self.stale or other.stale

    @property
    def waiting(self) -> bool:
        """Whether a directory is missing that may come back."""
        return bool(self.missing)
