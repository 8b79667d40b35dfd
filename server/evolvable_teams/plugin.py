"""The hooks by which this annex adds HTTP, tokens, git remotes and PostgreSQL to the core."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_server.plugins import HttpService, hookimpl
from evolvable_teams.postgres import import_postgres

if TYPE_CHECKING:
    from evolvable_server import Config
    from evolvable_store import Registered
    from evolvable_store.storage import Storage
    from evolvable_teams.sign_in import LoginFlow

_CLI = "evolvable_teams.cli"
_COMMANDS = {
    "remote_commands": ("remote", "clone", "push", "pull"),
    "join_commands": ("join", "bridge"),
    "token_commands": ("token",),
    "postgres_commands": ("move",),
}


@hookimpl
def verb_table() -> Path:
    """Return the verbs of this annex."""
    return Path(__file__).with_name("registry.json")


@hookimpl
def commands() -> Mapping[str, str]:
    """Return the commands of this annex."""
    return {
        name: f"{_CLI}.{module}:{name}_command"
        for module, names in _COMMANDS.items()
        for name in names
    }


@hookimpl
def open_storage(home: Path, create: bool, registered: "Registered") -> "Storage":
    """Return the opened storage of a library in PostgreSQL. Raise as PostgresStorage."""
    storage: Storage = import_postgres("storage").PostgresStorage(
        home, create=create, registered=registered
    )
    return storage


@hookimpl
def find_token(home: Path, secret: str) -> tuple[str, Sequence[str]] | None:
    """Return name and permissions of the valid token with this secret, None for none."""
    from evolvable_teams.tokens import Tokens  # late: few commands run with a token

    token = Tokens(home).find(secret)
    return (token.name, tuple(token.permissions)) if token is not None else None


@hookimpl
def token_rows(home: Path) -> list[dict[str, Any]]:
    """Return the tokens of a library, without their secrets."""
    from evolvable_teams.tokens import Tokens, token_row  # late: few commands show them

    return [token_row(token) for token in Tokens(home).all()]


@hookimpl
def serve_http(service: HttpService, ready: Callable[[str], None]) -> bool:
    """Serve the library over HTTP."""
    from evolvable_teams.http import serve  # late: few processes serve HTTP

    serve(service, ready)
    return True


@hookimpl
def login_flow(config: "Config", port: int) -> "LoginFlow":
    """Return how people sign in to the page. Raise InvalidArgument without [sign_in]."""
    from evolvable_teams.sign_in import page_flow  # late: few pages are served to others

    return page_flow(config, port)
