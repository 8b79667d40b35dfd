"""A resource: its document and files, its history as a lane, the difference of two versions, restore and remove."""

from collections.abc import Sequence
from urllib.parse import unquote

import htpy as h
from htpy import Element, Node

from evolvable_page.decision_notes import operation_note
from evolvable_page.diff_view import draw_diff
from evolvable_page.layout import (
    PageBody,
    author_tag,
    form,
    passphrase_field,
    resource_address,
    resource_link,
    shape,
    share_bar,
    svg,
    swapping,
    table,
    tag,
    when,
)
from evolvable_page.library_catalog import picked
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, render_markdown
from evolvable_store import Actor, Head
from evolvable_store.resource import Kind, Ref
from evolvable_store.storage import APPROVED, OPEN, Proposal
from evolvable_tools import NOBODYS, authorships
from evolvable_tools.outcomes import ResourceStats, stats, verdict_words
from evolvable_tools.verbs import (
    History,
    Loaded,
    PastVersion,
    Updated,
    get_resource,
    remove_resource,
    remove_together,
    resource_history,
    restore_resource,
)

VERSIONS = 30
"""Versions in the lane and in the table of one page."""

LETTERS = {
    "you": "Y",
    "agent": "A",
    "member": "M",
    "repository": "G",
    "review": "R",
    "evolution": "E",
    "import": "I",
}
"""Author of a version -> its letter in the lane, so that no meaning is in a colour alone."""

STEP, LEFT, MIDDLE = 46, 30, 34


def _resource(site: Site, asked: PageRequest) -> PageBody:
    """Show the newest version of a resource, or the one that is asked for."""
    ref = Ref.parse(str(asked.path["ref"]))
    head = site.library.store.head_or_none(ref, site.caller.scopes) or site.library.store.head(ref, site.caller.scopes)
    version = asked.number("version") or head.latest
    between = (asked.number("from"), asked.number("to"))
    past = resource_history(
        site.library, site.caller, head.ref, from_version=between[0], to_version=between[1], limit=VERSIONS
    )
    proposals = site.library.store.backend.proposals.about(head.ref)
    main = [
        operation_note(site, asked),
        _title(site, head),
        _removed(head),
        _strip(site, head),
        h.section(id="history", data_live=True)[
            h.h2["History"], draw_lane(head.ref, past.versions, proposals), _versions(site, asked, head, past)
        ],
        _difference(past, between) if past.diff is not None else _document(site, asked, head, version),
        _removal(site, asked, head),
    ]
    return PageBody(f"{head.ref}", main, "library", of=f"{head.ref} {version} {between}")


def _title(site: Site, head: Head) -> Node:
    whose = authorships(site.library, [head.id], site.caller).get(head.id, NOBODYS)
    return h.h1[
        str(head.ref),
        " ",
        author_tag(whose.kind, whose.by),
        " ",
        tag("frozen") if head.frozen else None,
        h.span(".none")[f" version {head.latest}"],
    ]


def _removed(head: Head) -> Node:
    if head.version is not None:
        return None
    return h.p(".warning")["It was removed. Its versions are kept; restoring one brings it back."]


def _strip(site: Site, head: Head) -> Node:
    """Return how the resource fares: shown, opened, used, helped; by version and model below."""
    if head.version is None:
        return None
    (line,) = stats(site.library, site.caller, head.ref).resources
    verdicts = {"helps": "good", "harms": "bad", "dead": "doubtful"}
    steps = [("shown", line.shown), ("opened", line.loaded), ("used", line.used)]
    return h.section(aria_label="Health")[
        h.div(".strip")[
            [[h.strong[f"{number:,}"], f" {name} ", h.span(".none")["→"], " "] for name, number in steps],
            "helped ",
            share_bar(line.helped),
            tag(verdict_words(line.verdict), verdicts.get(line.verdict, "")),
            h.span(".none")[line.why],
        ],
        _by_version(line),
    ]


def _by_version(line: ResourceStats) -> Node:
    if not line.versions:
        return None
    rows = [[f"@{part.version}", part.model or "not known", share_bar(part.share)] for part in line.versions]
    heads = ("version", "model", "helped")
    return h.details[h.summary["By version and model"], table(heads, rows, "Helped by version and model")]


def author_of(version: PastVersion) -> str:
    """Return whose a version is, or what acted for the reader where that says more."""
    return str(version.actor) if version.actor in (Actor.REVIEW, Actor.EVOLUTION) else version.author


def draw_lane(ref: Ref, versions: Sequence[PastVersion], proposals: Sequence[Proposal]) -> Node:
    """Return the versions from old to new as a picture; below them what was proposed and not approved."""
    ordered = list(reversed(versions))
    places = {one.version: LEFT + STEP * at for at, one in enumerate(ordered)}
    refused = [one for one in proposals if one.state not in (APPROVED, OPEN) and (one.base in places or not one.base)]
    width = LEFT * 2 + STEP * max(len(ordered) - 1, 1)
    parts: list[Element] = [
        shape("line", x1=str(LEFT), y1=str(MIDDLE), x2=str(width - LEFT), y2=str(MIDDLE)),
        *(_dot(ref, one, places[one.version]) for one in ordered),
    ]
    below: dict[int, int] = {}
    for one in refused[-VERSIONS:]:
        below[one.base] = below.get(one.base, 0) + 1
        if below[one.base] <= 3:
            parts.append(_refused(one, places.get(one.base, LEFT) + STEP // 2, MIDDLE + 6 + 20 * below[one.base]))
    deep = min(max(below.values(), default=0), 3)
    width, height = max(width, 320), MIDDLE + 18 + 20 * deep
    label = f"{len(ordered)} versions, oldest first; {len(refused)} refused proposals"
    used = {author_of(one) for one in ordered}
    key = [[tag(f"{LETTERS.get(name, '?')} {name}"), " "] for name in LETTERS if name in used]
    return h.figure[
        svg(
            viewBox=f"0 0 {width} {height}",
            width=str(width),
            height=str(height),
            role="group",
            aria_label=label,
            class_="lane",
        )[parts],
        h.figcaption(".none")[key, " dashed: proposed and refused"],
    ]


def _dot(ref: Ref, version: PastVersion, x: int) -> Element:
    author = author_of(version)
    said = one_line(f"Version {version.version} by {author}, {version.at[:16]}: {version.reason}", 160)
    return shape("a", href=resource_address(ref, version=version.version))[
        shape("title")[said],
        shape("circle", cx=str(x), cy=str(MIDDLE), r="13", class_=f"dot {author}"),
        shape("text", x=str(x), y=str(MIDDLE + 4), class_="inside")[LETTERS.get(author, "?")],
        shape("text", x=str(x), y=str(MIDDLE - 19), class_="below")[str(version.version)],
    ]


def _refused(proposal: Proposal, x: int, y: int) -> Element:
    said = one_line(f"Proposal {proposal.id} is {proposal.state}: {proposal.reason}", 160)
    return shape("a", href=f"/inbox/{proposal.id}")[
        shape("title")[said], shape("circle", cx=str(x), cy=str(y), r="7", class_="refused")
    ]


def _versions(site: Site, asked: PageRequest, head: Head, past: History) -> Node:
    newest = past.versions[0].version if past.versions else 0
    rows = [
        [
            resource_link(head.ref, f"{one.version}", version=one.version),
            when(one.at),
            author_tag(one.author, one.by),
            make_visible(one.reason),
            ", ".join(make_visible(path) for path in one.files[:6]) + (" and more" if len(one.files) > 6 else ""),
            _version_links(site, asked, head, one),
        ]
        for one in past.versions
    ]
    heads = ("version", "when", "author", "why", "files", "")
    older = h.p(".none")[f"The newest {VERSIONS} of {head.latest} are listed."] if head.latest > VERSIONS else None
    return [_compare(head, past), table(heads, rows, f"Versions, newest first, up to {newest}"), older]


def _version_links(site: Site, asked: PageRequest, head: Head, one: PastVersion) -> Node:
    changed = h.a(
        href=resource_address(head.ref, to=one.version), aria_label=f"what it changed: version {one.version}"
    )["what it changed"]
    if one.version == head.version:
        return changed
    fields = {"ref": str(head.ref), "version": one.version, "expected": head.version or 0}
    button = h.button(type="submit", aria_label=f"Restore version {one.version}")["Restore"]
    lock = passphrase_field(site.passphrase_label if head.kind is Kind.MEMORY else "")
    restore = form(asked.session.csrf, action_path("restore"), lock, button, fields=fields, **swapping())
    return [changed, " ", restore]


def _compare(head: Head, past: History) -> Node:
    numbers = [one.version for one in past.versions]
    if len(numbers) < 2:
        return None
    choices = [
        h.label[
            said,
            " ",
            h.select(name=name)[[h.option(value=str(one), selected=one == chosen)[str(one)] for one in numbers]],
        ]
        for said, name, chosen in (("Compare version", "from", numbers[1]), ("with", "to", numbers[0]))
    ]
    return h.form(".line", action=resource_address(head.ref), method="get")[
        choices, h.button(type="submit")["Show the difference"]
    ]


def _difference(past: History, between: tuple[int | None, int | None]) -> Node:
    new = between[1] or (past.head or 0)
    old = between[0] if between[0] is not None else new - 1
    return h.section[h.h2[f"From version {old} to {new}"], draw_diff(past.diff or "")]


def _document(site: Site, asked: PageRequest, head: Head, version: int) -> Node:
    loaded = get_resource(site.library, site.caller, head.ref, version=version, path=asked.get("path") or None)
    files = [
        h.li[
            resource_link(head.ref, path, version=version, path=path),
            h.span(".none")[f" {size:,} bytes"],
        ]
        for path, size in loaded.files.items()
    ]
    return h.section(".columns")[
        h.div[h.h2[make_visible(loaded.path), h.span(".none")[f" of version {loaded.version}"]], _text(head, loaded)],
        h.div[h.h2["Files"], h.ul[files]],
    ]


def _text(head: Head, loaded: Loaded) -> Node:
    if loaded.text is None:
        return h.p(".none")[f"It is not text ({loaded.size:,} bytes)."]
    if not loaded.path.lower().endswith(".md"):
        return h.pre[make_visible(loaded.text)]
    front, body = _split(loaded.text)

    def place(path: str) -> str | None:
        path = unquote(path).removeprefix("./")
        return resource_address(head.ref, version=loaded.version, path=path) if path in loaded.files else None

    rendered, rest = render_markdown(body, place)
    return [
        h.pre(aria_label="Frontmatter")[make_visible(front)] if front else None,
        h.div(".document")[rendered],
        [h.p(".none")["The rest is too long to be rendered:"], h.pre[rest]] if rest else None,
        h.details[h.summary["The exact text"], h.pre[make_visible(loaded.text)]],
    ]


def _split(text: str) -> tuple[str, str]:
    """Return the frontmatter and the body of a document."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != "---":
        return "", text
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    return ("", text) if end is None else ("\n".join(lines[1:end]), "\n".join(lines[end + 1 :]))


def _removal(site: Site, asked: PageRequest, head: Head) -> Node:
    if head.version is None:
        return None
    fields = {"ref": str(head.ref), "expected": head.version}
    lock = passphrase_field(site.passphrase_label if head.kind is Kind.MEMORY else "")
    button = h.button(".bad", type="submit")[f"Remove {head.ref}"]
    said = "It goes from the library and from the watched folders; its versions stay, and Operations takes it back."
    return h.details[
        h.summary["Remove"], form(asked.session.csrf, action_path("remove"), h.p[said], lock, button, fields=fields)
    ]


def _restore(site: Site, asked: PageRequest) -> str:
    ref, version = Ref.parse(asked.get("ref")), asked.needed("version")
    restored = restore_resource(
        site.library,
        site.signing(asked),
        ref,
        version,
        f"version {version} restored",
        expected_version=asked.number("expected"),
    )
    return _after(ref, restored)


def _remove(site: Site, asked: PageRequest) -> str:
    """Remove a resource, or by one operation those that a form of the library chose."""
    if "pick" in asked.fields or asked.get("back"):
        chosen = dict(picked(asked))
        made = remove_together(site.library, site.signing(asked), chosen, f"{len(chosen)} removed in the local page")
        return f"/library?operation={made.id}"
    ref = Ref.parse(asked.get("ref"))
    removed = remove_resource(
        site.library, site.signing(asked), ref, "removed in the local page", expected_version=asked.number("expected")
    )
    return _after(ref, removed)


def _after(ref: Ref, done: Updated) -> str:
    """Return the address of the resource, with what was done."""
    nothing = 1 if done.operation is None else None
    return resource_address(ref, operation=done.operation, nothing=nothing)


VIEWS = (PageView("/resource/{ref:path}", _resource),)

ACTIONS = (PageAction("restore", _restore), PageAction("remove", _remove))
