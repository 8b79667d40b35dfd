"""The command that locks decisions behind a passphrase: approvals."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, say
from evolvable_store.errors import InvalidArgument, Refused

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

LIMIT = (
    "The lock does not hold against code of this account that replaces the program, the key or the lock;"
    " SECURITY.md shows a server under another account, which does."
)


@dataclass(frozen=True, slots=True)
class LockState:
    """Whether approvals are locked, with which key, and the decisions in this library that are not signed."""

    locked: bool
    key: str
    unsigned: list[int]


@command("approvals")
@click.argument("action", type=click.Choice(["status", "lock", "unlock"]), default="status")
def approvals_command(state: State, action: str) -> None:
    """Lock decisions behind a passphrase.

    After `lock`, approvals, adoptions, settings, trusted folders and memory:SOUL count only when they are signed with a
    key that the passphrase opens; questions in a client decide nothing. `lock` again includes another library (--home).
    `unlock` ends it and needs the passphrase too.
    """
    if action == "lock":
        _lock(state)
    elif action == "unlock":
        _unlock(state)
    with state.library() as (library, _):
        lock = library.lock
        found = unsigned(library) if lock else []
    shown = LockState(lock is not None, lock.key if lock else "", found)
    state.show(shown, lambda: _show(shown))


def unsigned(library: Any) -> list[int]:
    """Return the operations in the name of a person that are neither signed nor older than the lock."""
    from evolvable_store.operation import Actor, Principal

    if library.lock is None:
        return []
    made = library.store.operations(10_000)
    persons = [
        one.id
        for one in made
        if one.actor is Actor.HUMAN and one.principal in (Principal.PERSON, Principal.SCRIPT, None)
    ]
    return sorted(set(persons) - library.lock.vouched(library.store.backend, persons))


def _lock(state: State) -> None:
    from evolvable_server.approvals_key import create_key
    from evolvable_server.person import read_person_config
    from evolvable_server.person_file import edit_config

    state.require_person("Locking approvals")
    if not read_person_config().lock_key:
        click.echo(LIMIT, err=True)
        passphrase = click.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
        key = create_key(passphrase)
        edit_config(lambda document: _set_key(document, key), state.signer(key, lambda: passphrase))
    signer = state.signer()
    assert signer is not None
    signer.unlock()
    with state.library(create=True) as (library, _):
        assert library.lock is not None
        baseline = library.lock.signatures(library.store.backend).add_baseline(signer.sign)
    say(f"Decisions up to operation {baseline.operation} of {state.config().home} count as they are.")


def _unlock(state: State) -> None:
    from evolvable_server.approvals_key import key_path
    from evolvable_server.person_file import edit_config

    state.require_person("Unlocking approvals")
    signer = state.signer()
    if signer is None:
        raise InvalidArgument("Approvals are not locked.", "`evolvable approvals lock` locks them.")
    signer.unlock()
    edit_config(lambda document: _drop_key(document))
    key_path().unlink(missing_ok=True)


def _set_key(document: "TOMLDocument", key: str) -> None:
    import tomlkit

    if "approvals" not in document:
        document["approvals"] = tomlkit.table()
    table: Any = document["approvals"]
    table["public_key"] = key


def _drop_key(document: "TOMLDocument") -> None:
    if "approvals" not in document:
        raise Refused("Approvals are not locked.", "Nothing was changed.")
    del document["approvals"]


def _show(shown: LockState) -> None:
    if not shown.locked:
        say("Approvals are not locked.")
        return
    say(f"Approvals are locked with key {shown.key[:16]}.")
    if shown.unsigned:
        numbers = ", ".join(map(str, shown.unsigned[:20])) + (", ..." if len(shown.unsigned) > 20 else "")
        what = count(len(shown.unsigned), "operation")
        say(f"{what} in a person's name without a signature, which count as not approved: {numbers}")
