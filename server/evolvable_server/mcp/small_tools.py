"""The small group of tools, for a client that sends every tool with each request: at most 4.5 KB in
all.

Six of eight such clients send all 14 tools, 13 KB, with each request. What is left out of the list
is still taken.
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
    """Return a tool as it is listed in the small group: without what clients do not send to a
    model.
    """
    schema, argument_names = tool["inputSchema"], SMALL_TOOLS[tool["name"]]
    dropped = ("default", "minimum", "maximum", "maxLength")  # the descriptions say them
    properties = {
        name: {
            key: value
            for key, value in part.items()
            if key not in dropped and not (key == "description" and "enum" in part)
        }
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
