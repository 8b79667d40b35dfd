"""Put learned lines back that were lost when the files of a directory were replaced.

The learned files are stored as a proposal before the files on disk are imported, so a crash between
the two loses nothing. Where git or an installer is known to have written the files, a proposal that
merges without a conflict is applied at once.
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

_AGENT = Identity(Principal.AGENT, "file")


class PutBack:
    """The proposals and merges that put learned lines back into the resources of one folder."""

    def __init__(
        self,
        store: Store,
        folder: WatchedFolder,
        gate: HoldPolicy | None,
        transaction: Callable[[str, Sequence[str], Identity | None], Transaction],
    ) -> None:
        """transaction: begins one, given its reason, its evidence and its identity."""
        self._store, self._folder, self._gate, self._transaction = store, folder, gate, transaction

    def propose(self, directory: str, lost: LostChanges, disk: Files) -> int:
        """Store lost changes as a proposal; return its id. Equal proposals that wait are one."""
        files = merge_resource(
            lost.head, self._store.files(lost.head, lost.base), disk, lost.files
        ).files
        # The findings of the scan go with the proposal, so that the person sees them in the inbox.
        hold_decision = self._ask_gate(directory, lost.head, disk, files)
        findings = hold_decision.findings if hold_decision is not None else None
        why = (
            f"{lost.reason}: the files in {directory} were replaced, not edited from version "
            f"{lost.head.latest}"
        )
        draft = Draft(lost.head.ref, lost.base, lost.files, why, findings=findings)
        return self._store.backend.proposals.add(self._store.now(), Actor.IMPORT, None, draft)

    def waiting(self, ref: Ref) -> Proposal | None:
        """Return the newest proposal of `propose` that waits for a resource, None for none."""
        for proposal in reversed(self._store.backend.proposals.about(ref)):
            if proposal.state == OPEN and is_put_back(proposal):
                return proposal
        return None

    def merge(
        self, directory: str, head: Head, proposal: Proposal, identity: Identity
    ) -> Head | None:
        """Apply a proposal of `propose` without a person, and return the new head.

        None where a person has to decide: on a conflict, and on content that the gate holds. head:
        the version with the files on disk. Raise VersionConflict, Frozen.
        """
        store, now = self._store, self._store.files(head)
        theirs = store.files_of(proposal.manifest)
        merged = merge_resource(head, store.files(head, proposal.base), now, theirs)
        if merged.conflicts or blocking_problems(find_problems(head.kind, head.name, merged.files)):
            return None
        if self._ask_gate(directory, head, now, merged.files) is not None:
            return None
        # If the learned content is a version, the lines keep its author.
        trees = {version.tree: version.number for version in store.backend.versions(head.id, 50)}
        learned = trees.get(proposal.manifest.tree)
        reason, _, why = proposal.reason.partition(":")
        reverts = [(learned, head.version)] if learned and head.version else []
        with self._transaction(reason, [why.strip()], identity) as tx:
            tx.put(head.ref, merged.files, expected_version=head.version, reverts=reverts)
            # In the transaction of the version: the proposal is never left open beside it.
            tx.approve(proposal.id, "merged with the files on disk")
        return store.head(head.ref)

    def _ask_gate(
        self, directory: str, head: Head, before: Files, files: Files
    ) -> HoldDecision | None:
        if self._gate is None:
            return None
        arrival = IncomingDirectory(self._folder, directory, head.ref, head, before, files, _AGENT)
        return self._gate(arrival)


def is_put_back(proposal: Proposal) -> bool:
    """Return whether a sync made a proposal to put lines back."""
    # The reason alone proves nothing: an agent chooses that of its own proposals.
    is_by_sync = (proposal.actor, proposal.session) == (Actor.IMPORT, None)
    return is_by_sync and proposal.reason.startswith(PUT_BACK)
