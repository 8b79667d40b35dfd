"""A place with a library and a watched folder, once for each era of the protocol."""

from pathlib import Path

import pytest
from mcp_place import ERAS, Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(params=list(ERAS), scope="module")
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)
