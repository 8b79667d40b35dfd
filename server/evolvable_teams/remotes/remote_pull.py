"""The verb that pulls from a git remote: a three-way merge whose other side is an import.

Changes that a person accepts become operations of the library, one for each commit, as history that
grants nothing. Resources that both sides changed are merged; a conflict keeps the content here, and
the remote's becomes a proposal. A change waits as a proposal too where no person accepted it, where
the scan finds something of high severity, and where only a person may make it. All of it is stored
in one transaction, together with the state of the synchronisation.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from evolvable_store import (
    TOMBSTONES,
    Actor,
    Files,
    Head,
    Identity,
    Manifest,
    Principal,
    blocking_problems,
    find_problems,
    merge_files,
)
from evolvable_store.errors import VersionConflict
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import RemoteWaiting
from evolvable_store.workingcopy import merge_resource, name_overlaps
from evolvable_teams.remotes.commit_reader import CommitReader, IncomingCommit, TreeContent
from evolvable_teams.remotes.layout import folder_of
from evolvable_teams.remotes.remote import Mirror, Remote, check_may_sync, open_mirror
from evolvable_teams.remotes.remote_merge import (
    ACCEPTED,
    Arrival,
    PlannedResource,
    PullResult,
    PullTransaction,
)
from evolvable_teams.remotes.remote_records import IncomingRecords, import_records, read_records
from evolvable_teams.remotes.tree_walk import TreeChanges
from evolvable_tools import SOUL, Caller, Library, check_change
from evolvable_tools.scan import Finding
from evolvable_tools.verbs import Purged, plan_blobs, purge

# Each try compares again. A library that changes faster raises VersionConflict to the caller.
_TRIES = 5


class Consent(StrEnum):
    """How far the person who pulls agreed to the incoming changes."""

    NONE = "none"
    """Nobody was asked: all of it waits."""

    UNATTENDED = "unattended"
    """The person said yes beforehand: what the scan finds anything in waits."""

    ASKED = "asked"
    """The person saw the list and said yes: what the scan finds of high severity waits."""


@dataclass(frozen=True, slots=True)
class IncomingResource:
    """One resource that a pull would change.

    base: the version here, 0 for none. files: how many it would have. findings: of the scan, the
    worst first. capabilities: what it gains the means to do. why: the reason why it waits or is
    refused. approved: in words, which approval elsewhere makes it trusted; '' for none.
    """

    ref: str
    arrival: Arrival
    base: int
    files: int
    findings: list[Finding] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)
    why: str = ""
    approved: str = ""


class Pull:
    """A pull that was fetched. `coming` shows what it would do; `accept` does it."""

    def __init__(self, mirror: Mirror, reader: CommitReader, head: str) -> None:
        self._mirror, self._reader, self.head = mirror, reader, head
        self._library, self._remote = mirror.library, mirror.remote
        self._planned: list[PlannedResource] = []
        self._changes = TreeChanges()
        self.commits: list[IncomingCommit] = []
        self._records = IncomingRecords()
        if head:
            own, keys = mirror.state.library, self._remote.keys
            self._records = read_records(
                reader.beside(head), lambda path: reader.file(head, path), own, keys
            )
        reader.stones = self._records.stones
        self._plan()

    def coming(self) -> list[IncomingResource]:
        """Return the resources that would change, those that need a look first."""
        incoming = [
            _describe(resource)
            for resource in self._planned
            if resource.arrival is not Arrival.HISTORY
        ]
        return sorted(incoming, key=_urgency)

    def _plan(self) -> None:
        """Compare the two sides, after the import of local edits in watched folders."""
        mirror, head = self._mirror, self.head
        if not head or (mirror.state.tip and mirror.repository.is_ancestor(head, mirror.state.tip)):
            return
        base = mirror.repository.common_ancestor(mirror.state.tip, head) if mirror.state.tip else ""
        self._changes = self._reader.changes(base, head)
        self._library.take_in([ref for ref in self._changes.refs if self._remote.chooses(ref)])
        # Local operations become commits before the two sides are compared, so that the tip is
        # ours.
        mirror.export()
        self.commits = self._reader.commits(mirror.state.tip, head)
        waiting = {entry.ref: entry for entry in mirror.waiting}
        touched = self._changes.refs.union(*(commit.changed for commit in self.commits))
        chosen = sorted((ref for ref in touched if self._remote.chooses(ref)), key=str)
        planned = (self._compare(ref, base, waiting.get(ref)) for ref in chosen)
        self._planned = [resource for resource in planned if resource is not None]
        self._look_for_approvals()

    def _look_for_approvals(self) -> None:
        """Note which incoming contents a person approved elsewhere, by a listed key."""
        for resource in self._planned:
            if self._is_signed(resource):
                resource.approved = "signed by a key that you listed"

    def _compare(self, ref: Ref, base: str, waits: RemoteWaiting | None) -> PlannedResource | None:
        """Return what the pull does with a resource, None where it does nothing.

        base: the commit that both sides have in common. waits: its entry of an earlier pull.
        """
        store, reader, folder = self._library.store, self._reader, folder_of(ref)
        base_tree = waits.base if waits else reader.tree_id(base, folder)
        trees = base_tree, reader.tree_id(self.head, folder)
        common, theirs = reader.content(ref, trees[0]), reader.content(ref, trees[1])
        here = store.head_or_none(ref)
        version = (here.version if here else None) or 0
        ours = store.manifest(here, version) if here is not None and version else Manifest({})
        sides = (ref, trees, theirs, version, ours)
        if theirs.problems:
            return PlannedResource(*sides, {}, Arrival.REFUSED, "; ".join(theirs.problems))
        frozen = here is not None and version > 0 and here.frozen
        if theirs.manifest == ours:
            planned = PlannedResource(*sides, reader.files(theirs), Arrival.HISTORY)
            return None if self._must_wait(planned, frozen) else planned
        if ours == common.manifest:
            changed = Arrival.CHANGED if theirs.manifest else Arrival.REMOVED
            arrival = changed if ours else Arrival.NEW
            planned = PlannedResource(*sides, reader.files(theirs), arrival)
        else:
            planned = self._merge(PlannedResource(*sides, {}, Arrival.MERGED), here, common)
        before = store.files_of(ours)
        planned.found = check_change(ref, before, planned.result, Actor.HUMAN)
        if planned.result and not before:
            planned.found = self._library.names.add_to(planned.found, ref)
        planned.must_wait = self._must_wait(planned, frozen)
        return planned

    def _merge(
        self, planned: PlannedResource, here: Head | None, common: TreeContent
    ) -> PlannedResource:
        theirs, name = self._reader.files(planned.theirs), self._remote.name
        if not theirs or not planned.ours or here is None:
            remover, other = (name, "this library") if not theirs else ("this library", name)
            planned.why = f"{remover} removed it, and {other} changed it"
            planned.arrival, planned.result = Arrival.CONFLICT, theirs
            return planned
        base, ours = self._reader.files(common), self._library.store.files_of(planned.ours)
        merged = merge_files(base, ours, theirs)
        is_invalid = _is_invalid(planned.ref, merged.files)
        planned.result = theirs if is_invalid else merged.files
        if not merged.conflicts and not is_invalid:
            return planned
        planned.arrival = Arrival.CONFLICT
        # The person's side wins in the overlapping lines; the remote's lines there wait as the
        # proposal.
        local_merge = merge_resource(here, base, theirs, ours)
        overlaps = name_overlaps(local_merge) or "its frontmatter"
        planned.why = f"{name} and this library both changed {overlaps}"
        if local_merge.files != ours and not _is_invalid(planned.ref, local_merge.files):
            planned.local_merge = local_merge.files
            planned.why += "; yours stays there, with every other change of both"
        return planned

    def _must_wait(self, planned: PlannedResource, frozen: bool) -> str:
        """Return why a yes to the whole pull is not enough for this, '' where it is."""
        if planned.ref.kind is Kind.MEMORY and planned.ref.name == SOUL:
            return "it is written by a person alone"
        contents = [self._reader.content(planned.ref, tree) for tree in self._trees_of(planned.ref)]
        # The content that arrives may itself be frozen. A frozen content in a commit before it, or
        # below a merge, forbids the change that follows it.
        if planned.arrival in (Arrival.NEW, Arrival.CHANGED, Arrival.REMOVED):
            contents = contents[:-1]
        if frozen or any(content.frozen for content in contents):
            return "it is frozen"
        if planned.blocks:
            return "the scan found something of high severity"
        is_merged = planned.arrival is Arrival.MERGED or planned.local_merge is not None
        if is_merged and planned.ref in self._mirror.held_back:
            # The merged text has the secret, and the next push would send it.
            return "a secret keeps what is here from the remote"
        return ""

    def _trees_of(self, ref: Ref) -> Iterator[str]:
        return (commit.changed[ref] for commit in self.commits if ref in commit.changed)

    def accept(self, consent: Consent) -> PullResult:
        """Store what may be stored, and propose the rest. Raises as every write."""
        # Consent is for the trees that the person was shown: a new comparison may find others.
        shown_trees = {resource.ref: resource.trees[1] for resource in self._planned}
        for attempt in range(_TRIES):
            try:
                return self._try_accept(consent, shown_trees)
            except VersionConflict:
                if attempt == _TRIES - 1:
                    raise
                self._plan()  # another process changed the library meanwhile
        raise AssertionError

    def _try_accept(self, consent: Consent, shown_trees: Mapping[Ref, str]) -> PullResult:
        if not self.head or not self.commits:
            if self.head:
                self._mirror.state = replace(self._mirror.state, seen=self.head)
                self._mirror.save()
            return PullResult(self._remote.name, 0, purged=self._purged_elsewhere())
        if consent is Consent.NONE:
            self._planned = [
                resource for resource in self._planned if resource.arrival is not Arrival.HISTORY
            ]
        for resource in self._planned:
            if resource.arrival is not Arrival.REFUSED:
                resource.why = self._wait_reason(resource, consent, shown_trees) or resource.why
        transaction = PullTransaction(
            self._mirror, self._reader, self._planned, self._changes, self.commits, self.head
        )
        result = transaction.run()
        # After the transaction, because an approval names a content of the library. After a crash
        # in between these contents are untrusted.
        self._vouch()
        import_records(self._library, self._records, self._remote.chooses, self._remote.looks)
        result.warnings.extend(self._checkout())
        result.purged.extend(self._purged_elsewhere())
        return result

    def _purged_elsewhere(self) -> list[str]:
        """Return the hashes of the blobs that were purged elsewhere and whose bytes are here."""
        packed_blob = self._library.store.backend.maintenance.packed_blob
        blobs = ((name, packed_blob(name)) for name in self._records.stones)
        return sorted(
            name for name, blob in blobs if blob is not None and blob[1] not in TOMBSTONES
        )

    def _is_signed(self, resource: PlannedResource) -> bool:
        """Return whether the owner of a listed key approved the content, which was never here.

        Otherwise an older version that was approved once would come back without a question.
        """
        tree = resource.theirs.manifest.tree
        if not _can_be_approved(resource):
            return False
        if not self._records.is_approved(resource.ref, tree, self._remote.keys):
            return False
        head = self._library.store.head_or_none(resource.ref)
        versions = (
            self._library.store.backend.versions(head.id, 100_000) if head is not None else []
        )
        return all(version.tree != tree for version in versions)

    def _vouch(self) -> None:
        """Record the approvals of others for the contents that are heads now.

        Where approvals are locked here, only those of this lock count.
        """
        store = self._library.store
        identity = Identity(Principal.PERSON, f"signed:{self._remote.name}")
        for resource in self._planned:
            if not resource.approved or resource.arrival not in ACCEPTED:
                continue
            head = store.head_or_none(resource.ref)
            if head is not None and head.tree == resource.theirs.manifest.tree:
                content = [(head.id, head.tree)]
                store.backend.attestations.vouch(content, store.now(), identity)

    def _wait_reason(
        self, resource: PlannedResource, consent: Consent, shown_trees: Mapping[Ref, str]
    ) -> str:
        """Return why a resource waits, '' where it does not; mark it as waiting."""
        why = resource.must_wait
        if resource.approved and not why:
            return ""
        was_shown = shown_trees.get(resource.ref) == resource.trees[1]
        if not why and (consent is Consent.NONE or not was_shown):
            why = "no person was asked"
        if not why and consent is Consent.UNATTENDED and resource.asks:
            why = "the scan found what a person is to see"
        if why and resource.arrival is not Arrival.HISTORY:
            resource.arrival = Arrival.WAITS
        return why

    def _checkout(self) -> list[str]:
        """Write the changed resources into watched folders; return the warnings."""
        written = [resource for resource in self._planned if resource.is_written]
        new = [resource.ref for resource in written if resource.arrival is Arrival.NEW]
        changed = [resource.ref for resource in written if resource.arrival is not Arrival.NEW]
        warnings = self._library.checkout(changed)
        return warnings + self._library.checkout(new, created=True)


def _describe(resource: PlannedResource) -> IncomingResource:
    findings = list(resource.found.findings) if resource.found else []
    gains = [str(gain) for gain in resource.found.capabilities.added] if resource.found else []
    arrival = Arrival.WAITS if resource.must_wait else resource.arrival
    why = resource.must_wait or resource.why
    return IncomingResource(
        str(resource.ref),
        arrival,
        resource.version,
        len(resource.result),
        findings,
        gains,
        why,
        resource.approved,
    )


def _urgency(resource: IncomingResource) -> tuple[bool, bool, str]:
    """Return the key that orders resources: first those not imported, then those with findings."""
    is_imported = resource.arrival not in (Arrival.REFUSED, Arrival.WAITS)
    return is_imported, not resource.findings, resource.ref


def _is_invalid(ref: Ref, files: Files) -> bool:
    """Return whether a problem in these files keeps them from being a version of the resource."""
    return bool(blocking_problems(find_problems(ref.kind, ref.name, files)))


def _can_be_approved(resource: PlannedResource) -> bool:
    """Return whether the remote's content would arrive unchanged: an approval is about that one."""
    return resource.arrival in (Arrival.NEW, Arrival.CHANGED) and bool(resource.theirs.manifest)


@contextlib.contextmanager
def open_pull(library: Library, caller: Caller, remote: Remote) -> Iterator[Pull]:
    """Fetch from a remote, and yield what a pull would do; nothing is stored before `accept`.

    Raises Refused for callers that may not, for a history that was rewritten and for a missing
    signature, RemoteFailed, TooLarge.
    """
    check_may_sync(library, caller, "A pull")
    with open_mirror(library, remote) as mirror:
        head = mirror.fetch()
        mirror.check_signed(head)
        with CommitReader(mirror.repository, library.store.home) as reader:
            yield Pull(mirror, reader, head)


def purge_as_elsewhere(
    library: Library, caller: Caller, remote: Remote, hashes: Sequence[str]
) -> Purged:
    """Purge here what was purged in another library, after the person agreed. Raises as `purge`."""
    return purge(
        library, caller, plan_blobs(library, hashes), f"it was purged by others in {remote.name}"
    )
