"""The commands join and bridge: use a library that somebody else serves."""

import contextlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import anyio
import click
from anyio.to_thread import run_sync
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from evolvable_server import CONFIG, read_machine
from evolvable_server.cli import CommandContext, Output, command, main_project
from evolvable_server.cli.terminal import confirm, one_line, remark, say, warn
from evolvable_server.clients import (
    ConfigurationEntry,
    all_clients,
    check_lasting,
    configuration_entry,
    connect,
    disconnect,
    server_start,
)
from evolvable_server.clients.client import USER, Start
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.resource import check_scope
from evolvable_teams import joining
from evolvable_teams.http import run_bridge
from evolvable_teams.joining import ServedLibrary
from evolvable_teams.membership_auth import MembershipAuth
from evolvable_teams.oidc import new_client

WAIT_SECONDS = 600.0
"""How long signing in may last."""

PATH = "/callback"
"""The path of the loopback address to which the provider sends the browser back."""

ANSWER = b"You are signed in to Evolvable. Close this window and go back to the terminal.\n"


@dataclass(frozen=True, slots=True)
class Joined:
    """What a join did.

    tools: how many the server offered in the real call. changed: the files that were written.
    """

    name: str
    resource: str
    issuer: str
    tools: int
    changed: list[str] = field(default_factory=list)
    undo: str = ""


@command("join")
@click.argument("url")
@click.option(
    "--client",
    "clients",
    multiple=True,
    type=click.Choice(all_clients()),
    metavar="CLIENT",
    help="Connect this one, such as codex; repeatable.",
)
@click.option("--device", is_flag=True, help="Sign in on another device, by a code.")
@click.option(
    "--client-id",
    metavar="ID",
    help="Of a public client, where the provider registers none by itself.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="Of the loopback address [default: any].",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="Ask for these scopes instead; repeatable.",
)
@click.option("--approve", is_flag=True, help="Ask for the right to decide about proposals too.")
@click.option(
    "--project", metavar="NAME", help="Only say which project of the library the open project is."
)
@click.option(
    "--undo", is_flag=True, help="Delete the token, and take the library out of the clients."
)
@click.option(
    "--yes", is_flag=True, help="Sign in at the provider that the server names without asking."
)
def join_command(
    state: CommandContext,
    url: str,
    clients: tuple[str, ...],
    device: bool,
    client_id: str | None,
    port: int,
    scopes: tuple[str, ...],
    approve: bool,
    project: str | None,
    undo: bool,
    yes: bool,
) -> Output[Joined]:
    """Connect this machine to a library that somebody serves over HTTP.

    Finds the provider that the server trusts, signs you in there, stores the token in a file of
    yours (mode 0600), and connects your clients: those that you name, else all whose configuration
    is on this machine. A token that is not for this server alone is not used.
    """
    state.require_person("Joining a library")
    if undo:
        return _leave(state, joining.normalize_url(url))
    if project is not None:
        return _name_project(state, joining.normalize_url(url), project)
    found = anyio.run(joining.find_library, url)
    # Before anybody signs in: a start that does not last would leave clients that cannot connect.
    if any(_find_entries(state, found.name, clients)):
        check_lasting(_make_start(state, found.name))
    say(f"{found.resource} is served for people who sign in at:", f"\n  {one_line(found.issuer)}\n")
    confirm("Sign in there?", yes=yes, refused="You did not sign in.", hint="Nothing was changed.")
    requested_scopes = scopes or (*joining.SCOPES, *(["evolvable:approve"] if approve else []))
    membership = anyio.run(_sign_in, found, client_id, device, port, requested_scopes)
    path = joining.save_membership(found.name, membership)
    try:
        tools = anyio.run(count_tools, found.name)
    # For Ctrl-C too: a token without a successful call must not stay on the disk.
    except BaseException:
        joining.forget_membership(found.name)
        raise
    joined = Joined(
        found.name,
        found.resource,
        found.issuer,
        tools,
        [str(path)],
        f"evolvable team join {url} --undo",
    )
    joined.changed.extend(_connect(state, found, clients))
    return Output(joined, lambda _: _show(joined))


async def _sign_in(
    found: ServedLibrary, client: str | None, device: bool, port: int, scopes: Sequence[str]
) -> joining.Membership:
    """Return the membership that a sign-in gives.

    device: by a code, which is the only way where the provider has no authorization endpoint.
    """
    device = device or not found.provider.authorization
    with _Loopback(port) as loopback:
        client = client or await joining.register(found, loopback.redirect)
        if device:
            return await joining.sign_in_by_device(found, client, scopes, _tell_code)
        return await joining.sign_in_by_browser(
            found, client, loopback.redirect, scopes, _tell_address, loopback.wait
        )


def _tell_address(address: str) -> None:
    say("Open this address in a browser of this machine:", f"\n  {one_line(address)}\n")


def _tell_code(address: str, code: str) -> None:
    say(
        "Open this address on any device, and type the code there:",
        f"\n  {one_line(address)}\n  {one_line(code)}\n",
    )


class _Loopback:
    """An address on this machine that takes one answer of the provider."""

    def __init__(self, port: int) -> None:
        self._answer: Mapping[str, str] = {}
        # A random value that no answer has, until `wait` sets that of the login.
        self._state = secrets.token_urlsafe(32)
        owner = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                answer = owner.read(self.path)
                self.send_response(200 if answer else 400)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.end_headers()
                self.wfile.write(
                    ANSWER if answer else b"This answer belongs to no login of this machine.\n"
                )

            def log_message(self, *_: object) -> None:
                pass

        try:
            self._http = HTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise InvalidArgument(
                f"Port {port} cannot be used: {error.strerror}.", "Name another --port."
            ) from None
        # Seconds; short, so that `wait` notices its deadline and an interrupt.
        self._http.timeout = 0.5
        self.redirect = f"http://127.0.0.1:{self._http.server_port}{PATH}"

    def __enter__(self) -> "_Loopback":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.server_close()

    def read(self, path: str) -> bool:
        """Store the answer of our own login, and return whether the request was that.

        Any other request of any program of this machine changes nothing.
        """
        parts = urlsplit(path)
        # Before it is parsed: any program of this machine can send a request of any length.
        query = parts.query if len(path) < 16_384 else ""
        parameters = parse_qs(query, keep_blank_values=True, max_num_fields=20)
        answer = {name: values[0] for name, values in parameters.items() if len(values) == 1}
        is_ours = secrets.compare_digest(answer.get("state", "").encode(), self._state.encode())
        if parts.path != PATH or not is_ours:
            return False
        self._answer = answer
        return True

    async def wait(self, state: str) -> Mapping[str, str]:
        """Return the answer with this state. Raise Refused when none comes in time."""
        self._state, deadline = state, time.monotonic() + WAIT_SECONDS
        while not self._answer:
            if time.monotonic() > deadline:
                raise Refused(
                    "Nobody signed in within ten minutes.", "Nothing was stored. Join again."
                )
            await run_sync(self._http.handle_request)
        return self._answer


async def count_tools(name: str) -> int:
    """Return how many tools a joined library offers, by a real call with its token.

    Raise Refused.
    """
    auth = MembershipAuth(name)
    try:
        async with (
            new_client(30.0, auth) as http,
            Client(streamable_http_client(auth.resource, http_client=http)) as client,
        ):
            return len((await client.list_tools()).tools)
    except Exception as error:
        raise Refused(
            f"{auth.resource} did not answer a first call: {one_line(_innermost(error))[:300]}.",
            "Nothing was stored. If you are signed in as yourself, ask the person who serves it "
            "for a grant.",
        ) from None


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _make_start(state: CommandContext, name: str) -> Start:
    """Return how a client starts the bridge to a joined library."""
    start = server_start(state.config().home)
    # In place of the last word, which starts the server.
    arguments = (*start.args[:-1], "bridge", name)
    env = {CONFIG: start.env[CONFIG]} if CONFIG in start.env else {}
    return Start(start.command, arguments, env)


def _find_entries(
    state: CommandContext, joined: str, clients: Sequence[str]
) -> Iterator[ConfigurationEntry]:
    """Yield the entry of a joined library in each named client, else in each with a file here."""
    machine = read_machine(state.config().project)
    for name in clients or all_clients():
        path = all_clients()[name].file(machine, USER)
        if path is not None and (clients or path.exists()):
            yield configuration_entry(machine, all_clients()[name], USER, f"evolvable-{joined}")


def _connect(state: CommandContext, found: ServedLibrary, clients: Sequence[str]) -> list[str]:
    """Connect the clients to a joined library; return the files that were written."""
    changed = []
    for place in _find_entries(state, found.name, clients):
        done = connect(place, _make_start(state, found.name))
        warn(*done.warnings)
        changed += [done.path] if done.written else []
    if not changed:
        remark(
            f"No client was changed. `evolvable team join {found.resource} --client NAME` "
            "connects one."
        )
    return changed


def _name_project(state: CommandContext, resource: str, project: str) -> Output[Joined]:
    """Note which project of a joined library the open project is.

    Raise NotFound for one that was not joined.
    """
    name = joining.membership_name(resource)
    membership = joining.load_membership(name)
    place = main_project(state.config().project)
    path = joining.name_project(name, place, check_scope(project))
    done = Joined(
        name, resource, membership.issuer, 0, [str(path)], f"evolvable team join {resource} --undo"
    )
    return Output(
        done,
        lambda _: say(
            f"{place} is the project {project} of {resource}, from the next start of a client."
        ),
    )


def _leave(state: CommandContext, resource: str) -> Output[Joined]:
    """Delete a membership, and take its library out of the clients."""
    name = joining.membership_name(resource)
    path = joining.membership_file(name)
    was_joined = joining.forget_membership(name)
    changed = [str(path)] if was_joined else []
    for place in _find_entries(state, name, ()):
        with contextlib.suppress(Refused):
            done = disconnect(place)
            changed += [done.path] if done.written else []
    left = Joined(name, resource, "", 0, changed)

    def show(_: object) -> None:
        say(*(f"Changed: {file}" for file in changed) if changed else ("Nothing of it was there.",))
        say("The token ends by itself; the provider's own page ends it at once.")

    return Output(left, show)


def _show(joined: Joined) -> None:
    say(f"Joined {joined.resource}: it answered with {joined.tools} tools.")
    say(*(f"Changed: {file}" for file in joined.changed))
    say(f"To undo: {joined.undo}")


@command("bridge")
@click.argument("name")
def bridge_command(state: CommandContext, name: str) -> None:
    """Pass MCP on stdin and stdout on to a joined library.

    Clients start this themselves, once `evolvable team join` connected them.
    """
    run_bridge(name)
