"""Pieces of the schemas of answers: closed objects, as structured output wants them."""

from typing import Any


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """Returns the schema of an object with these properties and no others; without names all are required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required or properties),
        "additionalProperties": False,
    }


def texts(*names: str) -> dict[str, Any]:
    """Returns properties that are texts."""
    return {name: {"type": "string"} for name in names}


def one_of(values: type[Any]) -> dict[str, Any]:
    """Returns the schema of one word of an enumeration."""
    return {"type": "string", "enum": [str(value) for value in values]}


def many(item: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a list."""
    return {"type": "array", "items": item}
