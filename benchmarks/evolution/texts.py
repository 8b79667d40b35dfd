"""Texts of simulated tasks: by which the product groups them, and by which it must not."""

import ast
import random
import sysconfig
from functools import lru_cache
from pathlib import Path

from evolvable_evolve.evolution.tasks.similarity import find_groups


@lru_cache(maxsize=64)
def hidden_texts(clusters: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return texts of tasks of these clusters, which differ in numbers and are alike in the rest,
    and their groups.

    The groups are those that the product finds in the texts.
    """
    every = [(verb, thing, place) for place in _PLACES for thing in _THINGS for verb in _VERBS]
    forms = [every[37 * number % len(every)] for number in range(max(clusters) + 1)]
    texts = tuple(
        f"{forms[cluster][0]} {17 * number + 3} {forms[cluster][1]} {forms[cluster][2]} and write "
        f"the number {number}."
        for number, cluster in enumerate(clusters)
    )
    return texts, found_groups(texts)


_VERBS = (
    "Count the",
    "Weigh all of the",
    "Sort by age the",
    "Find buyers for",
    "Report damage to",
    "Draw all",
    "Pack",
)
_THINGS = (
    "barrels of cider",
    "wooden chairs",
    "letters without a stamp",
    "bicycles",
    "sheep",
    "maps of the coast",
)
_PLACES = (
    "in the old harbour",
    "behind the mill",
    "that the school ordered",
    "under the town hall",
    "on the train",
)


FRAMES = (
    "{said}",
    (
        "You get one file and write one file. Keep its style, add no dependency, and end with the "
        "name. Task: {said}"
    ),
    "Review this change and say in three sentences whether it may be merged:\n\n{source}",
    (
        "The test tests/test_case_{n}.py fails since release {n}. Find out why and mend this "
        "code:\n{source}"
    ),
    (
        "Ticket {n}, priority 2, team library. Please add the following to our helper and write a "
        "test. {said} Thanks!"
    ),
)
"""Frames around contents that have nothing else in common."""

# Functions of one module are often siblings, and their first lines one text with another word.
_OF_A_MODULE = 2


@lru_cache(maxsize=1)
def _contents() -> tuple[tuple[str, str], ...]:
    """Return what functions of the standard library say of themselves in their first line, and
    their source.
    """
    chance, found = random.Random(0), {}
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        own = [
            node
            for node in ast.walk(ast.parse(file.read_bytes()))
            if isinstance(node, ast.FunctionDef)
        ]
        said = {text.splitlines()[0]: node for node in own if (text := ast.get_docstring(node))}
        told = [text for text in said if len(text.split()) >= _WORDS]
        for text in chance.sample(told, min(_OF_A_MODULE, len(told))):
            found.setdefault(text, ast.unparse(said[text]))
    every = list(found.items())
    chance.shuffle(every)
    return tuple(every)


_WORDS = 5  # fewer say nothing of what is to be done


@lru_cache(maxsize=16)
def framed_texts(frame: str, count: int) -> tuple[str, ...]:
    """Return texts of independent tasks in a frame."""
    contents = _contents()
    if len(contents) < count:
        raise ValueError(f"the standard library has {len(contents)} contents and not {count}")
    return tuple(
        frame.format(n=n, said=said, source=source)
        for n, (said, source) in enumerate(contents[:count])
    )


@lru_cache(maxsize=16)
def found_groups(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the group of each text, as the product finds them."""
    names = [f"{number:04}" for number in range(len(texts))]
    found = find_groups(dict(zip(names, texts, strict=True)))
    return tuple(found[name] for name in names)
