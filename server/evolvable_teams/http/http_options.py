"""Serve HTTP as the options of `serve --http` and the person's `[sign_in]` say."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import click

from evolvable_server import Config, Grant, library_names, read_oauth_client, registered_homes
from evolvable_server.plugins import HttpService
from evolvable_store import check_home
from evolvable_store.errors import InvalidArgument
from evolvable_teams.http.http_auth import GRACE, HttpSettings, OAuth
from evolvable_teams.http.http_server import serve_http
from evolvable_teams.postgres import import_postgres


def serve(service: HttpService, ready: Callable[[str], None]) -> None:
    """Serve until the process is told to end.

    ready: called with a sentence once requests are answered. Raise InvalidArgument,
    click.UsageError.
    """
    options, config = service.options, service.config
    settings = HttpSettings(
        service.host,
        service.port,
        hosts=options["allowed_host"],
        origins=options["allowed_origin"],
        proxies=options["trusted_proxy"],
        oauth=_read_oauth(options, config),
        grace=GRACE if options["grace"] is None else options["grace"],
    )
    with contextlib.ExitStack() as ends:
        if options["postgres"] or options["postgres_data"]:
            start = import_postgres("embedded").start_for_home
            check_home(config.home, registered_homes, create=True)
            server = ends.enter_context(start(config.home, options["postgres_data"]))
            ready(f"The library lies in PostgreSQL: {server.url}")
        serve_http(
            config, settings, lambda url: ready(f"Serving {url}; Ctrl-C ends it."), ends.close
        )


def _read_oauth(options: Mapping[str, Any], config: Config) -> OAuth | None:
    """Return the authorization server that the options or the person's `[sign_in]` name.

    Only `[sign_in]` has grants.
    """
    sign_in = config.person.sign_in
    issuer, resource, jwks, introspection = (
        options[f"oauth_{name}"] for name in ("issuer", "resource", "jwks", "introspection")
    )
    if sign_in is not None:
        if issuer not in (None, sign_in.issuer):
            hint = "Leave --oauth-issuer out, or change the file."
            raise InvalidArgument(
                f"[sign_in] of {config.person.path} names another issuer, {sign_in.issuer}.", hint
            )
        resource = resource or sign_in.resource
        issuer = sign_in.issuer if resource else None
    if not (issuer or resource or jwks or introspection):
        return None
    if not (issuer and resource) or (jwks and introspection):
        raise click.UsageError(
            "--oauth-issuer and --oauth-resource go together; beside them --oauth-jwks or "
            "--oauth-introspection."
        )
    client, secret = read_oauth_client()
    grants: tuple[Grant, ...] | None = None
    if sign_in is not None:
        grants = sign_in.grants
    elif config.person.unsigned:
        # Settings without the signature that a lock needs are not read. They must grant nothing,
        # and must not fall back to the scopes of a token.
        grants = ()
    return OAuth(
        issuer, resource, jwks, introspection, client, secret, grants, library_names(config.home)
    )
