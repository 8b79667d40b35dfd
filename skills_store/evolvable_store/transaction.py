"""Transactions: the only way to move a name.

A transaction hashes and packs without a lock. It takes the write lock only to check the expected
versions and to store the result. All its writes happen as one operation, or none.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from evolvable_store.errors import (
    AlreadyExists,
    Frozen,
    InvalidArchive,
    InvalidArgument,
    NoSuchResource,
    NoSuchVersion,
    Refused,
    VersionConflict,
)
from evolvable_store.frontmatter import is_frozen
from evolvable_store.objects import Files, Manifest, chain_hash, make_manifest, pack
from evolvable_store.operation import (
    PLUGIN_FILES,
    Actor,
    Head,
    Identity,
    Intent,
    Operation,
    Principal,
    Signer,
    statement_of,
)
from evolvable_store.provenance import (
    CarriedContent,
    EarlierContent,
    Provenance,
    carry,
    carry_restored,
    carry_reverted,
)
from evolvable_store.resource import (
    USER_SCOPE,
    Kind,
    Ref,
    check_name,
    check_not_plugins,
    check_scope,
)
from evolvable_store.storage import (
    ArrivedStep,
    Binding,
    Decision,
    DirectoryMark,
    MoveNote,
    Packed,
    PendingCheckout,
    PendingPart,
    ReplayStep,
    Storage,
    Writer,
)
from evolvable_store.validation import main_path


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write.

    version: None after a removal. changed: False when nothing had to be done. id: that of the
    resource, as in Head.
    """

    ref: Ref
    version: int | None
    previous: int | None
    changed: bool
    id: int


@dataclass(frozen=True, slots=True)
class _Content:
    """A content to publish.

    files: its bytes, where they are in memory. before: the manifest of the head, if known.
    """

    manifest: Manifest
    frozen: bool
    blobs: tuple[Packed, ...] = ()
    files: Files | None = None
    before: Manifest | None = None

    def bytes_of(self, sha256: str) -> bytes | None:
        """Return the bytes of one of its files that is in memory."""
        for path, entry in self.manifest.items() if self.files is not None else ():
            if entry.sha256 == sha256 and self.files is not None:
                return self.files[path].data
        return None


class Transaction:
    """Collects writes, and publishes them as one operation at the end of a `with` block.

    An exception in the block publishes nothing. Afterwards `operation` is the operation that was
    made, or None when nothing changed, and `written` has one result for each write, in order.
    """

    def __init__(
        self,
        backend: Storage,
        clock: Callable[[], datetime],
        intent: Intent,
        signer: Signer | None = None,
        address: str = "",
    ) -> None:
        """intent: of the operation, without its time, which is that of publishing.

        signer: signs the operation. address: where it comes from, for the audit log.
        """
        if not intent.reason.strip():
            raise InvalidArgument("A change needs a reason.", "Say in a few words why it is made.")
        self._backend, self._clock, self._intent, self._signer = backend, clock, intent, signer
        # The writes that are made under the lock; all slow work is done when a plan is added.
        self._plans: list[Callable[[_Publication], WriteResult]] = []
        self._refs: list[Ref] = []
        self._bindings: list[Callable[[Writer, Sequence[WriteResult]], None]] = []
        self._approved: list[tuple[int, str]] = []
        self._address = address
        self.decision = "undo" if intent.undoes and intent.actor is Actor.HUMAN else ""
        """The operation's name in the audit log; '' for an operation that is no decision."""
        self.operation: Operation | None = None
        self.written: list[WriteResult] = []
        self.when_made: Callable[[Operation], None] | None = None
        """Called with the operation once it is published."""

    def put(
        self,
        ref: Ref,
        files: Files,
        *,
        expected_version: int | None = None,
        create: bool = False,
        base: Manifest | None = None,
        carries: bool = False,
        reverts: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Make these files the whole content of the resource; new names are created.

        expected_version: the head it must have when published, 0 for none; without it the last
        write wins. create: refuse a name that is taken. base: the manifest of a version in this
        library, whose files need not be stored again; without it, that of the head is read.
        carries: this is nobody's own change, as in a purge: a person who makes it stands for no
        more of the text than before. reverts: the files are the head without the changes from each
        of these versions to the one beside it, oldest first. Raises TooLarge or InvalidPath at
        once; at the end of the block VersionConflict, AlreadyExists, Frozen, or Refused for a
        plugin's resource without an approved proposal.
        """
        # Blobs that some version refers to are never collected, so they need not be packed and
        # stored again.
        if base is not None:
            stored_hashes = {entry.sha256 for entry in base.values()}
        else:
            stored_hashes = self._find_stored_blobs(ref, files)
        manifest = make_manifest(files)
        blobs = tuple(
            (entry.sha256, entry.size, *pack(files[path].data))
            for path, entry in manifest.items()
            if entry.sha256 not in stored_hashes
        )
        # The flag is stored with the version, so that a check of frozen needs no blob.
        main = files.get(main_path(ref.kind, ref.name, files))
        content = _Content(manifest, main is not None and is_frozen(main.data), blobs, files, base)
        self._refs.append(ref)
        self._plans.append(
            lambda publication: publication.put(
                ref, content, expected_version, create, carries, reverts
            )
        )

    def restore(self, ref: Ref, version: int, *, expected_version: int | None = None) -> None:
        """Make a new version with the content of an old one.

        Raises at the end as `put`, or NoSuchVersion.
        """
        self._note_ref(ref)
        self._plans.append(lambda publication: publication.restore(ref, version, expected_version))

    def remove(self, ref: Ref, *, expected_version: int | None = None) -> None:
        """Make the name point nowhere; its versions stay.

        Raises at the end as `put`, or NoSuchResource.
        """
        self._note_ref(ref)
        self._plans.append(lambda publication: publication.remove(ref, expected_version))

    def _note_ref(self, ref: Ref) -> None:
        # A person may remove a plugin's resource, and restore it.
        if self._intent.actor is not Actor.HUMAN:
            self._refs.append(ref)

    def bind(self, folder: int, directory: str, signature: str, conflict: str = "") -> None:
        """Record with the last write that a directory of a folder holds its version now."""
        plan = len(self._plans) - 1

        def note(writer: Writer, written: Sequence[WriteResult]) -> None:
            writer.bind(
                folder, directory, written[plan].id, written[plan].version, signature, conflict
            )

        self._bindings.append(note)

    def bind_new(self, places: Iterable[tuple[int, str]]) -> None:
        """Record with the last write the places of the resource, if it makes a new one.

        places: folders and directories. A sync writes the resource there, also when this process
        ends before it did so itself.
        """
        plan, targets = len(self._plans) - 1, list(places)

        def note(writer: Writer, written: Sequence[WriteResult]) -> None:
            # A resource that was there before lies where its owner put it.
            if written[plan].changed and written[plan].version == 1:
                for folder, directory in targets:
                    writer.bind(folder, directory, written[plan].id, None, "", "")

        self._bindings.append(note)

    def bind_pending(
        self,
        binding: Binding,
        old: DirectoryMark,
        new: DirectoryMark,
        boot: str,
        part: PendingPart | None = None,
    ) -> None:
        """Record with the last write that a directory is about to hold its version.

        binding: that of the directory now. old, new: the marks of the directory before and after.
        boot: the id of this run of the system. part: the one file or new folder that is put in
        place, None for the whole directory.
        """
        plan = len(self._plans) - 1

        def note(writer: Writer, written: Sequence[WriteResult]) -> None:
            done = written[plan]
            if done.changed and done.version is not None and binding.version is not None:
                # In the transaction of the version: after a crash the row says which of two
                # directories may lie there.
                text = str(PendingCheckout(boot, binding.version, old, done.version, new, part))
                writer.bind(binding.folder, binding.directory, done.id, binding.version, text, "")

        self._bindings.append(note)

    def approve(self, proposal: int, decision: str) -> None:
        """Close an open proposal together with the change it asked for.

        Raises at the end of the block InvalidArgument when somebody else has decided on it; then
        nothing changes.
        """
        self._approved.append((proposal, decision))

    def _find_stored_blobs(self, ref: Ref, files: Files) -> set[str]:
        """Return the blobs of the head: they are never collected, so they are not sent again."""
        # A single file is nearly always the one that changed, so its query is saved.
        if len(files) < 2:
            return set()
        head = self._backend.head(ref.kind, ref.scope or USER_SCOPE, ref.name)
        manifest = self._backend.manifest(head.id, head.latest) if head else None
        return {entry.sha256 for entry in manifest.values()} if manifest else set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None and self._plans:
            self._publish()

    def _publish(self) -> None:
        # Before the lock: writers that wait keep the time at which they were ready.
        intent = self._intent.with_time(format_time(self._clock()))
        identity = Identity(intent.principal or Principal.UNKNOWN, intent.via)
        # Checked before the lock is taken, as it depends on nothing in the library.
        if identity != PLUGIN_FILES and not self._approved:
            for ref in self._refs:
                check_not_plugins(ref)
        with self._backend.write() as writer:
            publication = _Publication(writer, intent)
            written = [plan(publication) for plan in self._plans]
            for note in self._bindings:
                note(writer, written)
            # After all changes, as the operation's row names the last one; before all rows that
            # name the operation.
            operation = publication.close()
            if operation and self._signer:
                # Signed inside the transaction: an unsigned decision is never visible to others.
                statement = statement_of(intent, publication.moved)
                writer.add_signature(operation.id, self._signer.key, self._signer.sign(statement))
            if operation and publication.skills:
                writer.follow(_make_note(operation.id, intent), publication.skills)
            for proposal, decision in self._approved:
                # Under the lock: of two people who approve at once, the second one's change is
                # rolled back.
                operation_id = operation.id if operation else None
                if not writer.close_proposal(proposal, "approved", decision, operation_id):
                    why = f"Proposal {proposal} was decided on already."
                    raise InvalidArgument(why, "`evolvable inbox` lists the rest.")
            if decisions := self._list_decisions(intent, written, operation):
                writer.add_decisions(decisions)
        # Only after the commit.
        self.written, self.operation = written, operation
        if operation is not None and self.when_made is not None:
            self.when_made(operation)

    def _list_decisions(
        self, intent: Intent, written: Sequence[WriteResult], operation: Operation | None
    ) -> list[Decision]:
        name = self.decision or ("approve" if self._approved else "")
        if not name:
            return []
        identity = Identity(intent.principal or Principal.UNKNOWN, intent.via)
        proposals = [f"proposal {proposal}" for proposal, _ in self._approved]
        of = f" ({', '.join(proposals)})" if proposals else ""
        rest = (identity, self._address, intent.session or "", operation.id if operation else None)
        decisions: list[Decision] = []
        for result in written:
            end = " removed" if result.version is None else f"@{result.version}"
            decisions.append(Decision(intent.at, name, f"{result.ref}{end}{of}", *rest))
        return decisions


def replay(
    backend: Storage,
    operations: Iterable[tuple[Intent, Iterable[ReplayStep]]],
    moves: Callable[[Writer, int], None] = lambda writer, operation: None,
    *,
    at: str | None = None,
) -> list[Operation]:
    """Make operations of another library happen here as they were, all of them or none, and return
    them.

    operations: in order; read while the write lock is held, so what it finds in the library before
    it yields the first one still holds. moves: called at their end with the newest operation, to
    move the channel as it was moved there; where it leaves a skill alone, the policy here decides,
    once for all that happened to the skill. at: when they came here (ISO 8601 in UTC), None for a
    history that is only copied inside this library. Raises InvalidArchive when a step does not lead
    to the version it claims, Frozen.
    """
    with backend.write() as writer:
        done: list[Operation] = []
        skills: dict[int, tuple[int | None, int | None]] = {}
        for intent, steps in operations:
            publication = _Publication(writer, intent, arrived=True, arrived_at=at)
            for step in steps:
                publication.replay(step)
            if operation := publication.close():
                done.append(operation)
            for skill, (before, after) in publication.skills.items():
                # Where each skill was before the first operation and is after the last.
                skills[skill] = (skills.get(skill, (before, None))[0], after)
        if done:
            moves(writer, done[-1].id)
            note = MoveNote(done[-1].at, Actor.IMPORT, "imported", None, done[-1].id)
            writer.follow(note, skills)
    return done


def arrive(
    backend: Storage,
    expected: int,
    operations: Iterable[tuple[Intent, Iterable[ArrivedStep]]],
    packed: Callable[[str], Packed],
    finish: Callable[[Writer], None],
    *,
    at: str,
) -> list[Operation]:
    """Apply the operations of another library on top of this one, and return the operations made
    here.

    Unlike `replay`, the resources may have changed here as well: each content becomes the next
    version, and one that is the newest version already makes none. expected: the sequence that the
    library must still have. packed: returns a blob that a step names. finish: called at the end,
    inside the transaction. at: the time here (ISO 8601 in UTC). All of it is stored or nothing.
    Raises VersionConflict when the library has another sequence.
    """
    with backend.write() as writer:
        # Checked under the lock: a merge was computed against this state.
        if writer.sequence() != expected:
            raise VersionConflict("The library", expected, writer.sequence())
        done: list[Operation] = []
        skills: dict[int, tuple[int | None, int | None]] = {}
        for intent, steps in operations:
            publication = _Publication(writer, intent, arrived=True, arrived_at=at)
            for step in steps:
                publication.arrive(step, packed)
            if operation := publication.close():
                done.append(operation)
            for skill, (before, after) in publication.skills.items():
                skills[skill] = (skills.get(skill, (before, None))[0], after)
        if done:
            writer.follow(_make_note(done[-1].id, done[-1].intent), skills)
        finish(writer)
    return done


def rename(
    backend: Storage,
    intent: Intent,
    names: Iterable[tuple[Head, Ref]],
    finish: Callable[[Writer], None],
) -> Operation | None:
    """Give resources other names, with all that is known of them, and return the operation.

    names: each resource with its new scope and name. finish: called at the end, inside the
    transaction. All of it is stored or nothing. Raises AlreadyExists for a name that ever was
    another's, VersionConflict when a resource moved.
    """
    with backend.write() as writer:
        publication = _Publication(writer, intent)
        for head, ref in names:
            publication.rename(head, ref)
        operation = publication.close()
        finish(writer)
    return operation


def _make_note(operation: int, intent: Intent) -> MoveNote:
    return MoveNote(intent.at, intent.actor, intent.reason, intent.session, operation)


def format_time(moment: datetime) -> str:
    """Return an aware moment in UTC as it is stored: 2026-11-20T11:14:36.123456Z."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


class _Publication:
    """One operation while it is published: all methods run while the write lock is held."""

    def __init__(
        self,
        writer: Writer,
        intent: Intent,
        *,
        arrived: bool = False,
        arrived_at: str | None = None,
    ) -> None:
        self._writer, self._intent = writer, intent
        self._arrived, self._arrived_at = arrived, arrived_at
        self._digest = intent.digest
        by_human = intent.principal in (Principal.SCRIPT, None) and intent.actor is Actor.HUMAN
        by_person = by_human or intent.principal is Principal.PERSON
        # A principal of another library grants nothing here. Text that a person restores by an undo
        # keeps the authors that it had.
        self._stands = by_person and not arrived and not intent.undoes
        # Read at the first change, after the head: a storage beyond a network then answers both at
        # once.
        self._first = self._next = 0
        self.moved: list[tuple[str, str, str, int | None, str]] = []
        """Of every change: kind, scope, name, version after, hash of the newest version."""
        self.skills: dict[int, tuple[int | None, int | None]] = {}
        """The skills that were moved, each with the versions of its name before and after."""

    def close(self) -> Operation | None:
        """Store the operation if it changed anything, and return it, else None."""
        # Nothing moved: no operation, and no number is used.
        if self._next == self._first:
            return None
        self._writer.add_operation(
            self._first, self._next - 1, self._intent, self._arrived, self._arrived_at
        )
        return Operation(self._first, self._intent, self._arrived)

    def put(
        self,
        ref: Ref,
        content: _Content,
        expected: int | None,
        create: bool,
        carries: bool = False,
        reverts: Sequence[tuple[int, int]] = (),
    ) -> WriteResult:
        head = self._read_head(ref)
        # A removed resource may be created again; it goes on counting its versions.
        if create and head is not None and head.version is not None:
            raise AlreadyExists(
                f"{ref} exists already (version {head.version}).",
                "Update it, or choose a new name.",
            )
        # In this order: a name that is taken is a clearer answer than a version conflict.
        self._check(ref, head, expected)
        if head is None:
            scope = check_scope(ref.scope or USER_SCOPE)
            head = self._writer.add_resource(ref.kind, scope, check_name(ref.kind, ref.name))
        # The newest content already: at most the name points at it again.
        if head.tree == content.manifest.tree:
            return self._point(head, head.latest, content.frozen)
        # Before the version that names them; one transaction makes both visible at once.
        for blob in content.blobs:
            self._writer.add_blob(*blob)
        if reverts:
            earlier = [self._read_earlier_content(head, version) for version, _ in reverts]
            undone = {number for first, last in reverts for number in range(first + 1, last + 1)}
            replaced = self._read_content_before(head, content)
            provenance = carry_reverted(
                replaced, earlier, undone, head.latest + 1, content.manifest
            )
        elif self._stands and not carries:
            provenance = Provenance(head.latest + 1)
        else:
            number = None if carries else head.latest + 1
            provenance = carry(self._read_content_before(head, content), number, content.manifest)
        return self._advance(head, content, provenance)

    def _advance(self, head: Head, content: _Content, provenance: Provenance) -> WriteResult:
        """Make the next version of a head."""
        number, manifest = head.latest + 1, content.manifest
        chained = chain_hash(head.hash, number, manifest.tree, self._digest)
        newest = (number, manifest.tree, chained)
        return self._move(head, number, content.frozen, newest, manifest, provenance)

    def _read_content_before(self, head: Head, content: _Content) -> CarriedContent:
        """Return the content that a new one replaces, with its base."""
        writer, nothing = self._writer, Manifest({})

        def blob(sha256: str) -> bytes | None:
            data = content.bytes_of(sha256)
            return data if data is not None else writer.blob(sha256)

        if not head.latest:
            return CarriedContent(Provenance(0), nothing, nothing, blob)
        before = writer.provenance(head.id, head.latest)
        manifest = content.before
        # Another process may have made a version since `put` read this one.
        if manifest is None or manifest.tree != head.tree:
            manifest = writer.manifest(head.id, head.latest) or nothing
        # A person stands for the whole head: both manifests are one.
        if before.base == head.latest:
            return CarriedContent(before, manifest, manifest, blob)
        base = writer.manifest(head.id, before.base) if before.base else None
        return CarriedContent(before, manifest, base or nothing, blob)

    def _read_earlier_content(self, head: Head, number: int) -> EarlierContent:
        manifest = self._writer.manifest(head.id, number) or Manifest({})
        return EarlierContent(self._writer.provenance(head.id, number), manifest)

    def restore(self, ref: Ref, number: int, expected: int | None) -> WriteResult:
        head = self._read_existing(ref)
        self._check(ref, head, expected)
        manifest = self._writer.manifest(head.id, number) if 1 <= number <= head.latest else None
        if manifest is None:
            raise NoSuchVersion(
                f"{ref} has no version {number}.", f"It has versions 1 to {head.latest}."
            )
        content = _Content(manifest, self._was_frozen(head, manifest))
        if head.tree == manifest.tree:
            return self._point(head, head.latest, content.frozen)
        restored = self._writer.provenance(head.id, number)
        replaced = self._read_content_before(head, content)
        return self._advance(head, content, carry_restored(replaced, restored, manifest))

    def remove(self, ref: Ref, expected: int | None) -> WriteResult:
        head = self._read_existing(ref)
        self._check(ref, head, expected)
        if head.version is None:
            raise NoSuchResource(
                f"{ref} is removed already.",
                "Its history is kept; restore_resource brings it back.",
            )
        return self._point(head, None, head.frozen)

    def rename(self, old_head: Head, ref: Ref) -> None:
        head = self._read_existing(old_head.ref)
        # A removed resource still has its name.
        if head.id != old_head.id or self._read_head(ref) is not None:
            raise AlreadyExists(
                f"{ref} cannot be the name of {old_head.ref}.",
                "One of them was made since; try again.",
            )
        self._check(head.ref, head, old_head.version or 0)
        self._writer.rename(
            head.id, check_scope(ref.scope or USER_SCOPE), check_name(ref.kind, ref.name)
        )
        # The index and other processes learn of it from the log; it points where it did.
        renamed_head = replace(head, scope=ref.scope or USER_SCOPE, name=ref.name)
        self._move(renamed_head, head.version, head.frozen, (head.latest, head.tree, head.hash))

    def replay(self, step: ReplayStep) -> None:
        if step.manifest is not None:
            self.put(step.ref, _Content(step.manifest, step.frozen, step.blobs), None, False)
        elif step.after is None:
            self.remove(step.ref, None)
        else:
            self._check(step.ref, self._read_existing(step.ref), None)
            self._point(self._read_existing(step.ref), step.after, step.frozen)
        head = self._read_existing(step.ref)
        # The hash chain of the archive has to be the same here, else all of it is rolled back.
        if (head.version, head.latest, head.hash) != (step.after, step.latest, step.hash):
            raise InvalidArchive(
                f"{step.ref} does not become its version {step.latest}.", "Nothing was imported."
            )

    def arrive(self, step: ArrivedStep, packed: Callable[[str], Packed]) -> None:
        head = self._read_head(step.ref)
        if not step.manifest:
            if head is not None and head.version is not None:
                self._check(step.ref, head, None)
                self._point(head, None, head.frozen)
            return
        before = None
        if head is not None and head.latest:
            before = self._writer.manifest(head.id, head.latest)
        stored_hashes = {entry.sha256 for entry in before.values()} if before else set[str]()
        blobs = tuple(
            packed(entry.sha256)
            for entry in step.manifest.values()
            if entry.sha256 not in stored_hashes
        )
        self.put(step.ref, _Content(step.manifest, step.frozen, blobs), None, False)

    def _read_head(self, ref: Ref) -> Head | None:
        return self._writer.head(ref.kind, ref.scope or USER_SCOPE, ref.name)

    def _read_existing(self, ref: Ref) -> Head:
        head = self._read_head(ref)
        if head is None:
            raise NoSuchResource(f"There is no {ref}.", "list_resources shows what there is.")
        return head

    def _check(self, ref: Ref, head: Head | None, expected: int | None) -> None:
        at = (head.version if head else None) or 0
        if expected is not None and expected != at:
            raise VersionConflict(str(ref), expected, at)
        # The character of an agent is its person's decision alone.
        is_soul = (ref.kind, ref.name) == (Kind.MEMORY, "SOUL")
        if is_soul and self._intent.actor not in (Actor.HUMAN, Actor.IMPORT):
            raise Refused(
                "memory:SOUL is written by a person alone.",
                "Propose it: a person decides (propose=true).",
            )
        if head is not None and head.frozen and self._intent.actor is not Actor.HUMAN:
            raise Frozen(str(ref), self._intent.actor)

    def _was_frozen(self, head: Head, manifest: Manifest) -> bool:
        entry = manifest.get(main_path(head.kind, head.name, manifest))
        data = self._writer.blob(entry.sha256) if entry else None
        return data is not None and is_frozen(data)

    def _point(self, head: Head, version: int | None, frozen: bool) -> WriteResult:
        if head.version == version:
            return WriteResult(head.ref, version, version, False, head.id)
        return self._move(head, version, frozen, (head.latest, head.tree, head.hash))

    def _move(
        self,
        head: Head,
        version: int | None,
        frozen: bool,
        newest: tuple[int, str, str],
        manifest: Manifest | None = None,
        provenance: Provenance | None = None,
    ) -> WriteResult:
        """Point the name of a head to a version.

        newest: number, tree and hash of its newest version afterwards. manifest, provenance: of the
        version which this makes.
        """
        if not self._first:
            # Sequences have no gaps: the write lock keeps others from taking this one.
            self._first = self._next = self._writer.sequence() + 1
        moved = Head(
            head.id, head.kind, head.scope, head.name, version, *newest, frozen, self._next
        )
        self._writer.add_change(moved, self._first, head.version, manifest, provenance)
        self.moved.append((head.kind, head.scope, head.name, version, moved.hash))
        self._next += 1
        if head.kind is Kind.SKILL:
            # The first state before and the last one after, if a skill moves more than once.
            before, _ = self.skills.get(head.id, (head.version, None))
            self.skills[head.id] = (before, version)
        return WriteResult(head.ref, version, head.version, True, head.id)
