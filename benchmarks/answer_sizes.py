"""Measures the bytes of the ordinary answer of each tool over MCP, in its structured form as JSON
on one line.

Three skills of 40 paragraphs, one session that changes, restores, removes and undoes, and three
proposals of two changed lines. Documents are not measured: they are their text.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import SERVE, Row, Server, arguments, conclude

SKILLS = {
    "pdf": "Merge, split and fill PDF forms.",
    "csv": "Clean and summarise CSV tables.",
    "jq": "Query and reshape JSON with jq.",
}
PARAGRAPHS = tuple(f"Paragraph {number} of the guide, with ordinary words." for number in range(40))
REASON = "The guide was wrong about the order of the steps."
INBOX = 3_000
"""The most bytes of three proposals with their differences."""


def text_of(name: str, changed: int | None = None) -> str:
    """Return a skill, with one of its paragraphs changed."""
    lines = [
        f"{line} Check the result." if at == changed else line for at, line in enumerate(PARAGRAPHS)
    ]
    return f"---\nname: {name}\ndescription: {SKILLS[name]}\n---\n\n" + "\n\n".join(lines) + "\n"


def edits(*paragraphs: int) -> list[dict[str, str]]:
    """Return the edits that change these paragraphs."""
    return [
        {
            "path": "SKILL.md",
            "old": PARAGRAPHS[number],
            "new": f"{PARAGRAPHS[number]} Check the result.",
        }
        for number in paragraphs
    ]


class Session:
    """Calls tools of one server, and keeps how many bytes each answer has."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.bytes: dict[str, int] = {}

    def __call__(self, tool: str, case: str = "", **values: Any) -> dict[str, Any]:
        """Return the structured answer. Raise RuntimeError where the tool refuses."""
        result = self._server.request("tools/call", {"name": tool, "arguments": values})
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {result['content'][0]['text']}")
        answer = dict(result.get("structuredContent") or {})
        if answer:
            text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
            self.bytes[f"{tool}{', ' * bool(case)}{case}"] = len(text.encode())
        return answer


def use_library(call: Session) -> None:
    """Call every tool of the library."""
    for name in SKILLS:
        files = {"SKILL.md": text_of(name)}
        call(
            "update_resource", "a new skill", ref=name, reason="asked for", files=files, create=True
        )
    call("find_skill", task="fill a PDF form")
    call("list_resources")
    call("load_skill", ref="pdf")
    call("report_outcome", ref="pdf", outcome="succeeded")
    changed = call("update_resource", "an edit", ref="pdf", reason=REASON, edits=edits(7))
    call("resource_history", ref="pdf")
    call("resource_history", "with a difference", ref="pdf", from_version=1)
    call("undo", operation=changed["operation"], reason="not wanted")
    call("restore_resource", ref="pdf", version=2, reason="wanted again")
    call("remove_resource", ref="jq", reason="a test")
    call("restore_resource", "a removed one", ref="jq", version=1, reason="wanted again")


def decide_and_learn(call: Session) -> None:
    """Call the tools around proposals, reviews and long conversations."""
    call("review_inbox", "nothing waits")
    ids = [
        call(
            "update_resource",
            "a proposal",
            ref=name,
            reason=REASON,
            edits=edits(17, 27),
            propose=True,
        )["proposal_id"]
        for name in SKILLS
    ]
    call("review_inbox", "three wait", action="list")
    call("review_inbox", "three with differences", action="show", proposal_ids=ids)
    call("review_inbox", "one with its difference", action="show", proposal_id=ids[0])
    talk = [
        {"role": "user", "content": "Fill the form."},
        {"role": "assistant", "content": "I read the form and filled it in."},
        {"role": "user", "content": "No, check the form before you fill it in. Always do."},
        {"role": "assistant", "content": "I checked the form, then I filled it in."},
    ]
    begun = call("review_session", "a task", transcript=talk, mode="handoff")
    if begun.get("review_id"):
        call("submit_review", review_id=begun["review_id"], candidates=[], why_none="nothing new")
    call("compress_history", messages=talk)


def use_rspl(call: Session) -> None:
    """Call the tools of the group `rspl`."""
    for tool in ("get_info", "get_state", "get_variables", "build_resource", "run_resource"):
        call(tool, ref="csv")
    values = {
        "skill:csv/SKILL.md#frontmatter.description": "Clean, check and summarise CSV tables."
    }
    call("set_variables", ref="csv", values=values, expected_version=1, reason=REASON)
    call("save_contract", refs=["skill:csv"], reason="a contract")
    call("load_contract")
    call("evolve_opportunities")


def rows(sizes: dict[str, int]) -> Iterator[Row]:
    for case, size in sizes.items():
        three = case.startswith("review_inbox, three")
        yield Row(
            case,
            f"{size:,} bytes",
            f"at most {INBOX:,}" if three else "",
            size <= INBOX if three else None,
        )


def main() -> None:
    arguments(__doc__)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder) / "home"
        home.mkdir()
        with Server((*SERVE, "--toolsets", "rspl,evolve"), home) as server:
            call = Session(server)
            for part in (use_library, decide_and_learn, use_rspl):
                part(call)
    conclude("answers of tools", rows(call.bytes))


if __name__ == "__main__":
    main()
