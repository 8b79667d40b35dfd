"""What a client's own list of skills leaves out: descriptions beyond its budget, of the skills used least.

The rule is that of Claude Code, as docs/living-beside.md cites it: all descriptions together have a budget, each counts
up to a limit, and what is over loses its description. Search is not affected.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import htpy as h
from htpy import Node

from evolvable_server.ui.layout import resource_link, table
from evolvable_server.ui.site import Site
from evolvable_store.resource import USER_SCOPE, Kind
from evolvable_tools.verbs.search import MAX_PAGE, list_page

BUDGET = 8_000
"""Characters of all names and descriptions together: about 1 % of a context of 200,000 tokens."""

EACH = 1_536
"""Characters of one description that count."""

MAX_SHOWN = 100
"""Skills without a description that a table names."""


@dataclass(frozen=True, slots=True)
class ListedSkill:
    """One skill in the client's list: its characters, and how often it was opened."""

    ref: str
    size: int
    uses: int


@dataclass(frozen=True, slots=True)
class SkillListing:
    """The list of one scope. bare: those that lose their description, the most used first."""

    scope: str
    skills: int
    size: int
    bare: Sequence[ListedSkill]


def draw_budget(site: Site) -> Node:
    """Return a table for each scope. It is computed beside the page: it reads every description."""
    found = site.value("budget", lambda: read_listings(site), site.library.store.sequence())
    if found is None:
        return h.div(id="budget", data_live=True)[h.p["The descriptions are being read; this page shows it by itself."]]
    said = (
        f"Claude Code lists skills in its folders by name and description, in about {BUDGET:,} characters. The skills"
        " that are used least lose their description there. find_skill reads all of every description."
    )
    none = h.p["No watched folder holds a skill."] if not found else None
    return h.div(id="budget", data_live=True)[h.p[said], none, [_draw(one) for one in found]]


def _draw(one: SkillListing) -> Node:
    where = "In every project" if one.scope == USER_SCOPE else f"In the project {one.scope}, with those of the user"
    fits = "all keep their description" if not one.bare else f"{len(one.bare):,} lose their description"
    rows = [[resource_link(skill.ref), f"{skill.size:,}", f"{skill.uses:,}"] for skill in one.bare[:MAX_SHOWN]]
    return h.section[
        h.h2[where],
        h.p[f"{one.skills:,} skills, {one.size:,} of {BUDGET:,} characters: {fits}."],
        table(("skill", "characters", "opened"), rows, "Without a description, the most used first") if rows else None,
        h.p(".none")[f"{len(one.bare) - MAX_SHOWN:,} more."] if len(one.bare) > MAX_SHOWN else None,
    ]


def read_listings(site: Site) -> list[SkillListing]:
    """Return the lists of the user and of each project that has a skill in a watched folder."""
    by_scope = {scope: _read_scope(site, scope) for scope in site.caller.scopes}
    users = by_scope.get(USER_SCOPE, [])
    found = []
    for scope, own in by_scope.items():
        if own:
            found.append(_listing(scope, own if scope == USER_SCOPE else [*users, *own]))
    return sorted(found, key=lambda one: one.scope != USER_SCOPE)


def _read_scope(site: Site, scope: str) -> list[ListedSkill]:
    library, cursor, found = site.library, None, []
    while True:
        entries, cursor = list_page(library, (scope,), kind=Kind.SKILL, limit=MAX_PAGE, cursor=cursor)
        ids = [entry.id for entry in entries]
        placed = {binding.resource for _, binding, _ in library.store.backend.bindings.places(ids)}
        tallies = library.evidence.tallies(ids)
        for entry in entries:
            if entry.id in placed:
                uses = tallies[entry.id].loaded if entry.id in tallies else 0
                found.append(ListedSkill(str(entry.ref), len(entry.name) + len(entry.description[:EACH]), uses))
        if cursor is None:
            return found


def _listing(scope: str, skills: Sequence[ListedSkill]) -> SkillListing:
    left, bare = BUDGET, []
    for skill in sorted(skills, key=lambda one: (-one.uses, one.ref)):
        left -= skill.size
        if left < 0:
            bare.append(skill)
    return SkillListing(scope, len(skills), sum(skill.size for skill in skills), bare)
