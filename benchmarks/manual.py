"""Write the tables of the manual that come from the registry of verbs and the settings of a run.

    python benchmarks/manual.py            write them into docs/
    python benchmarks/manual.py --check    exit code 1 when a file differs, with its name

A table stands between `<!-- registry: NAME -->` and `<!-- end -->`. `tests/flow/test_verbs.py`
holds the files to it.
"""

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from evolvable_evolve.evolution.run_file import setting_rows
from evolvable_server import plugins
from evolvable_tools.verbs.registry import GROUPS, TOOLS, VERBS, Authority, place_of

plugins.hooks()  # the verbs of all parts are in the registry from here on

DOCS = Path(__file__).resolve().parent.parent / "docs"

WHO = {
    Authority.READ: "person, agent; script with `read`",
    Authority.REPORT: "person, agent; script with `read`",
    Authority.WRITE: "person, agent; script with `write`",
    Authority.APPROVE: "person; script with `approve`",
    Authority.PERSON: "person",
}


def table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def tool_table() -> str:
    """Return the listed MCP tools: what each does, its effect and the permission that a token
    needs.
    """
    rows = []
    for tool in TOOLS.values():
        if not tool.command:
            continue
        summary = VERBS[tool.names[0]].summary if len(tool.names) == 1 else GROUPS[tool.command]
        needs = dict.fromkeys(tool.needs(name.rpartition(" ")[2]) for name in tool.names)
        rows.append(
            (
                f"`{tool.name}`",
                f"`{place_of(tool.command)}`",
                summary,
                tool.effect.value,
                " or ".join(needs),
            )
        )
    return table(("tool", "command", "what it does", "effect", "permission"), rows)


def command_table() -> str:
    """Return the commands: what each does, its effect and who may run it."""
    verbs = (verb for verb in VERBS.values() if verb.command is None)
    rows = (
        (f"`{place_of(verb.name)}`", verb.summary, verb.effect.value, WHO[verb.authority])
        for verb in verbs
    )
    return table(("command", "what it does", "effect", "who may run it"), rows)


def settings_table() -> str:
    """Return the settings of a run: the key in the run's file, what it is without, and what it
    means.
    """
    return table(("key", "without it", "what it means"), setting_rows())


TABLES = {
    "mcp.md": {"tools": tool_table},
    "commands.md": {"commands": command_table},
    "evolve.md": {"settings": settings_table},
}
"""File -> the names of its tables, and what makes each."""


def filled_page(file: str, text: str) -> str:
    """Return a page with its tables made anew. Raise as `filled`."""
    for name, make in TABLES[file].items():
        text = filled(text, name, make())
    return text


def filled(text: str, name: str, made: str) -> str:
    """Return a page with its table made anew.

    Raise ValueError for a page without the place for it.
    """
    begin, end = f"<!-- registry: {name} -->", "<!-- end -->"
    text, count = re.subn(
        f"{begin}.*?{end}", lambda _: f"{begin}\n\n{made}\n\n{end}", text, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{count} places for the table {name}")
    return text


def main() -> int:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    differ = []
    for file in TABLES:
        text = (DOCS / file).read_text(encoding="utf-8")
        new = filled_page(file, text)
        if new != text:
            differ.append(file)
            if not check:
                (DOCS / file).write_text(new, encoding="utf-8")
    print(
        "\n".join(f"docs/{file} {'differs' if check else 'is written'}" for file in differ)
        or "nothing differs"
    )
    return 1 if check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
