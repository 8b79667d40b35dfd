"""How a file of a resource is written as a URI, what a URI names, and the templates of URIs.

skill://<name>/<file> is a user's, skill://<project>/<name>/<file> one of a project; every other kind has the scheme of
its name. Of a skill that is the version hosts see, the stable channel's; of any other kind the head.
skill://version.<n>/<name>/<file> is version n, for ever; no scope and no name has a dot, so nothing else can be meant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from evolvable_store.errors import EvolvableError, InvalidRef, NoSuchResource, NoSuchVersion
from evolvable_store.operation import Head
from evolvable_store.paths import check_path
from evolvable_store.resource import (
    MEMORY_NAMES,
    USER_SCOPE,
    Kind,
    Ref,
    check_name,
    check_scope,
    main_file,
    parse_version,
)
from evolvable_store.storage.release_channel import Channel
from evolvable_store.store import Store
from evolvable_tools.library import Caller, Library
from evolvable_tools.verbs.host_catalog import is_users

VERSION = "version."

_OF_USER, _OF_PROJECT = "{name}/{+file}", "{scope}/{name}/{+file}"


@dataclass(frozen=True, slots=True)
class Place:
    """What a URI names: a version of a resource and a path in it, '' for the resource's own directory.

    `named`: the version stands in the URI, so what it says never changes.
    """

    head: Head
    version: int
    path: str
    named: bool


def uri_of(scope: str, name: str, path: str, kind: Kind = Kind.SKILL, version: int | None = None) -> str:
    """Returns the URI of a file or directory of a resource, of its own directory for the path ''.

    version: of that version for ever, instead of the one that is seen now.
    """
    parts = [f"{VERSION}{version}"] * (version is not None) + [scope] * (scope != USER_SCOPE) + [name]
    return f"{kind}://" + "/".join([*parts, *[quote(path)] * bool(path)])


def resolve(store: Store, uri: str, *, directory: bool = False) -> Place:
    """Returns the file that a URI names, or with `directory` the directory; that the path is there is not looked at.

    Where both readings exist, the first part is taken as a project before it is taken as a name of the user's; of
    skills the one is meant that had the address first.
    Raises NoSuchResource, NoSuchVersion, InvalidRef, InvalidPath.
    """
    scheme, _, rest = uri.partition("://")
    if scheme not in set(Kind):
        schemes = ", ".join(f"{kind}://" for kind in Kind)
        raise NoSuchResource(f"{ascii(uri[:200])} is no URI of a resource.", f"They begin with {schemes}.")
    kind, parts = Kind(scheme), [unquote(part) for part in rest.split("/")]
    number = _version(parts[0])
    if number is not None:
        del parts[0]
    if len(parts) < (1 if directory else 2):
        raise NoSuchResource(f"{ascii(uri[:200])} names no file.", f"Add one: {uri[:200]}/{main_file(kind, rest)}.")
    if len(parts) >= (2 if directory else 3):
        head = _of_project(store, kind, parts[0], parts[1])
        version = number or (_seen(store, head) if head else None)
        if head is not None and version is not None and not _is_users(store, head, parts, number):
            return _place(store, head, version, parts[2:], number is not None)
    return _of_user(store, kind, parts, number)


def _of_user(store: Store, kind: Kind, parts: Sequence[str], number: int | None) -> Place:
    ref = Ref(kind, check_name(kind, _name(kind, parts[0])), USER_SCOPE)
    head = (store.head_or_none(ref) if number else None) or store.head(ref)
    version = number or _seen(store, head)
    if version is None:
        raise NoSuchResource(
            f"{head.ref} is in the library, and hosts do not see it until it is published.",
            "load_skill opens it; the user publishes with `evolvable publish`.",
        )
    return _place(store, head, version, parts[1:], number is not None)


def _version(part: str) -> int | None:
    if not part.startswith(VERSION):
        return None
    try:
        return parse_version(part.removeprefix(VERSION))
    except InvalidRef as error:
        raise NoSuchVersion(str(error), "A version is written version.3.") from None


def _of_project(store: Store, kind: Kind, scope: str, name: str) -> Head | None:
    try:
        return store.head_or_none(Ref(kind, check_name(kind, _name(kind, name)), check_scope(scope)))
    except EvolvableError:
        return None


def _is_users(store: Store, project: Head, parts: Sequence[str], number: int | None) -> bool:
    """Returns whether a directory of the user's skill was at this address before the project's skill was."""
    try:
        head = store.head_or_none(Ref(Kind.SKILL, check_name(Kind.SKILL, parts[0]), USER_SCOPE))
        if head is None or project.kind is not Kind.SKILL or not (number or _seen(store, head)):
            return False
        if number is None:
            return is_users(store, head.id, project.id, project.name)
        made = store.version(head, number).operation
        inside = any(path.startswith(f"{project.name}/") for path in store.manifest(head, number))
        return inside and (number > project.latest or made < store.version(project, number).operation)
    except EvolvableError:
        return False


def _name(kind: Kind, name: str) -> str:
    # Some clients write what follows :// in small letters, as they would a host.
    return name.upper() if kind is Kind.MEMORY and name.upper() in MEMORY_NAMES else name


def _seen(store: Store, head: Head) -> int | None:
    """Returns the version that clients see of a resource."""
    if head.kind is not Kind.SKILL:
        return head.version
    held = Channel(store.backend).of(head.id)
    return held.seen if held else None


def _heads_seen(store: Store, kind: Kind, scopes: Sequence[str]) -> list[tuple[Head, int]]:
    """Returns what clients see of a kind in these scopes, each with the version that they see."""
    heads = [head for scope in scopes for head in store.heads(kind, scope)]
    placed = (
        {held.resource: held.seen for held in Channel(store.backend).held()} if kind is Kind.SKILL and heads else {}
    )
    seen = [(head, placed.get(head.id) if kind is Kind.SKILL else head.version) for head in heads]
    return [(head, version) for head, version in seen if version is not None]


def _place(store: Store, head: Head, version: int, parts: Sequence[str], named: bool) -> Place:
    store.version(head, version)  # raises NoSuchVersion
    return Place(head, version, check_path("/".join(parts)) if parts else "", named)


def template(kind: Kind, *, project: bool) -> str:
    """Returns the template of the URIs of a kind, of the user's resources or of a project's."""
    return f"{kind}://{_OF_PROJECT if project else _OF_USER}"


def templates_for(library: Library, caller: Caller) -> list[tuple[Kind, bool]]:
    """Returns the kinds that the caller sees one of, each with whether it is of a project's.

    There is none for a kind of which nothing is seen: each template expands to something.
    """
    return [
        (kind, project)
        for kind in Kind
        for project in (False, True)
        if _heads_seen(library.store, kind, _scopes(caller, project))
    ]


def complete_uri(
    library: Library, caller: Caller, uri: str, variable: str, begun: str, known: Mapping[str, str]
) -> list[str]:
    """Returns the values of a template's variable that begin so and, with those known, lead to what there is.

    Raises NoSuchResource, InvalidRef.
    """
    scheme, _, rest = uri.partition("://")
    if scheme not in set(Kind) or rest not in (_OF_USER, _OF_PROJECT):
        return []
    kind, scopes = Kind(scheme), _scopes(caller, rest == _OF_PROJECT)
    if "scope" in known:
        scopes = tuple(scope for scope in scopes if scope == known["scope"])
    seen = _heads_seen(library.store, kind, scopes)
    values: set[str] = set()
    if variable == "scope" and rest == _OF_PROJECT:
        values = {head.scope for head, _ in seen}
    elif variable == "name":
        values = {head.name for head, _ in seen}
    elif variable == "file":
        named = [(head, version) for head, version in seen if head.name == known.get("name")]
        values = {path for head, version in named for path in library.store.manifest(head, version)}
    return sorted(value for value in values if value.startswith(begun))


def _scopes(caller: Caller, project: bool) -> tuple[str, ...]:
    return tuple(scope for scope in caller.scopes if (scope != USER_SCOPE) is project)
