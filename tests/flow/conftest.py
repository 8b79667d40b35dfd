"""Two machines, and the repository by which they share their libraries."""

from pathlib import Path

import pytest
from remote_place import Machine, make_hub


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    return make_hub(tmp_path / "hub.git")


@pytest.fixture
def ada(tmp_path: Path, hub: Path) -> Machine:
    return Machine(tmp_path / "ada", hub)


@pytest.fixture
def ben(tmp_path: Path, hub: Path) -> Machine:
    return Machine(tmp_path / "ben", hub)
