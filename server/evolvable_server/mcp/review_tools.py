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
"""Proposals of a list with differences: of more, an answer has no room for the differences."""

LISTED_BYTES = 3_000
"""Bytes of a list with differences: room for three ordinary proposals."""


SHORT_CONTEXT = 1
"""Unchanged lines around a change where several proposals are shown."""


def _measure_answer(proposals: list[WaitingProposal]) -> int:
    """Return how many bytes an answer with these proposals has."""
    fields = [
        {name: value for name, value in asdict(proposal).items() if value} for proposal in proposals
    ]
    return answer_size({"proposals": fields})


def _keep_names(schema: Any) -> Any:
    """Return a schema with the names and types of its fields alone.

    The task of a review says the rest.
    """
    if isinstance(schema, dict):
        return {
            name: _keep_names(part)
            for name, part in schema.items()
            if name not in ("enum", "required")
        }
    return schema


CANDIDATES = WithJsonSchema({"type": "array", "items": _keep_names(CANDIDATE)})

SettingsFactory = Callable[[], "ReviewSettings"]


@dataclass(frozen=True)
class WaitingRunAnswer:
    """A run that waits for a person."""

    run: str
    text: str
    begin: str


@dataclass(frozen=True)
class InboxAnswer:
    """The answer of review_inbox: the proposals that were asked for, or those that were decided.

    runs: with list, the runs that an agent asked for and a person begins. What begins one asks the
    person first.
    """

    proposals: list[WaitingProposal] = field(default_factory=list)
    decided: list[verbs.Decided] = field(default_factory=list)
    runs: list[WaitingRunAnswer] = field(default_factory=list)


def _read_shown_versions() -> dict[int, int | None] | None:
    """Return the version of each resource that the question showed, by the proposal's id.

    Return None where nobody was asked.
    """
    state = asked_about.get()
    if not state:
        return None
    return {int(identity): version for identity, version in json.loads(state).items()}


class ReviewTools:
    """The tools over one library, for one caller."""

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, settings: SettingsFactory
    ) -> None:
        self._library, self._caller = library, caller
        self._sessions, self._settings = sessions, settings

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
            return InboxAnswer(self._prepare_for_agent(proposals))
        decider = decider_of(self._find_caller(ctx), ctx.request_context.request)
        if action == "reject":
            rejected = [verbs.reject(self._library, identity, reason, decider) for identity in ids]
            return InboxAnswer(decided=rejected)
        how, versions = "approved in the client", _read_shown_versions()
        decided = verbs.approve_together(
            self._library, decider, ids, reason, how, files, seen=versions
        )
        return InboxAnswer(decided=decided)

    def _list_waiting(self) -> list[WaitingProposal]:
        """Return the proposals that wait, oldest first.

        They have differences as far as the answer has room. Evidence is left out before these.
        """
        waiting = verbs.list_waiting(self._library)
        if len(waiting) > MOST_COMPARED:
            return self._prepare_for_agent(waiting)
        whole = [
            verbs.show_proposal(self._library, proposal.proposal_id, context=SHORT_CONTEXT)
            for proposal in waiting
        ]
        without_evidence = [replace(proposal, grounds=None) for proposal in whole]
        for candidate in (whole, without_evidence):
            answer = self._prepare_for_agent(candidate)
            if _measure_answer(answer) <= LISTED_BYTES:
                return answer
        answer = self._prepare_for_agent(waiting)
        # There is no room for all: differences are added one by one while they fit.
        for at, proposal in enumerate(whole):
            candidate = [*waiting[:at], proposal, *waiting[at + 1 :]]
            longer_answer = self._prepare_for_agent(candidate)
            if _measure_answer(longer_answer) <= LISTED_BYTES:
                waiting, answer = candidate, longer_answer
        return answer

    def _prepare_for_agent(self, proposals: list[WaitingProposal]) -> list[WaitingProposal]:
        """Return proposals as the client's agent reads them.

        The notice of the first proposal with marks explains the marks of all.
        """
        redacted = redact_proposals(self._library, self._caller, as_read(proposals, Actor.AGENT))
        first = next((at for at, proposal in enumerate(redacted) if proposal.notice), 0)
        return [
            replace(proposal, notice="") if at > first else proposal
            for at, proposal in enumerate(redacted)
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
