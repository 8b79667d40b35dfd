"""The command for the tokens of clients that come over HTTP: token."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, local_time, remark, say, show_table

if TYPE_CHECKING:
    from evolvable_server.http.tokens import Token
    from evolvable_server.mcp.bearer import Permission

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A token as it is shown: `secret` only when it was just made."""

    name: str
    permissions: list[str]
    created: str
    expires: str | None
    last_used: str | None
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """The tokens by name."""

    tokens: list[Shown]


class Lifetime(click.ParamType[timedelta]):
    """A time from now on, such as 12h, 30d or 8w."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", str(value))
        if not found:
            self.fail(f"{ascii(value)} is no time such as 12h, 30d or 8w.", param, ctx)
        return timedelta(**{_UNITS[found[2]]: int(found[1])})


@command("token")
@click.argument("action", type=click.Choice(["add", "list", "revoke"]), default="list")
@click.argument("name", required=False)
@click.option("--report", is_flag=True, help="With add: it may report outcomes.")
@click.option("--write", is_flag=True, help="With add: it may change the library, and report outcomes.")
@click.option("--approve", is_flag=True, help="With add: it may decide about proposals.")
@click.option("--expires", type=Lifetime(), metavar="TIME", help="With add: how long it is good for, such as 30d.")
def token_command(
    state: State,
    action: str,
    name: str | None,
    report: bool,
    write: bool,
    approve: bool,
    expires: timedelta | None,
) -> None:
    """Make, list and end tokens for HTTP.

    Every token may read. Its secret is shown once, when it is made; what is kept is a hash. A token that is revoked is
    refused at once, by servers that run too. To give a token another permission, revoke it and add it again.
    """
    from evolvable_server.homes import registered_homes
    from evolvable_server.http.tokens import Tokens
    from evolvable_server.mcp.bearer import Permission
    from evolvable_store.paths import check_home

    if (action == "list") != (name is None):
        raise click.UsageError("`token list` takes no name, every other action the name of a token.")
    if action != "add" and (report or write or approve or expires):
        raise click.UsageError("--report, --write, --approve and --expires go with `token add`.")
    home = state.config().home
    check_home(home, registered_homes)
    tokens = Tokens(home)
    if name is None:
        listed = Listed([_shown(token) for token in tokens.all()])
        state.show(listed, lambda: _show_list(listed.tokens))
    elif action == "revoke":
        ended = _shown(tokens.revoke(name))
        state.show(ended, lambda: say(f"Token {name} is revoked."))
    else:
        asked = ((Permission.REPORT, report), (Permission.WRITE, write), (Permission.APPROVE, approve))
        permissions = [permission for permission, given in asked if given]
        made, secret = tokens.add(name, permissions, expires)
        state.show(_shown(made, secret), lambda: _show_secret(made.name, made.permissions, secret))


def _shown(token: "Token", secret: str | None = None) -> Shown:
    permissions = [permission.value for permission in token.permissions]
    return Shown(token.name, permissions, token.created, token.expires, token.last_used, secret)


def _show_secret(name: str, permissions: "tuple[Permission, ...]", secret: str) -> None:
    remark(f"Token {name} may {', '.join(permissions)}. This is its secret; it is not kept and not shown again:")
    say(secret)


def _show_list(tokens: list[Shown]) -> None:
    if not tokens:
        say("There are no tokens. `evolvable token add NAME` makes one.")
        return
    now = datetime.now(UTC)
    rows: list[Row] = [
        [
            (token.name, "bold"),
            ", ".join(token.permissions),
            local_time(token.created),
            local_time(token.last_used) if token.last_used else "never",
            _until(token.expires, now),
        ]
        for token in tokens
    ]
    show_table(["token", "may", "made", "last used", "until"], rows)


def _until(expires: str | None, now: datetime) -> str:
    if expires is None:
        return "revoked"
    return local_time(expires) + (" (over)" if datetime.fromisoformat(expires) <= now else "")
