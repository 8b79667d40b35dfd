"""A real OpenID provider."""

from collections.abc import Iterator

import pytest
from oidc_provider import Provider, running_provider


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """A real OpenID provider, one for each process of the tests."""
    with running_provider() as running:
        yield running
