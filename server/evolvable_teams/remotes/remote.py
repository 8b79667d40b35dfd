"""The verbs that push a library to a git remote, and what pull and push share."""

import contextlib
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from filelock import FileLock, Timeout

from evolvable_server import NamedRemote
from evolvable_store import MIRRORS, PLAIN, Head, Intent, Principal
from evolvable_store.errors import Conflict, InvalidArgument, LibraryBusy, Refused
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import RemoteState, RemoteWaiting
from evolvable_teams.remotes.commit_reader import CommitReader
from evolvable_teams.remotes.commit_writer import (
    TIP,
    WORK,
    CommitStream,
    Exported,
    export_operations,
    open_stream,
)
from evolvable_teams.remotes.git_process import BareRepository
from evolvable_teams.remotes.layout import BESIDE, folder_of, signature_line, write_message
from evolvable_teams.remotes.remote_records import (
    RECORDS,
    LookRecords,
    purged_hashes,
    write_records,
)
from evolvable_tools import Caller, HeldBack, Library, held_back

PARTS = ("memory", "quotes", "sessions", "learned")
"""Parts that go to a remote only where a person chose them by name."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# The lock of a mirror is held while git transfers, so waiting longer than this would be in vain.
_LOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Remote(NamedRemote):
    """A git repository to synchronise with; its parts are of PARTS.

    keys: public keys that the person listed, whose approvals count. looks: the looks at sealed
    tests, which are sent and read too.
    """

    keys: frozenset[str] = frozenset()
    looks: LookRecords | None = None

    def chooses(self, ref: Ref) -> bool:
        """Return whether a resource goes to this remote, and may come from it."""
        return (ref.scope or USER_SCOPE) in self.scopes and (
            ref.kind is not Kind.MEMORY or "memory" in self.parts
        )


def check_remote_name(name: str) -> str:
    """Return a name that a remote may have. Raises InvalidArgument."""
    if _NAME.fullmatch(name):
        return name
    hint = "Use up to 64 small letters, digits, dashes and underscores."
    raise InvalidArgument(f"{ascii(name[:80])} cannot be the name of a remote.", hint)


@dataclass(slots=True)
class Mirror:
    """Our bare repository for a remote, locked, with the state of the synchronisation."""

    library: Library
    remote: Remote
    repository: BareRepository
    state: RemoteState
    waiting: Sequence[RemoteWaiting]
    held_back: Mapping[Ref, HeldBack] = field(default_factory=dict)
    """The resources that a secret kept out of the last export."""

    def fetch(self) -> str:
        """Return the commit at which the remote stands, '' for an empty remote.

        Raises RemoteFailed, and Refused where commits are gone that the remote had.
        """
        head = self.repository.fetch(self.remote.url, self.remote.branch)
        seen = self.state.seen
        if seen and (not head or not self.repository.is_ancestor(seen, head)):
            raise Refused(
                f"The history of {self.remote.name} was rewritten: commit {seen[:12]}, which it "
                "had, is gone.",
                f"Ask who did that. `evolvable team remote remove {self.remote.name}` and add "
                "accept the new history.",
            )
        if self.state.tip and not self.repository.id_of(self.state.tip):
            # The mirror was deleted, by a purge or with a restored backup. The library is exported
            # again from its first operation, and equal contents are merged.
            self.state = RemoteState(self.state.name, self.state.url, self.state.library)
            self.waiting = ()
        return head

    def export(self) -> int:
        """Write the newest operations as commits, and return how many.

        Only the repository changes. No version of a resource is written while one of its versions
        has a secret that nobody decided on.
        """
        refs = [head.ref for head in _all_heads(self.library) if self.remote.chooses(head.ref)]
        by_name = {entry.ref: entry for entry in held_back(self.library, refs, history=True)}
        self.held_back = {ref: by_name[str(ref)] for ref in refs if str(ref) in by_name}
        exported: Exported = export_operations(
            self.library.store,
            self.repository,
            self.state,
            self.waiting,
            self.remote.chooses,
            self.held_back,
        )
        self.state, self.waiting = exported.state, exported.waiting
        return exported.commits

    def sign(self) -> str:
        """Put a signed commit onto an unsigned tip, and return the tip.

        Raises RemoteFailed.
        """
        tip = self.state.tip
        if tip and not self.repository.is_signed(tip):
            tip = self.repository.sign(tip, "Sign what came before")
            self.repository.run("update-ref", TIP, tip)
            self.state = replace(self.state, tip=tip)
        return tip

    def check_signed(self, head: str) -> None:
        """Raise Refused where git verifies no signature of the remote's newest commit.

        A commit names its parents by hash, so the signature covers everything before it.
        """
        if self.remote.signed and head and not self.repository.is_signed(head):
            raise Refused(
                f"Commit {head[:12]} of {self.remote.name} carries no signature that your "
                "git verifies.",
                "Nothing was imported. `git verify-commit` says why; gpg.ssh.allowedSignersFile "
                "lists ssh keys.",
            )

    def save(self) -> None:
        """Store the state."""
        self.state = replace(self.state, at=self.library.store.now())
        self.library.store.backend.remotes.save(self.state, self.waiting)


@contextlib.contextmanager
def open_mirror(library: Library, remote: Remote) -> Iterator[Mirror]:
    """Yield the mirror of a remote; one process at a time has it.

    Raises LibraryBusy, RemoteFailed.
    """
    folder = library.store.home / MIRRORS
    folder.mkdir(exist_ok=True, mode=0o700)
    try:
        # The lock guards the mirror and the stored state of the synchronisation, which change
        # together.
        with FileLock(folder / f"{remote.name}.lock", timeout=_LOCK_SECONDS, mode=0o600):
            repository = BareRepository(folder / f"{remote.name}.git")
            repository.make(remote.branch)
            state = library.store.backend.remotes.state(remote.name, remote.url)
            yield Mirror(
                library, remote, repository, state, library.store.backend.remotes.waiting(state)
            )
    except Timeout:
        raise LibraryBusy(
            f"Another process synchronises with {remote.name}.", "Try again in a moment."
        ) from None


def check_may_sync(library: Library, caller: Caller, what: str) -> None:
    """Raise Refused unless a person calls, or a script whose token may decide."""
    if caller.identity.principal not in (Principal.PERSON, Principal.SCRIPT) or not caller.decides:
        raise Refused(
            f"{what} is for a person, or a script with the permission approve.", "Tell the user."
        )


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push did.

    commits: how many the remote did not have. commit: the one at which it is now. left_out:
    resources that a secret keeps here; their content on the remote stays as it was.
    """

    remote: str
    commits: int
    commit: str
    warnings: list[str] = field(default_factory=list)
    left_out: list[HeldBack] = field(default_factory=list)


def push(library: Library, caller: Caller, remote: Remote) -> PushResult:
    """Push the operations that a remote does not have; one commit for each.

    A resource with a secret is left out. Raises Refused for a history that was rewritten and for
    callers that may not, Conflict where the remote has what is not here or a change waits for a
    decision, RemoteFailed.
    """
    check_may_sync(library, caller, "A push")
    library.take_in(head for head in library.store.heads() if remote.chooses(head.ref))
    with open_mirror(library, remote) as mirror:
        remote_commit = mirror.fetch()
        mirror.export()
        _write_records(mirror, caller)
        tip = mirror.state.tip
        if remote_commit and not (tip and mirror.repository.is_ancestor(remote_commit, tip)):
            hint = f"`evolvable team pull {remote.name}` merges it; push again then."
            raise Conflict(f"{remote.name} has commits that are not here.", hint)
        _check_decided(mirror)
        if remote.signed and tip != remote_commit:
            tip = mirror.sign()
        differing = (entry.ref for entry in mirror.waiting if not entry.here)
        unsent = sorted((ref for ref in differing if ref in mirror.held_back), key=str)
        left_out = [mirror.held_back[ref] for ref in unsent]
        if not tip or tip == remote_commit:
            mirror.save()
            return PushResult(remote.name, 0, remote_commit, left_out=left_out)
        excluded = [f"^{remote_commit}"] if remote_commit else []
        count = int(mirror.repository.run("rev-list", "--count", tip, *excluded, "--"))
        # Before the state is saved: after a crash in between, the next push finds nothing to send.
        mirror.repository.push(remote.url, remote.branch, tip)
        mirror.state = replace(mirror.state, seen=tip)
        mirror.save()
    return PushResult(remote.name, count, tip, left_out=left_out)


def _write_records(mirror: Mirror, caller: Caller) -> None:
    """Write the records beside the resources as one commit, where they changed.

    The commit puts a notice in place of each file that was purged since.
    """
    library, remote, tip = mirror.library, mirror.remote, mirror.state.tip
    if not tip:
        return
    folder = f"{BESIDE}/{mirror.state.library}"
    with CommitReader(mirror.repository, library.store.home) as reader:
        before = {name: reader.file(tip, f"{folder}/{name}") for name in RECORDS}
    files = write_records(
        library, caller, remote.chooses, remote.parts, before, remote.looks, mirror.held_back
    )
    changed = {name: data for name, data in files.items() if data != before[name]}
    if not changed:
        return
    purged = purged_hashes(files.get("tombstones.json", b""))
    newly_purged = purged - purged_hashes(before["tombstones.json"])
    why = Intent(library.store.now(), caller.actor, "Evidence, approvals and tombstones")
    with open_stream(mirror.repository, tip) as stream:
        stream.commit(signature_line(why), write_message("", why, ()))
        for name, data in sorted(changed.items()):
            stream.file(f"{folder}/{name}", PLAIN, data)
        if newly_purged:
            _write_notices(mirror, stream, newly_purged)
    mirror.repository.run("update-ref", TIP, commit := mirror.repository.id_of(WORK))
    mirror.state = replace(mirror.state, tip=commit)


def _write_notices(mirror: Mirror, stream: CommitStream, purged: Container[str]) -> None:
    """Write the notices that the library has for purged blobs into the heads that were sent."""
    store = mirror.library.store
    for head in store.heads():
        if not mirror.remote.chooses(head.ref) or head.ref in mirror.held_back:
            continue
        for path, entry in store.manifest(head, head.version).items():
            if entry.sha256 in purged:
                file = f"{folder_of(head.ref)}/{path}"
                stream.file(file, entry.mode, store.blob(entry.sha256))


def _all_heads(library: Library) -> Iterator[Head]:
    """Yield the last state of every resource, of those too that were removed."""
    store = library.store
    yield from store.backend.heads_by_id(store.backend.resource_ids()).values()


def _check_decided(mirror: Mirror) -> None:
    """Raise Conflict where a resource changed here whose remote change waits for a decision."""
    waits = [entry for entry in mirror.waiting if entry.here and entry.proposal is not None]
    if waits:
        names = ", ".join(f"{entry.ref} (proposal {entry.proposal})" for entry in waits[:10])
        why = (
            f"Changes by {mirror.remote.name} wait for a decision, and the same was changed "
            f"here: {names}."
        )
        raise Conflict(why, "`evolvable inbox show` shows each; approve or reject them, then push.")
