"""A program written where a client looks for it, and nowhere else: in its private configuration."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from evolvable_store.frontmatter import parse_document
from evolvable_store.paths import path_problem
from evolvable_store.resource import Kind
from evolvable_store.validation import main_path
from evolvable_tools.evolve.program import Part, Program


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a client takes what it is given from. Of a kind that is None it can be given none.

    memory: the file that it reads into every session.
    """

    skills: Path
    agents: Path | None
    memory: Path


@dataclass(slots=True)
class Installed:
    """What a program has come to. prompt: what is said to the model beside the client's own words.

    places: the folder or file of each part, by its ref. unfit: refs that this client cannot be given.
    """

    prompt: str = ""
    places: dict[str, Path] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)


def install(program: Program, shelf: Shelf) -> Installed:
    """Writes the parts of a program and returns where they are. Raises OSError."""
    done = Installed()
    prompts, memories = [], []
    for part in program.parts:
        if part.kind is Kind.SKILL:
            done.places[part.ref] = shelf.skills / part.name
            write(done.places[part.ref], part)
        elif part.kind is Kind.AGENT and shelf.agents is not None:
            shelf.agents.mkdir(parents=True, exist_ok=True)
            done.places[part.ref] = shelf.agents / f"{part.name}.md"
            done.places[part.ref].write_bytes(part.files[main_path(part.kind, part.name, part.files)])
        elif part.kind is Kind.PROMPT:
            prompts.append(text_of(part))
        elif part.kind is Kind.MEMORY:
            memories.append(text_of(part))
        else:
            done.unfit.append(part.ref)
    if memories:
        shelf.memory.parent.mkdir(parents=True, exist_ok=True)
        shelf.memory.write_text("\n\n".join(memories) + "\n", encoding="utf-8")
    done.prompt = "\n\n".join(prompts)
    return done


def write(folder: Path, part: Part) -> None:
    """Writes the files of a part below a folder. Raises ValueError for a path that would leave it, OSError."""
    for path, data in part.files.items():
        if problem := path_problem(path):
            raise ValueError(f"{part.ref} has the path {path!r}: {problem}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if data.startswith(b"#!"):
            os.chmod(target, 0o755)


def text_of(part: Part) -> str:
    """Returns the body of a part's main file, without its frontmatter; '' where it has none."""
    path = main_path(part.kind, part.name, part.files)
    return parse_document(part.files[path]).body.strip() if path else ""


def description_of(part: Part) -> str:
    """Returns what a part's main file says it is for; '' where it says nothing."""
    path = main_path(part.kind, part.name, part.files)
    said = parse_document(part.files[path]).fields.get("description") if path else None
    return said if isinstance(said, str) else ""
