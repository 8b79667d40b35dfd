"""How a skill's file is written as a URI: skill://<name>/<file>, and skill://<scope>/<name>/<file> in a project."""

from urllib.parse import quote, unquote

from evolvable_store.errors import EvolvableError, NoSuchResource
from evolvable_store.operation import Head
from evolvable_store.paths import check_path
from evolvable_store.resource import USER_SCOPE, Kind, Ref, check_name, check_scope
from evolvable_store.store import Store

SCHEME = "skill://"


def uri_of(scope: str, name: str, path: str) -> str:
    """Returns the URI of a file of a skill."""
    place = name if scope == USER_SCOPE else f"{scope}/{name}"
    return f"{SCHEME}{place}/{quote(path)}"


def resolve(store: Store, uri: str) -> tuple[Head, str]:
    """Returns the skill and the path that a URI names.

    Where both readings exist, the first part is taken as a project before it is taken as a skill of the user's.
    Raises NoSuchResource, InvalidRef, InvalidPath.
    """
    if not uri.startswith(SCHEME):
        raise NoSuchResource(f"{ascii(uri[:200])} is not a skill:// URI.", "resources/list shows those there are.")
    parts = [unquote(part) for part in uri.removeprefix(SCHEME).split("/")]
    if len(parts) < 2:
        raise NoSuchResource(f"{ascii(uri[:200])} names no file.", f"Add one: {uri[:200]}/SKILL.md.")
    if len(parts) > 2:
        head = _head(store, parts[0], parts[1])
        if head is not None:
            return head, check_path("/".join(parts[2:]))
    name = check_name(Kind.SKILL, parts[0])
    return store.head(Ref(Kind.SKILL, name, USER_SCOPE)), check_path("/".join(parts[1:]))


def _head(store: Store, scope: str, name: str) -> Head | None:
    try:
        ref = Ref(Kind.SKILL, check_name(Kind.SKILL, name), check_scope(scope))
    except EvolvableError:
        return None
    head = store.head_or_none(ref)
    return head if head is not None and head.version is not None else None
