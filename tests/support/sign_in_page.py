"""A page whose people sign in at a provider."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oidc_provider import Provider
from page_place import PagePlace, open_page

from evolvable_server.grants import Grant, SignIn
from evolvable_teams.sign_in import LoginFlow

GRANTS = (
    Grant(("groups",), "deciders", frozenset({"write", "approve"})),
    Grant(("groups",), "readers", frozenset({"read"})),
    Grant(("groups",), "elsewhere", frozenset({"approve"}), ("other",)),
)


@contextmanager
def page_of(provider: Provider, home: Path, **client: Any) -> Iterator[tuple[PagePlace, LoginFlow]]:
    """Yield a page whose people sign in at the provider."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = f"http://inbox-{port}.localhost:{port}"
    registered = provider.register(f"{address}/callback", **client)
    settings = SignIn(
        provider.issuer,
        client=registered["client_id"],
        address=address,
        grants=GRANTS,
        scopes=("openid", "groups"),
    )
    flow = LoginFlow(settings, (str(home),), registered.get("client_secret"))
    with open_page(home, port, flow) as place:
        yield place, flow
