"""What every test shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The server runs on asyncio; so do its tests."""
    return "asyncio"
