"""Variables: the parts of a resource under stable ids, each of which can be read and set alone.

The ids of `skill:pdf` are `skill:pdf/SKILL.md#frontmatter.description`, `skill:pdf/SKILL.md#steps`
for the section with the heading `## Steps`, and `skill:pdf/scripts/fill.py` for a file. Setting
some makes one new version, and leaves every variable that was not named as it was, or is refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import yaml

from evolvable_store import Actor, File, Files, Head, find_frontmatter, parse_document
from evolvable_store.errors import Frozen, InvalidArgument, Refused, VersionConflict
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_tools import (
    AnswerMarks,
    Caller,
    Library,
    changed_frozen_sections,
    decode_text,
    encode_text,
    is_env_file,
    read_sections,
    version_authorship,
)
from evolvable_tools.verbs import Updated, update_resource

# Bounds one answer; with ids a caller asks for the rest.
MAX_VALUES = 150_000
"""Characters of all values in one answer; variables behind are listed without theirs."""

MAX_NAMED = 8
"""Ids that a message names."""

DESCRIPTION = "frontmatter.description"


@dataclass(frozen=True, slots=True)
class ResourceVariable:
    """One variable. role: description, section or file. value: None where `note` says why it is not
    shown.

    evolvable: whether `set_variables` may set it.
    """

    id: str
    role: str
    evolvable: bool
    size: int
    value: str | None = None
    note: str = ""


@dataclass(frozen=True)
class Variables:
    """The variables of one version.

    notice: the meaning of the marks around values, '' where there are none.
    """

    ref: str
    version: int
    evolvable: bool
    variables: list[ResourceVariable] = field(default_factory=list)
    notice: str = ""


class VariableOwner(Protocol):
    """An owner of variables: the head of a resource in the library, or a part of a program that a
    run evolves.
    """

    @property
    def kind(self) -> Kind:
        """The kind of the resource."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def ref(self) -> object:
        """The beginning of the ids of its variables, as text."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a variable's text. path: of the file. span: the characters in it, None for the
    whole file.
    """

    path: str
    role: str
    span: tuple[int, int] | None
    frozen: bool = False


def get_variables(library: Library, caller: Caller, ref: Ref, ids: Sequence[str] = ()) -> Variables:
    """Return the variables of a resource's newest version, or of the one that is named.

    ids: only these. Values that no trusted author wrote reach an agent between marks.
    Of an environment only its main file has values, as a task set holds the answers of its sealed
    test. Raise NoSuchResource, NoSuchVersion, InvalidArgument for an id that the version does not
    have.
    """
    store, unversioned, scopes = library.store, ref.at(None), caller.scopes
    # The second call raises the error, which names similar resources.
    head = store.head_or_none(unversioned, scopes) or store.head(unversioned, scopes)
    number = ref.version or head.latest
    files = store.files(head, number)
    places = _find_places(head, files)
    if unknown := [id_ for id_ in ids if id_ not in places]:
        raise _unknown_variable_error(head, unknown, places)
    untrusted_reason = version_authorship(library, head, number, caller).why
    locked = _is_frozen(head, files)
    marks = AnswerMarks(caller.actor is not Actor.HUMAN and bool(untrusted_reason))
    variables, left = list[ResourceVariable](), MAX_VALUES
    for id_ in ids or places:
        place = places[id_]
        text, note = _read_value(head, files, place)
        if text is not None and len(text) > left:
            note, value = "the answer would be too long; name it in ids", None
        else:
            value = text
            left -= len(text or "")
        if value is not None and marks.on:
            value = marks.block(value, f"{id_} of version {number}", untrusted_reason)
        free = not (locked or place.frozen or text is None)
        variables.append(ResourceVariable(id_, place.role, free, len(text or ""), value, note))
    return Variables(str(head.ref), number, not locked, variables, marks.notice)


def list_variables(owner: VariableOwner, files: Files) -> list[ResourceVariable]:
    """Return every variable of these files with its value, without marks; `evolvable` is False for
    frozen sections.
    """
    variables = []
    for id_, place in _find_places(owner, files).items():
        text, note = _read_value(owner, files, place)
        free = text is not None and not place.frozen
        variables.append(ResourceVariable(id_, place.role, free, len(text or ""), text, note))
    return variables


def _find_places(head: VariableOwner, files: Files) -> dict[str, _Place]:
    """Return the variables of these files by id, the main file's first."""
    main, places = main_file(head.kind, head.name), dict[str, _Place]()
    # False sorts before True, so the main file comes first.
    for path in sorted(files, key=lambda path: (path != main, path)):
        name, data = f"{head.ref}/{path}", files[path].data
        if path == main and (span := _find_description(data)):
            places[f"{name}#{DESCRIPTION}"] = _Place(path, "description", span)
        if path.endswith(".md"):
            for section in read_sections(data):
                if section.id:
                    span = (section.start, section.end)
                    place = _Place(path, "section", span, section.frozen)
                    places[f"{name}#{section.id}"] = place
        places[name] = _Place(path, "file", None)
    return places


def _find_description(data: bytes) -> tuple[int, int] | None:
    """Return the characters of the description's value in the frontmatter, None where it is not a
    plain text there.
    """
    place = find_frontmatter(data)
    document = parse_document(data)
    if place is None or not place.closed or not isinstance(document.fields.get("description"), str):
        return None
    # The marks of PyYAML count characters from the beginning of the frontmatter, not bytes.
    offset = len(data[: place.start].decode("utf-8"))
    try:
        # Composed and not loaded: nodes know where they stand in the text.
        root = yaml.compose(data[place.start : place.end].decode("utf-8"), yaml.SafeLoader)
    except yaml.YAMLError:
        return None
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "description" and isinstance(value, yaml.ScalarNode):
            return offset + value.start_mark.index, offset + value.end_mark.index
    return None


def _read_value(head: VariableOwner, files: Files, place: _Place) -> tuple[str | None, str]:
    """Return a variable's text, or None and why it is not shown."""
    main = main_file(head.kind, head.name)
    if head.kind is Kind.ENVIRONMENT and place.path != main:
        return None, "files of an environment are read by get_resource, without the sealed test"
    if is_env_file(place.path):
        return None, "settings that are not for others"
    text = decode_text(files[place.path].data)
    if text is None:
        return None, f"it is not text ({len(files[place.path].data):,} bytes)"
    if place.role == "description":
        return str(parse_document(files[place.path].data).fields["description"]), ""
    return (text[slice(*place.span)] if place.span else text), ""


def _is_frozen(head: Head, files: Files) -> bool:
    main = files.get(main_file(head.kind, head.name))
    metadata = parse_document(main.data).fields.get("metadata") if main else None
    flag = metadata.get("evolvable") if isinstance(metadata, dict) else None
    return head.frozen or str(flag).strip().lower() == "false"


def _unknown_variable_error(
    head: VariableOwner, ids: Sequence[str], places: Mapping[str, _Place]
) -> InvalidArgument:
    names = ", ".join(list(places)[:MAX_NAMED]) + (", ..." if len(places) > MAX_NAMED else "")
    return InvalidArgument(
        f"{head.ref} has no variable {', '.join(ascii(id_[:120]) for id_ in ids[:3])}.",
        f"Name one of: {names}",
    )


def set_variables(
    library: Library,
    caller: Caller,
    ref: Ref,
    values: Mapping[str, str],
    expected_version: int,
    reason: str,
    *,
    propose: bool = False,
) -> Updated:
    """Make one new version in which these variables have these values, and every other one is as it
    was.

    The change passes the scan and the policy as any other. Raise VersionConflict where the head is
    not the expected version, and Frozen for a resource or a section that is frozen. Raise
    InvalidArgument for unknown ids, and for a value that would change another variable.
    """
    head, _ = library.latest(library.store.head(ref.at(None), caller.scopes))
    # Before anything is computed: ids and places of another version may mean other text.
    if (head.version or 0) != expected_version:
        raise VersionConflict(str(head.ref), expected_version, head.version or 0)
    files = library.store.files(head)
    if _is_frozen(head, files):
        raise Frozen(str(head.ref), f"set_variables of {caller.actor}")
    if not values:
        raise InvalidArgument(
            "No variable was given.", "Pass values {id: text}; get_variables has the ids."
        )
    after = apply_variables(head, files, values)
    changed = {path: file.data for path, file in after.items() if file.data != files[path].data}
    if not changed:
        # No version for values that are as they were.
        return Updated(str(head.ref), head.version, head.version, None)
    return update_resource(
        library,
        caller,
        head.ref,
        reason,
        files=changed,
        expected_version=expected_version,
        propose=propose,
    )


def apply_variables(
    head: VariableOwner, files: Files, values: Mapping[str, str]
) -> dict[str, File]:
    """Return the files with these variables set.

    Raise Refused, InvalidArgument; see `set_variables`.
    """
    places = _find_places(head, files)
    if unknown := [id_ for id_ in values if id_ not in places]:
        raise _unknown_variable_error(head, unknown, places)
    for id_ in values:
        if places[id_].frozen:
            raise _make_frozen_error(id_)
        if _read_value(head, files, places[id_])[0] is None:
            raise InvalidArgument(
                f"{id_} has no text that could be set.", "update_resource writes whole files."
            )
    after = dict(files)
    for path in {places[id_].path for id_ in values}:
        path_values = {id_: values[id_] for id_ in values if places[id_].path == path}
        if len(path_values) > 1 and any(places[id_].role == "file" for id_ in path_values):
            raise InvalidArgument(
                f"{path} is to be set as a whole and in part.", "Set the file, or parts of it."
            )
        after[path] = replace(files[path], data=_set_in_file(files[path], path_values, places))
    if frozen := changed_frozen_sections(files, after):
        raise _make_frozen_error(f"{head.ref}/{frozen[0]}")
    _check_others(head, files, after, values)
    return after


def _make_frozen_error(name: str) -> Refused:
    return Refused(
        f"{name} is frozen (<!-- frozen -->).",
        "A person edits the file. Set the other variables only.",
    )


def _set_in_file(file: File, path_values: Mapping[str, str], places: Mapping[str, _Place]) -> bytes:
    text = file.data.decode("utf-8")
    # From the end to the beginning, so that the places of what is still to be set stay right.
    for id_ in sorted(path_values, key=lambda id_: places[id_].span or (0, 0), reverse=True):
        place, value = places[id_], path_values[id_]
        if place.span is None:
            return encode_text(place.path, value)
        start, end = place.span
        if place.role == "description":
            value = _quote_yaml(value) + ("\n" if text[start:end].endswith("\n") else "")
        elif text[end:] and not value.endswith("\n\n"):
            # A heading that is underlined would take the line before it as its own.
            if not value.endswith("\n"):
                value += "\n\n"
            elif text[end] != "#":
                value += "\n"
        text = text[:start] + value + text[end:]
    return encode_text(places[next(iter(path_values))].path, text)


def _quote_yaml(value: str) -> str:
    """Return a text as a YAML scalar in double quotes, on one line."""
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in quoted)


def _check_others(
    head: VariableOwner, files: Files, after: Files, values: Mapping[str, str]
) -> None:
    """Raise InvalidArgument where the values change variables that they do not name."""
    whole = {id_ for id_ in values if "#" not in id_}
    before, now = _find_places(head, files), _find_places(head, after)
    for id_, place in before.items():
        inside_named_file = any(id_.startswith(f"{name}#") for name in whole)
        if inside_named_file or id_ in values:
            continue
        holds_named = place.role == "file" and any(name.startswith(f"{id_}#") for name in values)
        if not holds_named and (
            id_ not in now or _read_value(head, files, place) != _read_value(head, after, now[id_])
        ):
            raise InvalidArgument(
                f"The values would change {id_} too.", "A value ends its own code blocks and tags."
            )
    added = [id_ for id_ in now if id_ not in before]
    outside = [id_ for id_ in added if not any(id_.startswith(f"{name}#") for name in whole)]
    if outside:
        hint = "A value has no headings of the first two levels; set the whole file."
        raise InvalidArgument(f"The values would make the new variable {outside[0]}.", hint)
    for id_, value in values.items():
        path = before[id_].path
        if before[id_].role != "description":
            continue
        if _read_fields(after[path]) != _read_fields(files[path]) | {"description": value}:
            raise InvalidArgument(
                f"{id_} cannot have this value.", "It is one text without control characters."
            )


def _read_fields(file: File) -> dict[str, object]:
    return dict(parse_document(file.data).fields)
