"""What Claude Code lists of the library's skills by itself, and the collections that decide it.

All descriptions together have a budget; docs/living-beside.md cites the rule. Search is not affected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import form, resource_link, shape, svg, table, with_code
from evolvable_page.library_catalog import picked
from evolvable_page.site import PageAction, PageRequest, Site, action_path
from evolvable_page.text import make_visible, quoted
from evolvable_server import read_machine
from evolvable_server.clients import ClientList, choose_collection, client_lists, cut_lists, measure_list
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools.verbs import (
    BUDGET,
    ListedSkill,
    SkillCollection,
    SkillListing,
    add_to_collection,
    describe_listing,
    list_collections,
    read_skills,
    remove_from_collection,
)

MAX_SHOWN = 100
"""Skills without a description that a table names."""

# Half of MAX_FIELDS: each skill is a box, and a browser sends one field for each that is checked.
MAX_CHOICES = 500
"""Skills among which a form lets a person choose; a form has a limit of fields."""

NEW = "+"
"""Asks for the form of a collection that is not there yet; no collection has this name."""

ADDRESS = "/library?view=budget"


@dataclass(frozen=True, slots=True)
class _Shown:
    """One list of the client with what it holds. collection: the one that was chosen for it."""

    where: ClientList
    skills: Sequence[ListedSkill]
    listing: SkillListing
    collection: str


def draw_budget(site: Site, asked: PageRequest) -> Node:
    """Return the lists of Claude Code with their size, the collections, and the form of the one that is asked for."""
    lists = _read(site)
    if lists is None:
        return h.div(id="budget", data_live=True)[h.p["The descriptions are being read; this page shows it by itself."]]
    found = list_collections(site.library)
    if asked.get("collection") and asked.session.signed is None:
        return _edit(site, asked, lists, found)
    said = (
        f"Claude Code lists the skills in its folders by name and description, in {BUDGET:,} characters where the model"
        " has 200,000 tokens. The skills that are used least lose their description there. find_skill reads all of"
        " every description."
    )
    none = h.p[with_code("Claude Code reads no watched folder. `evolvable init ~/.claude/skills` watches yours.")]
    return h.div(id="budget", data_live=True)[
        h.p(".lead")[said],
        none if not lists else [_draw(asked, one, found) for one in lists],
        _collections(found, lists) if lists and asked.session.signed is None else None,
    ]


def draw_short(site: Site, asked: PageRequest) -> Node:
    """Return how full each list is, in a line; those of Claude Code with a bar, and the choice of a collection."""
    lists = _read(site)
    others = site.value(
        "other lists",
        lambda: cut_lists(site.library, read_machine(site.services.config.project)),
        (site.library.store.sequence(),),
    )
    if lists is None or others is None:
        return h.p(".none")["The descriptions are being read; this page shows them by itself."]
    if not lists and not others:
        return h.p[with_code("No client lists skills of the library. `evolvable setup` connects one.")]
    found = list_collections(site.library) if asked.session.signed is None else []
    return [
        [
            h.p["Claude Code, ", make_visible(one.where.title), ": ", describe_listing(one.listing), "."],
            _bar(one.listing),
            _choose(asked, one, found) if found else None,
        ]
        for one in lists
    ] + [h.p[make_visible(other.text), "."] for other in others]


def _read(site: Site) -> list[_Shown] | None:
    """Return the lists; None while the skills are read beside the page."""
    lists = client_lists(site.library.folders(), read_machine(site.services.config.project))
    folders = {folder.id: folder for one in lists for folder in one.folders}
    key = site.library.store.sequence(), tuple(folders)
    skills: Mapping[int, Sequence[ListedSkill]] | None = site.value(
        "budget", lambda: {id_: read_skills(site.library, folder) for id_, folder in folders.items()}, key
    )
    if skills is None or folders.keys() - skills.keys():
        return None
    chosen = {one.settings: one.collection for one in site.library.store.backend.collections.choices()}
    return [_shown(one, skills, chosen.get(one.settings, "")) for one in lists]


def _shown(where: ClientList, skills: Mapping[int, Sequence[ListedSkill]], chosen: str) -> _Shown:
    own = [skill for folder in where.folders for skill in skills[folder.id]]
    listing = measure_list(where, own)
    return _Shown(where, own, listing, chosen)


def _draw(asked: PageRequest, one: _Shown, found: Sequence[SkillCollection]) -> Node:
    listing, title = one.listing, one.where.title
    rows = [[resource_link(skill.ref), f"{skill.size:,}", f"{skill.uses:,}"] for skill in listing.bare[:MAX_SHOWN]]
    hidden = f" {len(listing.hidden):,} more are found by find_skill alone." if listing.hidden else ""
    return h.section(".panel")[
        h.h2[title[:1].upper() + make_visible(title[1:])],
        _bar(listing),
        h.p[f"{describe_listing(listing)}.{hidden}"],
        h.p["The collection ", h.strong[one.collection], " decides."] if one.collection else None,
        _choose(asked, one, found) if asked.session.signed is None else None,
        table(("skill", "characters", "opened"), rows, "Without a description, the most used first") if rows else None,
        h.p(".none")[f"{len(listing.bare) - MAX_SHOWN:,} more."] if len(listing.bare) > MAX_SHOWN else None,
    ]


def _bar(listing: SkillListing) -> Node:
    """Return how full the budget is, drawn: what fits, and what is over."""
    whole = max(BUDGET, listing.size)
    inside, limit = 100 * min(listing.size, BUDGET) / whole, 100 * BUDGET / whole
    over = shape("rect", x=f"{limit:.1f}", y="0", width=f"{100 - limit:.1f}", height="6", class_="over")
    return svg(
        viewBox="0 0 100 6", preserveAspectRatio="none", class_="budget", role="img", aria_label="Budget of the list"
    )[
        shape("rect", x="0", y="0", width="100", height="6", class_="axis"),
        shape("rect", x="0", y="0", width=f"{inside:.1f}", height="6", class_="inside-budget"),
        over if listing.size > BUDGET else None,
    ]


def _choose(asked: PageRequest, one: _Shown, found: Sequence[SkillCollection]) -> Node:
    where = {"settings": str(one.where.settings)}
    options = [h.option(value=each.name, selected=each.name == one.collection)[each.name] for each in found]
    use = form(
        asked.session.csrf,
        action_path("collection use"),
        h.label["List alone the collection ", h.select(name="name")[options]],
        h.button(type="submit")["Use it"],
        fields=where,
        class_="line",
    )
    stop = form(
        asked.session.csrf,
        action_path("collection stop"),
        h.button(type="submit")["List every skill again"],
        fields=where,
    )
    return h.div(".line")[use if found else None, stop if one.collection else None]


def _collections(found: Sequence[SkillCollection], lists: Sequence[_Shown]) -> Node:
    sizes = {skill.id: skill.size for one in lists for skill in one.skills}
    rows: list[list[Node]] = [
        [
            h.strong[one.name],
            f"{len(one.ids):,}",
            f"{sum(sizes.get(id_, 0) for id_ in one.ids):,}",
            ", ".join(each.where.title for each in lists if each.collection == one.name) or "not used",
            h.a(href=f"{ADDRESS}&collection={quoted(one.name)}", aria_label=f"Change {one.name}")["Change"],
        ]
        for one in found
    ]
    none = h.p(".none")[
        "A collection is a set of skills with a name. Claude Code lists the skills of the one that you use; the others"
        " stay in their folders, you can still call them by name, and find_skill finds them."
    ]
    heads = ("collection", "skills", "characters", "used", "")
    return h.section(".panel")[
        h.h2["Collections"],
        table(heads, rows, "What they hold, and where they are used") if rows else none,
        h.p[h.a(".button", href=f"{ADDRESS}&collection={quoted(NEW)}")["New collection"]],
    ]


def _edit(site: Site, asked: PageRequest, lists: Sequence[_Shown], found: Sequence[SkillCollection]) -> Node:
    """Return the form of one collection. A new one begins with the skills that keep their description today."""
    name = asked.get("collection")
    known = next((one for one in found if one.name == name), None)
    if known is None and name != NEW:
        raise InvalidArgument("There is no such collection.", "The Library lists those that there are.")
    skills = {skill.id: skill for one in lists for skill in one.skills}
    if len(skills) > MAX_CHOICES:
        said = f"{len(skills):,} skills are too many for a form; `evolvable client collection add` takes their names."
        return [h.p(".warning")[with_code(said)], _back()]
    bare = {skill.id for one in lists for skill in (*one.listing.bare, *one.listing.hidden)}
    chosen = known.ids if known is not None else skills.keys() - bare
    ordered = sorted(skills.values(), key=lambda skill: (-skill.uses, skill.ref))
    boxes = [_box(skill, checked=skill.id in chosen) for skill in ordered]
    named = h.label["Name ", h.input(type="text", name="name", required=True, maxlength="64")]
    return h.section(".panel")[
        h.h2[f"The collection {known.name}" if known is not None else "A new collection"],
        form(
            asked.session.csrf,
            action_path("collection add"),
            named if known is None else None,
            h.fieldset[h.legend["Skills, the most used first, with their characters in the list"], boxes],
            h.p(".buttons")[h.button(".good", type="submit")["Store"], _back()],
            fields={"known": known.name} if known is not None else {},
        ),
        form(
            asked.session.csrf,
            action_path("collection remove"),
            h.button(".bad", type="submit")["Remove this collection; its skills stay"],
            fields={"name": known.name},
        )
        if known is not None
        else None,
    ]


def _box(skill: ListedSkill, *, checked: bool) -> Node:
    box = h.input(type="checkbox", name="skill", value=skill.ref, checked=checked)
    return h.label(".check")[box, " ", make_visible(skill.ref), " ", h.span(".none")[f"{skill.size:,}"]]


def _back() -> Node:
    return h.a(href=ADDRESS)["Back to the list"]


def _store(site: Site, asked: PageRequest) -> str:
    """Store which skills a collection has: those that were checked, and those that the form did not show."""
    if "pick" in asked.fields:
        chosen = [ref for ref, _ in picked(asked)]
        add_to_collection(site.library, site.caller, asked.get("collection").strip(), chosen)
        return ADDRESS
    name = asked.get("known") or asked.get("name").strip()
    wanted = {Ref.parse(text) for text in asked.fields.get("skill", ())}
    shown = {Ref.parse(skill.ref) for one in _read(site) or () for skill in one.skills}
    before = {Ref.parse(ref) for one in list_collections(site.library) if one.name == name for ref in one.refs}
    if before and not asked.get("known"):
        raise InvalidArgument(f"There is a collection {name} already.", "Go back and choose another name.")
    added, removed = sorted(wanted - before, key=str), sorted((before & shown) - wanted, key=str)
    add_to_collection(site.library, site.caller, name, added, removed)
    return ADDRESS


def _remove(site: Site, asked: PageRequest) -> str:
    remove_from_collection(site.library, site.caller, asked.get("name"))
    return ADDRESS


def _use(site: Site, asked: PageRequest) -> str:
    return _applied(site, asked, asked.get("name"))


def _stop(site: Site, asked: PageRequest) -> str:
    return _applied(site, asked, "")


def _applied(site: Site, asked: PageRequest, name: str) -> str:
    lists = client_lists(site.library.folders(), read_machine(site.services.config.project))
    where = next((one for one in lists if str(one.settings) == asked.get("settings")), None)
    if where is None:
        raise InvalidArgument("This is no list of Claude Code.", "The Library shows those that there are.")
    choose_collection(site.library, site.caller, where, name)
    return ADDRESS


ACTIONS = (
    PageAction("collection add", _store),
    PageAction("collection remove", _remove),
    PageAction("collection use", _use),
    PageAction("collection stop", _stop),
)
"""What the forms of the view do."""
