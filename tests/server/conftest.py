"""A place with a library and a watched folder, once for each era of the protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_place import ERAS, Place
from oidc_provider import Provider, running_provider


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=list(ERAS), scope="module")
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """A real OpenID provider, one for each process of the tests."""
    with running_provider() as running:
        yield running
