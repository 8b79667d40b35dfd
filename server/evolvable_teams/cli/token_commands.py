"""The command token: secrets for scripts and for HTTP."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from evolvable_server import Permission, registered_homes
from evolvable_server.cli import CommandContext, Output, command
from evolvable_server.cli.terminal import Row, local_time, remark, say, show_table
from evolvable_store import check_home
from evolvable_teams.tokens import Token, Tokens, token_row

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def lifetime(value: str) -> timedelta:
    """Return the duration that a text such as 12h, 30d or 8w names."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", value)
    if not match:
        raise click.BadParameter(f"{ascii(value)} is no time such as 12h, 30d or 8w.")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


@command("token", table=True)
@click.argument("action", type=click.Choice(["add", "list", "revoke"]), default="list")
@click.argument("name", required=False)
@click.option("--report", is_flag=True, help="With add: it may report outcomes.")
@click.option(
    "--write", is_flag=True, help="With add: it may change the library, and report outcomes."
)
@click.option("--approve", is_flag=True, help="With add: it may decide about proposals.")
@click.option(
    "--expires",
    type=lifetime,
    metavar="TIME",
    help="With add: how long it is good for, such as 30d.",
)
def token_command(
    state: CommandContext,
    action: str,
    name: str | None,
    expires: timedelta | None,
    **permissions: bool,
) -> Output[Any]:
    """Make, list and end tokens for HTTP.

    Every token may read. Its secret is shown once, when it is made; only its hash is stored. A
    token that is revoked is refused at once, by servers that run too. To give a token another
    permission, revoke it and add it again.
    """
    if (action == "list") != (name is None):
        raise click.UsageError(
            "`team token list` takes no name, every other action the name of a token."
        )
    if action != "add" and (expires or any(permissions.values())):
        raise click.UsageError(
            "--report, --write, --approve and --expires go with `team token add`."
        )
    home = state.config().home
    check_home(home, registered_homes)
    tokens = Tokens(home)
    if name is None:
        listed = tokens.all()
        return Output({"tokens": list(map(token_row, listed))}, lambda _: _show_tokens(listed))
    if action == "revoke":
        revoked = tokens.revoke(name)
        state.record("revoke token", name)
        return Output(token_row(revoked), lambda _: say(f"Token {name} is revoked."))
    granted = [permission for permission in Permission if permissions.get(permission)]
    state.unlock()
    token, secret = tokens.add(name, granted, expires)
    state.record("add token", f"{name}: {', '.join(token.permissions)}")
    return Output(
        token_row(token, secret), lambda _: _show_secret(token.name, token.permissions, secret)
    )


def _show_secret(name: str, permissions: tuple[Permission, ...], secret: str) -> None:
    remark(
        f"Token {name} may {', '.join(permissions)}. This is its secret; it is not kept and not "
        "shown again:"
    )
    say(secret)


def _show_tokens(tokens: Sequence[Token]) -> None:
    if not tokens:
        say("There are no tokens. `evolvable team token add NAME` makes one.")
        return
    now = datetime.now(UTC)
    rows: list[Row] = [
        [
            (token.name, "bold"),
            ", ".join(token.permissions),
            local_time(token.created),
            local_time(token.last_used) if token.last_used else "never",
            _format_expiry(token.expires, now),
        ]
        for token in tokens
    ]
    columns, spare = ["token", "may", "made", "last used", "until"], ("made", "last used", "may")
    show_table(columns, rows, names=("token",), spare=spare)


def _format_expiry(expires: str | None, now: datetime) -> str:
    if expires is None:
        return "no end"
    return local_time(expires) + (" (over)" if datetime.fromisoformat(expires) <= now else "")
