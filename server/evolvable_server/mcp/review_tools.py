"""The tools around finished sessions: review one, submit the answer of a review, decide about proposals.

A person decides. An agent that calls review_inbox to approve or reject has the person at the client asked first; where
nobody can be asked, the error says how a person does it. Over HTTP a token with the permission to approve decides.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from evolvable_server.mcp.call import CallSessions, caller_of, decider_of
from evolvable_server.mcp.elicitation import DECIDING, asked_about
from evolvable_server.mcp.resources import redact_proposals
from evolvable_server.mcp.sampling import sampling_model
from evolvable_server.mcp.tools import Number, one_of
from evolvable_store.errors import InvalidArgument
from evolvable_store.operation import Actor
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.review import Compressed, Reviewed, context_compression, service
from evolvable_tools.verbs import proposal_inbox
from evolvable_tools.verbs.proposal_inbox import WaitingProposal, as_read

if TYPE_CHECKING:
    from evolvable_tools.review.review_config import ReviewSettings

ACTIONS = ("list", "show", *DECIDING)

SettingsFactory = Callable[[], "ReviewSettings"]


@dataclass(frozen=True)
class InboxAnswer:
    """What review_inbox did: the proposals that were asked for, or what became of those decided on."""

    proposals: list[WaitingProposal] = field(default_factory=list)
    decided: list[proposal_inbox.Decided] = field(default_factory=list)


def _seen() -> dict[int, int | None] | None:
    """Return by proposal the version that the person at the client was shown it with, None where nobody was asked."""
    shown = asked_about.get()
    return {int(identity): version for identity, version in json.loads(shown).items()} if shown else None


class ReviewTools:
    """The tools over one library, for one caller."""

    def __init__(self, library: Library, caller: Caller, sessions: CallSessions, settings: SettingsFactory) -> None:
        self._library, self._caller, self._sessions, self._settings = library, caller, sessions, settings

    def review_session(
        self,
        ctx: Context,
        transcript_path: Annotated[str | None, Field(description="the transcript's file; not over HTTP")] = None,
        transcript: Annotated[
            list[dict[str, Any]] | None, Field(description="instead: the messages, [{role, content}, ...]")
        ] = None,
        session: Annotated[str | None, Field(description="instead: the session's id, as its client names it")] = None,
        mode: Annotated[str, one_of(service.MODES, "auto (default), or handoff: think about it yourself")] = "auto",
    ) -> Reviewed:
        """Learn from a finished session: returns proposals that wait for a person, or state=begun and a task for you.
        Then follow packet.instructions on packet.data and call submit_review. Without arguments it goes on with a
        review that waits. Proposing nothing is normal."""
        settings = self._settings()
        if settings.on and settings.thinker is None and mode == "auto":
            settings = replace(settings, thinker=sampling_model(ctx))
        return service.review_session(
            self._library,
            self._who(ctx),
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
            list[dict[str, Any]],
            Field(description="[{kind, claim, evidence: [{span, quote}]...}], see packet.answer_schema; or []"),
        ],
        ctx: Context,
        why_none: Annotated[str, Field(description="with no candidates: what was missing", max_length=500)] = "",
    ) -> Reviewed:
        """Hand in what you think should be learned from a session. Each candidate is checked by rules and waits
        as a proposal for a person, or is refused with the reason. Quotes are verbatim from the evidence."""
        who, settings = self._who(ctx), self._settings()
        return service.submit_review(self._library, who, settings, review_id, candidates, why_none)

    def review_inbox(
        self,
        ctx: Context,
        action: Annotated[str, one_of(ACTIONS, "list (default), show, approve or reject")] = "list",
        proposal_id: Annotated[Number | None, Field(description="the proposal", ge=1)] = None,
        proposal_ids: Annotated[list[Number] | None, Field(description="instead: several at once")] = None,
        reason: Annotated[str, Field(description="why; kept", max_length=2000)] = "",
        files: Annotated[
            dict[str, str | None] | None,
            Field(description="with approve: path -> whole text as the person wants it; null deletes the file"),
        ] = None,
    ) -> InboxAnswer:
        """See the changes that wait for a person: with diff, evidence and findings. approve and reject ask the person
        at the client first; decide nothing yourself."""
        ids = proposal_ids or ([proposal_id] if proposal_id is not None else [])
        if action == "list" and not ids:
            return InboxAnswer(as_read(proposal_inbox.list_waiting(self._library), Actor.AGENT))
        if action not in ACTIONS:
            raise InvalidArgument(f"{ascii(action[:40])} is no action.", "It is list, show, approve or reject.")
        if not ids:
            raise InvalidArgument(f"{action} needs the proposal_id.", "review_inbox without arguments lists them.")
        if action in ("list", "show"):
            shown = as_read([proposal_inbox.show_proposal(self._library, identity) for identity in ids], Actor.AGENT)
            return InboxAnswer(redact_proposals(self._library, self._caller, shown))
        decider = decider_of(self._who(ctx), ctx.request_context.request)
        if action == "reject":
            rejected = [proposal_inbox.reject(self._library, identity, reason, decider) for identity in ids]
            return InboxAnswer(decided=rejected)
        how, seen = "approved in the client", _seen()
        decided = proposal_inbox.approve_together(self._library, decider, ids, reason, how, files, seen=seen)
        return InboxAnswer(decided=decided)

    def compress_history(
        self,
        messages: Annotated[list[dict[str, Any]], Field(description="the whole history, [{role, content}, ...]")],
        keep: Annotated[Number, Field(description="messages at the end that stay, 1 to 200", ge=1, le=200)] = 12,
        max_tokens: Annotated[Number, Field(description="a shorter history stays as it is", ge=0)] = 64_000,
    ) -> Compressed:
        """Make a long history short without a model: a summary of nine parts, an index of the skills, files, images and
        addresses that were named, and the last messages as they are. Summary and index have at most a quarter of
        max_tokens; `older` is the URI of a resource with all names when they have no room."""
        files = context_compression.AssetFiles(self._library.store.home / context_compression.FOLDER)
        return context_compression.compress_history(messages, keep=keep, max_tokens=max_tokens, files=files)

    def _who(self, ctx: Context) -> Caller:
        return caller_of(self._caller, ctx, self._sessions)
