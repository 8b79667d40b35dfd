"""Read the second file of settings that EVOLVABLE_CONFIG names, for a library on trial.

The account's file stays the floor: of the policy, the lock and the budgets the stricter of both
counts, in every library. Any program can set the variable. So the commands, models, roles, trusted
folders and remotes of the second file count only in a library that is none of the account's, and
only without an approvals lock of the account. The keys whose approvals count, and the account's
homes, are read from the account's file alone.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolvable_server.environment import second_config
from evolvable_server.person_config import (
    ROLES,
    PersonConfig,
    config_path,
    read_config_file,
    read_person_config,
    registered_homes,
    stricter_level,
)
from evolvable_store import ADDRESS_FILE, LIBRARY_FILE, work_tree

NAMES = (*ROLES, "models", "roles", "trusted", "remotes")
"""The tables of a second file that name commands, models, folders or remotes."""

FLOORS = ("approve", "review_policy", "budgets", "approvals")
"""The settings of a second file of which the stricter one counts."""


def second_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the second file of settings, None without one; the account's own file is none."""
    value = second_config(environment)
    if not value:
        return None
    path, account = Path(value), config_path()
    return None if account is not None and _is_same(path, account) else path


def read_library_config(home: Path, environment: Mapping[str, str] | None = None) -> PersonConfig:
    """Return the person's configuration as it holds for the library in `home`.

    Raise as `read_person_config`.
    """
    account, path = read_person_config(), second_path(environment)
    if path is None:
        return account
    second = read_config_file(path)
    return _combine(account, second, _explain_ignored(home, path, account))


def own_path(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the file that commands of the person change: the second one, else the account's."""
    return second_path(environment) or config_path()


def _explain_ignored(home: Path, path: Path, account: PersonConfig) -> str:
    """Return why the names in a second file do not count for a library, '' where they do."""
    if account.lock_key:
        return f"approvals are locked in {account.path}"
    if is_registered(home):
        return f"{home} is a library of this account"
    # Where the file really lies: a link may lead into a work tree.
    tree = work_tree(Path(os.path.realpath(path)).parent)
    if tree is None:
        return ""
    return f"it lies in the work tree {tree}, so a repository may have brought it"


def is_registered(home: Path) -> bool:
    """Return whether a library is one of the account's, however its path is spelled.

    A library in PostgreSQL always is: its address has to be registered before it can be opened.
    """
    if os.path.lexists(home / ADDRESS_FILE):
        return True
    # By the library's file too: a mount gives a folder another path.
    return any(
        _is_same(home, registered) or _is_same(home / LIBRARY_FILE, registered / LIBRARY_FILE)
        for registered in registered_homes()
    )


def _is_same(first: Path, second: Path) -> bool:
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):
        return False


def _combine(account: PersonConfig, second: PersonConfig, ignored: str) -> PersonConfig:
    approve = account.approve
    # A second file without the setting must not raise the level to the default.
    if "approve" in second.file_keys or second.unsigned:
        approve = stricter_level(account.approve, second.approve)
    person = replace(
        account,
        approve=approve,
        lock_key=account.lock_key or second.lock_key,
        files=(account, second),
        ignored=ignored,
    )
    if ignored:
        return person
    return replace(
        person,
        # Of two entries of one name, the second file's counts.
        commands={
            role: _merge_commands(role, (file.commands for file in person.files)) for role in ROLES
        },
        models={**account.models, **second.models},
        endpoints={**account.endpoints, **second.endpoints},
        model_roles={**account.model_roles, **second.model_roles},
        trusted=(*account.trusted, *second.trusted),
        remotes=(*account.remotes, *second.remotes),
    )


def _merge_commands(role: str, tables: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    return {name: command for table in tables for name, command in table.get(role, {}).items()}
