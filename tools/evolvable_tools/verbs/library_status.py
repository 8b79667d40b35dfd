"""The status of a library: what waits for a person, and what others changed since.

It is asked for often, so it reads rows and no transcript.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from evolvable_store import (
    Actor,
    Head,
    Manifest,
    Operation,
    Principal,
    days_of_use,
    planned_day,
    waiting_sessions,
)
from evolvable_store.resource import Kind
from evolvable_store.storage import APPROVED, REJECTED, Proposal
from evolvable_store.workingcopy import is_put_back
from evolvable_tools import count, secret_leaks
from evolvable_tools.approvals import load_scan
from evolvable_tools.authors import author_words, authorships, operation_author
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import changed_files
from evolvable_tools.library import Library
from evolvable_tools.verbs.resource_info import lines_out_of_force
from evolvable_tools.verbs.search import list_resources
from evolvable_tools.verbs.unseen_changes import list_unseen

MAX_OPERATIONS = 1_000
"""Operations that are looked through for the last one of the person, and proposals that are
counted: prompts and pages ask often.
"""

MAX_LOOKED = 200
"""Resources that nobody stands for whose fields are looked at."""


@dataclass(frozen=True, slots=True)
class ChangesSince:
    """The operations after the last one of a person. operation, at: that one, None and '' when
    there is none.

    by: how many each principal made, a save on disk as `you (file)`. refs: the resources that they
    changed, the newest first.
    """

    operation: int | None
    at: str
    by: dict[str, int] = field(default_factory=dict)
    refs: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file on disk whose text is not served. version: what is served of the resource instead,
    None for nothing.

    proposal, state: what a person decides about, and whether it waits still. why: why it is held.
    """

    path: str
    ref: str
    version: int | None
    proposal: int
    state: str
    why: str

    @property
    def text(self) -> str:
        """The line for a person."""
        served = (
            f"{self.ref}@{self.version} is served" if self.version else f"{self.ref} is not served"
        )
        why, step = ("rejected", "reopen") if self.state == REJECTED else (self.why, "show")
        return f"{self.path} differs: {served}; {why}: evolvable inbox {step} {self.proposal}"


MAX_UNSEEN = 5
"""Lines on what agents changed that a status holds."""


@dataclass(frozen=True)
class LibraryStatus:
    """What the library holds, what waits for a person, and what others did since that person last
    changed something.

    waiting: proposals. asking: those of them that a scan found something in. held: directories on
    disk that are not served until a person decides. queued: sessions that wait for a review.
    folders: the watched ones, and how each stands. windows: the other processes that have the
    library open, None where the system does not show them. worst: the first problem of the quick
    checks, '' for none. problems: their number. out_of_force: a line for each resource with fields
    that nobody approved. unseen: the lines on what agents changed and nobody looked at, the newest
    first. unseen_count: how many there are. held_files: the files whose text is not what is served,
    because a save is held. put_back: a line for each proposal that would put back what was learned
    and was lost as files were replaced. near_duplicates: a line for each pair of near duplicates
    found since the last look. listing: how full a client's list of skills is, '' where every skill
    keeps its description there. clients: those that are here, and how each stands to the library.
    reviews: where automatic reviews are on, and what they may still take today, '' where they are
    off.
    """

    home: str
    resources: dict[str, int]
    waiting: int
    asking: int
    held: int
    queued: int
    since: ChangesSince
    folders: list[str] = field(default_factory=list)
    windows: int | None = None
    worst: str = ""
    problems: int = 0
    out_of_force: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    unseen_count: int = 0
    held_files: list[HeldFile] = field(default_factory=list)
    upkeep: str = ""
    put_back: list[str] = field(default_factory=list)
    near_duplicates: list[str] = field(default_factory=list)
    listing: str = ""
    clients: list[str] = field(default_factory=list)
    reviews: str = ""


def library_status(
    library: Library,
    *,
    folders: Sequence[str] = (),
    windows: int | None = None,
    problems: Sequence[str] = (),
    near_duplicates: Sequence[str] = (),
    listing: str = "",
    clients: Sequence[str] = (),
    reviews: str = "",
) -> LibraryStatus:
    """Return what a person wants to know first. problems: what the caller saw around the library,
    the worst first.

    folders, windows, near_duplicates, listing, clients, reviews: see LibraryStatus.
    """
    store = library.store
    waiting = _find_waiting(library)
    heads, kinds = list(store.heads()), dict[str, int]()
    for head in heads:
        kinds[head.kind] = kinds.get(head.kind, 0) + 1
    every_problem = [*problems, *_find_own_problems(library)]
    unseen = list_unseen(library, limit=MAX_UNSEEN)
    return LibraryStatus(
        str(store.home),
        {str(kind): number for kind, number in sorted(kinds.items())},
        len(waiting),
        sum(1 for proposal in waiting if load_scan(proposal.findings).asks),
        len(store.backend.held_directories.all()),
        len(waiting_sessions(store.home)),
        changes_since_person(library),
        list(folders),
        windows,
        every_problem[0] if every_problem else "",
        len(every_problem),
        _describe_out_of_force(library, heads),
        [change.line for change in unseen.changes],
        unseen.number,
        list_held_files(library),
        describe_plan(library),
        [_format_put_back(proposal) for proposal in waiting if is_put_back(proposal)],
        list(near_duplicates),
        listing,
        list(clients),
        reviews,
    )


def _find_waiting(library: Library) -> list[Proposal]:
    store = library.store
    now = store.now()
    return [
        proposal
        for proposal in store.backend.proposals.waiting(MAX_OPERATIONS)
        if proposal.expires is None or proposal.expires >= now
    ]


def waiting_line(library: Library) -> str:
    """Return in a line what waits for a person's decision, '' for nothing."""
    waiting = _find_waiting(library)
    held_count = len(library.store.backend.held_directories.all())
    if not waiting:
        return ""
    asking = sum(1 for proposal in waiting if load_scan(proposal.findings).asks)
    with_findings = f", {asking} with findings of the scan" if asking else ""
    on_disk = f"; {held_count} of them held on disk" if held_count else ""
    return f"{count(len(waiting), 'proposal')}{with_findings}{on_disk}: evolvable inbox"


YEAR_DAYS = 365
"""Age in days from which a library makes its records coarser by itself."""


def describe_plan(library: Library) -> str:
    """Return what is going to be made coarser by itself and when, '' where nothing is planned."""
    planned = planned_day(library.store.home)
    if planned is None or library.store.backend.shared:
        return ""
    left = planned - days_of_use(library.store.home)
    when = f"in {left} days of use" if left > 1 else "on the next day of use"
    step = f"`evolvable care gc --older {YEAR_DAYS}d --dry-run` says what"
    return f"what is older than a year is made coarser {when}; {step}"


def _format_put_back(waiting: Proposal) -> str:
    return f"{waiting.ref}: {waiting.reason}: evolvable inbox show {waiting.id}"


def _describe_out_of_force(library: Library, heads: Sequence[Head]) -> list[str]:
    authors = authorships(library, [head.id for head in heads])
    looked = [head for head in heads if not authors[head.id].stands][:MAX_LOOKED]
    return [line for head in looked for line in lines_out_of_force(library, head)]


def list_held_files(library: Library) -> list[HeldFile]:
    """Return the files on disk whose text is not what is served, because a person has to decide on
    it first.
    """
    folders = {folder.id: folder.path for folder in library.folders()}
    files = []
    for directory in library.store.backend.held_directories.all():
        if directory.folder not in folders or directory.is_approved:
            continue
        waiting = library.store.backend.proposals.get(directory.proposal)
        head = library.store.head_or_none(waiting.ref)
        version = head.version if head is not None else None
        is_live = head is not None and version is not None
        served = library.store.manifest(head) if head is not None and is_live else Manifest({})
        about = (directory.resource, version, directory.proposal, directory.state, waiting.reason)
        for path in changed_files(served, waiting.manifest):
            place = folders[directory.folder] / directory.directory / path
            files.append(HeldFile(str(place), *about))
    return files


def changes_since_person(library: Library) -> ChangesSince:
    """Return what others did after the last operation of a person."""
    return _collect_changes(library, _is_persons)


def _is_persons(operation: Operation) -> bool:
    # Operations of before principals were recorded have an actor alone.
    if operation.principal is None:
        return operation.actor is Actor.HUMAN
    return operation.principal is Principal.PERSON


def changes_since(library: Library, operation: int) -> ChangesSince:
    """Return what was done after an operation, by everybody."""
    return _collect_changes(library, lambda candidate: candidate.id <= operation)


def _collect_changes(library: Library, is_last: Callable[[Operation], bool]) -> ChangesSince:
    """Return what was done after the last operation of this kind."""
    by, others, last = dict[str, int](), list[Operation](), None
    for operation in library.store.operations(MAX_OPERATIONS):
        if is_last(operation):
            last = operation
            break
        others.append(operation)
        author = author_words(*operation_author(operation))
        by[author] = by.get(author, 0) + 1
    refs = {
        str(change.ref): None
        for change in library.store.backend.changes_of([other.id for other in others])
    }
    return ChangesSince(last.id if last else None, last.at if last else "", by, list(refs)[::-1])


def _find_own_problems(library: Library) -> Iterable[str]:
    """Yield what the quick checks of the library say, the worst first."""
    if library.store.read_only:
        yield f"{library.store.home} cannot be written."
    if waiting := waiting_places(library):
        yield waiting
    for message in secret_leaks.leak_messages(secret_leaks.stored_leaks(library)):
        yield f"{message}."
    for job in library.store.backend.purges.pending():
        yield f"The purge of {job.at[:16]} ({job.kind}) did not end."


CONFIRM_PLACES = "`evolvable folders confirm` shows them, and asks once."


def waiting_places(library: Library) -> str:
    """Return a line on the folders that others named and nobody confirmed, '' for none."""
    places = library.store.backend.waiting_places()
    if not places:
        return ""
    return f"Folders that nobody confirmed are neither read nor written: {places}."


def proposal_request(ref: str) -> str:
    """Return what a person says to a client, so that its agent proposes a change of a skill."""
    return (
        f"Read {ref} with Evolvable. Propose one improvement of it with update_resource and "
        "propose=true."
    )


def first_request(library: Library, caller: Caller) -> str | None:
    """Return how a person gets the first proposal: `proposal_request` for one skill, '' where there
    is none.

    None once a proposal was decided.
    """
    proposals = library.store.backend.proposals
    if any(proposals.in_state(state, 1) for state in (APPROVED, REJECTED)):
        return None
    skills = list_resources(library, caller, kind=Kind.SKILL, limit=1).resources
    return proposal_request(skills[0].ref) if skills else ""
