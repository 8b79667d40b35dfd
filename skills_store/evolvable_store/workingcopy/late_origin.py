"""Record who made a version when that is known only after the import.

A client's hook tells it, or git's index and HEAD once git has finished. A directory that was
imported while git was still writing is judged again then: before, nothing shows that git wrote it.
"""

import time

from evolvable_store.operation import Actor, Head, Identity, Principal
from evolvable_store.storage import Draft, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.git_repository import MOVED_SECONDS
from evolvable_store.workingcopy.incoming import HeldContent, HoldPolicy, IncomingDirectory
from evolvable_store.workingcopy.status import StatusReader
from evolvable_store.workingcopy.sync_plan import SyncPlan


def record_maker(
    store: Store,
    folder: WatchedFolder,
    directory: str,
    head: Head,
    identity: Identity,
    *,
    gate: HoldPolicy | None,
    via: str,
) -> HeldContent | None:
    """Record the maker of the newest version; return the content that the gate holds, or None.

    Where the gate holds it, the version before is served again, and the file stays as it is. head:
    the newest version, which the directory holds. gate: None where nothing is held. via: how the
    library knows the maker. The operation that serves the version before names it and has no
    author.
    """
    base = head.latest - 1
    before = store.files(head, base) if base else {}
    arrival = IncomingDirectory(
        folder, directory, head.ref, head, before, store.files(head), identity
    )
    holding = gate(arrival) if gate is not None else None
    # First the maker, then the hold: a crash in between leaves a version that the next judgement
    # still counts as the maker's.
    store.backend.attestations.attribute([(head.id, head.latest)], store.now(), identity)
    if holding is None:
        return None
    draft = Draft(head.ref, base, arrival.files, holding.reason, findings=holding.findings)
    # Held before the version is taken back, so that the content is in a proposal at every moment.
    proposal = store.backend.held_directories.hold(
        folder, directory, head.tree, draft, store.now(), identity
    )
    nobody = Identity(Principal.UNKNOWN, via)
    with store.transaction(Actor.HUMAN, holding.reason, identity=nobody) as tx:
        if base:
            tx.restore(head.ref, base, expected_version=head.version)
        else:
            tx.remove(head.ref, expected_version=head.version)
    return HeldContent(directory, head.ref, proposal, holding.reason)


class RecentImports:
    """The imports of one folder that nobody answers for, and that git may still claim.

    imported: directory -> the time of its import, and the number of its version.
    """

    def __init__(
        self,
        store: Store,
        folder: WatchedFolder,
        status: StatusReader,
        plan: SyncPlan,
        gate: HoldPolicy | None,
    ) -> None:
        self._store, self._folder, self._gate = store, folder, gate
        self._status, self._plan = status, plan
        self.imported: dict[str, tuple[float, int]] = {}

    @property
    def directories(self) -> set[str]:
        """The directories that `judge` examines."""
        return set(self.imported)

    def note(self, directory: str, version: int) -> None:
        """Remember an import that nobody answers for, of a directory in a repository."""
        self.imported[directory] = (time.time(), version)

    def judge(self) -> list[HeldContent]:
        """Record git as the maker where it moved the index or HEAD since.

        Return the contents that are held for it.
        """
        origins, held_contents = self._plan.origins, list[HeldContent]()
        for directory, (at, version) in list(self.imported.items()):
            moved = origins.moved_since(directory, at)
            # git moves the index after it wrote the files, so the answer is not final yet.
            if time.time() - at <= MOVED_SECONDS or moved and origins.activity(directory):
                continue
            del self.imported[directory]
            held_content = self._record_git(directory, version) if moved else None
            held_contents += [held_content] if held_content else []
        return held_contents

    def _record_git(self, directory: str, version: int) -> HeldContent | None:
        """Record git as the maker of a version that git brought.

        Nothing is recorded where the directory or the resource holds another version by now.
        """
        bindings = self._store.backend.bindings.of_directories(self._folder, [directory])
        if directory not in bindings:
            return None
        binding = bindings[directory]
        head = self._store.backend.heads_by_id([binding.resource])[binding.resource]
        # The resource went on since; a later version has an author of its own.
        if (head.version, head.latest) != (version, version):
            return None
        state = self._status.read_state(
            directory, binding, head, head.name, self._status.signature(directory), time.time_ns()
        )
        if state.tree != head.tree:
            return None
        identity = self._plan.origin_of_newest(state, head).identity
        if identity.principal is not Principal.REPOSITORY:
            return None
        return record_maker(
            self._store, self._folder, directory, head, identity, gate=self._gate, via="git"
        )
