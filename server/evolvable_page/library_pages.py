"""The library as a list, one line a resource: filtered as one types, sorted; several are chosen for
one action.
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
"""How the list is sorted -> how a person reads it."""

AUTHORS = {
    AuthorKind.YOU: "yours",
    AuthorKind.AGENT: "agents'",
    AuthorKind.MEMBER: "members'",
    AuthorKind.IMPORT: "imported",
    AuthorKind.REPOSITORY: "of a repository",
}
"""Author -> how the filter names what is theirs."""

FILTERS = ("q", "kind", "author", "scope", "sort")
"""Fields of the address that say what is listed, and how."""


def _library(site: Site, request: PageRequest) -> PageBody:
    """Show one page of the library."""
    view = request.get("view")
    if view == "budget":
        listing = listing_budget.draw_budget(site, request)
    elif view in VIEWS_OF_EVIDENCE:
        listing = _by_evidence(site, view)
    else:
        listing = [_filter(request), _listing(site, request)]
    title = h.div(".head")[h.h1["Library"], _views(view)]
    return PageBody(
        "Library", [operation_note(site, request), title, listing], "library", of=f"library {view}"
    )


def _views(chosen: str) -> Node:
    views = {"": "All", **VIEWS_OF_EVIDENCE, "budget": "Listed by Claude Code"}
    links = [
        h.a(
            href=f"{ADDRESS}?view={name}" if name else ADDRESS,
            aria_current="page" if name == chosen else None,
        )[title]
        for name, title in views.items()
    ]
    return h.nav(".chips", aria_label="Views")[links]


def _filter(request: PageRequest) -> Node:
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


def _address(request: PageRequest, **changed: str) -> str:
    """Return the address of the list as it is filtered now, with some of it changed."""
    fields = {name: request.get(name) for name in FILTERS} | changed
    query = "&".join(f"{name}={quote_part(value)}" for name, value in fields.items() if value)
    return f"{ADDRESS}?{query}" if query else ADDRESS


def _listing(site: Site, request: PageRequest) -> Node:
    """Return the chips, the order, and the list that they lead to."""
    return h.div(id="listing", data_live=True)[_chips(site, request), _lines(site, request)]


def _chips(site: Site, request: PageRequest) -> Node:
    """Return the filters of the list as chips; a chosen chip leads back to the list without it."""
    scopes = list(dict.fromkeys(site.caller.scopes))
    groups = [
        ("kind", "Kind", {kind.value: kind.value for kind in Kind}),
        ("author", "Whose", {author.value: words for author, words in AUTHORS.items()}),
    ]
    if len(scopes) > 1:
        groups.append(("scope", "Scope", {scope: scope for scope in scopes}))
    return [
        h.nav(".chips", aria_label="Filters")[
            [
                [
                    h.span(".none")[label],
                    [_chip(request, name, value, title) for value, title in values.items()],
                ]
                for name, label, values in groups
            ]
        ],
        h.nav(".chips.sorts", aria_label="Order")[
            h.span(".none")["Sort by"],
            [
                h.a(
                    href=_address(request, sort=name),
                    aria_current="true" if request.get("sort") == name else None,
                )[title]
                for name, title in SORTS.items()
            ],
        ],
    ]


def _chip(request: PageRequest, name: str, value: str, title: str) -> Node:
    chosen = request.get(name) == value
    address = _address(request, **{name: "" if chosen else value})
    return h.a(href=address, aria_current="true" if chosen else None)[title]


@dataclass(frozen=True, slots=True)
class _ListPage:
    """One page of the list. following: the address of the next one, '' on the last."""

    lines: Sequence[CatalogLine]
    following: str


def _lines(site: Site, request: PageRequest) -> Node:
    page = (
        _by_name(site, request)
        if not (request.get("author") or request.get("sort"))
        else _of_catalog(site, request)
    )
    if page is None:
        return h.p(".none", id="reading-list")[
            "The list is being sorted; this page shows it by itself. Or reload it."
        ]
    if not page.lines:
        none = (
            "Nothing fits."
            if any(request.get(name) for name in FILTERS[:-1])
            else "The library holds nothing yet."
        )
        return [
            h.p[none],
            h.p(".none")[
                "In a terminal, ", h.code["evolvable init"], " imports folders of skills."
            ],
        ]
    is_dated = request.get("sort") == "changed"
    heading = "Resources by " + SORTS.get(request.get("sort"), "name")
    following = (
        page.following
        and h.p[
            h.a(".button", href=page.following, id="next", rel="next", aria_keyshortcuts="j")[
                "Next page"
            ]
        ]
    )
    return form(
        request.session.csrf,
        action_path("remove"),
        h.ul(".list", aria_label=heading)[
            [_line(site, line, is_dated=is_dated) for line in page.lines]
        ],
        following or None,
        _bulk_actions(site, request),
        fields={"back": ADDRESS},
        id="several",
    )


def _line(site: Site, line: CatalogLine, *, is_dated: bool) -> Node:
    resource = line.resource
    ref = Ref.parse(resource.ref)
    name = ref.name if ref.kind is Kind.SKILL and ref.scope in (None, "user") else resource.ref
    success = (
        f", {share} well" if (share := format_success(resource.success, resource.rated)) else ""
    )
    made_at = (
        site.library.store.operation(line.operation).at if is_dated and line.operation else None
    )
    return h.li[
        h.label(".pick")[
            h.input(
                type="checkbox",
                name="pick",
                value=f"{resource.ref}@{resource.version}",
                aria_label=name,
            )
        ],
        h.a(".grow", href=resource_address(resource.ref))[
            h.strong[one_line(name, 80)], h.span(".none")[" ", one_line(resource.description, 200)]
        ],
        author_tag(resource.author, resource.by) if resource.author != AuthorKind.YOU else None,
        h.span(".number.none")[f"{resource.uses:,} ×{success}"] if resource.uses else None,
        h.span(".number.none")[when(made_at)] if made_at else None,
    ]


def _bulk_actions(site: Site, request: PageRequest) -> Node:
    """Return the actions on those that are chosen; the style sheet shows them once one is."""
    options = [h.option(value=collection.name) for collection in list_collections(site.library)]
    collecting = request.session.signed is None and [
        h.label[
            "Collection ",
            h.input(type="text", name="collection", maxlength="64", list="collections"),
        ],
        h.datalist(id="collections")[options],
        h.button(type="submit", formaction=action_path("collection add"))["Add to the collection"],
    ]
    return h.div(".bulk.buttons", role="group", aria_label="With those that are chosen")[
        collecting or None,
        h.button(".bad", type="submit", formaction=action_path("remove"))["Remove them"],
    ]


def _by_name(site: Site, request: PageRequest) -> _ListPage:
    listing = list_resources(
        site.library,
        site.caller,
        kind=check_kind(request.get("kind")),
        query=request.get("q") or None,
        scope=check_scope(request.get("scope")) if request.get("scope") else None,
        limit=PAGE,
        cursor=request.get("cursor") or None,
    )
    following = _address(request, cursor=listing.next_cursor) if listing.next_cursor else ""
    return _ListPage([CatalogLine(resource, 0) for resource in listing.resources], following)


def _of_catalog(site: Site, request: PageRequest) -> _ListPage | None:
    """Return a page of the list in another order, None while it is being read: it needs all of the
    library.
    """
    author, sort, begin = request.get("author"), request.get("sort"), request.number("from") or 0
    if sort not in SORTS or author and author not in set(AuthorKind):
        raise InvalidArgument("There is no such order or author.", "Follow a link of the page.")
    caller = site.caller  # whose these are is said to the reader
    catalog: Mapping[str, Sequence[CatalogLine]] | None = site.value(
        f"catalog {caller.via}", lambda: read_catalog(site.library, caller), site.library_revision()
    )
    if catalog is None:
        return None
    kind, scope, words = (
        check_kind(request.get("kind")),
        request.get("scope"),
        request.get("q").casefold().split(),
    )
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
    found = list(islice(fitting, begin, end + 1))
    following = _address(request, **{"from": str(end)}) if len(found) > PAGE else ""
    return _ListPage(found[:PAGE], following)


def _by_evidence(site: Site, view: str) -> Node:
    """Return the resources that the evidence says something of.

    It is computed beside the page: it reads all of it.
    """
    read: tuple[Stats, int] | None = site.value(
        "stats", lambda: read_evidence(site), site.library_revision()
    )
    if read is None:
        return h.div(id="evidence", data_live=True)[
            h.p["The evidence is being read; this page shows it by itself."]
        ]
    found, total = read
    lines = sorted(
        found.resources,
        key=lambda line: -line.helped.low if line.helped.n else 1.0,
    )
    if view == "unused":
        lines = [line for line in lines if not line.used]
    elif view == "rated":
        lines = [line for line in lines if line.helped.n]
    else:
        lines = [line for line in lines if line.verdict == view]
    silent = h.p(".none")[
        f"Of {total:,} resources, {total - len(found.resources):,} were never shown and "
        "never opened."
    ]
    base = (
        h.p[f"Compared with {found.base.of}: ", share_bar(found.base.share)] if found.base else None
    )
    if not lines:
        return h.div(id="evidence", data_live=True)[h.p["None."], silent, base]
    heads = ("resource", "verdict", "helped", "shown", "opened", "used", "why")
    rows = [_evidence_row(line) for line in lines[:PAGE]]
    more = h.p(".none")[f"{len(lines) - PAGE:,} more."] if len(lines) > PAGE else None
    return h.div(id="evidence", data_live=True)[
        table(heads, rows, VIEWS_OF_EVIDENCE[view]), more, silent, base
    ]


def read_evidence(site: Site) -> tuple[Stats, int]:
    """Return the evidence of all resources, and how many resources there are."""
    caller = site.caller
    return stats(site.library, caller), sum(
        len(site.library.store.heads(scope=scope)) for scope in caller.scopes
    )


def _evidence_row(line: ResourceStats) -> list[Node]:
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


VIEWS = (PageView(ADDRESS, _library),)

ACTIONS: tuple[PageAction, ...] = listing_budget.ACTIONS
