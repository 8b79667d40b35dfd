"""Which skills Claude Code lists to its model, before and after a person uses a collection."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from claude import Claude
from model import Model, Say
from place import Place, skill
from reviewing import evolvable
from talks import Check

NAMES = tuple(f"craft-{letter}" for letter in "abcdefghijklmnopqrstuvwx")
CHOSEN = ("craft-c", "craft-h")
BUDGET = 8_000
"""What a model of 200,000 tokens has; that of the client's own default model may be larger.

The client's own skills take some 6,000 characters of it in version 2.1.328, so two descriptions of
500 have room.
"""

FILLS = "Use it for the craft of {name}. " + "Many words that say when it helps. " * 14


def listed(model: Model) -> dict[str, int]:
    """Return the skills of ours in the list that the model was shown last, with the length of their
    description.
    """
    text = json.dumps(model.asked[-1])
    found = re.findall(r"- (craft-[a-x])(?:: (.*?))?(?=\\\\n|\\n|<)", text)
    return {name: len(description) for name, description in found}


def ask(binary: Path, place: Place, prompt: str = "Say hello.") -> Model:
    """Return the model that a new session of Claude Code asked."""
    with Model([lambda _: Say("Hello.")]) as model:
        Claude(binary, place, model, SLASH_COMMAND_TOOL_CHAR_BUDGET=str(BUDGET)).run(
            "-p", prompt, "--output-format", "json"
        )
    return model


def of_a_collection(binary: Path, place: Place) -> Iterator[Check]:
    """claude -p: its list of skills without a collection, with one, and without it again."""
    own = place.home / ".claude/skills"
    for name in NAMES:
        (own / name).mkdir(parents=True)
        text = skill(name, FILLS.format(name=name), f"Body of {name}.")
        (own / name / "SKILL.md").write_text(text, encoding="utf-8")
    evolvable(place, "init", "--yes", str(own))
    before = listed(ask(binary, place))
    yield "it lists every skill by name", sorted(before) == sorted(NAMES), str(before)
    bare = evolvable(place, "collection")["lists"][0]["without_description"]
    lost = [name for name, length in before.items() if not length]
    told = f"{lost} in the client, {bare} by the library"
    yield (
        "as many skills lose their description as the library says, or more",
        0 < len(bare) <= len(lost),
        told,
    )
    evolvable(place, "collection", "add", "work", *CHOSEN)
    used = evolvable(place, "collection", "use", "work")
    yield (
        "the collection is written into its settings",
        used["written"] and used["listed"] == list(CHOSEN),
        str(used),
    )
    after = listed(ask(binary, place))
    yield "it lists the skills of the collection alone", sorted(after) == list(CHOSEN), str(after)
    yield "with their whole descriptions", min(after.values(), default=0) > 500, str(after)
    typed = json.dumps(ask(binary, place, "/craft-a").asked[:1])
    yield "a person can call a hidden skill by its name", "Body of craft-a." in typed, typed[-600:]
    found = evolvable(place, "find", "the craft of craft-a")["matches"][0]["ref"]
    yield "find_skill finds a hidden skill", found == "skill:craft-a", found
    evolvable(place, "collection", "stop")
    again = listed(ask(binary, place))
    yield "after stop it lists every skill again", again == before, f"{again} instead of {before}"
