"""The command ui: the local page for the person at this machine."""

import contextlib
import signal
import sys
import threading
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from evolvable_page.app import PageServer
from evolvable_page.kept_page import KeptPage, forwarding_page
from evolvable_page.site import PageServices
from evolvable_server import Config, PassphraseSigner, listen_address, plugins, tuned_memory
from evolvable_server.cli import CommandContext, command, paused_progress
from evolvable_server.cli.terminal import remark, say
from evolvable_server.clients import refresh_memory_files
from evolvable_store import Identity, Principal, Signer
from evolvable_store.errors import InvalidArgument
from evolvable_tools import Caller, Library

if TYPE_CHECKING:
    from evolvable_server.page_kit import SignInFlow

PAGE = Identity(Principal.PERSON, "page")
"""The identity of the page: the person who opened it with a link from their terminal."""


@command("ui")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="Of 127.0.0.1 and ::1; it is kept."
)
@click.option(
    "--proposal", type=click.IntRange(min=1), help="Open this proposal of the inbox first."
)
@click.option("--open", "opening", is_flag=True, help="Start the browser, too.")
@click.option(
    "--forget", is_flag=True, help="Forget the page's name and port, and every browser that reads."
)
@click.option(
    "--sign-in",
    "signing",
    is_flag=True,
    help="Let others sign in at the provider of your configuration.",
)
@click.option(
    "--trusted-proxy", multiple=True, metavar="ADDRESS", help="Whose X-Forwarded-For is believed."
)
def ui_command(
    state: CommandContext,
    port: int,
    proposal: int | None,
    opening: bool,
    forget: bool,
    signing: bool,
    trusted_proxy: tuple[str, ...],
) -> None:
    """Open the local page: inbox, library, search, evolution, sessions, operations, health.

    Prints a link that opens the page once, in a browser of this machine. Enter prints a new one,
    Ctrl-C ends the page. That browser decides until the page ends. The page leads to a second
    address, which stays the same: a browser that knows it reads there for 30 days from its last
    use, also after later starts. What you do there is yours, as at this terminal. With --sign-in
    there is no link: people sign in at the OpenID provider that [sign_in] of your configuration
    names, and do what its grants say. That needs no terminal, so it can run as a service; SIGTERM
    ends it.
    """
    if not signing:
        state.require_person("The local page")
        if trusted_proxy:
            raise click.UsageError("--trusted-proxy goes with --sign-in.")
    elif opening or forget:
        raise click.UsageError("--open and --forget do not go with --sign-in.")
    if forget:
        _forget(state.config().home)
        return
    flow = _make_login_flow(state.config(), port) if signing else None
    with tuned_memory(), state.library(create=True) as (library, caller):
        start = "/"
        if proposal is not None:
            start = f"/inbox/{library.store.backend.proposals.get(proposal).id}"  # raises NotFound
        services = services_of(state.config(), library, caller)
        if flow is not None:
            _serve_with_sign_in(services, port, start, flow, trusted_proxy)
            return
        server = PageServer(services, port, start)
        # A daemon: it waits in a read of the terminal, which nothing else can end.
        threading.Thread(
            target=_print_links, args=(state, server), name="evolvable-links", daemon=True
        ).start()
        with (
            contextlib.ExitStack() as files,
            paused_progress(),
            contextlib.suppress(KeyboardInterrupt),
        ):
            server.serve(lambda: _announce(state, server, files if opening else None))


def _forget(home: Path) -> None:
    if not KeptPage(home).forget():
        say("The page of this library has no name yet, and no browser reads it.")
        return
    say(
        "Forgotten: the page's name and port, and every browser that reads. The next start "
        "chooses new ones."
    )
    remark("A page that is open now answers nobody any more: end it with Ctrl-C.")


def _announce(
    state: CommandContext, server: PageServer, files: contextlib.ExitStack | None
) -> None:
    """Print a link, and open the browser with another one.

    files: removes at its end the file that the browser reads; None opens no browser.
    """
    _print_link(state, server)
    if files is not None:
        page = forwarding_page(server.services.library.store.home, server.access.new_link())
        files.callback(page.unlink, missing_ok=True)
        # By a file: the command line of a browser is visible to other accounts, and the link opens
        # the page.
        if not webbrowser.open(page.as_uri()):
            remark("No browser could be started here. Open the link.")


def _serve_with_sign_in(
    services: PageServices,
    port: int,
    start: str,
    flow: "SignInFlow",
    trusted_proxy: tuple[str, ...],
) -> None:
    settings = services.config.person.sign_in
    if settings is None:
        raise InvalidArgument(
            "The configuration has no sign-in any more.", "Restore the table sign_in."
        )
    host, listening = listen_address(settings.listen)
    proxies = (*settings.proxies, *trusted_proxy)
    # The origin is registered at the provider, so its port is the last resort and not a random one.
    port = port or listening or urlsplit(flow.origin).port or 0
    server = PageServer(services, port, start, flow, proxies, host)
    # On a thread of its own: the handler interrupts the main one, which may hold a lock that
    # stopping needs.
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=server.stop, daemon=True).start()
    )
    started = f"Serving {flow.origin}; people sign in at {flow.provider}. Ctrl-C ends it."
    with contextlib.suppress(KeyboardInterrupt):
        server.serve(lambda: remark(started))


def _make_login_flow(config: Config, port: int) -> "SignInFlow":
    flow: SignInFlow | None = plugins.hooks().login_flow(config=config, port=port)
    if flow is None:
        raise InvalidArgument(
            f"--sign-in needs {plugins.TEAMS}, which is not installed.",
            "Open the page by its link.",
        )
    return flow


def services_of(config: Config, library: Library, caller: Caller) -> PageServices:
    """Return the services of the page. caller: the person at this terminal."""
    return PageServices(
        config,
        library,
        replace(caller, principal=PAGE.principal, via=PAGE.via),
        lambda passphrase: _make_signer(library, passphrase),
        lambda: _refresh(library),
    )


def _print_link(state: CommandContext, server: PageServer) -> None:
    link = server.access.new_link()
    if state.json:
        state.show_json({"link": link})
        return
    say(
        "Open this link in a browser of this machine. It opens the page once, within ten minutes:",
        f"\n  {link}\n",
    )
    remark("Enter prints a new link, Ctrl-C ends the page.")


def _print_links(state: CommandContext, server: PageServer) -> None:
    """Print a new link for every line that the person enters."""
    for _ in sys.stdin:
        _print_link(state, server)


def _make_signer(library: Library, passphrase: str) -> Signer | None:
    """Return the signer of one decision, opened with the passphrase of its form."""
    if library.lock is None:
        return None
    return PassphraseSigner(library.lock.key, lambda: passphrase)


def _refresh(library: Library) -> None:
    refresh_memory_files(library.store.home, library)
