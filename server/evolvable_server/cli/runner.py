"""Who runs a command: the person at the terminal, an agent's shell, or a script with a token."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evolvable_server.principals import cli_identity, marked_client
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Identity, Principal

MAX_TOKEN = 4_096
"""Bytes of a file with a token."""


@dataclass(frozen=True, slots=True)
class Runner:
    """Who runs a command. permissions: of a script's token, by name; a person and an agent have none."""

    identity: Identity
    permissions: frozenset[str] = frozenset()


def runner_of(environment: Mapping[str, str], token_file: Path | None, home: Path) -> Runner:
    """Return who runs a command: the script whose token the file holds, else as `cli_identity` says.

    A client's mark counts more than a token: what an agent starts is the agent's. Raise Refused for a token that is
    not valid, InvalidArgument for a file that cannot be read.
    """
    identity = cli_identity(environment)
    if token_file is None or marked_client(environment) is not None:
        return Runner(identity)
    from evolvable_server.http.tokens import Tokens  # a command without a token never needs it

    found = Tokens(home).find(_secret(token_file))
    if found is None:
        raise Refused(
            f"The token in {token_file} is not valid for the library in {home}.",
            "It was revoked, has expired or belongs to another library; `evolvable token list` shows those there are.",
        )
    return Runner(Identity(Principal.SCRIPT, f"token:{found.name}"), frozenset(found.permissions))


def _secret(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TOKEN + 1)
    except OSError as error:
        raise InvalidArgument(
            f"{path} cannot be read: {error.strerror}.", "It holds the secret of one token."
        ) from None
    if not data.strip() or len(data) > MAX_TOKEN:
        raise InvalidArgument(f"{path} holds no token.", "It holds the secret of one token, and nothing else.")
    return data.decode("utf-8", "surrogateescape").strip()
