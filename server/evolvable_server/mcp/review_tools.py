"""The tools around finished sessions: review one, submit the answer of a review, decide about
proposals.

A person decides. An agent that calls review_inbox to approve or reject has the person at the client
asked first; where nobody can be asked, the error says how a person does it. Over HTTP a token with
the permission to approve decides.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field, WithJsonSchema

from evolvable_server.mcp.argument_forms import MESSAGES, FileMap
from evolvable_server.mcp.call import CallSessions, caller_of, decider_of
from evolvable_server.mcp.elicitation import DECIDING, asked_about
from evolvable_server.mcp.resources import redact_proposals
from evolvable_server.mcp.sampling import sampling_model
from evolvable_server.mcp.tools import Number, one_of
from evolvable_server.plugins import waiting_runs
from evolvable_store import Actor
from evolvable_store.errors import InvalidArgument
from evolvable_tools import Caller, Library, answer_size, review, verbs
from evolvable_tools.review import CANDIDATE, Compressed, Reviewed
from evolvable_tools.verbs import CONTEXT, WaitingProposal, as_read

if TYPE_CHECKING:
    from evolvable_tools.review import ReviewSettings

ACTIONS = ("list", "show", *DECIDING)


MOST_COMPARED = 7
"""Of the proposals of a list with differences: more have no room."""

LISTED_BYTES = 3_000
"""Of a list with differences: three ordinary ones have room."""


SHORT_CONTEXT = 1
"""Equal lines around a change where several proposals are shown."""


def _size(proposals: list[WaitingProposal]) -> int:
    """Return how many bytes an answer with these proposals has."""
    fields = [
        {name: value for name, value in asdict(proposal).items() if value} for proposal in proposals
    ]
    return answer_size({"proposals": fields})


def _names_only(schema: Any) -> Any:
    """Return a schema with the names and types of its fields alone: the task of a review says the
    rest.
    """
    if isinstance(schema, dict):
        return {
            name: _names_only(part)
            for name, part in schema.items()
            if name not in ("enum", "required")
        }
    return schema


CANDIDATES = WithJsonSchema({"type": "array", "items": _names_only(CANDIDATE)})

SettingsFactory = Callable[[], "ReviewSettings"]


@dataclass(frozen=True)
class WaitingRunAnswer:
    """A run that waits for a person."""

    run: str
    text: str
    begin: str


@dataclass(frozen=True)
class InboxAnswer:
    """What review_inbox did: the proposals that were asked for, or what became of those
    decided on.

    runs: with list, those that an agent asked for and a person begins; what begins one asks the
    person first.
    """

    proposals: list[WaitingProposal] = field(default_factory=list)
    decided: list[verbs.Decided] = field(default_factory=list)
    runs: list[WaitingRunAnswer] = field(default_factory=list)


def _seen_versions() -> dict[int, int | None] | None:
    """Return by proposal the version that the person at the client was shown it with, None where
    nobody was asked.
    """
    state = asked_about.get()
    return (
        {int(identity): version for identity, version in json.loads(state).items()}
        if state
        else None
    )


class ReviewTools:
    """The tools over one library, for one caller."""

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, settings: SettingsFactory
    ) -> None:
        self._library, self._caller, self._sessions, self._settings = (
            library,
            caller,
            sessions,
            settings,
        )

    def review_session(
        self,
        ctx: Context,
        transcript_path: Annotated[
            str | None, Field(description="the transcript's file; not over HTTP")
        ] = None,
        transcript: Annotated[
            list[dict[str, Any]] | None, MESSAGES, Field(description="instead: the messages")
        ] = None,
        session: Annotated[
            str | None, Field(description="instead: the session's id, as its client names it")
        ] = None,
        mode: Annotated[
            str, one_of(review.MODES, "auto (default), or handoff: think about it yourself")
        ] = "auto",
    ) -> Reviewed:
        """Learn from a finished session, after long or corrected work. Returns proposals that wait
        for a person, or state=begun: then follow packet.instructions on packet.data and call
        submit_review. Without arguments it goes on with a review that waits.
        """
        settings = self._settings()
        # No reviewer is configured: the model of the client is asked, where the client lends it.
        if settings.on and settings.reviewer_model is None and mode == "auto":
            settings = replace(settings, reviewer_model=sampling_model(ctx))
        return review.review_session(
            self._library,
            self._find_caller(ctx),
            settings,
            transcript_path=Path(transcript_path) if transcript_path else None,
            transcript=transcript,
            session=session,
            mode=mode,
        )

    def submit_review(
        self,
        review_id: Annotated[str, Field(description="from review_session")],
        candidates: Annotated[
            list[dict[str, Any]], CANDIDATES, Field(description="see packet.answer_schema; or []")
        ],
        ctx: Context,
        why_none: Annotated[
            str, Field(description="with no candidates: what was missing", max_length=500)
        ] = "",
    ) -> Reviewed:
        """Answer the task of review_session: what should be learned, or nothing. Each candidate
        waits for a person, or is refused with the reason. Quotes are verbatim.
        """
        caller, settings = self._find_caller(ctx), self._settings()
        return review.submit_review(
            self._library, caller, settings, review_id, candidates, why_none
        )

    def review_inbox(
        self,
        ctx: Context,
        action: Annotated[str, one_of(ACTIONS, "list (default), show, approve or reject")] = "list",
        proposal_id: Annotated[Number | None, Field(description="the proposal", ge=1)] = None,
        proposal_ids: Annotated[
            list[Number] | None, Field(description="instead: several at once")
        ] = None,
        reason: Annotated[str, Field(description="why; kept", max_length=2000)] = "",
        files: Annotated[
            FileMap,
            Field(description="with approve: the person's own whole texts; null deletes the file"),
        ] = None,
    ) -> InboxAnswer:
        """See the changes that wait for the user's decision, with their differences. approve and
        reject ask the person at the client first; decide nothing yourself.
        """
        ids = proposal_ids or ([proposal_id] if proposal_id is not None else [])
        if action == "list" and not ids:
            runs = [
                WaitingRunAnswer(
                    run.run, run.text, f"evolve_continue, or the person: {run.command}"
                )
                for run in waiting_runs(self._library)
            ]
            return InboxAnswer(self._list_waiting(), runs=runs)
        if action not in ACTIONS:
            raise InvalidArgument(
                f"{ascii(action[:40])} is no action.", "It is list, show, approve or reject."
            )
        if not ids:
            raise InvalidArgument(
                f"{action} needs the proposal_id.", "review_inbox without arguments lists them."
            )
        if action in ("list", "show"):
            # Several share the room of one answer.
            context = CONTEXT if len(ids) == 1 else SHORT_CONTEXT
            proposals = [
                verbs.show_proposal(self._library, identity, context=context) for identity in ids
            ]
            return InboxAnswer(self._as_read(proposals))
        decider = decider_of(self._find_caller(ctx), ctx.request_context.request)
        if action == "reject":
            rejected = [verbs.reject(self._library, identity, reason, decider) for identity in ids]
            return InboxAnswer(decided=rejected)
        how, seen = "approved in the client", _seen_versions()
        decided = verbs.approve_together(self._library, decider, ids, reason, how, files, seen=seen)
        return InboxAnswer(decided=decided)

    def _list_waiting(self) -> list[WaitingProposal]:
        """Return what waits, oldest first; with differences as far as the answer has room, before
        their evidence.
        """
        waiting = verbs.list_waiting(self._library)
        # So many leave no room for a difference.
        if len(waiting) > MOST_COMPARED:
            return self._as_read(waiting)
        whole = [
            verbs.show_proposal(self._library, proposal.proposal_id, context=SHORT_CONTEXT)
            for proposal in waiting
        ]
        # First with all that belongs to them, then without their evidence.
        for complete in (whole, [replace(proposal, grounds=None) for proposal in whole]):
            if _size(readable := self._as_read(complete)) <= LISTED_BYTES:
                return readable
        readable = self._as_read(waiting)
        # There is no room for all: differences are added one by one while they fit.
        for at, proposal in enumerate(whole):
            more = [*waiting[:at], proposal, *waiting[at + 1 :]]
            if _size(read := self._as_read(more)) <= LISTED_BYTES:
                waiting, readable = more, read
        return readable

    def _as_read(self, proposals: list[WaitingProposal]) -> list[WaitingProposal]:
        """Return proposals as the client's agent reads them.

        The first with marks explains those of all.
        """
        read = redact_proposals(self._library, self._caller, as_read(proposals, Actor.AGENT))
        first = next((at for at, proposal in enumerate(read) if proposal.notice), 0)
        return [
            replace(proposal, notice="") if at > first else proposal
            for at, proposal in enumerate(read)
        ]

    def compress_history(
        self,
        messages: Annotated[list[dict[str, Any]], MESSAGES, Field(description="the whole history")],
        keep: Annotated[
            Number, Field(description="messages at the end that stay, 1 to 200", ge=1, le=200)
        ] = 12,
        max_tokens: Annotated[
            Number, Field(description="a shorter history stays as it is", ge=0)
        ] = 64_000,
    ) -> Compressed:
        """Shorten a long conversation without a model: returns a summary, an index of the skills,
        files and addresses that it names, and its last messages.
        """
        files = review.AssetFiles(self._library.store.home / review.FOLDER)
        return review.compress_history(messages, keep=keep, max_tokens=max_tokens, files=files)

    def _find_caller(self, ctx: Context) -> Caller:
        return caller_of(self._caller, ctx, self._sessions)
