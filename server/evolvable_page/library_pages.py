"""The library as a table, page by page, and the search with its stages; a person corrects what it found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import htpy as h
from htpy import Node

from evolvable_page import listing_budget
from evolvable_page.layout import (
    PageBody,
    author_tag,
    form,
    resource_link,
    share_bar,
    swapping,
    table,
    tag,
    with_code,
)
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, one_line, quoted
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref, check_scope
from evolvable_tools import format_success
from evolvable_tools.outcomes import ResourceStats, Stats, correct_task, list_learned, stats, verdict_words
from evolvable_tools.retrieval import MODES, VERDICTS, Verdict
from evolvable_tools.verbs import FoundSkills, ListedResource, find_skill, list_resources

if TYPE_CHECKING:
    from evolvable_store.search import Match

PAGE = 50
"""Resources on a page."""

VIEWS_OF_EVIDENCE = {
    "rated": "By lower bound of success",
    "helps": "Help",
    "harms": "Harm",
    "dead": "Shown, never opened",
    "unused": "Shown or opened, never used",
}
"""View -> its name; the first page is by name."""


def _library(site: Site, asked: PageRequest) -> PageBody:
    """Show one page of the library."""
    view = asked.get("view")
    if view == "budget":
        listing = listing_budget.draw_budget(site, asked)
    else:
        listing = _by_evidence(site, view) if view in VIEWS_OF_EVIDENCE else _by_name(site, asked)
    main = [h.h1["Library"], _views(view), _filter(site, asked) if not view else None, listing]
    return PageBody("Library", main, "library")


def _views(chosen: str) -> Node:
    links = [
        h.a(href=f"/library?view={name}" if name else "/library", aria_current="page" if name == chosen else None)[said]
        for name, said in {"": "By name", **VIEWS_OF_EVIDENCE, "budget": "Listed by Claude Code"}.items()
    ]
    return h.nav(aria_label="Views")[h.p[[[link, " · "] for link in links[:-1]], links[-1]]]


def _filter(site: Site, asked: PageRequest) -> Node:
    scopes = ["", *dict.fromkeys(site.caller.scopes)]
    kinds = ["", *(kind.value for kind in Kind)]
    return h.form(".line", method="get", action="/library", role="search")[
        h.label["Words ", h.input(type="search", name="q", value=asked.get("q"), maxlength="200")],
        _choice("Kind", "kind", kinds, asked.get("kind")),
        _choice("Scope", "scope", scopes, asked.get("scope")),
        h.button(type="submit")["Filter"],
    ]


def _choice(said: str, name: str, values: Sequence[str], chosen: str) -> Node:
    options = [h.option(value=value, selected=value == chosen)[value or "every"] for value in values]
    return h.label[f"{said} ", h.select(name=name)[options]]


def _by_name(site: Site, asked: PageRequest) -> Node:
    kind, scope = _kind(asked.get("kind")), asked.get("scope")
    listing = list_resources(
        site.library,
        site.caller,
        kind=kind,
        query=asked.get("q") or None,
        scope=check_scope(scope) if scope else None,
        limit=PAGE,
        cursor=asked.get("cursor") or None,
    )
    rows = [_listed_row(one) for one in listing.resources]
    heads = ("resource", "author", "used", "description")
    following = None
    if listing.next_cursor:
        names = [(name, asked.get(name)) for name in ("q", "kind", "scope") if asked.get(name)]
        query = "&".join(f"{name}={quoted(value)}" for name, value in [*names, ("cursor", listing.next_cursor)])
        following = h.p[h.a(href=f"/library?{query}", id="next", rel="next", aria_keyshortcuts="j")["Next page"]]
    if not rows:
        return h.p[with_code("Nothing. `evolvable init` imports folders of skills, `evolvable import` an archive.")]
    return [h.div(id="library", data_live=True)[table(heads, rows, "Resources by name")], following]


def _kind(text: str) -> Kind | None:
    if not text:
        return None
    if text not in {kind.value for kind in Kind}:
        raise InvalidArgument(f"{text[:40]!r} is no kind.", f"There is {', '.join(Kind)}.")
    return Kind(text)


def _listed_row(one: ListedResource) -> list[Node]:
    used = "never" if not one.uses else f"{one.uses:,} times"
    success = f", {share} well" if (share := format_success(one.success, one.rated)) else ""
    return [
        resource_link(one.ref, f"{one.ref}@{one.version}"),
        author_tag(one.author, one.by),
        used + success,
        one_line(one.description, 240),
    ]


def _by_evidence(site: Site, view: str) -> Node:
    """Return the resources that the evidence says something of. It is computed beside the page: it reads all of it."""
    read: tuple[Stats, int] | None = site.value("stats", lambda: read_evidence(site), site.revision())
    if read is None:
        return h.div(id="evidence", data_live=True)[h.p["The evidence is being read; this page shows it by itself."]]
    found, total = read
    lines = sorted(found.resources, key=lambda one: -one.helped.low if one.helped.n else 1.0)
    if view == "unused":
        lines = [one for one in lines if not one.used]
    elif view == "rated":
        lines = [one for one in lines if one.helped.n]
    else:
        lines = [one for one in lines if one.verdict == view]
    silent = h.p(".none")[
        f"Of {total:,} resources, {total - len(found.resources):,} were never shown and never opened."
    ]
    base = h.p[f"Compared with {found.base.of}: ", share_bar(found.base.share)] if found.base else None
    if not lines:
        return h.div(id="evidence", data_live=True)[h.p["None."], silent, base]
    heads = ("resource", "verdict", "helped", "shown", "opened", "used", "why")
    rows = [_evidence_row(one) for one in lines[:PAGE]]
    more = h.p(".none")[f"{len(lines) - PAGE:,} more."] if len(lines) > PAGE else None
    return h.div(id="evidence", data_live=True)[table(heads, rows, VIEWS_OF_EVIDENCE[view]), more, silent, base]


def read_evidence(site: Site) -> tuple[Stats, int]:
    """Return the evidence of all resources, and how many resources there are."""
    caller = site.caller
    return stats(site.library, caller), sum(len(site.library.store.heads(scope=scope)) for scope in caller.scopes)


def _evidence_row(one: ResourceStats) -> list[Node]:
    kinds = {"helps": "good", "harms": "bad", "dead": "doubtful"}
    return [
        resource_link(one.ref),
        tag(verdict_words(one.verdict), kinds.get(one.verdict, "")),
        share_bar(one.helped),
        f"{one.shown:,}",
        f"{one.loaded:,}",
        f"{one.used:,}",
        one.why,
    ]


MAX_TASK = 4_000
"""Characters of a task."""


def _search(site: Site, asked: PageRequest) -> PageBody:
    """Search as an agent does, and show what every stage said."""
    task, mode, kind = asked.get("task")[:MAX_TASK], asked.get("mode") or "auto", asked.get("kind") or "skill"
    modes = list(MODES)
    fields = [
        h.label["Task ", h.input(type="search", name="task", value=task, maxlength=str(MAX_TASK), required=True)],
        _choice("Mode", "mode", modes, mode),
        _choice("Kind", "kind", [one.value for one in Kind], kind),
        h.button(type="submit")["Search"],
    ]
    main: list[Node] = [
        h.h1["Search"],
        h.form(".line", method="get", action="/search", role="search")[fields],
    ]
    if task.strip():
        found = find_skill(site.library, site.caller, task, kind=_kind(kind) or Kind.SKILL, mode=mode, limit=10)
        main.append(_found(site, asked, task, found))
    else:
        main.append(h.p(".none")["Type a task as you would give it to an agent. Nothing of it is stored."])
    return PageBody("Search", main, "search")


def _found(site: Site, asked: PageRequest, task: str, found: FoundSkills) -> Node:
    heads = ("resource", "confidence", "stage", "author", "why", "")
    rows = [_match_row(asked, task, one, found) for one in found.lines]
    stages = [h.li[h.strong[one.stage], ": ", make_visible(one.said)] for one in found.stages]
    return [
        h.p[VERDICTS[found.verdict], " The nearest:" if found.verdict is Verdict.NONE and rows else None],
        table(heads, rows, "Matches") if rows else None,
        _further(found),
        h.h2["Stages"],
        h.ol[stages],
        _correction(asked, task, found),
        _learned(site, found),
    ]


def _match_row(asked: PageRequest, task: str, one: "Match", found: FoundSkills) -> list[Node]:
    best = _best(found)
    fields = {"task": task, "right": one.ref, "wrong": best if best != one.ref else ""}
    button = h.button(type="submit", aria_label=f"This is right: {one.ref}")["This is right"]
    sure = found.verdict is Verdict.SURE and one.ref == best
    return [
        [resource_link(one.ref, f"{one.ref}@{one.version}"), h.br, h.span(".none")[one_line(one.description, 160)]],
        [f"{one.confidence:.2f} ", tag("sure", "good") if sure else None],
        one.stage,
        author_tag(one.author, one.by),
        make_visible(one.why),
        form(asked.session.csrf, action_path("learned"), button, fields=fields, **swapping()),
    ]


def _best(found: FoundSkills) -> str:
    """Return the ref of the match that an agent is told to use, '' where there is none."""
    return found.matches[0].ref if found.verdict is Verdict.SURE else ""


def _further(found: FoundSkills) -> Node:
    if found.verdict is not Verdict.CHOOSE or not found.further:
        return None
    choices = [h.li[resource_link(one.ref)] for one in found.further]
    return h.section[h.h2["What else an agent may choose"], h.ul[choices]]


def _correction(asked: PageRequest, task: str, found: FoundSkills) -> Node:
    best = _best(found)
    return h.section[
        h.h2["This should have been"],
        h.p(".none")[
            with_code(
                "The task is stored as a label of yours. Lookup learns it at once; one of four labels is held out"
                " instead, and `evolvable learn tasks --measure` asks it."
            )
        ],
        form(
            asked.session.csrf,
            action_path("learned"),
            h.label["Resource ", h.input(type="text", name="right", required=True, placeholder="skill:pdf")],
            h.button(type="submit")["Store the correction"],
            fields={"task": task, "wrong": best},
            class_="line",
            **swapping(),
        ),
    ]


def _learned(site: Site, found: FoundSkills) -> Node:
    refs = [Ref.parse(one.ref) for one in found.matches[:3]]
    tasks = [one for ref in refs for one in list_learned(site.library, site.caller, ref)]
    rows = [
        h.li[resource_link(one.ref), ": ", "not " if one.against else "", make_visible(one.task), f" ({one.source})"]
        for one in [task for task in tasks if task.task][:12]
    ]
    return h.section[h.h2["Learned tasks of the first matches"], h.ul[rows]] if rows else None


def _correct(site: Site, asked: PageRequest) -> str:
    task, right, wrong = asked.get("task")[:MAX_TASK], Ref.parse(asked.get("right")), asked.get("wrong")
    against = Ref.parse(wrong) if wrong and Ref.parse(wrong) != right else None
    correct_task(site.library, site.caller, task, right, against)
    return f"/search?task={quoted(task)}&kind={right.kind}"


VIEWS = (PageView("/library", _library), PageView("/search", _search))

ACTIONS = (PageAction("learned", _correct), *listing_budget.ACTIONS)
