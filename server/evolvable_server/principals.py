"""Tell who is at the command line: a person at a terminal, or an agent's shell."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Actor, Identity, Principal

MAX_TOKEN = 4_096
"""Bytes of a file with a token."""

MARKS = {
    "CLAUDECODE": "claude-code",
    "CLAUDE_CODE_ENTRYPOINT": "claude-code",
    "CLAUDE_CODE_SESSION_ID": "claude-code",
    "CLAUDE_CODE_CHILD_SESSION": "claude-code",
    "CODEX_THREAD_ID": "codex",
    "CODEX_SESSION_ID": "codex",
    "CODEX_TOOL_CALL_ID": "codex",
    "CODEX_CI": "codex",
    "CODEX_SANDBOX_NETWORK_DISABLED": "codex",
}
"""Variables that the real clients set in the shells of their agents, and the client that each belongs to.

Each was seen there; tests/data/client_shells says in which. Settings that people export themselves, such as
CLAUDE_CODE_USE_BEDROCK or CODEX_HOME, are not marks.
"""


def marked_client(environment: Mapping[str, str]) -> str | None:
    """Return the client whose mark is in the environment, None when there is none."""
    return next((client for name, client in MARKS.items() if environment.get(name)), None)


def at_terminal() -> bool:
    """Return whether standard input and standard output of this process are both terminals."""
    try:
        return os.isatty(0) and os.isatty(1)
    except OSError:
        return False


def cli_identity(environment: Mapping[str, str]) -> Identity:
    """Return on whose behalf a command runs: a person only at a terminal that carries no client's mark.

    A terminal is no proof: an agent with a shell can open one and unset variables. docs/promises.md says so.
    """
    client = marked_client(environment)
    if client is not None:
        return Identity(Principal.AGENT, f"client:{client}")
    if at_terminal():
        return Identity(Principal.PERSON, "terminal")
    return Identity(Principal.AGENT, "no terminal")


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


def actor_of(identity: Identity, *, decides: bool = False) -> Actor:
    """Return the actor that operations of this identity name. decides: a script whose token may approve."""
    person = identity.principal is Principal.PERSON or (decides and identity.principal is Principal.SCRIPT)
    return Actor.HUMAN if person else Actor.AGENT
