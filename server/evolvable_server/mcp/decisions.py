"""The gate before a decision about proposals: the person at the client is asked what they are about to decide."""

from collections.abc import Mapping
from typing import Any

from evolvable_server.mcp.deciding import Decision
from evolvable_store.errors import InvalidArgument
from evolvable_tools.library import Library

DECIDING = ("approve", "reject")
MAX_ASKED = 10
"""Proposals that one question shows."""


class Decisions(Decision):
    """The gate before a decision: the person at the client is asked."""

    key = "decide"

    def __init__(self, library: Library) -> None:
        self._library = library
        self.locked = library.lock is not None

    async def asks(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Returns whether this call decides something."""
        return tool == "review_inbox" and arguments.get("action") in DECIDING

    def by_hand(self, arguments: Mapping[str, Any], why: str) -> str:
        """Returns what the agent is told when nobody said yes."""
        return f"{why}, and only a person decides about proposals. Nothing changed; it waits in the inbox for a person."

    def question(self, arguments: Mapping[str, Any]) -> str:
        """Returns what the person is asked. What others wrote is cut, and stands on lines of its own."""
        from evolvable_tools.verbs import proposal_inbox  # late: a server answers before anybody decides

        ids = _ids(arguments)
        lines = [f"{str(arguments['action']).capitalize()} {len(ids)} proposed change{'s' * (len(ids) != 1)}?"]
        for identity in ids[:MAX_ASKED]:
            one = proposal_inbox.show_proposal(self._library, identity)
            lines.append(f"{identity}. {one.ref}: {_line(one.reason, 200)}")
            if one.grounds is not None:
                lines += [f"   {q.origin}, turn {q.turn}: “{_line(q.quote, 120)}”" for q in one.grounds.evidence[:3]]
            lines += [f"   scan: {_line(str(finding), 200)}" for finding in one.findings[:3]]
            lines.append((one.diff or "")[: 3_000 // min(len(ids), MAX_ASKED)])
        if arguments.get("files"):
            lines.append(f"With other files than proposed: {_line(', '.join(arguments['files']), 200)}")
            lines += [f"{path}:\n{str(text)[:1_500]}" for path, text in list(arguments["files"].items())[:4]]
        return "\n".join(lines)


def _ids(arguments: Mapping[str, Any]) -> list[int]:
    several, one = arguments.get("proposal_ids"), arguments.get("proposal_id")
    try:
        return [int(identity) for identity in several or ([one] if one is not None else [])]
    except (TypeError, ValueError):
        raise InvalidArgument("proposal_id is a number.", "review_inbox without arguments lists them.") from None


def _line(text: str, most: int) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else f"{line[:most]}…"
