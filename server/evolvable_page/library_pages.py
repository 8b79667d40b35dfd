"""The library as a list, one line a resource, which a person filters and sorts.

Several resources are chosen for one action.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from evolvable_page import elements as h
from evolvable_page import listing_budget
from evolvable_page.decision_notes import operation_note
from evolvable_page.elements import Node
from evolvable_page.layout import (
    PageBody,
    author_tag,
    form,
    resource_address,
    resource_link,
    share_bar,
    table,
    tag,
    when,
)
from evolvable_page.library_catalog import CatalogLine, check_kind, read_catalog
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import one_line, quote_part
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref, check_scope
from evolvable_tools import AuthorKind, format_success
from evolvable_tools.outcomes import ResourceStats, Stats, stats, verdict_words
from evolvable_tools.verbs import list_collections, list_resources

# A list of fifty is read as a whole, and keeps a page below its limit of processor time.
PAGE = 50
"""Resources on a page."""

ADDRESS = "/library"

VIEWS_OF_EVIDENCE = {
    "rated": "By success",
    "helps": "Help",
    "harms": "Harm",
    "dead": "Never opened",
    "unused": "Never used",
}
"""View -> its name; the first page has all."""

SORTS = {"": "name", "used": "most used", "helped": "most helpful", "changed": "last changed"}
"""Order of the list -> its name for a person."""

AUTHORS = {
    AuthorKind.YOU: "yours",
    AuthorKind.AGENT: "agents'",
    AuthorKind.MEMBER: "members'",
    AuthorKind.IMPORT: "imported",
    AuthorKind.REPOSITORY: "of a repository",
}
"""Author -> the name of their resources in the filter."""

FILTERS = ("q", "kind", "author", "scope", "sort")
"""Fields of the address that filter and order the list."""


def _show_library(site: Site, request: PageRequest) -> PageBody:
    """Show one page of the library."""
    view = request.get("view")
    if view == "budget":
        listing = listing_budget.draw_budget(site, request)
    elif view in VIEWS_OF_EVIDENCE:
        listing = _draw_by_evidence(site, view)
    else:
        listing = [_draw_filter(request), _draw_listing(site, request)]
    title = h.div(".head")[h.h1["Library"], _draw_views(view)]
    main = [operation_note(site, request), title, listing]
    return PageBody("Library", main, "library", of=f"library {view}")


def _draw_views(chosen: str) -> Node:
    views = {"": "All", **VIEWS_OF_EVIDENCE, "budget": "Listed by Claude Code"}
    links = [
        h.a(
            href=f"{ADDRESS}?view={name}" if name else ADDRESS,
            aria_current="page" if name == chosen else None,
        )[title]
        for name, title in views.items()
    ]
    return h.nav(".chips", aria_label="Views")[links]


def _draw_filter(request: PageRequest) -> Node:
    """Return the field that filters as one types, by itself with JavaScript and by its button
    without.
    """
    typed: dict[str, Any] = {
        "hx-get": ADDRESS,
        "hx-trigger": "input delay:150ms",
        "hx-target": "#listing",
        "hx-select": "#listing",
        "hx-swap": "outerHTML",
        "hx-replace-url": "true",
    }
    hidden = [
        h.input(type="hidden", name=name, value=request.get(name))
        for name in FILTERS[1:]
        if request.get(name)
    ]
    return h.form(".line", method="get", action=ADDRESS, role="search", **typed)[
        h.input(
            type="search",
            name="q",
            value=request.get("q"),
            maxlength="200",
            aria_label="Words of the name or the description",
            placeholder="Filter by words",
            autocomplete="off",
        ),
        hidden,
        h.noscript[h.button(type="submit")["Filter"]],
    ]


def _make_address(request: PageRequest, **changed: str) -> str:
    """Return the address of the list as it is filtered now, with some of it changed."""
    fields = {name: request.get(name) for name in FILTERS} | changed
    query = "&".join(f"{name}={quote_part(value)}" for name, value in fields.items() if value)
    return f"{ADDRESS}?{query}" if query else ADDRESS


def _draw_listing(site: Site, request: PageRequest) -> Node:
    """Return the chips, the order, and the list that they lead to."""
    return h.div(id="listing", data_live=True)[
        _draw_chips(site, request), _draw_lines(site, request)
    ]


def _draw_chips(site: Site, request: PageRequest) -> Node:
    """Return the filters of the list as chips; a chosen chip leads back to the list without it."""
    scopes = list(dict.fromkeys(site.caller.scopes))
    groups = [
        ("kind", "Kind", {kind.value: kind.value for kind in Kind}),
        ("author", "Whose", {author.value: words for author, words in AUTHORS.items()}),
    ]
    if len(scopes) > 1:
        groups.append(("scope", "Scope", {scope: scope for scope in scopes}))
    chips = [
        [
            h.span(".none")[label],
            [_draw_chip(request, name, value, title) for value, title in values.items()],
        ]
        for name, label, values in groups
    ]
    orders = [
        h.a(
            href=_make_address(request, sort=name),
            aria_current="true" if request.get("sort") == name else None,
        )[title]
        for name, title in SORTS.items()
    ]
    return [
        h.nav(".chips", aria_label="Filters")[chips],
        h.nav(".chips.sorts", aria_label="Order")[h.span(".none")["Sort by"], orders],
    ]


def _draw_chip(request: PageRequest, name: str, value: str, title: str) -> Node:
    chosen = request.get(name) == value
    address = _make_address(request, **{name: "" if chosen else value})
    return h.a(href=address, aria_current="true" if chosen else None)[title]


@dataclass(frozen=True, slots=True)
class _ListPage:
    """One page of the list. following: the address of the next one, '' on the last."""

    lines: Sequence[CatalogLine]
    following: str


def _draw_lines(site: Site, request: PageRequest) -> Node:
    needs_catalog = request.get("author") or request.get("sort")
    page = _list_catalog(site, request) if needs_catalog else _list_by_name(site, request)
    if page is None:
        return h.p(".none", id="reading-list")[
            "The list is being sorted; this page shows it by itself. Or reload it."
        ]
    if not page.lines:
        is_filtered = any(request.get(name) for name in FILTERS[:-1])
        none = "Nothing fits." if is_filtered else "The library holds nothing yet."
        how = ("In a terminal, ", h.code["evolvable init"], " imports folders of skills.")
        return [h.p[none], h.p(".none")[how]]
    is_dated = request.get("sort") == "changed"
    heading = "Resources by " + SORTS.get(request.get("sort"), "name")
    lines = [_draw_line(site, line, is_dated=is_dated) for line in page.lines]
    following: Node = None
    if page.following:
        link = h.a(".button", href=page.following, id="next", rel="next", aria_keyshortcuts="j")
        following = h.p[link["Next page"]]
    return form(
        request.session.csrf,
        action_path("remove"),
        h.ul(".list", aria_label=heading)[lines],
        following,
        _draw_bulk_actions(site, request),
        fields={"back": ADDRESS},
        id="several",
    )


def _draw_line(site: Site, line: CatalogLine, *, is_dated: bool) -> Node:
    resource = line.resource
    ref = Ref.parse(resource.ref)
    name = ref.name if ref.kind is Kind.SKILL and ref.scope in (None, "user") else resource.ref
    share = format_success(resource.success, resource.rated)
    success = f", {share} well" if share else ""
    made_at = None
    if is_dated and line.operation:
        made_at = site.library.store.operation(line.operation).at
    picked = f"{resource.ref}@{resource.version}"
    return h.li[
        h.label(".pick")[h.input(type="checkbox", name="pick", value=picked, aria_label=name)],
        h.a(".grow", href=resource_address(resource.ref))[
            h.strong[one_line(name, 80)], h.span(".none")[" ", one_line(resource.description, 200)]
        ],
        author_tag(resource.author, resource.by) if resource.author != AuthorKind.YOU else None,
        h.span(".number.none")[f"{resource.uses:,} ×{success}"] if resource.uses else None,
        h.span(".number.none")[when(made_at)] if made_at else None,
    ]


def _draw_bulk_actions(site: Site, request: PageRequest) -> Node:
    """Return the actions on the chosen resources; the style sheet shows them once one is chosen."""
    options = [h.option(value=collection.name) for collection in list_collections(site.library)]
    field = h.input(type="text", name="collection", maxlength="64", list="collections")
    add = h.button(type="submit", formaction=action_path("collection add"))
    collecting = [
        h.label["Collection ", field],
        h.datalist(id="collections")[options],
        add["Add to the collection"],
    ]
    return h.div(".bulk.buttons", role="group", aria_label="With those that are chosen")[
        collecting if request.session.signed is None else None,
        h.button(".bad", type="submit", formaction=action_path("remove"))["Remove them"],
    ]


def _list_by_name(site: Site, request: PageRequest) -> _ListPage:
    listing = list_resources(
        site.library,
        site.caller,
        kind=check_kind(request.get("kind")),
        query=request.get("q") or None,
        scope=check_scope(request.get("scope")) if request.get("scope") else None,
        limit=PAGE,
        cursor=request.get("cursor") or None,
    )
    following = _make_address(request, cursor=listing.next_cursor) if listing.next_cursor else ""
    return _ListPage([CatalogLine(resource, 0) for resource in listing.resources], following)


def _list_catalog(site: Site, request: PageRequest) -> _ListPage | None:
    """Return a page of the list by author or in another order, None while all of the library is
    being read.
    """
    author, sort, begin = request.get("author"), request.get("sort"), request.number("from") or 0
    if sort not in SORTS or author and author not in set(AuthorKind):
        raise InvalidArgument("There is no such order or author.", "Follow a link of the page.")
    caller = site.caller  # read once: the catalog is of what this person sees
    catalog: Mapping[str, Sequence[CatalogLine]] | None = site.value(
        f"catalog {caller.via}", lambda: read_catalog(site.library, caller), site.library_revision()
    )
    if catalog is None:
        return None
    kind, scope = check_kind(request.get("kind")), request.get("scope")
    words = request.get("q").casefold().split()
    fitting = (
        line
        for line in catalog[sort]
        if (not author or line.resource.author == author)
        and (kind is None or line.ref.kind is kind)
        and (not scope or line.ref.scope == scope)
        and (not words or all(word in line.words for word in words))
    )
    # The search ends at the first line of the next page.
    end = begin + PAGE
    lines = list(islice(fitting, begin, end + 1))
    following = _make_address(request, **{"from": str(end)}) if len(lines) > PAGE else ""
    return _ListPage(lines[:PAGE], following)


def _draw_by_evidence(site: Site, view: str) -> Node:
    """Return the resources of a view of the evidence.

    The evidence is computed in the background: it reads all uses.
    """
    read: tuple[Stats, int] | None = site.value(
        "stats", lambda: read_evidence(site), site.library_revision()
    )
    if read is None:
        return h.div(id="evidence", data_live=True)[
            h.p["The evidence is being read; this page shows it by itself."]
        ]
    evidence, total = read
    lines = sorted(evidence.resources, key=lambda line: -line.helped.low if line.helped.n else 1.0)
    if view == "unused":
        lines = [line for line in lines if not line.used]
    elif view == "rated":
        lines = [line for line in lines if line.helped.n]
    else:
        lines = [line for line in lines if line.verdict == view]
    never_shown = total - len(evidence.resources)
    silent = h.p(".none")[
        f"Of {total:,} resources, {never_shown:,} were never shown and never opened."
    ]
    base: Node = None
    if evidence.base:
        base = h.p[f"Compared with {evidence.base.of}: ", share_bar(evidence.base.share)]
    if not lines:
        return h.div(id="evidence", data_live=True)[h.p["None."], silent, base]
    heads = ("resource", "verdict", "helped", "shown", "opened", "used", "why")
    rows = [_draw_evidence_row(line) for line in lines[:PAGE]]
    more = h.p(".none")[f"{len(lines) - PAGE:,} more."] if len(lines) > PAGE else None
    return h.div(id="evidence", data_live=True)[
        table(heads, rows, VIEWS_OF_EVIDENCE[view]), more, silent, base
    ]


def read_evidence(site: Site) -> tuple[Stats, int]:
    """Return the evidence of all resources, and how many resources there are."""
    caller, store = site.caller, site.library.store
    evidence = stats(site.library, caller)
    return evidence, sum(len(store.heads(scope=scope)) for scope in caller.scopes)


def _draw_evidence_row(line: ResourceStats) -> list[Node]:
    kinds = {"helps": "good", "harms": "bad", "dead": "doubtful"}
    return [
        resource_link(line.ref),
        tag(verdict_words(line.verdict), kinds.get(line.verdict, "")),
        share_bar(line.helped),
        f"{line.shown:,}",
        f"{line.loaded:,}",
        f"{line.used:,}",
        line.why,
    ]


VIEWS = (PageView(ADDRESS, _show_library),)

ACTIONS: tuple[PageAction, ...] = listing_budget.ACTIONS
