"""The library that every verb works on: a store with its index, its policies, its redactor and its
working copies.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack

from evolvable_store import (
    UNWRITTEN,
    Actor,
    Files,
    Head,
    HeldPowers,
    Manifest,
    Principal,
    Registered,
    Store,
    no_homes,
    search,
    workingcopy,
)
from evolvable_store.errors import Refused
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage import (
    Decision,
    FollowedFolders,
    ImpressionLog,
    Place,
    PooledVersion,
    TrustedFolders,
    WatchedFolder,
    every_folder,
)
from evolvable_store.workingcopy import Projects
from evolvable_tools import redaction
from evolvable_tools.approvals import ApprovalPolicy, ContentGate
from evolvable_tools.authority import find_powers_out
from evolvable_tools.caller import ApprovalLevel, Caller
from evolvable_tools.delegates import agent_to_start
from evolvable_tools.name_check import NameIndex
from evolvable_tools.near_duplicate_notes import leave_for_status
from evolvable_tools.retrieval import SearchDependencies
from evolvable_tools.served_texts import ServedTexts

if TYPE_CHECKING:
    from evolvable_store import MergeResult, Transaction
    from evolvable_store.search import BulkIndexer, Index
    from evolvable_store.storage import EvidenceLog
    from evolvable_store.workingcopy import StagedCheckout, WorkingCopies
    from evolvable_tools.approvals_lock import ApprovalsLock
    from evolvable_tools.redaction import Redactor


class TrialArms(Protocol):
    """Decides which version of a resource a session gets in place of the head while versions are on
    trial.
    """

    def version(self, library: "Library", caller: Caller, head: Head, seen_by: str) -> int | None:
        """Return the version on trial that a call is served, None for the head.

        seen_by: the use or the search.
        """

    def known_version(self, library: "Library", caller: Caller, head: Head) -> int | None:
        """Return the version on trial that the session was served before, None where it was not."""

    def list_described(
        self, library: "Library", caller: Caller, resources: Iterable[int], search: str
    ) -> Mapping[int, PooledVersion]:
        """Return the versions whose descriptions a search shows in place of the heads', by
        resource.
        """


class LibraryOptions(TypedDict, total=False):
    """The options that a library is opened with.

    dependencies: what a search may use beside the index; by default words alone. redactor: makes
    the redactor of secrets, by default the built-in one. policies: how proposals of a kind are
    treated; by default a person is asked. level: which changes of an agent wait for a person, by
    default `guarded`. lock: the key that decisions are signed with, None without a lock on
    approvals. trusted_folders: those that the person trusts now, by default every one. Decisions on
    other folders do not count. followed_folders: those for which the scan alone decides on a pull,
    by default none. bulk: indexes many changes in another process; by default this process does.
    trials: decides on versions on trial, by default none. marks_agents: whether changes of agents
    stand between marks until a person looks, by default if approvals are locked.
    """

    dependencies: SearchDependencies | None
    redactor: "Callable[[], Redactor] | None"
    policies: Mapping[Kind, ApprovalPolicy] | None
    level: ApprovalLevel
    lock: "ApprovalsLock | None"
    trusted_folders: TrustedFolders
    followed_folders: FollowedFolders
    bulk: "BulkIndexer | None"
    trials: "TrialArms | None"
    marks_agents: bool | None


class Library:
    """An open library with all that is derived from it, each opened when it is first used."""

    def __init__(self, store: Store, **options: Unpack[LibraryOptions]) -> None:
        self.store = store
        store.backend.trusted_folders = options.get("trusted_folders", every_folder)
        store.backend.followed_folders = options.get("followed_folders", frozenset)
        self.dependencies = options.get("dependencies") or SearchDependencies()
        self.policies = options.get("policies") or {}
        self.lock = options.get("lock")
        self.level = options.get("level", ApprovalLevel.GUARDED)
        marks_agents = options.get("marks_agents")
        self.marks_agents = self.lock is not None if marks_agents is None else marks_agents
        # Operations by connection and by session, and the clients that were served a stranger's
        # text: of this process alone.
        self._operations_by_client: dict[str, set[int]] = {}
        self._tainted_clients = set[str]()
        self._bulk = options.get("bulk")
        self.trials = options.get("trials")
        self._redactor = options.get("redactor") or built_in_redactor
        self.impressions = ImpressionLog(store.backend, store.home / UNWRITTEN)
        self.served_texts = ServedTexts()
        self.compare_later: Callable[[Caller, int], None] = self._leave_for_status
        """Leaves a resource with a new description to a later comparison. A server compares it
        itself instead.
        """

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        home: Path,
        *,
        create: bool = False,
        registered: Registered = no_homes,
        **options: Unpack[LibraryOptions],
    ) -> Iterator[Self]:
        """Yield the library in `home`, and close it afterwards. Raises as Store.open."""
        library = cls(Store.open(home, create=create, registered=registered), **options)
        try:
            yield library
        finally:
            library.close()

    @property
    def evidence(self) -> "EvidenceLog":
        """The evidence on the resources."""
        return self.store.backend.evidence

    @cached_property
    def index(self) -> "Index":
        """The text index.

        Every search updates it first.
        """
        return search.Index.open(self.store, bulk=self._bulk)

    @cached_property
    def working_copies(self) -> "WorkingCopies":
        """The folders that mirror the library."""
        return workingcopy.WorkingCopies(
            self.store, gate=self.gate, powers=self.powers, forks=self.started_agent
        )

    def powers(self, head: Head) -> HeldPowers | None:
        """Return which powers of the newest version are out of force, so that no folder is given
        them.
        """
        return find_powers_out(self, head, head.latest)

    def started_agent(self, skill: Head, folder: Path) -> str:
        """Return the agent that the client of a folder of skills starts for the newest version of a
        skill.
        """
        return agent_to_start(self, skill, self.scopes_from(skill.scope), folder)

    @cached_property
    def names(self) -> NameIndex:
        """The names of the library, by what they look like."""
        return NameIndex(self.store)

    @cached_property
    def gate(self) -> ContentGate:
        """The gate that decides which contents of the folders are held."""
        return ContentGate(self.store, self.policies)

    def authorise(self, caller: Caller, what: str) -> None:
        """Check that the caller may make a decision, and open the signing key where approvals are
        locked.

        what: the decision, such as "Approving a proposal". Raise Refused.
        """
        if not caller.decides:
            raise Refused(
                f"{what} is a person's decision; this call is not a person's.",
                "It waits for the person.",
            )
        if self.lock is None:
            return
        if caller.signer is None:
            hint = "The person decides at a terminal, with the passphrase."
            raise Refused(f"{what} needs the person's signature: approvals are locked.", hint)
        caller.signer.unlock()

    def folders(self) -> list[WatchedFolder]:
        """Return the folders that mirror the library, in the order they were added."""
        return self.store.backend.bindings.folders()

    def plugin_scopes(self) -> list[str]:
        """Return the scopes of the plugins whose folders mirror the library, in the order they were
        added.
        """
        return list(dict.fromkeys(folder.scope for folder in self.folders() if folder.is_plugins))

    def settle_projects(self, projects: Projects, directory: Path) -> bool:
        """Separate projects that an earlier version took for one, and find those again that moved
        to a directory.

        Return whether there was anything to do. Raises LibraryBusy, OSError, and AlreadyExists
        where a folder in the new place is watched already.
        """
        strangers = projects.strangers_at(directory)
        if projects.are_separated and not strangers:
            return False
        workingcopy.separate_projects(self.store)
        for place in strangers:
            workingcopy.move_project(self.store, place)
        return True

    def scopes_from(self, scope: str) -> tuple[str, ...]:
        """Return the scopes in which a resource of this scope finds others, the nearest first."""
        around = Projects(self.store).scopes_of(scope) if scope != USER_SCOPE else ()
        return tuple(dict.fromkeys((*around, USER_SCOPE)))

    def note_session(self, caller: Caller) -> None:
        """Record that the server saw the caller's session; written a moment later."""
        if caller.session and caller.connection:
            self.impressions.note_session(caller.session, caller.connection, self.store.now())

    def _leave_for_status(self, _: Caller, resource: int) -> None:
        leave_for_status(self.store.home, [resource])

    def note_made(self, client: str, operation: int) -> None:
        """Record that a connection or a session made an operation: an agent reads its own new text
        without marks.
        """
        self._operations_by_client.setdefault(client, set()).add(operation)

    def note_stranger(self, caller: Caller) -> None:
        """Record that the caller's session and connection were served the text of a stranger."""
        self._tainted_clients.update(filter(None, (caller.session, caller.connection)))

    def is_tainted(self, caller: Caller) -> bool:
        """Return whether this process served a stranger's text to the caller's session or
        connection.
        """
        return not self._tainted_clients.isdisjoint({caller.session, caller.connection})

    def is_own(self, caller: Caller, operation: int, session: str | None) -> bool:
        """Return whether the caller's session or connection made an operation.

        session: that the operation names.
        """
        if session is not None and session == caller.session:
            return True
        clients = (caller.connection, caller.session)
        return any(
            operation in self._operations_by_client.get(client, ())
            for client in clients
            if client is not None
        )

    def redactor(self) -> "Redactor":
        """Return the redactor of secrets."""
        return self._redactor()

    def redact(self, text: str) -> str:
        """Return a text without secrets.

        Texts of callers are stored and sent only in this form.
        """
        return self._redactor().redact(text)[0] if text else text

    def transaction(
        self, caller: Caller, reason: str, *, sign: bool = False, **intent: Any
    ) -> "Transaction":
        """Return a transaction of the caller. sign: with the caller's key, where approvals are
        locked.

        intent: the evidence of the operation, or which operations it undoes; see
        `Store.transaction`.
        """
        # A signature costs the person a passphrase, so only decisions are signed.
        intent |= {
            "identity": caller.identity,
            "signer": caller.signer if sign and self.lock else None,
        }
        intent["address"] = caller.address
        transaction = self.store.transaction(caller.actor, reason, session=caller.session, **intent)
        # An operation has its number only once it is made.
        if caller.connection is not None:
            connection = caller.connection
            transaction.when_made = lambda operation: self.note_made(connection, operation.id)
        return transaction

    def decision(self, caller: "Caller | None", name: str, subject: str) -> Decision:
        """Return what the audit log says of a decision. caller: None where nobody can be named."""
        named_caller = caller or Caller(Actor.AGENT, principal=Principal.UNKNOWN)
        return Decision(
            self.store.now(),
            name,
            subject,
            named_caller.identity,
            named_caller.address,
            named_caller.session or "",
        )

    def record(self, caller: Caller, name: str, *subjects: str) -> None:
        """Append a decision that makes no operation to the audit log, once for each subject."""
        self.store.backend.audit.add(
            *(self.decision(caller, name, subject) for subject in subjects)
        )

    def take_in(self, resources: Iterable[Ref | Head]) -> bool:
        """Import the person's saves in the folders of these resources.

        Return whether any of them may have changed.
        """
        return self.working_copies.take_in(resources)

    def merge(self, head: Head, base: Files, ours: Files, theirs: Files) -> "MergeResult":
        """Return a resource's files with the changes of both sides; see `merge_resource`."""
        return workingcopy.merge_resource(head, base, ours, theirs)

    def stage_checkout(
        self,
        head: Head | None,
        base: Manifest | None,
        files: Files,
        places: Sequence[Place] | None = None,
    ) -> "contextlib.AbstractContextManager[StagedCheckout]":
        """Build the next version of a resource in its folders, for the transaction that makes it in
        the body.

        head, base: the version that the folders hold, and its manifest; None for a new resource.
        places: where it lies, as `latest` returned them.
        """
        return self.working_copies.stage_checkout(head, base, files, places)

    def latest(self, head: Head) -> tuple[Head, Sequence[Place] | None]:
        """Return the head with the person's latest saves, and where it lies; None where that was
        not read.
        """
        places = self.store.backend.bindings.places([head.id])
        if self.working_copies.import_saved({head.id: head}, places):
            return self.store.head_or_none(head.ref) or head, None
        return head, places

    def checkout(self, refs: Iterable[Ref], *, created: bool = False) -> list[str]:
        """Write a change into the folders, and return a warning for each that could not be written.

        created: the resources are new. They are written into every folder of their scope.
        """
        return self.working_copies.checkout(refs, created=created)

    def close(self) -> None:
        """Close every file, after the counts of what was shown are written."""
        self.impressions.close()
        # A cached property that was never used would be opened here only to be closed.
        if "index" in self.__dict__:
            self.index.close()
        self.store.close()


@cache
def built_in_redactor() -> "Redactor":
    """Return the redactor of what is built in."""
    return redaction.Redactor()
