"""What tests of the whole program share: an OpenID provider; two machines, and the repository they
share.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from oidc_provider import Provider, running_provider
from remote_place import Machine, make_hub


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    """A real OpenID provider, one for each process of the tests."""
    with running_provider() as running:
        yield running


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return make_hub(tmp_path / "hub.git")


@pytest.fixture
def ada(tmp_path: Path, hub: Path) -> Machine:
    return Machine(tmp_path / "ada", hub)


@pytest.fixture
def ben(tmp_path: Path, hub: Path) -> Machine:
    return Machine(tmp_path / "ben", hub)
