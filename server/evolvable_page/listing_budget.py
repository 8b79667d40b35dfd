"""The skills of the library that Claude Code lists by itself, and the collections that decide it.

All descriptions together have a budget; docs/living-beside.md cites the rule. Search is not
affected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolvable_page import elements as h
from evolvable_page.elements import Node
from evolvable_page.layout import form, resource_link, shape, svg, table, with_code
from evolvable_page.library_catalog import read_picked
from evolvable_page.site import PageAction, PageRequest, Site, action_path
from evolvable_page.text import make_visible, quote_part
from evolvable_server import read_machine
from evolvable_server.clients import (
    ClientList,
    choose_collection,
    client_lists,
    cut_lists,
    measure_list,
)
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
class _MeasuredList:
    """One list of the client with its skills. collection: the one that was chosen for it."""

    where: ClientList
    skills: Sequence[ListedSkill]
    listing: SkillListing
    collection: str


def draw_budget(site: Site, request: PageRequest) -> Node:
    """Return the lists of Claude Code with their size, the collections, and the form of the one
    that is asked for.
    """
    lists = _read_lists(site)
    if lists is None:
        return h.div(id="budget", data_live=True)[
            h.p["The descriptions are being read; this page shows it by itself."]
        ]
    collections = list_collections(site.library)
    if request.get("collection") and request.session.signed is None:
        return _draw_edit_form(request, lists, collections)
    explanation = (
        f"Claude Code lists the skills in its folders by name and description, in {BUDGET:,} "
        "characters where the model has 200,000 tokens. The skills that are used least lose "
        "their description there. find_skill reads all of every description."
    )
    none = "Claude Code reads no watched folder. `evolvable init ~/.claude/skills` watches yours."
    drawn: Node = h.p[with_code(none)]
    if lists:
        drawn = [_draw_list(request, measured, collections) for measured in lists]
    may_change = lists and request.session.signed is None
    return h.div(id="budget", data_live=True)[
        h.p(".lead")[explanation],
        drawn,
        _draw_collections(collections, lists) if may_change else None,
    ]


def draw_short(site: Site, request: PageRequest) -> Node:
    """Return how full each list is, in a line; those of Claude Code with a bar, and the choice of a
    collection.
    """
    lists = _read_lists(site)
    others = site.value(
        "other lists",
        lambda: cut_lists(site.library, read_machine(site.services.config.project)),
        (site.library.store.sequence(),),
    )
    if lists is None or others is None:
        return h.p(".none")["The descriptions are being read; this page shows them by itself."]
    if not lists and not others:
        none = "No client lists skills of the library. `evolvable setup` connects one."
        return h.p[with_code(none)]
    collections = list_collections(site.library) if request.session.signed is None else []
    drawn: list[Node] = []
    for measured in lists:
        title, fullness = make_visible(measured.where.title), describe_listing(measured.listing)
        choice = _draw_choice(request, measured, collections) if collections else None
        line = h.p["Claude Code, ", title, ": ", fullness, "."]
        drawn.append([line, _draw_bar(measured.listing), choice])
    return drawn + [h.p[make_visible(other.text), "."] for other in others]


def _read_lists(site: Site) -> list[_MeasuredList] | None:
    """Return the lists, None while the skills are read in the background."""
    lists = client_lists(site.library.folders(), read_machine(site.services.config.project))
    folders = {folder.id: folder for client_list in lists for folder in client_list.folders}
    key = site.library.store.sequence(), tuple(folders)
    skills: Mapping[int, Sequence[ListedSkill]] | None = site.value(
        "budget",
        lambda: {id_: read_skills(site.library, folder) for id_, folder in folders.items()},
        key,
    )
    if skills is None or folders.keys() - skills.keys():
        return None
    chosen = {
        choice.settings: choice.collection
        for choice in site.library.store.backend.collections.choices()
    }
    return [
        _measure(client_list, skills, chosen.get(client_list.settings, "")) for client_list in lists
    ]


def _measure(
    where: ClientList, skills: Mapping[int, Sequence[ListedSkill]], chosen: str
) -> _MeasuredList:
    own = [skill for folder in where.folders for skill in skills[folder.id]]
    listing = measure_list(where, own)
    return _MeasuredList(where, own, listing, chosen)


def _draw_list(
    request: PageRequest, measured: _MeasuredList, collections: Sequence[SkillCollection]
) -> Node:
    listing, title = measured.listing, measured.where.title
    rows = [
        [resource_link(skill.ref), f"{skill.size:,}", f"{skill.uses:,}"]
        for skill in listing.bare[:MAX_SHOWN]
    ]
    hidden = (
        f" {len(listing.hidden):,} more are found by find_skill alone." if listing.hidden else ""
    )
    decides = h.p["The collection ", h.strong[measured.collection], " decides."]
    caption = "Without a description, the most used first"
    more = len(listing.bare) - MAX_SHOWN
    return h.section(".panel")[
        h.h2[title[:1].upper() + make_visible(title[1:])],
        _draw_bar(listing),
        h.p[f"{describe_listing(listing)}.{hidden}"],
        decides if measured.collection else None,
        _draw_choice(request, measured, collections) if request.session.signed is None else None,
        table(("skill", "characters", "opened"), rows, caption) if rows else None,
        h.p(".none")[f"{more:,} more."] if more > 0 else None,
    ]


def _draw_bar(listing: SkillListing) -> Node:
    """Return the budget as a picture: the part that fits, and the part beyond it."""
    whole = max(BUDGET, listing.size)
    inside, limit = 100 * min(listing.size, BUDGET) / whole, 100 * BUDGET / whole
    over = shape(
        "rect", x=f"{limit:.1f}", y="0", width=f"{100 - limit:.1f}", height="6", class_="over"
    )
    picture = svg(
        viewBox="0 0 100 6",
        preserveAspectRatio="none",
        class_="budget",
        role="img",
        aria_label="Budget of the list",
    )
    return picture[
        shape("rect", x="0", y="0", width="100", height="6", class_="axis"),
        shape("rect", x="0", y="0", width=f"{inside:.1f}", height="6", class_="inside-budget"),
        over if listing.size > BUDGET else None,
    ]


def _draw_choice(
    request: PageRequest, measured: _MeasuredList, collections: Sequence[SkillCollection]
) -> Node:
    where = {"settings": str(measured.where.settings)}
    options = [
        h.option(value=each.name, selected=each.name == measured.collection)[each.name]
        for each in collections
    ]
    use = form(
        request.session.csrf,
        action_path("collection use"),
        h.label["List alone the collection ", h.select(name="name")[options]],
        h.button(type="submit")["Use it"],
        fields=where,
        class_="line",
    )
    stop = form(
        request.session.csrf,
        action_path("collection stop"),
        h.button(type="submit")["List every skill again"],
        fields=where,
    )
    return h.div(".line")[use if collections else None, stop if measured.collection else None]


def _draw_collections(
    collections: Sequence[SkillCollection], lists: Sequence[_MeasuredList]
) -> Node:
    sizes = {skill.id: skill.size for measured in lists for skill in measured.skills}
    rows: list[list[Node]] = []
    for collection in collections:
        users = (each.where.title for each in lists if each.collection == collection.name)
        address = f"{ADDRESS}&collection={quote_part(collection.name)}"
        change = h.a(href=address, aria_label=f"Change {collection.name}")["Change"]
        size = sum(sizes.get(id_, 0) for id_ in collection.ids)
        rows.append(
            [
                h.strong[collection.name],
                f"{len(collection.ids):,}",
                f"{size:,}",
                ", ".join(users) or "not used",
                change,
            ]
        )
    none = h.p(".none")[
        "A collection is a set of skills with a name. Claude Code lists the skills of the one "
        "that you use; the others stay in their folders, you can still call them by name, and "
        "find_skill finds them."
    ]
    heads = ("collection", "skills", "characters", "used", "")
    return h.section(".panel")[
        h.h2["Collections"],
        table(heads, rows, "What they hold, and where they are used") if rows else none,
        h.p[h.a(".button", href=f"{ADDRESS}&collection={quote_part(NEW)}")["New collection"]],
    ]


def _draw_edit_form(
    request: PageRequest, lists: Sequence[_MeasuredList], collections: Sequence[SkillCollection]
) -> Node:
    """Return the form of one collection.

    A new one begins with the skills that keep their description today.
    """
    name = request.get("collection")
    collection = next((each for each in collections if each.name == name), None)
    if collection is None and name != NEW:
        raise InvalidArgument(
            "There is no such collection.", "The Library lists those that there are."
        )
    skills = {skill.id: skill for measured in lists for skill in measured.skills}
    if len(skills) > MAX_CHOICES:
        warning = (
            f"{len(skills):,} skills are too many for a form; `evolvable client collection add` "
            "takes their names."
        )
        return [h.p(".warning")[with_code(warning)], _link_back()]
    bare = {
        skill.id
        for measured in lists
        for skill in (*measured.listing.bare, *measured.listing.hidden)
    }
    chosen = collection.ids if collection is not None else skills.keys() - bare
    ordered = sorted(skills.values(), key=lambda skill: (-skill.uses, skill.ref))
    boxes = [_draw_box(skill, checked=skill.id in chosen) for skill in ordered]
    name_input = h.input(type="text", name="name", required=True, maxlength="64")
    legend = h.legend["Skills, the most used first, with their characters in the list"]
    store = form(
        request.session.csrf,
        action_path("collection add"),
        h.label["Name ", name_input] if collection is None else None,
        h.fieldset[legend, boxes],
        h.p(".buttons")[h.button(".good", type="submit")["Store"], _link_back()],
        fields={"known": collection.name} if collection is not None else {},
    )
    if collection is None:
        return h.section(".panel")[h.h2["A new collection"], store]
    remove = form(
        request.session.csrf,
        action_path("collection remove"),
        h.button(".bad", type="submit")["Remove this collection; its skills stay"],
        fields={"name": collection.name},
    )
    return h.section(".panel")[h.h2[f"The collection {collection.name}"], store, remove]


def _draw_box(skill: ListedSkill, *, checked: bool) -> Node:
    box = h.input(type="checkbox", name="skill", value=skill.ref, checked=checked)
    return h.label(".check")[
        box, " ", make_visible(skill.ref), " ", h.span(".none")[f"{skill.size:,}"]
    ]


def _link_back() -> Node:
    return h.a(href=ADDRESS)["Back to the list"]


def _store(site: Site, request: PageRequest) -> str:
    """Store the skills of a collection: the checked ones, and those that the form did not show."""
    if "pick" in request.fields:
        chosen = [ref for ref, _ in read_picked(request)]
        add_to_collection(site.library, site.caller, request.get("collection").strip(), chosen)
        return ADDRESS
    name = request.get("known") or request.get("name").strip()
    checked = {Ref.parse(text) for text in request.fields.get("skill", ())}
    shown_refs = {
        Ref.parse(skill.ref) for measured in _read_lists(site) or () for skill in measured.skills
    }
    before = {
        Ref.parse(ref)
        for collection in list_collections(site.library)
        if collection.name == name
        for ref in collection.refs
    }
    if before and not request.get("known"):
        raise InvalidArgument(
            f"There is a collection {name} already.", "Go back and choose another name."
        )
    added = sorted(checked - before, key=str)
    removed = sorted((before & shown_refs) - checked, key=str)
    add_to_collection(site.library, site.caller, name, added, removed)
    return ADDRESS


def _remove(site: Site, request: PageRequest) -> str:
    remove_from_collection(site.library, site.caller, request.get("name"))
    return ADDRESS


def _use(site: Site, request: PageRequest) -> str:
    return _apply(site, request, request.get("name"))


def _stop(site: Site, request: PageRequest) -> str:
    return _apply(site, request, "")


def _apply(site: Site, request: PageRequest, name: str) -> str:
    lists = client_lists(site.library.folders(), read_machine(site.services.config.project))
    settings = request.get("settings")
    where = next((each for each in lists if str(each.settings) == settings), None)
    if where is None:
        raise InvalidArgument(
            "This is no list of Claude Code.", "The Library shows those that there are."
        )
    choose_collection(site.library, site.caller, where, name)
    return ADDRESS


ACTIONS = (
    PageAction("collection add", _store),
    PageAction("collection remove", _remove),
    PageAction("collection use", _use),
    PageAction("collection stop", _stop),
)
"""The actions of the forms of the view."""
