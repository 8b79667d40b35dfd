"""Interfaces of the repositories of a storage, which callers reach as `store.backend.evidence` and so on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from evolvable_store.objects import Files
    from evolvable_store.operation import Actor, Identity, Signer
    from evolvable_store.resource import Kind, Ref
    from evolvable_store.storage.attestations import Attestation, Author, Baseline, Sign
    from evolvable_store.storage.bindings import Binding, HeldDirectory, WatchedFolder
    from evolvable_store.storage.evidence import (
        Attempt,
        ImpressionCount,
        ReportedOutcome,
        SuccessCounts,
        Tally,
        UngradedEvidence,
        Use,
    )
    from evolvable_store.storage.observations import ClientSession, Impression, IngestedSession, UsageObservation
    from evolvable_store.storage.proposals import Draft, Episode, Proposal, Review, Spending
    from evolvable_store.storage.protocol import ChannelState, MoveNote, ReleasePolicy
    from evolvable_store.storage.release_channel import ChannelEntry, ChannelMove, Placement


class Evidence(Protocol):
    """Uses, reported outcomes and attempts. Rows are only added."""

    def add_use(self, use: Use) -> None:
        """Keep a use, and that the server saw its session."""

    def add_first_use(self, use: Use) -> bool:
        """Keep a use unless its session has one of that resource already; return whether it was kept."""

    def served(self, resource: int, version: int, principal: str, session: str | None, connection: str | None) -> bool:
        """Return whether this principal was served the version in this session, or over this connection."""

    def used_in(self, session: str, resources: Iterable[int]) -> set[int]:
        """Return those of `resources` that a session has loaded."""

    def use(self, identity: str) -> Use:
        """Return the use with this id. Raises NoSuchUse."""

    def add_outcome(self, told: ReportedOutcome) -> None:
        """Keep an outcome."""

    def regraded(self, *, unsaid: bool = False) -> list[UngradedEvidence]:
        """Return what older evidence was worth before it was graded. unsaid: only if nobody was told yet."""

    def mark_regrading_reported(self) -> None:
        """Note that a person was told what fell."""

    def tally(self, resource: int) -> Tally:
        """Return the counts of one resource."""

    def tallies(self, resources: Iterable[int]) -> dict[int, Tally]:
        """Return the counts of those of `resources` that have any."""

    def list_attempts(self, resources: Iterable[int] | None = None, *, versions: bool = False) -> list[Attempt]:
        """Return the attempts of these resources, by default of all, in the order of their time.

        versions: one session that used two versions of a resource is two attempts, one of each.
        """

    def count_successes(self, resources: Iterable[int]) -> dict[int, SuccessCounts]:
        """Return the proof of those of these resources that have any."""

    def session_connections(self, sessions: Iterable[str]) -> set[str]:
        """Return the connections over which the server saw these sessions."""

    def count_impressions(self, since: str) -> dict[int, ImpressionCount]:
        """Return by resource how often it was shown to agents; since: ISO 8601 in UTC."""

    def baseline_successes(self) -> SuccessCounts:
        """Return how the sessions that the server saw ended, as far as is known, in which no resource was loaded."""

    def export_rows(self, table: str, columns: Sequence[str]) -> list[tuple[Ref | None, tuple[Any, ...]]]:
        """Return these columns of every row of a table, each with the ref that it is about, in a stable order.

        The ref is None in the table of sessions, whose rows are about no resource.
        """

    def import_rows(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Add rows of another library to these tables, unless they are here already."""


class Observations(Protocol):
    """Usage observed in transcripts, and impressions."""

    def take(
        self,
        taken: IngestedSession,
        sightings: Iterable[UsageObservation],
        *,
        uses: Sequence[str] = (),
        searches: Sequence[str] = (),
    ) -> bool:
        """Store what a session showed instead of what it showed before; returns whether anything was kept.

        A session that is known as it is, or known longer, is left as it stands. uses, searches: those that the
        session made; where nobody knew whose they are, they become this session's. Its ends count only where the server
        saw the session before.
        """

    def taken(self, session: str) -> IngestedSession | None:
        """Return what was taken in of a session, None when nothing was."""

    def sightings(self, session: str) -> list[UsageObservation]:
        """Return what a session showed, by resource and version."""

    def version_at(self, resource: int, at: str) -> int | None:
        """Return the version that was the head at a moment (ISO 8601 in UTC); None when it was not there."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield (which, what is wrong with it) for the evidence that does not fit the rest of the library."""

    def unknown_sessions(self, sessions: Iterable[ClientSession]) -> list[ClientSession]:
        """Return those of these sessions that are not stored with their connection."""

    def add_impressions(self, rows: Iterable[Impression], sessions: Iterable[ClientSession]) -> None:
        """Store what was shown, each search and resource once, and the sessions that the server saw."""


class Proposals(Protocol):
    """Changes that wait for a decision."""

    def add(
        self,
        at: str,
        ref: Ref,
        base: int,
        files: Files,
        reason: str,
        actor: Actor,
        session: str | None,
        findings: str | None = None,
    ) -> int:
        """Store a proposal with its content and returns its id.

        Where somebody other than a person proposes what waits already (the same content, made from the same version),
        that is counted, and takes the new reason and session.
        """

    def get(self, identity: int) -> Proposal:
        """Return one proposal. Raises NotFound."""

    def waiting(self, limit: int = 100) -> list[Proposal]:
        """Return up to `limit` open proposals, oldest first."""

    def in_state(self, state: str, limit: int) -> list[Proposal]:
        """Return up to `limit` proposals in this state, oldest first of those that wait, else newest first."""

    def approved_in_session(self, session: str) -> list[Proposal]:
        """Return the approved proposals that a session led to."""

    def expire(self, now: str) -> int:
        """Close the open proposals whose time is over; returns how many."""

    def reject(self, identity: int, decision: str) -> bool:
        """Close an open proposal without a change; returns False when somebody else was first."""


class Reviews(Protocol):
    """Reviews of sessions, and the spending on model calls."""

    def get(self, identity: str) -> Review:
        """Return one review. Raises NotFound."""

    def of(self, session: str) -> list[Review]:
        """Return the reviews of a session, the oldest first."""

    def newest(self, limit: int) -> list[Review]:
        """Return the newest reviews, newest first."""

    def begin(self, review: Review, episodes: Iterable[Episode]) -> Review:
        """Store a review with what its session showed, once; returns it as it is kept, however far it has come."""

    def answered(self, identity: str, answer: str) -> None:
        """Store the answer of a review that has none yet."""

    def finish(self, review: Review, now: str, drafts: Sequence[Draft], result: str) -> tuple[list[int], bool]:
        """Store a review's proposals and its result together, once, and forgets its packet.

        Returns the ids of the proposals, and whether it was this call that did it.
        """

    def forget(self, before: str) -> int:
        """Remove reviews that were begun before this moment and never answered; returns how many."""

    def episodes(self, keys: Iterable[str], besides: str, limit: int = 40) -> list[Episode]:
        """Return what other sessions have shown of these keys, newest first."""

    def spent(self, day: str) -> Spending:
        """Return what was spent on a day, what is reserved included."""

    def reserve(self, day: str, review: str, thinker: str, cost: Spending, limit: Spending) -> int | None:
        """Record a call before it is made, if all of the day stays within the limit; returns its id, None if not."""

    def settle(self, reserved: int, cost: Spending) -> None:
        """Replace what was reserved for a call by what it cost."""


class Channel(Protocol):
    """The stable channel."""

    def policy(self) -> ReleasePolicy:
        """Return the policy in force."""

    def held(self) -> list[ChannelEntry]:
        """Return every skill there ever was, by name and scope."""

    def of(self, resource: int) -> ChannelEntry | None:
        """Return one skill, None when the resource is none."""

    def place(self, note: MoveNote, stands: Mapping[int, ChannelState]) -> int | None:
        """Make one move that puts these skills there, all of them or none, and returns its id.

        None: they were there already. `note.operation` is replaced by the newest one. Raises as every write.
        """

    def set_policy(self, note: MoveNote, policy: ReleasePolicy) -> int | None:
        """Return the id of the move that sets the policy, None when it was in force.

        LIVE: every skill that nobody withdrew is placed at its head by the same move.
        """

    def last(self) -> int:
        """Return the number of the newest move, 0 when there is none."""

    def move(self, identity: int) -> ChannelMove:
        """Return one move. Raises NotFound."""

    def moves(self, limit: int, below: int | None = None) -> list[ChannelMove]:
        """Return up to `limit` moves with numbers under `below`, newest first."""

    def placings(self, moves: Sequence[int]) -> list[Placement]:
        """Return what these moves placed, by move, name and scope."""

    def history(self, resource: int) -> list[tuple[int, int | None]]:
        """Return the moves that placed a resource, newest first, each with the version where it put it."""

    def placements_after(self, move: int, limit: int) -> list[Placement]:
        """Return what moves with numbers over `move` placed, oldest first: up to `limit` moves, each whole."""

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yield (which, what is wrong with it) for every move and placing that does not fit the rest of the library."""


class Bindings(Protocol):
    """Watched folders, and the version that each directory in them holds."""

    def folders(self) -> list[WatchedFolder]:
        """Return all folders, in the order they were added."""

    def add_folder(self, path: Path, scope: str, kind: Kind) -> WatchedFolder:
        """Return the folder, added if it was not there. Raises AlreadyExists for one inside or around another."""

    def folder(self, path: Path) -> WatchedFolder:
        """Return the folder at this path. Raises NotFound."""

    def drop_folder(self, folder: WatchedFolder) -> None:
        """Delete a folder; neither its files nor its resources are touched."""

    def of_folder(self, folder: WatchedFolder) -> dict[str, Binding]:
        """Return the bindings of a folder by directory."""

    def of_directories(self, folder: WatchedFolder, directories: Iterable[str]) -> dict[str, Binding]:
        """Return the bindings of some directories of a folder, by directory."""

    def of_resources(self, resources: Iterable[int]) -> list[Binding]:
        """Return every binding of these resources."""

    def conflicts(self) -> list[Binding]:
        """Return the bindings with an open conflict."""

    def bind(self, bindings: Iterable[Binding]) -> None:
        """Store these bindings, each instead of the one its directory had."""

    def unbind(self, binding: Binding) -> None:
        """Delete one binding."""


class HeldDirectories(Protocol):
    """Directories whose content waits as a proposal."""

    def of_folder(self, folder: WatchedFolder) -> dict[str, HeldDirectory]:
        """Return what is held in a folder, by directory."""

    def all(self) -> list[HeldDirectory]:
        """Return everything that is held."""

    def hold(self, folder: WatchedFolder, directory: str, tree: str, draft: Draft, at: str, identity: Identity) -> int:
        """Hold the content of a directory as a proposal, instead of what was held there; return the proposal's id."""

    def release(self, folder: WatchedFolder, directories: Sequence[str]) -> None:
        """Hold these directories no longer: their files changed, or are what the library has."""


class Attestations(Protocol):
    """Contents that a person vouches for, and the authors of contents."""

    def vouch(
        self,
        contents: Iterable[tuple[int, str]],
        at: str,
        identity: Identity,
        signer: Signer | None = None,
        folder: str = "",
    ) -> None:
        """Note that a person vouches for these contents (resource, tree).

        signer: where approvals are locked. folder: where the person trusts a folder that holds them; the decision
        counts while that folder is one of the backend's `trusted_folders`.
        """

    def withdraw(self, contents: Iterable[tuple[int, str]], at: str, identity: Identity) -> None:
        """Note that a person no longer vouches for these contents."""

    def of(self, resources: Iterable[int], *, unlisted: bool = False) -> list[Attestation]:
        """Return the decisions on these resources that count, oldest first.

        unlisted: also those on folders that are none of the backend's `trusted_folders`.
        """

    def keep_folder(self, resources: Iterable[int], folder: str) -> None:
        """Note on which folder decisions were made that do not say so."""

    def unlisted(self) -> list[Attestation]:
        """Return the decisions that do not count, because their folder is none of the `trusted_folders`."""

    def attribute(self, versions: Iterable[tuple[int, int]], at: str, identity: Identity) -> None:
        """Note who made these versions (resource, version), learned after they were made; the first note stays."""

    def needs_reread(self) -> bool:
        """Return whether the library has operations of versions before 0.2 and was not re-read since."""

    def note_reread(self, at: str) -> None:
        """Note that the library was re-read."""

    def stamp(self) -> tuple[int, int, int, frozenset[str] | None]:
        """Return what differs when any answer of `untrusted` may differ."""

    def untrusted_resources(self, resources: Sequence[int] | None = None) -> set[int]:
        """Return those of the resources (None: of all) whose newest version is a repository's, or was built on one.

        Not where a person made the same content, or vouches for it.
        """

    def list_authors(self, resources: Iterable[int]) -> dict[int, list[Author]]:
        """Return by resource who made its newest version, newest first, with all who made the same content before."""


class Signatures(Protocol):
    """Signatures of operations under one key."""

    def add_baseline(self, sign: Sign) -> Baseline:
        """Sign that every decision made so far counts, and keep it; an older baseline under this key is replaced."""

    def baseline(self) -> int:
        """Return the newest operation that needs no signature; 0 when no valid baseline says so."""

    def vouched(self, operations: Iterable[int]) -> set[int]:
        """Return those of these operations that count: signed under this key, or not newer than the baseline."""
