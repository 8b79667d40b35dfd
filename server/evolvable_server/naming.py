"""The commands that the person named, as the verbs take them."""

from evolvable_server.config import Config
from evolvable_server.person import ROLES
from evolvable_tools.llm import NamedCommand, NamedCommands


def named_commands(config: Config, *, person: bool = False) -> dict[str, NamedCommands]:
    """Return the named commands by role. person: whether a person at a terminal is told when a name is missing."""
    return {role: of_role(config, role, person=person) for role in ROLES}


def of_role(config: Config, role: str, *, person: bool = False) -> NamedCommands:
    """Return the named commands of one role."""
    word = role.removesuffix("s")
    hint = f"Name it first: evolvable {word} add NAME -- COMMAND." if person else "A person registers it by a name."
    named = config.person.commands.get(role, {})
    commands = {name: NamedCommand(name, one.argv, one.folder) for name, one in named.items()}
    return NamedCommands(word, commands, hint)
