"""Arguments whose listed form is closed. The server accepts an open form too.

OpenAI's strict mode refuses a tool with an object that does not name all its properties. So a map
of files is listed as a list of {path, text}, and a message with the two fields that every client
has. A map, and a message with further fields, are accepted.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from evolvable_store.errors import InvalidArgument


def closed_object(*needed: str, **fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these fields.

    needed: names of text fields, which come first. fields: the schemas of the others.
    """
    properties = {name: {"type": "string"} for name in needed} | {
        name: dict(part) for name, part in fields.items()
    }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def file_map(value: Any) -> Any:
    """Return files as a map of path to text, from that, from a list of {path, text}, or from either
    as JSON.

    What is neither is returned as it is. Raises ValueError for a list with another member, or with
    a path twice.
    """
    if isinstance(value, str):
        # Some models write the list as JSON in a text.
        value = json.loads(value)
    if not isinstance(value, list):
        return value
    files = dict[str, Any]()
    for entry in value:
        is_file = isinstance(entry, Mapping) and set(entry) == {"path", "text"}
        if not is_file or not isinstance(entry["path"], str):
            raise ValueError("each file is {path, text}; text is null to delete it")
        if entry["path"] in files:
            raise ValueError(f"{ascii(entry['path'][:80])} is there twice")
        files[entry["path"]] = entry["text"]
    return files


def files_asked_about(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files of a call that no model has checked yet, for a question about it.

    Raises InvalidArgument.
    """
    try:
        return dict(file_map(arguments.get("files")) or {})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"files: {error}.", "Give a list of {path, text}.") from None


_FILE = closed_object("path", text={"anyOf": [{"type": "string"}, {"type": "null"}]})

FileMap = Annotated[
    dict[str, str | None] | None,
    BeforeValidator(file_map),
    WithJsonSchema({"type": "array", "items": _FILE}),
]

MESSAGES = WithJsonSchema({"type": "array", "items": closed_object("role", "content")})
"""Lists messages with the fields that all have. Further fields are accepted."""
