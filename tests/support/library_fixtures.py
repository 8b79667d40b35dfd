"""A library with its verbs, called by a person and by an agent."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from samples import OFFICE

from evolvable_server import plugins
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit

PERSON = Caller(Actor.HUMAN)
AGENT = Caller(Actor.AGENT, session="session-1")


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    """An empty library."""
    with Library.open(tmp_path / "home", create=True, trials=plugins.trial_arms()) as library:
        yield library


@pytest.fixture
def person() -> Caller:
    return PERSON


@pytest.fixture
def agent() -> Caller:
    return AGENT


@pytest.fixture
def skill(library: Library) -> Callable[..., Ref]:
    """Creates a skill: `skill("pdf", "first line", "second line")`."""

    def make(
        name: str, *lines: str, description: str = "", metadata: str = "", caller: Caller = PERSON
    ) -> Ref:
        ref = Ref.parse(name)
        head = (
            f"---\nname: {ref.name}\ndescription: {description or f'Works with {name}.'}\n"
            f"{metadata}---\n\n"
        )
        text = head + "\n".join(lines or ("one", "two", "three")) + "\n"
        edit.update_resource(
            library, caller, ref, "first version", files={"SKILL.md": text}, create=True
        )
        return ref

    return make


@pytest.fixture
def office(skill: Callable[..., Ref]) -> Mapping[str, str]:
    """Writes a few skills that do different things; returns their descriptions by their names."""
    for name, description in OFFICE.items():
        skill(name, description=description)
    return OFFICE
