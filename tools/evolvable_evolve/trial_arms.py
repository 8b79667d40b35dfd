"""Arms of a trial: which sessions are served a version on trial, and the record of it.

A session is assigned when it could first see the difference, by a keyed hash of its name, the
resource and the version. The key is a secret of the trial, so that nobody chooses a name that falls
into an arm.
"""

import hashlib
from collections.abc import Iterable

from evolvable_store import Actor, Head
from evolvable_store.errors import LibraryTooNew
from evolvable_store.storage import PooledVersion, PoolUnit
from evolvable_tools import Caller, Library

# The range of the eight bytes that `draw_arm` reads.
_RESOLUTION = 2**64


def trial_version(library: Library, caller: Caller, head: Head, seen_by: str) -> int | None:
    """Return the trial version that this call is served of a resource, None for the head.

    seen_by: the use or the search in which the session sees it; the first time, its arm is recorded
    with it.
    """
    trial = library.store.backend.pool.trial_of(head.id)
    if trial is None or not _is_served(library, caller, head, trial, seen_by):
        return None
    return trial.version


def known_trial_version(library: Library, caller: Caller, head: Head) -> int | None:
    """Return the trial version that this session was served before, None where it was not."""
    pool, unit = library.store.backend.pool, caller.session or caller.connection
    if not unit:
        return None
    trial = pool.trial_of(head.id)
    return trial.version if trial is not None and pool.arm(trial.id, unit) else None


def described_trials(
    library: Library, caller: Caller, resources: Iterable[int], search: str
) -> dict[int, PooledVersion]:
    """Return the trials whose descriptions a search shows to this caller in place of the heads', by
    resource.
    """
    trials = [trial for trial in library.store.backend.pool.on_trial() if trial.described]
    if not trials:
        return {}
    resource_ids = set(resources)
    heads = library.store.backend.heads_by_id(
        trial.resource for trial in trials if trial.resource in resource_ids
    )
    visible = (trial for trial in trials if trial.resource in heads)
    return {
        trial.resource: trial
        for trial in visible
        if _is_served(library, caller, heads[trial.resource], trial, search)
    }


def draw_arm(trial: PooledVersion, unit: str) -> bool:
    """Return the arm of a unit: whether it is served the trial version."""
    # Zero bytes part the fields, so that no two triples give the same text.
    unit_key = f"{unit}\0{trial.resource}\0{trial.version}".encode("utf-8", "surrogateescape")
    drawn = int.from_bytes(hashlib.blake2b(unit_key, key=trial.salt, digest_size=8).digest())
    return drawn < trial.share * _RESOLUTION


def is_stale(library: Library, head: Head, trial: PooledVersion) -> bool:
    """Return whether a trial is over without a decision: its resource changed, is frozen, or is
    not trusted.
    """
    if head.version != trial.incumbent or head.frozen:
        return True
    return head.id in library.store.backend.authorship.untrusted_resources([head.id])


def _is_served(
    library: Library, caller: Caller, head: Head, trial: PooledVersion, seen_by: str
) -> bool:
    """Return whether a session is served the trial version, and record its arm the first time."""
    unit = caller.session or caller.connection
    if caller.actor is not Actor.AGENT or not unit or library.store.read_only:
        return False
    if is_stale(library, head, trial):
        return False
    pool = library.store.backend.pool
    # The recorded arm counts before a new draw: a session must not change its arm when the share
    # does.
    assigned = pool.arm(trial.id, unit)
    if assigned is not None:
        return assigned
    about = (unit, caller.session, caller.connection, seen_by)
    try:
        return pool.assign(trial.id, PoolUnit(*about, draw_arm(trial, unit), library.store.now()))
    except LibraryTooNew:  # a newer program draws the arm
        return False


class PoolArms:
    """The arms of the pool's trials, as `evolvable_tools.library.TrialArms` has them."""

    version = staticmethod(trial_version)
    known_version = staticmethod(known_trial_version)
    list_described = staticmethod(described_trials)
