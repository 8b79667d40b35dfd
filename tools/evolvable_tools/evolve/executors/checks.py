"""What must hold before a client runs a program: its means are there, and nothing else has the name of a part."""

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from evolvable_store.frontmatter import parse_document
from evolvable_store.resource import Kind
from evolvable_store.validation import main_path
from evolvable_tools.evolve.program import Part, Program

COMMANDS = "Bash"
"""The tool that runs commands, under its best known name."""

_SCRIPTS = (".sh", ".bash", ".py", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1")
_TOOL = re.compile(r"[A-Za-z_][\w-]*")


def missing_tools(program: Program, tools: Collection[str]) -> list[str]:
    """Returns what the parts of a program need and nobody has, each with the part that needs it.

    A part needs the tools that its main file names as allowed-tools, and one for commands when it brings scripts. A
    program that is evaluated without its means says nothing about it.
    """
    return [
        f"{part.ref} needs {tool}" for part in program.parts for tool in sorted(needed_tools(part)) if tool not in tools
    ]


def needed_tools(part: Part) -> set[str]:
    """Returns the tools that a part needs, without what they may be used for."""
    needed = {COMMANDS} if part.kind is Kind.SKILL and any(path.endswith(_SCRIPTS) for path in part.files) else set()
    path = main_path(part.kind, part.name, part.files)
    said = parse_document(part.files[path]).fields.get("allowed-tools") if path else None
    named = ", ".join(map(str, said)) if isinstance(said, list) else said if isinstance(said, str) else ""
    # In `Bash(git add:*), Read` the words in brackets say what for.
    return needed | set(_TOOL.findall(re.sub(r"\([^)]*\)", "", named)))


def shadows(program: Program, places: Sequence[Path]) -> list[str]:
    """Returns the paths below these folders of skills that have the name of a part: nobody could tell which was used.

    The name is the folder's, or the one that its SKILL.md says.
    """
    names = {part.name for part in program.parts if part.kind is Kind.SKILL}
    return [str(path) for name, path in skills_below(places) if name in names]


def skills_below(places: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yields the skills in these folders by name, those that another name stands for too once for each."""
    for place in places:
        try:
            folders = sorted(path for path in place.iterdir() if path.is_dir())
        except OSError:
            continue
        for folder in folders:
            yield from ((name, folder) for name in dict.fromkeys((folder.name, _said(folder / "SKILL.md"))) if name)


def upwards(folder: Path, below: Sequence[str]) -> list[Path]:
    """Returns these folders of `folder` and of every folder above it, up to the root of its repository if it has one.

    Clients look for a project's skills so.
    """
    found = [folder / name for name in below]
    above = list(folder.parents)
    root = next((place for place in (folder, *above) if (place / ".git").exists()), None)
    for place in above:
        if root is None or not place.is_relative_to(root):
            break
        found += [place / name for name in below]
    return found


def _said(path: Path) -> str:
    try:
        with path.open("rb") as file:
            name = parse_document(file.read(20_000)).fields.get("name")
    except OSError:
        return ""
    return name if isinstance(name, str) else ""
