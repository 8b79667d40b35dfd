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
from evolvable_teams.remotes.tree_walk import FOLDER, TreeChanges
from evolvable_tools import dump_scan
from evolvable_tools.scan import Scan


class Arrival(StrEnum):
    """What a pull does with a resource."""

    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"
    MERGED = "merged"
    HISTORY = "history"
    """Both sides have the same content; only the versions that led to it on the remote are new."""

    CONFLICT = "conflict"
    """Both sides changed the same lines: this side stays there, and the remote's waits as a
    proposal.
    """

    WAITS = "waits"
    """A person decides on it first."""

    REFUSED = "refused"
    """Its content is not a valid resource; it stays in the repository alone."""


KEPT = (Arrival.HISTORY, Arrival.CONFLICT)
"""Those that leave the content as it is here, at least where both sides changed it."""

ACCEPTED = (Arrival.NEW, Arrival.CHANGED, Arrival.REMOVED, Arrival.MERGED)
"""Those that change the content here."""


@dataclass(slots=True)
class PlannedResource:
    """One resource of a pull.

    trees: the ids of the common ancestor's tree and of the remote's. version: the number here, 0
    for none. result: its files after the pull, if accepted. found: what the scan found.
    local_merge: of a conflict, the files here with the remote's other changes; None where all of
    them stay as they are. approved: in words, which approval elsewhere makes the content trusted
    without a question; '' for none.
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
        """Whether the scan found what a person is to see."""
        return self.found is not None and self.found.asks

    @property
    def blocks(self) -> bool:
        """Whether the scan found something of high severity."""
        return self.found is not None and self.found.blocks


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull did.

    commits: how many new ones the remote had. operations: ids of those made here. resources: ref ->
    arrival. proposals: by id, the ref and the reason why it waits for a person. refused: ref ->
    reason. purged: hashes of blobs that were purged elsewhere and are still here.
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
        self._stored = {
            resource.ref: resource for resource in planned if resource.arrival in (*ACCEPTED, *KEPT)
        }

    def run(self) -> PullResult:
        """Store the result of the pull in one transaction, and return what it did."""
        store, expected = self._library.store, self._mirror.state.sequence
        # Before the transaction: after a crash in between the stored state names the old tip, and
        # the pull is done again.
        tip = self._write_merge()
        asked = (Arrival.CONFLICT, Arrival.WAITS)
        waits = [resource for resource in self._planned if resource.arrival in asked]
        session = f"remote-{self._remote.name}-{self._head[:8]}"
        ids: list[int] = []
        before = list(self._mirror.waiting)
        stale = [entry for entry in before if entry.ref in self._changes.refs]

        def finish(writer: Writer) -> None:
            for old in stale:
                if old.proposal is not None:
                    why = f"replaced by a newer change of {self._remote.name}"
                    writer.close_proposal(old.proposal, REJECTED, why, None)
            for resource in waits:
                self._name_version(writer, resource)
            drafts = [self._make_draft(resource) for resource in waits]
            ids.extend(writer.propose(ProposalBatch(store.now(), Actor.IMPORT, session, drafts)))
            proposals = dict(zip((resource.ref for resource in waits), ids, strict=True))
            self._mirror.waiting = self._still_waiting(before, proposals)
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
        operations = arrive(
            store.backend, expected, self._operations(), self._read_blob, finish, at=store.now()
        )
        proposals = {
            number: f"{resource.ref}: {resource.why}"
            for number, resource in zip(ids, waits, strict=True)
        }
        return self._make_result([operation.id for operation in operations], proposals)

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

    def _still_waiting(
        self, before: Sequence[RemoteWaiting], proposals: Mapping[Ref, int]
    ) -> list[RemoteWaiting]:
        """Return what waits after the pull: what it did not touch, what it proposes or refuses."""
        waiting = [entry for entry in before if entry.ref not in self._changes.refs]
        for resource in self._planned:
            if resource.ref in proposals or resource.arrival is Arrival.REFUSED:
                proposal = proposals.get(resource.ref)
                waiting.append(RemoteWaiting(resource.ref, *resource.trees, proposal))
        return waiting

    def _name_version(self, writer: Writer, resource: PlannedResource) -> None:
        """Note for a conflict which version holds the remote's side.

        Its proposal is compared with the version that is the head then.
        """
        # Inside the transaction, because the version numbers are known only now.
        head = writer.head(resource.ref.kind, resource.ref.scope or USER_SCOPE, resource.ref.name)
        if resource.arrival is not Arrival.CONFLICT or head is None or not resource.theirs.manifest:
            return
        numbers = range(head.latest, resource.version, -1)
        manifests = ((number, writer.manifest(head.id, number)) for number in numbers)
        tree = resource.theirs.manifest.tree
        same = (number for number, content in manifests if content and content.tree == tree)
        if number := next(same, None):
            resource.why += f"; version {number} is the remote's"
        resource.version = head.version or 0

    def _make_draft(self, resource: PlannedResource) -> Draft:
        reason = self._library.redact(f"pulled from {self._remote.name}: {resource.why}")
        return Draft(
            resource.ref,
            resource.version,
            resource.result,
            reason,
            findings=dump_scan(resource.found) if resource.found else None,
        )

    def _operations(self) -> Iterator[tuple[Intent, list[ArrivedStep]]]:
        """Yield an operation for each commit that changed what is stored, and one for the merge."""
        last: dict[Ref, Manifest] = {}
        for commit in self._commits:
            steps = []
            for ref, tree in commit.changed.items():
                content = self._reader.content(ref, tree)
                if ref in self._stored and not content.problems:
                    steps.append(ArrivedStep(ref, content.manifest, content.frozen))
                    last[ref] = content.manifest
            if steps:
                yield self._make_intent(commit), steps
        final_steps = [
            step
            for resource in self._stored.values()
            if (step := self._final_step(resource, last)) is not None
        ]
        if final_steps:
            why = f"merged {self._remote.name} at {self._head[:12]}"
            newest = self._make_intent(self._commits[-1])
            yield replace(newest, at=self._library.store.now(), reason=why), final_steps

    def _final_step(
        self, resource: PlannedResource, last: Mapping[Ref, Manifest]
    ) -> ArrivedStep | None:
        """Return the step that gives a resource its result, None where it has that already.

        last: by ref what the last step of the commits leaves. Keep the blobs of a merge.
        """
        target = resource.ours if resource.arrival in KEPT else resource.theirs.manifest
        merged_files = _merged_files(resource)
        if merged_files is not None:
            target = make_manifest(merged_files)
            for path, entry in target.items():
                packed = pack(merged_files[path].data)
                self._merged_blobs[entry.sha256] = (entry.sha256, entry.size, *packed)
        if last.get(resource.ref, resource.ours) == target:
            return None
        return ArrivedStep(resource.ref, target)

    def _make_intent(self, commit: IncomingCommit) -> Intent:
        claim = f", said to be made by {commit.message.actor}" if commit.message.actor else ""
        reason = self._library.redact(commit.message.reason) or "no message"
        evidence = (f"commit {commit.id} of {self._remote.name}{claim}",)
        via = f"remote:{self._remote.name}"
        return Intent(commit.at, Actor.IMPORT, reason, None, evidence, (), Principal.IMPORT, via)

    def _read_blob(self, sha256: str) -> Packed:
        """Return a blob as it is stored: of the merge, of the library, or of the remote."""
        if sha256 in self._merged_blobs:
            return self._merged_blobs[sha256]
        maintenance = self._library.store.backend.maintenance
        stored = maintenance.packed_blob(sha256)
        if stored is not None:  # a purged one stays purged
            return sha256, maintenance.blob_size(sha256) or 0, *stored
        return self._reader.read_packed(sha256)

    def _write_merge(self) -> str:
        """Write the commit that joins both histories, and return its id.

        Return the remote's commit where there is nothing to join.
        """
        repository, tip = self._mirror.repository, self._mirror.state.tip
        merged = [resource for resource in self._planned if resource.arrival is Arrival.MERGED]
        # Whether the remote's commit follows ours: then no second parent is needed.
        follows = not tip or repository.is_ancestor(tip, self._head)
        if follows and not merged:
            repository.run("update-ref", TIP, self._head)
            return self._head
        why = Intent(
            self._library.store.now(),
            Actor.IMPORT,
            f"Merge {self._remote.name} at {self._head[:12]}",
        )
        message = write_message("", why, ())
        with open_stream(repository, self._head if follows else tip) as stream:
            stream.commit(signature_line(why), message, "" if follows else self._head)
            if not follows:
                for other, (mode, identity) in self._changes.others.items():
                    stream.entry(other, mode, identity)
                for ref in self._changes.refs - {resource.ref for resource in merged}:
                    folder = folder_of(ref)
                    tree = self._reader.tree_id(self._head, folder)
                    stream.entry(folder.encode(), FOLDER, tree)
            for resource in merged:
                folder = folder_of(resource.ref)
                stream.delete(folder)
                for path, file in resource.result.items():
                    mode = EXECUTABLE if file.mode & 0o111 else 0
                    stream.file(f"{folder}/{path}", mode, file.data)
        repository.run("update-ref", TIP, merge_id := repository.id_of(WORK))
        return merge_id


def _merged_files(resource: PlannedResource) -> Files | None:
    """Return the files that a merge of both sides made, None where one side stays as it is."""
    if resource.arrival is Arrival.MERGED:
        return resource.result
    return resource.local_merge if resource.arrival is Arrival.CONFLICT else None
