"""The records of a sync: its results by directory, and content that arrives from a folder.

Content that arrives has an identity that answers for it. A policy decides whether it is held until
a person decides.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from evolvable_store.objects import Files
from evolvable_store.operation import Head, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage import WatchedFolder


@dataclass(frozen=True, slots=True)
class ImportedDirectory:
    """A directory whose content became a version.

    how: 'new', 'edited', 'returned' or 'merged'. principal: who answers for it.
    """

    directory: str
    ref: Ref
    version: int
    how: str
    principal: Principal = Principal.UNKNOWN


@dataclass(frozen=True, slots=True)
class DirectoryIssue:
    """A directory that was not imported, with every reason."""

    directory: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeldContent:
    """A directory whose content waits as a proposal. why: as a text, '' when it was held before."""

    directory: str
    ref: Ref
    proposal: int
    why: str = ""


@dataclass(slots=True)
class SyncReport:
    """The results of one sync. Directories are relative to the folder.

    stale: the folder itself is not there, or all that it held is gone at once, as when a disk is
    not mounted; nothing was touched. missing: directories that vanished so recently that they may
    come back; sync again soon. held: directories whose content is not served until a person
    decides. unchanged: those that hold what the library has. waiting_for_git: directories whose
    content waits until git has finished, each with what git is doing. again: those of `refused`
    that only trouble of the moment stopped (see `may_pass`); sync them again. replaced: those whose
    files another program replaced, with the proposal that puts back what was learned.
    """

    folder: WatchedFolder
    taken: list[ImportedDirectory] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    refused: list[DirectoryIssue] = field(default_factory=list)
    warnings: list[DirectoryIssue] = field(default_factory=list)
    conflicts: list[DirectoryIssue] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    held: list[HeldContent] = field(default_factory=list)
    unsettled: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    waiting_for_git: dict[str, str] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)
    replaced: list[HeldContent] = field(default_factory=list)
    stale: bool = False

    def add(self, other: "SyncReport") -> None:
        """Add the results of another sync of the same folder."""
        for name in _LISTS:
            getattr(self, name).extend(getattr(other, name))
        self.unchanged |= other.unchanged
        self.again |= other.again
        self.waiting_for_git |= other.waiting_for_git
        self.stale = self.stale or other.stale

    @property
    def waiting(self) -> bool:
        """Whether a directory is missing that may come back."""
        return bool(self.missing)


_LISTS = (
    *("taken", "written", "removed", "bound", "refused"),
    *("warnings", "conflicts", "missing", "held", "replaced"),
)
"""The fields of SyncReport that are lists."""


def describe_results(syncs: Iterable[SyncReport]) -> list[str]:
    """Return the failures and remarks of these syncs as texts."""
    return [remark for sync in syncs for remark in _describe_result(sync)]


def _describe_result(sync: SyncReport) -> Iterator[str]:
    place = sync.folder.path
    if sync.stale:
        yield (
            f"{place} is not there now; the change is in the library, and is written when the "
            "folder is back"
        )
    for refusal in (*sync.refused, *sync.conflicts):
        yield f"{place}/{refusal.directory}: {'; '.join(refusal.problems)}"
    for content in sync.held:
        yield (
            f"{place}/{content.directory} waits in the inbox (proposal {content.proposal}) and is "
            "left as it is"
        )
    for lost in sync.replaced:
        yield (
            f"{place}/{lost.directory}: its files were replaced; {lost.why} waits as proposal "
            f"{lost.proposal}"
        )
    for directory, why in sync.waiting_for_git.items():
        yield f"{place}/{directory} waits: {why}"
    for directory in sync.missing:
        yield (
            f"{place}/{directory} is not there now; the change is in the library, and is written "
            "when it is back"
        )


REPOSITORY = Identity(Principal.REPOSITORY, "file")


@dataclass(frozen=True, slots=True)
class IncomingDirectory:
    """A directory's content before it becomes a version of `ref`.

    head: of the resource, None for a new one. before: the files that it has. identity: who answers
    for the content. left_out: paths of entries there that belong to no version; that of a folder
    ends with a slash. unclaimed_elsewhere: nobody answers for the content, in a checkout of a
    system whose objects are not read here.
    """

    folder: WatchedFolder
    directory: str
    ref: Ref
    head: Head | None
    before: Files
    files: Files
    identity: Identity
    left_out: tuple[str, ...] = ()
    unclaimed_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class HoldDecision:
    """The reason why a content is held. findings: JSON of a scan's findings, None for none."""

    reason: str
    findings: str | None = None


HoldPolicy = Callable[[IncomingDirectory], HoldDecision | None]
"""Decides whether an arrival is held; None publishes it."""
