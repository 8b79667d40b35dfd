"""Collections: named sets of skills, one of which a client lists by itself while find_skill finds
the others.

Claude Code lists the names and descriptions of its skills in a budget. The skills that are used
least lose their description there. The rule is cited in docs/living-beside.md. Search is not
affected.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolvable_store import Head
from evolvable_store.errors import InvalidArgument, NotFound
from evolvable_store.resource import MAX_NAME, Kind, Ref, is_name
from evolvable_store.storage import WatchedFolder
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.reporting import count
from evolvable_tools.secret_leaks import check_may_decide

BUDGET = 8_000
"""Characters of the whole list: 1 % of a context of 200,000 tokens, at four characters a token."""

EACH = 1_536
"""Characters of one description that count: Claude Code cuts a longer one in its list.

docs/living-beside.md cites the rule.
"""

MAX_COLLECTIONS = 100
"""Collections of a library."""


class Shown(StrEnum):
    """How a client lists one skill. The values are those of Claude Code's `skillOverrides`."""

    WHOLE = "on"
    """By name and description."""

    NAME = "name-only"
    """By its name."""

    PERSON = "user-invocable-only"
    """Not listed to the model. A person may call it by its name."""

    NEVER = "off"
    """Not at all."""


@dataclass(frozen=True, slots=True)
class ListedSkill:
    """One skill in a folder of a client.

    name: as the client calls it. uses: how often it was opened.
    """

    id: int
    name: str
    ref: str
    description: int
    uses: int

    @property
    def size(self) -> int:
        """Characters of its entry: a dash, the name, a colon, the description."""
        return len(self.name) + 4 + min(self.description, EACH)


@dataclass(frozen=True, slots=True)
class SkillListing:
    """What a client's list holds. size: characters if no description were cut. bare: skills that
    lose theirs, the most used first. hidden: skills that the client does not list.
    """

    skills: int
    size: int
    bare: Sequence[ListedSkill]
    hidden: Sequence[ListedSkill]


@dataclass(frozen=True, slots=True)
class SkillCollection:
    """A named set of skills.

    ids, refs: of its living skills. gone: those that were removed from the library.
    """

    name: str
    ids: frozenset[int]
    refs: Sequence[str]
    gone: Sequence[str] = ()


def read_skills(library: Library, folder: WatchedFolder) -> list[ListedSkill]:
    """Return the skills of a watched folder as a client finds them there: its direct subfolders."""
    bound = library.store.backend.bindings.of_folder(folder).values()
    directories = {
        binding.resource: binding.directory
        for binding in bound
        if binding.version is not None and "/" not in binding.directory
    }
    entries = library.index.visible_entries(directories, Kind.SKILL, (folder.scope,))
    tallies = library.evidence.tallies(list(entries))
    listed = []
    for id_, entry in entries.items():
        uses = tallies[id_].loaded if id_ in tallies else 0
        length = len(entry.description)
        listed.append(ListedSkill(id_, directories[id_], str(entry.ref), length, uses))
    return listed


def measure_listing(skills: Iterable[ListedSkill], overrides: Mapping[str, Shown]) -> SkillListing:
    """Return what a client's list holds.

    Every name stays. Descriptions stay while they fit, those of the skills that are used most
    first. overrides: how the client lists a skill, by its name. A skill without one is listed
    whole.
    """
    groups: dict[Shown, list[ListedSkill]] = {shown: [] for shown in Shown}
    for name, skill in {skill.name: skill for skill in skills}.items():
        groups[overrides.get(name, Shown.WHOLE)].append(skill)
    whole, names_only = groups[Shown.WHOLE], groups[Shown.NAME]
    hidden = [*groups[Shown.PERSON], *groups[Shown.NEVER]]
    lines = len(whole) + len(names_only)
    # "- " before each name, and a line end between the entries.
    names = sum(len(skill.name) + 2 for skill in (*whole, *names_only)) + max(0, lines - 1)
    left, bare = BUDGET - names, []
    for skill in sorted(whole, key=_rank_by_use):
        cost = skill.size - len(skill.name) - 2
        if cost <= left:
            left -= cost
        else:
            bare.append(skill)
    size = names + sum(skill.size - len(skill.name) - 2 for skill in whole)
    return SkillListing(lines, size, bare, sorted(hidden, key=_rank_by_use))


def fitting_skills(skills: Iterable[ListedSkill], beside: int = 0) -> list[ListedSkill]:
    """Return the skills that are listed with their descriptions where the others are not listed,
    most used first.

    beside: characters of other skills in the same list.
    """
    fitting, left = list[ListedSkill](), BUDGET - beside
    for skill in sorted({skill.name: skill for skill in skills}.values(), key=_rank_by_use):
        if skill.size < left:
            fitting.append(skill)
            left -= skill.size + 1
    return fitting


def describe_listing(listing: SkillListing) -> str:
    """Return in a line how many skills a list holds, its size, and how many lose their description
    there.
    """
    summary = f"{count(listing.skills, 'skill')}, {listing.size:,} of {BUDGET:,} characters"
    bare = len(listing.bare)
    if not bare:
        return f"{summary}: all keep their description"
    verb = "loses its" if bare == 1 else "lose their"
    return f"{summary}: {bare:,} {verb} description"


def _rank_by_use(skill: ListedSkill) -> tuple[int, str]:
    return -skill.uses, skill.ref


def list_collections(library: Library) -> list[SkillCollection]:
    """Return all collections by name."""
    members = library.store.backend.collections.members()
    heads = library.store.backend.heads_by_id({id_ for ids in members.values() for id_ in ids})
    return [
        _make_collection(name, [heads[id_] for id_ in ids if id_ in heads])
        for name, ids in members.items()
    ]


def _make_collection(name: str, heads: Sequence[Head]) -> SkillCollection:
    living = sorted(
        (head for head in heads if head.version is not None), key=lambda head: str(head.ref)
    )
    gone = sorted(str(head.ref) for head in heads if head.version is None)
    return SkillCollection(
        name, frozenset(head.id for head in living), [str(head.ref) for head in living], gone
    )


def find_collection(library: Library, name: str) -> SkillCollection:
    """Return one collection. Raise NotFound."""
    by_name = {collection.name: collection for collection in list_collections(library)}
    if name not in by_name:
        hint = f"There is: {', '.join(by_name)}."
        if not by_name:
            hint = "There is none; `evolvable client collection add NAME REF` makes one."
        raise NotFound(f"There is no collection {name[:MAX_NAME]!r}.", hint)
    return by_name[name]


def add_to_collection(
    library: Library, caller: Caller, name: str, refs: Sequence[Ref], removed: Sequence[Ref] = ()
) -> SkillCollection:
    """Add skills to a collection, which is made where it is missing, and remove others from it.

    Raise Refused for anybody but a person, InvalidArgument, NoSuchResource.
    """
    check_may_decide(caller, "change collections")
    if not is_name(name):
        hint = (
            f"Use up to {MAX_NAME} lower-case letters, digits and single hyphens, such as `work`."
        )
        raise InvalidArgument(f"{name[:80]!r} is no name of a collection.", hint)
    collections = {collection.name: collection for collection in list_collections(library)}
    if name not in collections and len(collections) >= MAX_COLLECTIONS:
        raise InvalidArgument(
            f"There are {MAX_COLLECTIONS} collections.", "Remove one of them first."
        )
    added = [_find_skill(library, caller, ref).id for ref in refs]
    if not added and name not in collections:
        raise InvalidArgument(f"The collection {name} would be empty.", "Name at least one skill.")
    gone = [_find_skill(library, caller, ref).id for ref in removed]
    library.store.backend.collections.change(name, library.store.now(), added, gone)
    library.record(caller, "change collection", name)
    return next(
        (collection for collection in list_collections(library) if collection.name == name),
        SkillCollection(name, frozenset(), ()),
    )


def _find_skill(library: Library, caller: Caller, ref: Ref) -> Head:
    if ref.kind is not Kind.SKILL:
        raise InvalidArgument(f"{ref} is no skill.", "Clients list skills alone.")
    return library.store.head(ref, caller.scopes)


def remove_from_collection(
    library: Library, caller: Caller, name: str, refs: Sequence[Ref] = ()
) -> tuple[SkillCollection, list[str]]:
    """Remove skills from a collection, without refs all of them, which ends it, and return what is
    left, and what went.

    Raise Refused for anybody but a person, NotFound, NoSuchResource.
    """
    check_may_decide(caller, "change collections")
    existing = find_collection(library, name)
    ids = library.store.backend.collections.members()[name]
    gone = [_find_member(library, caller, existing, ref) for ref in refs] or list(ids)
    heads = library.store.backend.heads_by_id(gone)
    library.store.backend.collections.change(name, library.store.now(), (), gone)
    library.record(caller, "change collection", name)
    left = next(
        (collection for collection in list_collections(library) if collection.name == name),
        SkillCollection(name, frozenset(), ()),
    )
    return left, sorted(str(head.ref) for head in heads.values())


def _find_member(library: Library, caller: Caller, collection: SkillCollection, ref: Ref) -> int:
    head = library.store.head(ref, caller.scopes)
    if head.id not in collection.ids:
        raise NotFound(
            f"{head.ref} is not in the collection {collection.name}.",
            f"It has: {_format_refs(collection.refs)}.",
        )
    return head.id


def _format_refs(refs: Sequence[str]) -> str:
    more = f" and {len(refs) - 10} more" if len(refs) > 10 else ""
    return ", ".join(refs[:10]) + more


def plan_overrides(
    skills: Iterable[ListedSkill],
    chosen: Collection[int],
    own: Mapping[str, object],
    below: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings that make a client list the chosen skills alone.

    own: what a person set in the same file, which stays as it is. below: what files that count less
    say.
    """
    chosen_by_name: dict[str, bool] = {}
    for skill in skills:
        chosen_by_name[skill.name] = chosen_by_name.get(skill.name, False) or skill.id in chosen
    plan = {}
    for name, is_chosen in chosen_by_name.items():
        current = below.get(name, Shown.WHOLE)
        if name in own:
            continue
        if is_chosen and current != Shown.WHOLE:
            plan[name] = Shown.WHOLE.value
        # Hidden from the model and still callable by the person, unless another file hides it
        # already.
        elif not is_chosen and current not in (Shown.PERSON, Shown.NEVER):
            plan[name] = Shown.PERSON.value
    return plan
