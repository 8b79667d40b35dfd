"""Record who made a version, when that is learned after the import: from a client's hook, or when git has finished."""

from evolvable_store.operation import Actor, Head, Identity, Principal
from evolvable_store.storage import Draft, WatchedFolder
from evolvable_store.store import Store
from evolvable_store.workingcopy.incoming import HeldContent, HoldPolicy, IncomingDirectory


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
    """Note who made the newest version; hold it where the gate says so, and then serve the version before it.

    The file stays as it is. head: the newest version, which the directory holds. gate: None where nothing is held. via:
    how the library knows; the operation that serves the version before, or none, is of nobody and names it. Return what
    is held, None for nothing.
    """
    base = head.latest - 1
    before = store.files(head, base) if base else {}
    arrival = IncomingDirectory(folder, directory, head.ref, head, before, store.files(head), identity)
    holding = gate(arrival) if gate is not None else None
    store.backend.attestations.attribute([(head.id, head.latest)], store.now(), identity)
    if holding is None:
        return None
    draft = Draft(head.ref, base, arrival.files, holding.reason, findings=holding.findings)
    proposal = store.backend.held.hold(folder, directory, head.tree, draft, store.now(), identity)
    with store.transaction(Actor.HUMAN, holding.reason, identity=Identity(Principal.UNKNOWN, via)) as tx:
        if base:
            tx.restore(head.ref, base, expected_version=head.version)
        else:
            tx.remove(head.ref, expected_version=head.version)
    return HeldContent(directory, head.ref, proposal, holding.reason)
