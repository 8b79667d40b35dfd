"""Sessions: those that clients wrote down, and one of them with its timeline and its
results here.
"""

from collections.abc import Sequence
from pathlib import Path

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, resource_link, table, tag, when
from evolvable_page.site import PageRequest, PageView, Site
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_server import read_machine
from evolvable_store.errors import NoSuchOperation
from evolvable_tools.sessions import (
    ListedSession,
    Session,
    SessionPage,
    Span,
    list_sessions,
    read_session,
)
from evolvable_tools.verbs import list_waiting

LISTED = 50
"""Sessions that are listed, the newest first."""

# A session may have tens of thousands of pieces, which no browser shows well.
MAX_SPANS = 400
"""Pieces of a timeline."""

MAX_TEXT = 1_200
"""Characters that are shown of a piece."""


def read_sessions(site: Site) -> SessionPage | None:
    """Return the sessions on this machine.

    They are read beside the page, which shows the last reading.
    """
    folders = read_machine(site.services.config.project).transcripts
    taken, foreign = (
        site.library.store.backend.observations.ingested_session,
        site.library.store.backend.transcript_rows.foreign,
    )
    return site.value(
        "sessions", lambda: list_sessions(folders, taken, LISTED, foreign=foreign), site.revision()
    )


def _sessions(site: Site, request: PageRequest) -> PageBody:
    """List the sessions that clients wrote down."""
    found = read_sessions(site)
    if found is None:
        body: Node = h.p["The sessions are being read; this page shows them by itself."]
    elif not found.sessions:
        body = h.p["No client wrote a session here."]
    else:
        heads = ("session", "client", "began", "turns", "imported", "project")
        more = h.p(".none")[f"{found.more:,} more."] if found.more else None
        body = [
            table(
                heads,
                [_session_row(session) for session in found.sessions],
                "Sessions, newest first",
            ),
            more,
        ]
    return PageBody(
        "Sessions", [h.h1["Sessions"], h.div(id="sessions", data_live=True)[body]], "sessions"
    )


def _session_row(session: ListedSession) -> list[Node]:
    return [
        h.a(href=f"/sessions/{quote_part(session.session)}")[one_line(session.session, 40)],
        one_line(session.client, 40),
        when(session.at),
        f"{session.turns:,}",
        tag(session.taken, "good" if session.taken == "yes" else ""),
        one_line(session.project or "", 120),
    ]


def _session(site: Site, request: PageRequest) -> PageBody:
    """Show one session: what it used and led to, and its timeline where its transcript is here."""
    name = str(request.path["session"])
    used, proposed, operations = (
        _draw_used(site, name),
        _draw_proposed(site, name),
        _draw_operations(site, name),
    )
    timeline = _timeline(site, name)
    if not (used or proposed or operations or timeline):
        raise NoSuchOperation("Nothing is known of this session.", "Sessions lists those that are.")
    main = [
        h.h1["Session ", h.code[one_line(name, 80)]],
        _reviews(site, name),
        used,
        proposed,
        operations,
        timeline,
    ]
    return PageBody(f"Session {name}", main, "sessions")


def _draw_used(site: Site, session: str) -> Node:
    seen = site.library.store.backend.observations.sightings(session)
    if not seen:
        return None
    heads = site.library.store.backend.heads_by_id({observation.resource for observation in seen})
    rows = [
        [
            resource_link(
                heads[observation.resource].ref,
                f"{heads[observation.resource].ref}@{observation.version}",
                version=observation.version,
            ),
            "yes" if observation.loaded else "no",
            "yes" if observation.used else "no",
            str(observation.outcome or "unknown"),
            observation.model or "not known",
        ]
        for observation in seen
        if observation.resource in heads
    ]
    return [
        h.h2["What it used"],
        table(("resource", "opened", "used", "outcome", "model"), rows, "Used resources"),
    ]


def _draw_proposed(site: Site, session: str) -> Node:
    proposals = site.library.store.backend.proposals
    waiting = [proposal for proposal in list_waiting(site.library) if proposal.session == session]
    rows = [
        h.li[
            h.a(href=f"/inbox/{proposal.proposal_id}")[f"{proposal.proposal_id}: {proposal.ref}"],
            " waits: ",
            make_visible(proposal.reason),
        ]
        for proposal in waiting
    ] + [
        h.li[
            h.a(href=f"/inbox/{proposal.id}")[f"{proposal.id}: {proposal.ref}"],
            " approved: ",
            make_visible(proposal.reason),
        ]
        for proposal in proposals.approved_in_session(session)
    ]
    return [h.h2["Proposals that came of it"], h.ul[rows]] if rows else None


def _draw_operations(site: Site, session: str) -> Node:
    operations = site.library.store.operations(20, session)
    if not operations:
        return None
    rows = [
        h.li[
            f"Operation {operation.id}, ", when(operation.at), ": ", make_visible(operation.reason)
        ]
        for operation in operations
    ]
    link = h.a(href=f"/operations?session={quote_part(session)}")["Operations of this session"]
    return [h.h2["What it changed"], h.ul[rows], h.p[link]]


def _reviews(site: Site, session: str) -> Node:
    reviews = site.library.store.backend.reviews.of(session)
    if not reviews:
        return h.p(".none")["Not reviewed."]
    return h.p[
        [
            [
                "Review ",
                when(review.at),
                ": ",
                tag(str(review.state)),
                " ",
            ]
            for review in reviews
        ]
    ]


def _timeline(site: Site, session: str) -> Node:
    """Return the messages of a session.

    Its file is one that the list found, never one that an address names.
    """
    session_page = read_sessions(site)
    listed_session = (
        next((each for each in session_page.sessions if each.session == session), None)
        if session_page is not None
        else None
    )
    if listed_session is None:
        waits = "The sessions are being read; reload in a moment." if session_page is None else ""
        return h.p(".none")[waits] if waits else None
    path, redactor = Path(listed_session.path), site.library.redactor()
    key = (listed_session.path, listed_session.size)
    read: Session | None = site.value(
        f"session {key}", lambda: read_session(path, redactor=redactor), key
    )
    if read is None:
        return h.div(id="timeline", data_live=True)[
            h.p["The transcript is being read; it appears by itself."]
        ]
    spans = read.spans[:MAX_SPANS]
    cut = (
        h.p(".none")[f"The first {MAX_SPANS} of {len(read.spans)} pieces."]
        if len(read.spans) > MAX_SPANS
        else None
    )
    return h.div(id="timeline", data_live=True)[
        h.h2["Timeline"], h.ol(".timeline")[_pieces(spans)], cut
    ]


def _pieces(spans: Sequence[Span]) -> list[Node]:
    pieces: list[Node] = []
    turn = -1
    for span in spans:
        anchor, turn = (f"turn-{span.turn}" if span.turn != turn else None), span.turn
        text = make_visible(span.text)
        cut = "…" if len(text) > MAX_TEXT else ""
        what = f"{span.role}, {span.origin}" + (f", {one_line(span.tool, 60)}" if span.tool else "")
        pieces.append(
            h.li(id=anchor, class_="bad" if span.is_error else None)[
                h.span(".none")[f"turn {span.turn} · {what} "],
                h.div(".said")[text[:MAX_TEXT] + cut],
            ]
        )
    return pieces


VIEWS = (PageView("/sessions", _sessions), PageView("/sessions/{session:path}", _session))

ACTIONS = ()
