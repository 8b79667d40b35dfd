"""Measure the scan on everyday lessons: one line that an agent adds to a small skill.

`everyday.txt` has lines that we wrote; each tenth is held out, the others train the classifier.
With `--clones DIR`, also the items of lists in the AGENTS.md, CLAUDE.md and CONTRIBUTING.md files
of the clones (as edits.py takes them), which people and agents wrote for their own work: those of
half A train the classifier, those of half B are only measured.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import edits

from evolvable_store.resource import Kind
from evolvable_tools.scan.scanner import scan

EVERYDAY = Path(__file__).with_name("everyday.txt")
SKILL = (
    "---\nname: guide\ndescription: How we do one step of our release process.\n---\n\n# Guide\n\n"
    "- Keep it short.\n"
)
MOST_HELD = 1 / 30
NAMES = (
    "AGENTS.md",
    "CLAUDE.md",
    "CONTRIBUTING.md",
    "GEMINI.md",
    ".cursorrules",
    "copilot-instructions.md",
)
MOST_FILES = 40
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+(.*)$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clones", type=Path, help="folder of clones")
    parser.add_argument(
        "--show", action="store_true", help="print the held lines of our own that are not held out"
    )
    options = parser.parse_args()
    failed = False
    for half, lines in (("tuned", everyday("tuned")), ("held-out", everyday("held-out"))):
        found = held(lines)
        print(
            f"everyday lessons, {half}: {len(found)} of {len(lines)} held "
            f"({len(found) / len(lines):.1%})"
        )
        if options.show and half == "tuned":
            print(*(f"  {line}" for line in found), sep="\n")
        failed |= half == "tuned" and len(found) > MOST_HELD * len(lines)
    for half in "AB" if options.clones else "":
        lines = [line for _, line in of_clones(options.clones, half)]
        print(
            f"items of AGENTS.md and the like, half {half}: {len(held(lines))} of {len(lines)} held"
        )
    return int(failed)


def held(lines: list[str]) -> list[str]:
    """Return the lines that wait for a person."""
    before = {"SKILL.md": SKILL.encode()}
    found = [
        (line, scan(before, {"SKILL.md": f"{SKILL}- {line}\n".encode()}, Kind.SKILL))
        for line in lines
    ]
    return [line for line, one in found if one.asks or one.blocks]


def everyday(half: str) -> list[str]:
    """Return our own lines of a half; each tenth is held out."""
    lines = EVERYDAY.read_text(encoding="utf-8").splitlines()
    return [line for number, line in enumerate(lines) if (number % 10 == 0) == (half == "held-out")]


def of_clones(clones: Path, half: str) -> Iterator[tuple[str, str]]:
    """Yield repository and text of each item of a list that is 25 to 250 characters long."""
    for folder in sorted(clones.iterdir()):
        repository = folder.name.replace("+", "/", 1)
        where = edits.clone(clones, repository)
        if where is None or "/" not in repository or edits.half(repository) != half:
            continue
        names = (
            edits.git(where, "ls-tree", "-r", "--name-only", "-z", "HEAD")
            .decode("utf-8", "replace")
            .split("\0")
        )
        seen: set[str] = set()
        for name in [
            name for name in names if name.rpartition("/")[2] in NAMES or name.endswith(".mdc")
        ][:MOST_FILES]:
            text = (edits.blob(where, f"HEAD:{name}") or b"").decode("utf-8", "replace")
            seen.update(items(text))
        yield from ((repository, line) for line in sorted(seen))


def items(text: str) -> Iterator[str]:
    """Yield the items of lists outside of code blocks."""
    fenced = False
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        match = _ITEM.match(line)
        if match and not fenced and 25 <= len(match[1]) <= 250 and match[1].count(" ") > 3:
            yield match[1]


if __name__ == "__main__":
    sys.exit(main())
