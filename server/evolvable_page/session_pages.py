"""Sessions: those that clients wrote down, and one of them with its timeline and its results."""

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
    """Return the sessions on this machine as they were last read, None before the first reading.

    They are read in the background.
    """
    folders = read_machine(site.services.config.project).transcripts
    backend = site.library.store.backend
    taken, foreign = backend.observations.ingested_session, backend.transcript_rows.foreign
    return site.value(
        "sessions", lambda: list_sessions(folders, taken, LISTED, foreign=foreign), site.revision()
    )


def _show_sessions(site: Site, request: PageRequest) -> PageBody:
    """List the sessions that clients wrote down."""
    page = read_sessions(site)
    if page is None:
        body: Node = h.p["The sessions are being read; this page shows them by itself."]
    elif not page.sessions:
        body = h.p["No client wrote a session here."]
    else:
        heads = ("session", "client", "began", "turns", "imported", "project")
        more = h.p(".none")[f"{page.more:,} more."] if page.more else None
        rows = [_draw_session_row(session) for session in page.sessions]
        body = [table(heads, rows, "Sessions, newest first"), more]
    live = h.div(id="sessions", data_live=True)[body]
    return PageBody("Sessions", [h.h1["Sessions"], live], "sessions")


def _draw_session_row(session: ListedSession) -> list[Node]:
    return [
        h.a(href=f"/sessions/{quote_part(session.session)}")[one_line(session.session, 40)],
        one_line(session.client, 40),
        when(session.at),
        f"{session.turns:,}",
        tag(session.taken, "good" if session.taken == "yes" else ""),
        one_line(session.project or "", 120),
    ]


def _show_session(site: Site, request: PageRequest) -> PageBody:
    """Show one session: its uses, proposals and operations, and its timeline where there is a
    transcript.
    """
    name = str(request.path["session"])
    used, proposed = _draw_used(site, name), _draw_proposed(site, name)
    operations = _draw_operations(site, name)
    timeline = _draw_timeline(site, name)
    if not (used or proposed or operations or timeline):
        raise NoSuchOperation("Nothing is known of this session.", "Sessions lists those that are.")
    main = [
        h.h1["Session ", h.code[one_line(name, 80)]],
        _draw_reviews(site, name),
        used,
        proposed,
        operations,
        timeline,
    ]
    return PageBody(f"Session {name}", main, "sessions")


def _draw_used(site: Site, session: str) -> Node:
    backend = site.library.store.backend
    sightings = backend.observations.sightings(session)
    if not sightings:
        return None
    heads = backend.heads_by_id({sighting.resource for sighting in sightings})
    rows: list[list[Node]] = []
    for sighting in sightings:
        if sighting.resource in heads:
            ref, version = heads[sighting.resource].ref, sighting.version
            rows.append(
                [
                    resource_link(ref, f"{ref}@{version}", version=version),
                    "yes" if sighting.loaded else "no",
                    "yes" if sighting.used else "no",
                    str(sighting.outcome or "unknown"),
                    sighting.model or "not known",
                ]
            )
    columns = ("resource", "opened", "used", "outcome", "model")
    return [h.h2["What it used"], table(columns, rows, "Used resources")]


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
    ]
    rows += [
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


def _draw_reviews(site: Site, session: str) -> Node:
    reviews = site.library.store.backend.reviews.of(session)
    if not reviews:
        return h.p(".none")["Not reviewed."]
    return h.p[
        [["Review ", when(review.at), ": ", tag(str(review.state)), " "] for review in reviews]
    ]


def _draw_timeline(site: Site, session: str) -> Node:
    """Return the messages of a session.

    Only the list of sessions names its file, never the address of the page.
    """
    page = read_sessions(site)
    if page is None:
        return h.p(".none")["The sessions are being read; reload in a moment."]
    listed_session = next((each for each in page.sessions if each.session == session), None)
    if listed_session is None:
        return None
    path, redactor = Path(listed_session.path), site.library.redactor()
    key = (listed_session.path, listed_session.size)
    read: Session | None = site.value(
        f"session {key}", lambda: read_session(path, redactor=redactor), key
    )
    if read is None:
        return h.div(id="timeline", data_live=True)[
            h.p["The transcript is being read; it appears by itself."]
        ]
    pieces = h.ol(".timeline")[_draw_pieces(read.spans[:MAX_SPANS])]
    bound: Node = None
    if len(read.spans) > MAX_SPANS:
        bound = h.p(".none")[f"The first {MAX_SPANS} of {len(read.spans)} pieces."]
    return h.div(id="timeline", data_live=True)[h.h2["Timeline"], pieces, bound]


def _draw_pieces(spans: Sequence[Span]) -> list[Node]:
    pieces: list[Node] = []
    turn = -1
    for span in spans:
        # The first piece of a turn has the anchor: an id stands once in a page.
        anchor = f"turn-{span.turn}" if span.turn != turn else None
        turn = span.turn
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


VIEWS = (PageView("/sessions", _show_sessions), PageView("/sessions/{session:path}", _show_session))

ACTIONS = ()
