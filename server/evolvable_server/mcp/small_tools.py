"""The small group of tools, at most 4.5 KB, for a client that sends every tool with each request.

All 14 tools have 13 KB. Arguments that are left out of the list are still accepted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

SMALL_TOOLS: Mapping[str, Sequence[str]] = {
    "find_skill": ("task", "limit", "kind"),
    "load_skill": ("ref", "path", "search_id"),
    "report_outcome": ("outcome", "use_id", "evidence"),
    "update_resource": ("ref", "reason", "files", "edits", "expected_version", "create"),
    "review_inbox": ("action", "proposal_id", "reason"),
}
"""The tools of the small group, and the arguments that a client with it is told of."""


def small_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as it is listed in the small group."""
    schema, argument_names = tool["inputSchema"], SMALL_TOOLS[tool["name"]]
    properties = {
        name: _shorten_schema(part)
        for name, part in schema["properties"].items()
        if name in argument_names
    }
    annotations = {
        key: value
        for key, value in tool["annotations"].items()
        if key != "idempotentHint"  # no client decides by it
    }
    return {
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": {**schema, "properties": properties},
        "annotations": annotations,
    }


def _shorten_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an argument without keywords that the description, or the enum, says."""
    dropped = {"default", "minimum", "maximum", "maxLength"}
    if "enum" in schema:
        dropped.add("description")
    return {key: value for key, value in schema.items() if key not in dropped}
