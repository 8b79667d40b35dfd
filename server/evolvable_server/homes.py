"""Which homes the person registered: those may belong to another account, or lie in a work tree."""

from pathlib import Path

from evolvable_server.person import account_home, read_person_config

USUAL = ".evolvable"
"""The library's folder in the account's home directory, when nothing names another one."""


def registered_homes() -> tuple[Path, ...]:
    """Return the homes that the person's configuration lists, and the account's usual one, which nobody had to name.

    Raise as `read_person_config`.
    """
    account = account_home()
    usual = (account / USUAL,) if account is not None else ()
    return (*usual, *(home.expanduser() for home in read_person_config().homes))
