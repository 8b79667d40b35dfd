"""Tell who is at the command line: a person at a terminal, or an agent's shell."""

import os
from collections.abc import Mapping

from evolvable_store.operation import Actor, Identity, Principal

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


def is_person() -> bool:
    """Return whether a person runs this process: somebody at a terminal that carries no client's mark."""
    return cli_identity(os.environ).principal is Principal.PERSON


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


def actor_of(identity: Identity, *, decides: bool = False) -> Actor:
    """Return the actor that operations of this identity name. decides: a script whose token may approve."""
    person = identity.principal is Principal.PERSON or (decides and identity.principal is Principal.SCRIPT)
    return Actor.HUMAN if person else Actor.AGENT
