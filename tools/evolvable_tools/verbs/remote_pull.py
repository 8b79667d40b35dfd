"""The verb that pulls from a git remote: a three-way merge, in which what comes is an import.

What a person accepts becomes operations of the library, one for each commit, as history that grants nothing. What
both sides changed is merged; a conflict keeps what is here, and becomes a proposal. What no person accepted, what the
scan finds of high severity, and what only a person may change waits as a proposal too. All of it is stored in one
transaction, together with how far the two are synchronised.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from evolvable_store.errors import VersionConflict
from evolvable_store.merge import merge_files
from evolvable_store.objects import EXECUTABLE, TOMBSTONES, Files, Manifest, make_manifest, pack
from evolvable_store.operation import Actor, Identity, Intent, Principal
from evolvable_store.remotes.commit_reader import CommitReader, IncomingCommit, TreeChanges, TreeContent
from evolvable_store.remotes.commit_writer import TIP, WORK, open_stream
from evolvable_store.remotes.layout import folder_of, signature_line, write_message
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage.proposals import REJECTED, Draft, ProposalBatch
from evolvable_store.storage.protocol import ArrivedStep, Packed, Writer
from evolvable_store.storage.remotes import RemoteWaiting
from evolvable_store.transaction import arrive
from evolvable_store.validation import blocking_problems, find_problems
from evolvable_tools.approvals import SOUL, check_change, dump_scan
from evolvable_tools.library import Caller, Library
from evolvable_tools.scan import Finding, Scan
from evolvable_tools.verbs.purge_content import Purged, plan_blobs, purge
from evolvable_tools.verbs.remote_records import IncomingRecords, import_records, read_records
from evolvable_tools.verbs.remotes import Mirror, Remote, check_may_sync, open_mirror

_TRIES = 5


class Arrival(StrEnum):
    """What a pull does with a resource."""

    NEW = "new"
    CHANGED = "changed"
    REMOVED = "removed"
    MERGED = "merged"
    HISTORY = "history"
    """What is here is what the remote has; the versions that it had on the way are new."""

    CONFLICT = "conflict"
    """Both sides changed the same: what is here stays, and the remote's waits as a proposal."""

    WAITS = "waits"
    """A person decides on it first."""

    REFUSED = "refused"
    """It is no resource; it stays in the repository alone."""


class Consent(StrEnum):
    """How far the person who pulls answers for what comes."""

    NONE = "none"
    """Nobody was asked: all of it waits."""

    UNATTENDED = "unattended"
    """The person said yes beforehand: what the scan finds anything in waits."""

    ASKED = "asked"
    """The person saw the list and said yes: what the scan finds of high severity waits."""


@dataclass(frozen=True, slots=True)
class IncomingResource:
    """One resource that a pull would change. base: the version here, 0 for none. why: why it waits or is refused.

    findings: of the scan, the worst first. capabilities: what it gains the means to do.
    """

    ref: str
    arrival: Arrival
    base: int
    files: int
    findings: list[Finding] = field(default_factory=list)
    capabilities: list[str] = field(default_factory=list)
    why: str = ""


@dataclass(slots=True)
class _Planned:
    """One resource. trees: what both sides have in common, and theirs. result: its files in the end, if accepted."""

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
    signed: bool = False

    @property
    def asks(self) -> bool:
        return self.found is not None and self.found.asks

    @property
    def blocks(self) -> bool:
        return self.found is not None and self.found.blocks


@dataclass(frozen=True, slots=True)
class PullResult:
    """What a pull did. commits: new ones of the remote; operations: those that became operations here.

    proposals: proposal_id -> ref, what waits for a person. refused: ref -> why. purged: hashes of what was purged
    elsewhere and still is here.
    """

    remote: str
    commits: int
    operations: list[int] = field(default_factory=list)
    resources: dict[str, str] = field(default_factory=dict)
    proposals: dict[int, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    purged: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Pull:
    """A pull that was fetched. `coming` shows what it would do; `accept` does it."""

    def __init__(self, mirror: Mirror, reader: CommitReader, head: str) -> None:
        self._mirror, self._reader, self.head = mirror, reader, head
        self._library, self._remote = mirror.library, mirror.remote
        self._planned: list[_Planned] = []
        self._changes = TreeChanges()
        self.commits: list[IncomingCommit] = []
        self._records = IncomingRecords()
        if head:
            own = mirror.state.library
            self._records = read_records(reader.beside(head), lambda path: reader.file(head, path), own)
        reader.stones = self._records.stones
        self._plan()

    def coming(self) -> list[IncomingResource]:
        """Return what would change, what needs a look first."""
        shown = [_describe(one) for one in self._planned if one.arrival is not Arrival.HISTORY]
        return sorted(
            shown, key=lambda one: (one.arrival not in (Arrival.REFUSED, Arrival.WAITS), not one.findings, one.ref)
        )

    def _plan(self) -> None:
        """Compare the two sides; local edits in watched folders count."""
        mirror, head = self._mirror, self.head
        if not head or (mirror.state.tip and mirror.repository.is_ancestor(head, mirror.state.tip)):
            return
        base = mirror.repository.common_ancestor(mirror.state.tip, head) if mirror.state.tip else ""
        self._changes = self._reader.changes(base, head)
        self._library.take_in([ref for ref in self._changes.refs if self._remote.chooses(ref)])
        mirror.export()
        self.commits = self._reader.commits(mirror.state.tip, head)
        waiting = {one.ref: one for one in mirror.waiting}
        named = self._changes.refs.union(*(commit.changed for commit in self.commits))
        chosen = sorted((ref for ref in named if self._remote.chooses(ref)), key=str)
        found = (self._compare(ref, base, waiting.get(ref)) for ref in chosen)
        self._planned = [one for one in found if one is not None]

    def _compare(self, ref: Ref, base: str, waits: RemoteWaiting | None) -> _Planned | None:
        store, reader, folder = self._library.store, self._reader, folder_of(ref)
        trees = waits.base if waits else reader.tree_id(base, folder), reader.tree_id(self.head, folder)
        common, theirs = reader.content(ref, trees[0]), reader.content(ref, trees[1])
        here = store.head_or_none(ref)
        version = (here.version if here else None) or 0
        ours = store.manifest(here, version) if here is not None and version else Manifest({})
        if theirs.problems:
            return _Planned(ref, trees, theirs, version, ours, {}, Arrival.REFUSED, "; ".join(theirs.problems))
        frozen = here is not None and version > 0 and here.frozen
        if theirs.manifest == ours:
            planned = _Planned(ref, trees, theirs, version, ours, reader.files(theirs), Arrival.HISTORY)
            return None if self._must_wait(planned, frozen) else planned
        if ours == common.manifest:
            arrival = Arrival.NEW if not ours else Arrival.CHANGED if theirs.manifest else Arrival.REMOVED
            planned = _Planned(ref, trees, theirs, version, ours, reader.files(theirs), arrival)
        else:
            planned = self._merge(_Planned(ref, trees, theirs, version, ours, {}, Arrival.MERGED), common)
        before = store.files_of(ours)
        planned.found = check_change(ref, before, planned.result, Actor.HUMAN)
        planned.must_wait = self._must_wait(planned, frozen)
        return planned

    def _merge(self, planned: _Planned, common: TreeContent) -> _Planned:
        theirs, name = self._reader.files(planned.theirs), self._remote.name
        if not theirs or not planned.ours:
            side = (name, "this library") if not theirs else ("this library", name)
            planned.why = f"{side[0]} removed it, and {side[1]} changed it"
            planned.arrival, planned.result = Arrival.CONFLICT, theirs
            return planned
        merged = merge_files(self._reader.files(common), self._library.store.files_of(planned.ours), theirs)
        stops = blocking_problems(find_problems(planned.ref.kind, planned.ref.name, merged.files), strict=False)
        planned.result = theirs if stops else merged.files
        if merged.conflicts or stops:
            where = ", ".join(merged.conflicts[:5]) or "its frontmatter"
            planned.arrival, planned.why = Arrival.CONFLICT, f"{name} and this library both changed {where}"
        return planned

    def _must_wait(self, planned: _Planned, frozen: bool) -> str:
        """Return why only a person's own decision lets this in, '' where a yes to the whole pull does."""
        if planned.ref.kind is Kind.MEMORY and planned.ref.name == SOUL:
            return "it is written by a person alone"
        chain = [self._reader.content(planned.ref, tree) for tree in self._trees_of(planned.ref)]
        later = chain[:-1] if planned.arrival in (Arrival.NEW, Arrival.CHANGED, Arrival.REMOVED) else chain
        if frozen or any(one.frozen for one in later):
            return "it is frozen"
        if planned.blocks:
            return "the scan found something of high severity"
        return ""

    def _trees_of(self, ref: Ref) -> Iterator[str]:
        return (commit.changed[ref] for commit in self.commits if ref in commit.changed)

    def accept(self, consent: Consent) -> PullResult:
        """Store what may be stored, and propose the rest. Raises as every write."""
        shown = {one.ref: one.trees[1] for one in self._planned}
        for attempt in range(_TRIES):
            try:
                return self._accept(consent, shown)
            except VersionConflict:
                if attempt == _TRIES - 1:
                    raise
                self._plan()  # another process changed the library meanwhile
        raise AssertionError

    def _accept(self, consent: Consent, shown: Mapping[Ref, str]) -> PullResult:
        if not self.head or not self.commits:
            if self.head:
                self._mirror.state = replace(self._mirror.state, seen=self.head)
                self._mirror.save()
            return PullResult(self._remote.name, 0, purged=self._purged())
        if consent is Consent.NONE:
            self._planned = [one for one in self._planned if one.arrival is not Arrival.HISTORY]
        for one in self._planned:
            if one.arrival is not Arrival.REFUSED:
                one.why = self._wait_reason(one, consent, shown) or one.why
        apply = _Application(self._mirror, self._reader, self._planned, self._changes, self.commits, self.head)
        result = apply.run()
        self._vouch()
        import_records(self._library, self._records, self._remote.chooses)
        result.warnings.extend(self._checkout())
        result.purged.extend(self._purged())
        return result

    def _purged(self) -> list[str]:
        """Return the hashes of what was purged elsewhere, and whose bytes are here."""
        here = ((name, self._library.store.backend.maintenance.packed_blob(name)) for name in self._records.stones)
        return sorted(name for name, blob in here if blob is not None and blob[1] not in TOMBSTONES)

    def _is_signed(self, one: _Planned) -> bool:
        """Return whether somebody whose key the person listed approved a content that was never here before.

        An older version that was approved once would else come back without a question.
        """
        tree = one.theirs.manifest.tree
        if one.arrival not in (Arrival.NEW, Arrival.CHANGED) or not one.theirs.manifest:
            return False
        if not self._records.is_approved(one.ref, tree, self._remote.keys):
            return False
        head = self._library.store.head_or_none(one.ref)
        known = self._library.store.backend.versions(head.id, 100_000) if head is not None else []
        return all(version.tree != tree for version in known)

    def _vouch(self) -> None:
        """Note that what a listed key signed is approved. Where approvals are locked here, only this lock's count."""
        for one in self._planned:
            head = self._library.store.head_or_none(one.ref) if one.signed else None
            if head is not None and one.arrival in _ACCEPTED and head.tree == one.theirs.manifest.tree:
                identity = Identity(Principal.PERSON, f"signed:{self._remote.name}")
                content = [(head.id, head.tree)]
                self._library.store.backend.attestations.vouch(content, self._library.store.now(), identity)

    def _wait_reason(self, one: _Planned, consent: Consent, shown: Mapping[Ref, str]) -> str:
        why, one.signed = one.must_wait, self._is_signed(one)
        if one.signed and not why:
            return ""
        if not why and (consent is Consent.NONE or shown.get(one.ref) != one.trees[1]):
            why = "no person was asked"
        if not why and consent is Consent.UNATTENDED and one.asks:
            why = "the scan found what a person is to see"
        if why and one.arrival is not Arrival.HISTORY:
            one.arrival = Arrival.WAITS
        return why

    def _checkout(self) -> list[str]:
        went = [one for one in self._planned if one.arrival in _ACCEPTED]
        new = [one.ref for one in went if one.arrival is Arrival.NEW]
        warnings = self._library.checkout([one.ref for one in went if one.arrival is not Arrival.NEW])
        return warnings + self._library.checkout(new, created=True)


_KEPT = (Arrival.HISTORY, Arrival.CONFLICT)
"""What leaves the content as it is here."""

_ACCEPTED = (Arrival.NEW, Arrival.CHANGED, Arrival.REMOVED, Arrival.MERGED)


def _describe(one: _Planned) -> IncomingResource:
    findings = list(one.found.findings) if one.found else []
    gains = [str(gain) for gain in one.found.capabilities.added] if one.found else []
    arrival = Arrival.WAITS if one.must_wait else one.arrival
    return IncomingResource(
        str(one.ref), arrival, one.version, len(one.result), findings, gains, one.must_wait or one.why
    )


class _Application:
    """The one transaction of a pull, and the merge commit that goes with it."""

    def __init__(
        self,
        mirror: Mirror,
        reader: CommitReader,
        planned: Sequence[_Planned],
        changes: TreeChanges,
        commits: Sequence[IncomingCommit],
        head: str,
    ) -> None:
        self._mirror, self._reader, self._planned = mirror, reader, planned
        self._changes, self._commits, self._head = changes, commits, head
        self._library, self._remote = mirror.library, mirror.remote
        self._made: dict[str, Packed] = {}
        self._taken = {one.ref: one for one in planned if one.arrival in (*_ACCEPTED, *_KEPT)}

    def run(self) -> PullResult:
        """Do it."""
        store, expected = self._library.store, self._mirror.state.sequence
        tip = self._merge_commit()
        waits = [one for one in self._planned if one.arrival in (Arrival.CONFLICT, Arrival.WAITS)]
        session = f"remote-{self._remote.name}-{self._head[:8]}"
        batch = ProposalBatch(store.now(), Actor.IMPORT, session, [self._draft(one) for one in waits])
        ids: list[int] = []
        before = {one.ref: one for one in self._mirror.waiting}
        stale = [one for one in before.values() if one.ref in self._changes.refs]

        def finish(writer: Writer) -> None:
            for old in stale:
                if old.proposal is not None:
                    why = f"replaced by a newer change of {self._remote.name}"
                    writer.close_proposal(old.proposal, REJECTED, why, None)
            ids.extend(writer.propose(batch))
            self._mirror.waiting = self._waiting(before, dict(zip((one.ref for one in waits), ids, strict=True)))
            state = replace(self._mirror.state, tip=tip, seen=self._head, sequence=writer.sequence(), at=store.now())
            writer.save_remote(state, self._mirror.waiting)
            self._mirror.state = state

        done = arrive(store.backend, expected, self._operations(), self._packed, finish)
        return PullResult(
            self._remote.name,
            len(self._commits),
            [one.id for one in done],
            {str(one.ref): one.arrival.value for one in self._planned if one.arrival is not Arrival.HISTORY},
            {number: f"{one.ref}: {one.why}" for number, one in zip(ids, waits, strict=True)},
            {str(one.ref): one.why for one in self._planned if one.arrival is Arrival.REFUSED},
        )

    def _waiting(self, before: Mapping[Ref, RemoteWaiting], proposals: Mapping[Ref, int]) -> list[RemoteWaiting]:
        touched = self._changes.refs
        kept = [one for one in before.values() if one.ref not in touched]
        for one in self._planned:
            if one.ref in proposals or one.arrival is Arrival.REFUSED:
                kept.append(RemoteWaiting(one.ref, one.trees[0], one.trees[1], proposals.get(one.ref)))
        return kept

    def _draft(self, one: _Planned) -> Draft:
        reason = self._library.redacted(f"pulled from {self._remote.name}: {one.why}")
        return Draft(one.ref, one.version, one.result, reason, findings=dump_scan(one.found) if one.found else None)

    def _operations(self) -> Iterator[tuple[Intent, list[ArrivedStep]]]:
        """Yield an operation for each commit that changed what is accepted, and one that makes the result of it all."""
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
        settled = [step for one in self._taken.values() if (step := self._settled(one, last)) is not None]
        if settled:
            why = f"merged {self._remote.name} at {self._head[:12]}"
            yield replace(self._intent(self._commits[-1]), at=self._library.store.now(), reason=why), settled

    def _settled(self, one: _Planned, last: Mapping[Ref, Manifest]) -> ArrivedStep | None:
        target = one.ours if one.arrival in _KEPT else one.theirs.manifest
        if one.arrival is Arrival.MERGED:
            target = make_manifest(one.result)
            for path, entry in target.items():
                self._made[entry.sha256] = entry.sha256, entry.size, *pack(one.result[path].data)
        return None if last.get(one.ref, one.ours) == target else ArrivedStep(one.ref, target)

    def _intent(self, commit: IncomingCommit) -> Intent:
        said = f", said to be made by {commit.message.actor}" if commit.message.actor else ""
        reason = self._library.redacted(commit.message.reason) or "no message"
        evidence = (f"commit {commit.id} of {self._remote.name}{said}",)
        via = f"remote:{self._remote.name}"
        return Intent(commit.at, Actor.IMPORT, reason, None, evidence, (), Principal.IMPORT, via)

    def _packed(self, sha256: str) -> Packed:
        if sha256 in self._made:
            return self._made[sha256]
        here = self._library.store.backend.maintenance.packed_blob(sha256)
        if here is not None:  # a purged one stays purged
            return sha256, self._library.store.backend.maintenance.blob_size(sha256) or 0, *here
        return self._reader.packed(sha256)

    def _merge_commit(self) -> str:
        """Write the commit that joins both histories, and return its id; the remote's where nothing is to join."""
        repository, tip = self._mirror.repository, self._mirror.state.tip
        merged = [one for one in self._planned if one.arrival is Arrival.MERGED]
        ahead = not tip or repository.is_ancestor(tip, self._head)
        if ahead and not merged:
            repository.run("update-ref", TIP, self._head)
            return self._head
        why = Intent(self._library.store.now(), Actor.IMPORT, f"Merge {self._remote.name} at {self._head[:12]}")
        message = write_message("", why, ())
        with open_stream(repository, self._head if ahead else tip) as stream:
            stream.commit(signature_line(why), message, "" if ahead else self._head)
            if not ahead:
                for other, (mode, identity) in self._changes.others.items():
                    stream.entry(other, mode, identity)
                for ref in self._changes.refs - {one.ref for one in merged}:
                    stream.entry(folder_of(ref).encode(), 0o040000, self._reader.tree_id(self._head, folder_of(ref)))
            for one in merged:
                stream.delete(folder_of(one.ref))
                for path, file in one.result.items():
                    stream.file(f"{folder_of(one.ref)}/{path}", EXECUTABLE if file.mode & 0o111 else 0, file.data)
        repository.run("update-ref", TIP, made := repository.id_of(WORK))
        return made


@contextlib.contextmanager
def open_pull(library: Library, caller: Caller, remote: Remote) -> Iterator[Pull]:
    """Fetch from a remote, and yield what a pull would do; nothing is stored before `accept`.

    Raises Refused for callers that may not and for a history that was rewritten, RemoteFailed, TooLarge.
    """
    check_may_sync(library, caller, "A pull")
    with open_mirror(library, remote) as mirror:
        head = mirror.fetch()
        with CommitReader(mirror.repository, library.store.home) as reader:
            yield Pull(mirror, reader, head)


def purge_as_elsewhere(library: Library, caller: Caller, remote: Remote, hashes: Sequence[str]) -> Purged:
    """Purge here what was purged in another library, after the person agreed. Raises as `purge`."""
    return purge(library, caller, plan_blobs(library, hashes), f"it was purged by others in {remote.name}")
