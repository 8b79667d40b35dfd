"""The one transaction of a pull: operations for the commits of others, proposals, and the merge
commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from evolvable_store import (
    EXECUTABLE,
    Actor,
    Files,
    Intent,
    Manifest,
    Principal,
    arrive,
    make_manifest,
    pack,
)
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_store.storage import (
    REJECTED,
    ArrivedStep,
    Draft,
    Packed,
    ProposalBatch,
    RemoteWaiting,
    Writer,
)
from evolvable_teams.remotes.commit_reader import CommitReader, IncomingCommit, TreeContent
from evolvable_teams.remotes.commit_writer import TIP, WORK, open_stream
from evolvable_teams.remotes.layout import folder_of, signature_line, write_message
from evolvable_teams.remotes.remote import Mirror
from evolvable_teams.remotes.tree_walk import TreeChanges
from evolvable_tools import dump_scan
from evolvable_tools.scan import Scan


class Arrival(StrEnum):
    """What a pull does with a resource."""

    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"
    MERGED = "merged"
    HISTORY = "history"
    """What is here is what the remote has; the versions that it had on the way are new."""

    CONFLICT = "conflict"
    """Both sides changed the same: there what is here stays, and the remote's waits as
    a proposal.
    """

    WAITS = "waits"
    """A person decides on it first."""

    REFUSED = "refused"
    """It is no resource; it stays in the repository alone."""


KEPT = (Arrival.HISTORY, Arrival.CONFLICT)
"""What leaves the content as it is here, at least where both sides changed it."""

ACCEPTED = (Arrival.NEW, Arrival.CHANGED, Arrival.REMOVED, Arrival.MERGED)


@dataclass(slots=True)
class PlannedResource:
    """One resource. trees: what both sides have in common, and theirs. result: its files in the
    end, if accepted.

    local_merge: of a conflict, what is here with the remote's other changes; None where all of it
    stays as it is. approved: which approval elsewhere spares the question and makes the content
    trusted, in words; '' for none.
    """

    ref: Ref
    trees: tuple[str, str]
    theirs: TreeContent
    version: int
    ours: Manifest
    result: Files
    arrival: Arrival
    why: str = ""
    found: Scan | None = None
    must_wait: str = ""
    approved: str = ""
    local_merge: Files | None = None

    @property
    def is_written(self) -> bool:
        """Whether the pull changes what is here."""
        return self.arrival in ACCEPTED or (
            self.arrival is Arrival.CONFLICT and self.local_merge is not None
        )

    @property
    def asks(self) -> bool:
        return self.found is not None and self.found.asks

    @property
    def blocks(self) -> bool:
        return self.found is not None and self.found.blocks


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull did. commits: new ones of the remote; operations: those that became operations
    here.

    proposals: proposal_id -> ref, what waits for a person. refused: ref -> why. purged: hashes of
    what was purged elsewhere and still is here.
    """

    remote: str
    commits: int
    operations: list[int] = field(default_factory=list)
    resources: dict[str, str] = field(default_factory=dict)
    proposals: dict[int, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    purged: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class PullTransaction:
    """The one transaction of a pull, and the merge commit that goes with it."""

    def __init__(
        self,
        mirror: Mirror,
        reader: CommitReader,
        planned: Sequence[PlannedResource],
        changes: TreeChanges,
        commits: Sequence[IncomingCommit],
        head: str,
    ) -> None:
        self._mirror, self._reader, self._planned = mirror, reader, planned
        self._changes, self._commits, self._head = changes, commits, head
        self._library, self._remote = mirror.library, mirror.remote
        self._merged_blobs: dict[str, Packed] = {}
        self._taken = {
            resource.ref: resource for resource in planned if resource.arrival in (*ACCEPTED, *KEPT)
        }

    def run(self) -> PullResult:
        """Store the result of the pull in one transaction, and return what it did."""
        store, expected = self._library.store, self._mirror.state.sequence
        # Before the transaction: after a crash the stored state names the old tip, and the pull is
        # done again.
        tip = self._merge_commit()
        asked = (Arrival.CONFLICT, Arrival.WAITS)
        waits = [resource for resource in self._planned if resource.arrival in asked]
        session = f"remote-{self._remote.name}-{self._head[:8]}"
        ids: list[int] = []
        before = {entry.ref: entry for entry in self._mirror.waiting}
        stale = [entry for entry in before.values() if entry.ref in self._changes.refs]

        def finish(writer: Writer) -> None:
            for old in stale:
                if old.proposal is not None:
                    why = f"replaced by a newer change of {self._remote.name}"
                    writer.close_proposal(old.proposal, REJECTED, why, None)
            for resource in waits:
                self._name_version(writer, resource)
            drafts = [self._draft(resource) for resource in waits]
            ids.extend(writer.propose(ProposalBatch(store.now(), Actor.IMPORT, session, drafts)))
            proposals = dict(zip((resource.ref for resource in waits), ids, strict=True))
            self._mirror.waiting = self._waiting(before, proposals)
            state = replace(
                self._mirror.state,
                tip=tip,
                seen=self._head,
                sequence=writer.sequence(),
                at=store.now(),
            )
            writer.save_remote(state, self._mirror.waiting)
            self._mirror.state = state

        # `expected` is the sequence at the export: another write since raises VersionConflict.
        done = arrive(
            store.backend, expected, self._operations(), self._packed_blob, finish, at=store.now()
        )
        proposals = {
            number: f"{resource.ref}: {resource.why}"
            for number, resource in zip(ids, waits, strict=True)
        }
        return self._make_result([operation.id for operation in done], proposals)

    def _make_result(self, operations: list[int], proposals: dict[int, str]) -> PullResult:
        """Return what the pull did with each resource."""
        resources = {
            str(resource.ref): resource.arrival.value
            for resource in self._planned
            if resource.arrival is not Arrival.HISTORY
        }
        refused = {
            str(resource.ref): resource.why
            for resource in self._planned
            if resource.arrival is Arrival.REFUSED
        }
        commits = len(self._commits)
        return PullResult(self._remote.name, commits, operations, resources, proposals, refused)

    def _waiting(
        self, before: Mapping[Ref, RemoteWaiting], proposals: Mapping[Ref, int]
    ) -> list[RemoteWaiting]:
        touched = self._changes.refs
        remaining = [entry for entry in before.values() if entry.ref not in touched]
        for resource in self._planned:
            if resource.ref in proposals or resource.arrival is Arrival.REFUSED:
                remaining.append(
                    RemoteWaiting(
                        resource.ref,
                        resource.trees[0],
                        resource.trees[1],
                        proposals.get(resource.ref),
                    )
                )
        return remaining

    def _name_version(self, writer: Writer, resource: PlannedResource) -> None:
        """Say of a conflict which version has the remote's side, and compare its proposal with what
        is here then.
        """
        # Inside the transaction, because the version numbers are known only now.
        head = writer.head(resource.ref.kind, resource.ref.scope or USER_SCOPE, resource.ref.name)
        if resource.arrival is not Arrival.CONFLICT or head is None or not resource.theirs.manifest:
            return
        numbers = range(head.latest, resource.version, -1)
        trees = ((number, writer.manifest(head.id, number)) for number in numbers)
        found = (
            number
            for number, content in trees
            if content and content.tree == resource.theirs.manifest.tree
        )
        if number := next(found, None):
            resource.why += f"; version {number} is the remote's"
        resource.version = head.version or 0

    def _draft(self, resource: PlannedResource) -> Draft:
        reason = self._library.redact(f"pulled from {self._remote.name}: {resource.why}")
        return Draft(
            resource.ref,
            resource.version,
            resource.result,
            reason,
            findings=dump_scan(resource.found) if resource.found else None,
        )

    def _operations(self) -> Iterator[tuple[Intent, list[ArrivedStep]]]:
        """Yield an operation for each commit that changed what is accepted, and one that makes the
        result of it all.
        """
        last: dict[Ref, Manifest] = {}
        for commit in self._commits:
            steps = []
            for ref, tree in commit.changed.items():
                content = self._reader.content(ref, tree)
                if ref in self._taken and not content.problems:
                    steps.append(ArrivedStep(ref, content.manifest, content.frozen))
                    last[ref] = content.manifest
            if steps:
                yield self._intent(commit), steps
        settled = [
            step
            for resource in self._taken.values()
            if (step := self._final_step(resource, last)) is not None
        ]
        if settled:
            why = f"merged {self._remote.name} at {self._head[:12]}"
            yield (
                replace(
                    self._intent(self._commits[-1]),
                    at=self._library.store.now(),
                    reason=why,
                ),
                settled,
            )

    def _final_step(
        self, resource: PlannedResource, last: Mapping[Ref, Manifest]
    ) -> ArrivedStep | None:
        target = resource.ours if resource.arrival in KEPT else resource.theirs.manifest
        merged_files = (
            resource.result
            if resource.arrival is Arrival.MERGED
            else resource.local_merge
            if resource.arrival is Arrival.CONFLICT
            else None
        )
        if merged_files is not None:
            target = make_manifest(merged_files)
            for path, entry in target.items():
                self._merged_blobs[entry.sha256] = (
                    entry.sha256,
                    entry.size,
                    *pack(merged_files[path].data),
                )
        return (
            None
            if last.get(resource.ref, resource.ours) == target
            else ArrivedStep(resource.ref, target)
        )

    def _intent(self, commit: IncomingCommit) -> Intent:
        claim = f", said to be made by {commit.message.actor}" if commit.message.actor else ""
        reason = self._library.redact(commit.message.reason) or "no message"
        evidence = (f"commit {commit.id} of {self._remote.name}{claim}",)
        via = f"remote:{self._remote.name}"
        return Intent(commit.at, Actor.IMPORT, reason, None, evidence, (), Principal.IMPORT, via)

    def _packed_blob(self, sha256: str) -> Packed:
        if sha256 in self._merged_blobs:
            return self._merged_blobs[sha256]
        here = self._library.store.backend.maintenance.packed_blob(sha256)
        if here is not None:  # a purged one stays purged
            return sha256, self._library.store.backend.maintenance.blob_size(sha256) or 0, *here
        return self._reader.read_packed(sha256)

    def _merge_commit(self) -> str:
        """Write the commit that joins both histories, and return its id.

        Return the remote's commit where there is nothing to join.
        """
        repository, tip = self._mirror.repository, self._mirror.state.tip
        merged = [resource for resource in self._planned if resource.arrival is Arrival.MERGED]
        ahead = not tip or repository.is_ancestor(tip, self._head)
        if ahead and not merged:
            repository.run("update-ref", TIP, self._head)
            return self._head
        why = Intent(
            self._library.store.now(),
            Actor.IMPORT,
            f"Merge {self._remote.name} at {self._head[:12]}",
        )
        message = write_message("", why, ())
        with open_stream(repository, self._head if ahead else tip) as stream:
            stream.commit(signature_line(why), message, "" if ahead else self._head)
            if not ahead:
                for other, (mode, identity) in self._changes.others.items():
                    stream.entry(other, mode, identity)
                for ref in self._changes.refs - {resource.ref for resource in merged}:
                    stream.entry(
                        folder_of(ref).encode(),
                        0o040000,
                        self._reader.tree_id(self._head, folder_of(ref)),
                    )
            for resource in merged:
                stream.delete(folder_of(resource.ref))
                for path, file in resource.result.items():
                    stream.file(
                        f"{folder_of(resource.ref)}/{path}",
                        EXECUTABLE if file.mode & 0o111 else 0,
                        file.data,
                    )
        repository.run("update-ref", TIP, merge_id := repository.id_of(WORK))
        return merge_id
