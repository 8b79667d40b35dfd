"""Put back what was learned and is lost where the files of a directory were replaced.

What is to be put back is kept as a proposal before the files on disk are imported, so nothing is
lost between the two. Where git or an installer is known to have written the files, and the two
merge, it is made at once.
"""

from collections.abc import Callable, Sequence

from evolvable_store.objects import Files
from evolvable_store.operation import Actor, Head, Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage import OPEN, Draft, Proposal, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.transaction import Transaction
from evolvable_store.validation import blocking_problems, find_problems
from evolvable_store.workingcopy.incoming import HoldDecision, HoldPolicy, IncomingDirectory
from evolvable_store.workingcopy.learned_changes import PUT_BACK, LostChanges
from evolvable_store.workingcopy.resource_merge import merge_resource

_AGENTS = Identity(Principal.AGENT, "file")


class PutBack:
    """The proposals and merges that put learned lines back into the resources of one folder."""

    def __init__(
        self,
        store: Store,
        folder: WatchedFolder,
        gate: HoldPolicy | None,
        transaction: Callable[[str, Sequence[str], Identity | None], Transaction],
    ) -> None:
        """transaction: begins one with a reason, an evidence and who answers for it."""
        self._store, self._folder, self._gate, self._transaction = store, folder, gate, transaction

    def propose(self, directory: str, lost: LostChanges, disk: Files) -> int:
        """Store lost changes as a proposal; return its id. Equal proposals that wait are one."""
        files = merge_resource(
            lost.head, self._store.files(lost.head, lost.base), disk, lost.files
        ).files
        # The findings of the scan go with the proposal, so that the person sees them in the inbox.
        hold_decision = self._hold_decision(directory, lost.head, disk, files)
        findings = hold_decision.findings if hold_decision is not None else None
        why = (
            f"{lost.reason}: the files in {directory} were replaced, not edited from version "
            f"{lost.head.latest}"
        )
        draft = Draft(lost.head.ref, lost.base, lost.files, why, findings=findings)
        return self._store.backend.proposals.add(self._store.now(), Actor.IMPORT, None, draft)

    def waiting(self, ref: Ref) -> Proposal | None:
        """Return the newest proposal of `propose` that waits for a resource, None for none."""
        found = reversed(self._store.backend.proposals.about(ref))
        return next(
            (proposal for proposal in found if proposal.state == OPEN and is_put_back(proposal)),
            None,
        )

    def merge(
        self, directory: str, head: Head, proposal: Proposal, identity: Identity
    ) -> Head | None:
        """Make a proposal of `propose` without a person; return the new head, None where a person
        has to decide.

        head: the version with the files on disk. A person decides on a conflict, and on what the
        gate holds. Raise VersionConflict, Frozen.
        """
        store, now = self._store, self._store.files(head)
        theirs = store.files_of(proposal.manifest)
        merged = merge_resource(head, store.files(head, proposal.base), now, theirs)
        if merged.conflicts or blocking_problems(find_problems(head.kind, head.name, merged.files)):
            return None
        if self._hold_decision(directory, head, now, merged.files) is not None:
            return None
        # If the learned content is a version, the lines keep its author.
        trees = {version.tree: version.number for version in store.backend.versions(head.id, 50)}
        learned, (reason, _, why) = (
            trees.get(proposal.manifest.tree),
            proposal.reason.partition(":"),
        )
        reverts = [(learned, head.version)] if learned and head.version else []
        with self._transaction(reason, [why.strip()], identity) as tx:
            tx.put(head.ref, merged.files, expected_version=head.version, reverts=reverts)
            # In the transaction of the version: the proposal is never left open beside it.
            tx.approve(proposal.id, "merged with the files on disk")
        return store.head(head.ref)

    def _hold_decision(
        self, directory: str, head: Head, before: Files, files: Files
    ) -> HoldDecision | None:
        if self._gate is None:
            return None
        return self._gate(
            IncomingDirectory(self._folder, directory, head.ref, head, before, files, _AGENTS)
        )


def is_put_back(proposal: Proposal) -> bool:
    """Return whether a sync made a proposal to put lines back: an agent chooses the reason of its
    own proposals.
    """
    return (proposal.actor, proposal.session) == (
        Actor.IMPORT,
        None,
    ) and proposal.reason.startswith(PUT_BACK)
