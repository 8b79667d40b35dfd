"""A place with a library and a watched folder, once for each era of the protocol; and a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium
from mcp_place import ERAS, Place
from oidc_provider import Provider, running_provider

BOTH_ERAS = ("test_surface", "test_doctor_clients")
"""Modules whose tests run in both eras each time. A test of another runs in one of them, in turn, and in the other with
`-m nightly`: each starts a server."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    kept: dict[str, str] = {}
    for item in items:
        here = item.path.parent == Path(__file__).parent and item.path.stem not in BOTH_ERAS
        own = any(mark.args[0] == "era" for mark in item.iter_markers("parametrize"))
        if here and isinstance(item, pytest.Function) and "era" in item.fixturenames and not own:
            test = f"{item.path.stem}::{item.originalname}"
            if item.callspec.params["era"] != kept.setdefault(test, list(ERAS)[len(kept) % len(ERAS)]):
                item.add_marker(pytest.mark.nightly)


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser for the tests of one module."""
    with chromium() as made:
        yield made
