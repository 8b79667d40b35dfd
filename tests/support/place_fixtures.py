"""A place with a library and a watched folder, once for each era of the protocol; and a real
browser.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from mcp_place import ERAS, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=list(ERAS), scope="module")
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser for the tests of one module."""
    with chromium() as made:
        yield made
