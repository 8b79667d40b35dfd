"""Sessions: those that clients wrote down, and one of them with its timeline and its results here."""

from collections.abc import Sequence
from pathlib import Path

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, resource_link, table, tag, when
from evolvable_page.site import PageRequest, PageView, Site
from evolvable_page.text import make_visible, one_line, quoted
from evolvable_server import read_machine
from evolvable_store.errors import NoSuchOperation
from evolvable_tools.sessions import ListedSession, Session, SessionPage, Span, list_sessions, read_session
from evolvable_tools.verbs import list_waiting

LISTED = 50
"""Sessions that are listed, the newest first."""

# A session may have tens of thousands of pieces, which no browser shows well.
MAX_SPANS = 400
"""Pieces of a timeline."""

MAX_TEXT = 1_200
"""Characters that are shown of a piece."""


def read_sessions(site: Site) -> SessionPage | None:
    """Return the sessions on this machine; they are read beside the page, which shows the last reading."""
    folders = read_machine(site.services.config.project).transcripts
    taken, foreign = site.library.store.backend.observations.taken, site.library.store.backend.transcript_rows.foreign
    return site.value("sessions", lambda: list_sessions(folders, taken, LISTED, foreign=foreign), site.revision())


def _sessions(site: Site, asked: PageRequest) -> PageBody:
    """List the sessions that clients wrote down."""
    found = read_sessions(site)
    if found is None:
        body: Node = h.p["The sessions are being read; this page shows them by itself."]
    elif not found.sessions:
        body = h.p["No client wrote a session here."]
    else:
        heads = ("session", "client", "began", "turns", "imported", "project")
        more = h.p(".none")[f"{found.more:,} more."] if found.more else None
        body = [table(heads, [_session_row(one) for one in found.sessions], "Sessions, newest first"), more]
    return PageBody("Sessions", [h.h1["Sessions"], h.div(id="sessions", data_live=True)[body]], "sessions")


def _session_row(one: ListedSession) -> list[Node]:
    return [
        h.a(href=f"/sessions/{quoted(one.session)}")[one_line(one.session, 40)],
        one_line(one.client, 40),
        when(one.at),
        f"{one.turns:,}",
        tag(one.taken, "good" if one.taken == "yes" else ""),
        one_line(one.project or "", 120),
    ]


def _session(site: Site, asked: PageRequest) -> PageBody:
    """Show one session: what it used and led to, and its timeline where its transcript is here."""
    name = str(asked.path["session"])
    used, proposed, made = _used(site, name), _proposed(site, name), _made(site, name)
    timeline = _timeline(site, name)
    if not (used or proposed or made or timeline):
        raise NoSuchOperation("Nothing is known of this session.", "Sessions lists those that are.")
    main = [h.h1["Session ", h.code[one_line(name, 80)]], _reviews(site, name), used, proposed, made, timeline]
    return PageBody(f"Session {name}", main, "sessions")


def _used(site: Site, session: str) -> Node:
    seen = site.library.store.backend.observations.sightings(session)
    if not seen:
        return None
    heads = site.library.store.backend.heads_by_id({one.resource for one in seen})
    rows = [
        [
            resource_link(heads[one.resource].ref, f"{heads[one.resource].ref}@{one.version}", version=one.version),
            "yes" if one.loaded else "no",
            "yes" if one.used else "no",
            str(one.outcome or "unknown"),
            one.model or "not known",
        ]
        for one in seen
        if one.resource in heads
    ]
    return [h.h2["What it used"], table(("resource", "opened", "used", "outcome", "model"), rows, "Used resources")]


def _proposed(site: Site, session: str) -> Node:
    proposals = site.library.store.backend.proposals
    waiting = [one for one in list_waiting(site.library) if one.session == session]
    rows = [
        h.li[
            h.a(href=f"/inbox/{one.proposal_id}")[f"{one.proposal_id}: {one.ref}"], " waits: ", make_visible(one.reason)
        ]
        for one in waiting
    ] + [
        h.li[h.a(href=f"/inbox/{one.id}")[f"{one.id}: {one.ref}"], " approved: ", make_visible(one.reason)]
        for one in proposals.approved_in_session(session)
    ]
    return [h.h2["Proposals that came of it"], h.ul[rows]] if rows else None


def _made(site: Site, session: str) -> Node:
    made = site.library.store.operations(20, session)
    if not made:
        return None
    rows = [h.li[f"Operation {one.id}, ", when(one.at), ": ", make_visible(one.reason)] for one in made]
    link = h.a(href=f"/operations?session={quoted(session)}")["Operations of this session"]
    return [h.h2["What it changed"], h.ul[rows], h.p[link]]


def _reviews(site: Site, session: str) -> Node:
    reviews = site.library.store.backend.reviews.of(session)
    if not reviews:
        return h.p(".none")["Not reviewed."]
    return h.p[[["Review ", when(one.at), ": ", tag(str(one.state)), " "] for one in reviews]]


def _timeline(site: Site, session: str) -> Node:
    """Return the messages of a session. Its file is one that the list found, never one that an address names."""
    listed = read_sessions(site)
    one = next((each for each in listed.sessions if each.session == session), None) if listed is not None else None
    if one is None:
        waits = "The sessions are being read; reload in a moment." if listed is None else ""
        return h.p(".none")[waits] if waits else None
    path, redactor = Path(one.path), site.library.redactor()
    key = (one.path, one.size)
    read: Session | None = site.value(f"session {key}", lambda: read_session(path, redactor=redactor), key)
    if read is None:
        return h.div(id="timeline", data_live=True)[h.p["The transcript is being read; it appears by itself."]]
    spans = read.spans[:MAX_SPANS]
    cut = h.p(".none")[f"The first {MAX_SPANS} of {len(read.spans)} pieces."] if len(read.spans) > MAX_SPANS else None
    return h.div(id="timeline", data_live=True)[h.h2["Timeline"], h.ol(".timeline")[_pieces(spans)], cut]


def _pieces(spans: Sequence[Span]) -> list[Node]:
    shown: list[Node] = []
    turn = -1
    for span in spans:
        anchor, turn = (f"turn-{span.turn}" if span.turn != turn else None), span.turn
        text = make_visible(span.text)
        cut = "…" if len(text) > MAX_TEXT else ""
        what = f"{span.role}, {span.origin}" + (f", {one_line(span.tool, 60)}" if span.tool else "")
        shown.append(
            h.li(id=anchor, class_="bad" if span.is_error else None)[
                h.span(".none")[f"turn {span.turn} · {what} "], h.div(".said")[text[:MAX_TEXT] + cut]
            ]
        )
    return shown


VIEWS = (PageView("/sessions", _sessions), PageView("/sessions/{session:path}", _session))

ACTIONS = ()
