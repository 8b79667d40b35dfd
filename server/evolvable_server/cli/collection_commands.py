"""The command `collection`: named sets of skills, and which of them Claude Code lists by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.terminal import Row, count, say, show_diff, show_table, some, warn
from evolvable_server.clients import (
    ClientList,
    CutList,
    ListChange,
    choose_collection,
    choose_for_client,
    chosen_lists,
    client_lists,
    cut_lists,
    listed_skills,
    measure_list,
    project_list,
    unlisted_newcomers,
)
from evolvable_server.config import read_machine
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_store.storage import ListingChoice
from evolvable_tools import Caller, Library, verbs
from evolvable_tools.verbs import (
    BUDGET,
    ListedSkill,
    Shown,
    SkillCollection,
    SkillListing,
    measure_listing,
)

# Ten names fill about two lines of a terminal; --json has all of them.
MAX_NAMED = 10
"""Skills that a line names."""


@dataclass(frozen=True, slots=True)
class ListedPlace:
    """What Claude Code lists in one place.

    collection: the one that was chosen, '' for none. newcomers: skills that came after `use`, which
    Claude Code lists until it runs again.
    """

    where: str
    settings: str
    collection: str
    skills: int
    size: int
    budget: int
    without_description: list[str]
    hidden: list[str]
    newcomers: list[str]


@dataclass(frozen=True, slots=True)
class CollectionSummary:
    """A collection. gone: skills of it that were removed from the library."""

    name: str
    skills: list[str]
    gone: list[str]
    used: list[str]


@dataclass(frozen=True, slots=True)
class CollectionSkill:
    """A skill of a collection.

    size: characters in Claude Code's list, None for one that is in none of its folders.
    """

    ref: str
    size: int | None
    opened: int


@command("collection", table=True)
@click.argument(
    "action", type=click.Choice(["list", "show", "add", "remove", "use", "stop"]), default="list"
)
@click.argument("name", required=False)
@click.argument("refs", nargs=-1, metavar="[REF]...")
@click.option("--project", is_flag=True, help="With use and stop: in the open project alone.")
@click.option(
    "--client",
    type=click.Choice(["claude-code", "codex", "copilot"]),
    default="claude-code",
    show_default=True,
    help="With use and stop: whose list.",
)
@click.option(
    "--dry-run", is_flag=True, help="With use and stop: show what would change; change nothing."
)
def collection_command(
    state: CommandContext,
    action: str,
    name: str | None,
    refs: tuple[str, ...],
    project: bool,
    client: str,
    dry_run: bool,
) -> Output[Any]:
    """Choose which skills Claude Code lists by itself.

    Claude Code lists the skills in its folders by name and description, in a budget. `add NAME
    REF...` makes a collection of skills, `remove NAME [REF]...` takes some or all of them out. `use
    NAME` has Claude Code list the skills of the collection alone: the others stay in their folders,
    a person can call them by name, and find_skill finds them. `stop` lists every skill again. Both
    change Claude Code's setting skillOverrides and keep a copy of the file; what you set there
    yourself stays. A skill that comes later is listed until you run `use` again. --client does the
    same in the settings of Codex or Copilot CLI, where a skill that is not listed is switched off.
    """
    # '' is Claude Code, whose list has more states than on and off.
    other = client if client != "claude-code" else ""
    _check_arguments(action, name, refs, options=project or dry_run or bool(other))
    if project and other:
        _refuse("`--project` is for Claude Code alone.")
    with state.library() as (library, caller):
        if action == "list":
            others = cut_lists(library, read_machine(state.config().project))
            result = {
                "collections": _list_summaries(library),
                "lists": _describe_places(state, library),
                "others": others,
            }
            return Output(result, _show_list)
        if action in ("use", "stop") and other:
            machine = read_machine(state.config().project)
            change = choose_for_client(library, caller, machine, other, name or "", dry_run=dry_run)
            return Output(change, lambda _: _show_client_change(change, dry_run))
        if action in ("use", "stop"):
            where = _choose_list(state, library, project)
            change = choose_collection(library, caller, where, name or "", dry_run=dry_run)
            # Measured as the list will be: a hidden skill takes no room in it.
            listing = measure_listing(
                listed_skills(library, where), dict.fromkeys(change.hidden, Shown.PERSON)
            )
            return Output(change, lambda _: _show_change(change, where, listing, dry_run))
        if action == "show":
            return _show_collection(state, library, name or "")
        return _change_collection(library, caller, action, name or "", list(map(Ref.parse, refs)))


def _check_arguments(action: str, name: str | None, refs: Sequence[str], *, options: bool) -> None:
    wants_name = action in ("show", "add", "remove", "use")
    if wants_name and name is None:
        _refuse(f"`client collection {action}` needs the name of a collection.")
    if not wants_name and name is not None:
        _refuse(f"`client collection {action}` takes no name.")
    if action == "add" and not refs:
        _refuse("`client collection add` needs the skills to add.")
    if action not in ("add", "remove") and refs:
        _refuse(f"`client collection {action}` takes no skills.")
    if action not in ("use", "stop") and options:
        _refuse(f"`client collection {action}` takes no options.")


def _refuse(message: str) -> NoReturn:
    hint = "`evolvable client collection --help` shows the ways to call it."
    raise InvalidArgument(message, hint)


def _choose_list(state: CommandContext, library: Library, project: bool) -> ClientList:
    machine, folders = read_machine(state.config().project), library.folders()
    if project:
        return project_list(folders, machine)
    for client_list in client_lists(folders, machine):
        if not client_list.project:
            return client_list
    hint = (
        "`evolvable init ~/.claude/skills` watches it; --project is for the skills of the "
        "open project."
    )
    raise InvalidArgument("Your folder of skills for Claude Code is not watched.", hint)


def _describe_places(state: CommandContext, library: Library) -> list[ListedPlace]:
    machine = read_machine(state.config().project)
    return [
        _describe_place(library, where, choice) for where, choice in chosen_lists(library, machine)
    ]


def _describe_place(
    library: Library, where: ClientList, choice: ListingChoice | None
) -> ListedPlace:
    listing = measure_list(where, listed_skills(library, where))
    return ListedPlace(
        where=where.title,
        settings=str(where.settings),
        collection=choice.collection if choice is not None else "",
        skills=listing.skills,
        size=listing.size,
        budget=BUDGET,
        without_description=[skill.ref for skill in listing.bare],
        hidden=[skill.ref for skill in listing.hidden],
        newcomers=unlisted_newcomers(library, where, choice) if choice is not None else [],
    )


def _list_summaries(library: Library) -> list[CollectionSummary]:
    choices = library.store.backend.collections.choices()
    return [
        CollectionSummary(
            collection.name,
            list(collection.refs),
            list(collection.gone),
            [str(choice.settings) for choice in choices if choice.collection == collection.name],
        )
        for collection in verbs.list_collections(library)
    ]


def _show_list(result: Mapping[str, Any]) -> None:
    summaries: list[CollectionSummary] = result["collections"]
    if summaries:
        rows: list[Row] = [
            [
                (summary.name, "bold"),
                str(len(summary.skills)),
                "used" if summary.used else "",
                some(summary.skills, MAX_NAMED),
            ]
            for summary in summaries
        ]
        show_table(
            ["collection", "skills", "", "holds"], rows, names=("collection",), wide=("holds",)
        )
    else:
        say("There is no collection. `evolvable client collection add NAME REF...` makes one.")
    places: list[ListedPlace] = result["lists"]
    if not places:
        say(
            "\nNo folder of skills that Claude Code reads is watched. `evolvable init "
            "~/.claude/skills` watches yours."
        )
    for place in places:
        _show_place(place)
    others: list[CutList] = result["others"]
    for other in others:
        say(f"\n{other.text}.")
        if other.cut:
            say(f"  cut: {some([skill.ref for skill in other.cut], MAX_NAMED)}")


def _show_client_change(change: ListChange, dry_run: bool) -> None:
    say(
        f"{'Would list' if dry_run else 'Lists'} {count(len(change.listed), 'skill')}, by "
        f"{change.settings}."
    )
    if change.hidden:
        say(f"Switched off there: {some(change.hidden, MAX_NAMED)}.")
    if change.backup:
        say(f"The file as it was: {change.backup}")
    if dry_run and change.diff:
        show_diff(change.diff)


def _show_place(place: ListedPlace) -> None:
    chosen = f" by the collection {place.collection}" if place.collection else ""
    size = f"{place.size:,} of {place.budget:,} characters"
    say(f"\nClaude Code lists {count(place.skills, 'skill')} {place.where}{chosen}: {size}.")
    if place.without_description:
        say(f"  without description: {some(place.without_description, MAX_NAMED)}")
    if place.hidden:
        say(f"  found by find_skill alone: {some(place.hidden, MAX_NAMED)}")
    if place.newcomers:
        use_command = f"evolvable client collection use {place.collection}"
        say(
            f"  not in the collection, and listed: {some(place.newcomers, MAX_NAMED)}. "
            f"`{use_command}` hides them."
        )


def _show_collection(state: CommandContext, library: Library, name: str) -> Output[dict[str, Any]]:
    collection = verbs.find_collection(library, name)
    lists = client_lists(library.folders(), read_machine(state.config().project))
    skills_by_id = {skill.id: skill for where in lists for skill in listed_skills(library, where)}
    heads = library.store.backend.heads_by_id(collection.ids)
    refs = {id_: str(heads[id_].ref) for id_ in collection.ids}
    skills = [
        _describe_skill(refs[id_], skills_by_id.get(id_))
        for id_ in sorted(refs, key=refs.__getitem__)
    ]
    result = {
        "name": name,
        "skills": [asdict(collected) for collected in skills],
        "gone": list(collection.gone),
    }
    return Output(result, lambda _: _show_skills(skills, collection))


def _describe_skill(ref: str, listed_skill: ListedSkill | None) -> CollectionSkill:
    if listed_skill is None:
        return CollectionSkill(ref, None, 0)
    return CollectionSkill(ref, listed_skill.size, listed_skill.uses)


def _show_skills(skills: Sequence[CollectionSkill], collection: SkillCollection) -> None:
    rows: list[Row] = [
        [
            (skill.ref, "bold"),
            f"{skill.size:,}" if skill.size is not None else "in no folder",
            f"{skill.opened:,}",
        ]
        for skill in skills
    ]
    show_table(["skill", "characters", "opened"], rows, names=("skill",), spare=("opened",))
    sizes = [skill.size for skill in skills if skill.size is not None]
    # Claude Code puts a line end between two skills.
    say(f"\n{sum(sizes) + max(0, len(sizes) - 1):,} of {BUDGET:,} characters.")
    if collection.gone:
        say(f"Removed from the library: {some(list(collection.gone), MAX_NAMED)}.")


def _change_collection(
    library: Library, caller: Caller, action: str, name: str, refs: Sequence[Ref]
) -> Output[dict[str, Any]]:
    if action == "add":
        left, gone = verbs.add_to_collection(library, caller, name, refs), list[str]()
    else:
        left, gone = verbs.remove_from_collection(library, caller, name, refs)
    used = [
        choice
        for choice in library.store.backend.collections.choices()
        if choice.collection == name
    ]
    result = {
        "name": name,
        "skills": list(left.refs),
        "removed": gone,
        "used": [str(choice.settings) for choice in used],
    }
    return Output(result, lambda _: _show_members(name, left, gone, used))


def _show_members(
    name: str, left: SkillCollection, gone: Sequence[str], used: Sequence[ListingChoice]
) -> None:
    if left.refs or left.gone:
        say(f"{name} holds {count(len(left.refs), 'skill')}: {some(list(left.refs), MAX_NAMED)}.")
    else:
        say(f"The collection {name} is removed; the skills stay.")
    if gone:
        say(f"Take it back: evolvable client collection add {name} {' '.join(gone)}")
    if used and left.refs:
        say(
            f"Claude Code lists it as it was: `evolvable client collection use {name}` applies "
            "the change."
        )
    elif used:
        say(
            "Claude Code lists what it listed: `evolvable client collection stop` lists every "
            "skill again."
        )
    else:
        use_command = f"evolvable client collection use {name}"
        say(f"`{use_command}` has Claude Code list it." if left.refs else "")


def _show_change(
    change: ListChange, where: ClientList, listing: SkillListing, dry_run: bool
) -> None:
    verb = "would list" if dry_run else "lists"
    chosen = f"the collection {change.collection}" if change.collection else "every skill"
    say(f"Claude Code {verb} {chosen} {where.title}:")
    say(f"  {count(len(change.listed), 'skill')}, {listing.size:,} of {BUDGET:,} characters")
    if listing.bare:
        say(f"  without description: {some([skill.ref for skill in listing.bare], MAX_NAMED)}")
    if change.hidden:
        say(f"  found by find_skill alone: {some(change.hidden, MAX_NAMED)}")
    if dry_run:
        show_diff(change.diff)
        return
    if change.kept:
        warn(f"Your own settings decide about {some(change.kept, MAX_NAMED)}; they stay.")
    if not change.written:
        exists = Path(change.settings).exists()
        state = "says so already" if exists else "does not exist and is not needed"
        say(f"{change.settings} {state}.")
    if change.backup:
        say(f"The file as it was: {change.backup}")
    if change.collection:
        option = " --project" if where.project else ""
        say(
            "Sessions that begin from now on follow it. Take it back: evolvable client "
            f"collection stop{option}"
        )
