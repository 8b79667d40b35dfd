"""Edit the commands and models that the person's configuration names, and which models answer in which role."""

from collections.abc import Sequence
from typing import Any

import tomlkit

from evolvable_server.person_config import PersonConfig, edit_config
from evolvable_store.errors import NotFound, Refused
from evolvable_store.operation import Signer
from evolvable_tools.llm.endpoint import ModelEndpoint


class NoSuchCommand(NotFound):
    """The person's configuration has no command of this role and name."""


def add_command(
    role: str, name: str, argv: Sequence[str], folder: str, signer: Signer | None = None, *, agents: bool = False
) -> PersonConfig:
    """Name a command, or name another one by this name; return the configuration as it is then.

    agents: of an executor, whether it can be given agents. Raise as `edit_config`; nothing changed then.
    """

    def change(document: Any) -> None:
        table = document.setdefault(role, tomlkit.table(is_super_table=True))
        entry = {"command": list(argv)} | ({"folder": folder} if folder else {})
        table[name] = entry | ({"agents": True} if agents else {})

    return edit_config(change, signer)


def remove_command(role: str, name: str, signer: Signer | None = None) -> PersonConfig:
    """Take a named command out of the configuration. Raise NoSuchCommand, and as `edit_config`."""

    def change(document: Any) -> None:
        table = document.get(role, {})
        if name not in table:
            known = ", ".join(table) or "none"
            raise NoSuchCommand(f"No {role.removesuffix('s')} is named {ascii(name[:80])}.", f"Those named: {known}.")
        del table[name]

    return edit_config(change, signer)


def add_model(endpoint: ModelEndpoint, signer: Signer | None = None) -> PersonConfig:
    """Name a model, or name another one by this name; return the configuration as it is then.

    Raise as `edit_config`; nothing changed then.
    """

    def change(document: Any) -> None:
        table = document.setdefault("models", tomlkit.table(is_super_table=True))
        entry = tomlkit.table()
        entry.update(endpoint.to_table())
        table[endpoint.name] = entry

    return edit_config(change, signer)


def remove_model(name: str, signer: Signer | None = None) -> PersonConfig:
    """Remove a named model. Raise Refused while a role names it, NoSuchCommand, and as `edit_config`."""

    def change(document: Any) -> None:
        table = document.get("models", {})
        named = [one for one in table if isinstance(table[one], dict)]
        if name not in named:
            known = ", ".join(named) or "none"
            raise NoSuchCommand(f"No model is named {ascii(name[:80])}.", f"Those named: {known}.")
        for role, names in document.get("roles", {}).items():
            if name in ([names] if isinstance(names, str) else names):
                hint = f"Name others first: evolvable model role {role} NAME..."
                raise Refused(f"{name} answers as {role}.", hint)
        del table[name]

    return edit_config(change, signer)


def set_model_role(role: str, names: Sequence[str], signer: Signer | None = None) -> PersonConfig:
    """Say which models answer in a role, in order; without names the role is as usual. Raise as `edit_config`."""

    def change(document: Any) -> None:
        table = document.setdefault("roles", tomlkit.table())
        if names:
            table[role] = list(names)
        else:
            table.pop(role, None)

    return edit_config(change, signer)
