"""Private names of other packages: docs/architecture.md lists all of them, and each is what the
code needs.
"""

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import h11
import pydantic
import pytest
import structure
from mcp.server import MCPServer
from mcp.server.session import ServerSession

ROOT = Path(__file__).parents[2]
DOTTED = re.compile(r"[a-z]\w*(\.\w+)*\._[a-z]\w*(\.\w+)*", re.ASCII)


@functools.cache
def all_private_imports() -> frozenset[str]:
    return frozenset(
        name for module in structure.modules() for name in private_imports(module.tree)
    )


def private_imports(tree: ast.Module) -> Iterator[str]:
    """Yields the modules and names with an underscore that a module takes from
    installed packages.
    """
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and DOTTED.fullmatch(node.value)
        ):
            names = [node.value]
        for name in names:
            first, *rest = name.split(".")
            if first in sys.stdlib_module_names or first.startswith(("evolvable_", "_")):
                continue
            if any(part.startswith("_") and not part.startswith("__") for part in rest):
                yield name


def listed() -> set[str]:
    """Returns the private imports in the table; private attributes of a class are not imported."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Private names of other packages")[2]
    first = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    names = {name for cell in first for name in re.findall(r"`([\w.]+)`", cell) if "._" in name}
    return {
        name
        for name in names
        if not any(part[:1].isupper() for part in name.split("._")[0].split("."))
    }


@pytest.mark.process
def test_the_table_of_private_names_has_every_import_of_one() -> None:
    assert all_private_imports() == listed()


@pytest.mark.process
def test_ray_is_used_by_its_public_names_alone() -> None:
    bridge = (ROOT / "tools/evolvable_evolve/evolution/trials/ray_bridge.py").read_text(
        encoding="utf-8"
    )
    assert not re.findall(r"ray\._(?!_)\w+|_temp_dir|core\.generated", bridge)
    assert not [name for name in all_private_imports() if name.startswith("ray.")]


def test_the_server_of_the_sdk_has_a_low_level_server_and_a_tool_manager() -> None:
    server = MCPServer("private-names")
    assert callable(server._lowlevel_server.add_request_handler)
    assert callable(server._tool_manager.get_tool)


def test_a_session_of_the_sdk_has_the_connection_that_it_belongs_to() -> None:
    assert "self._connection" in inspect.getsource(ServerSession)


@pytest.mark.parametrize(
    "name", ["mcp_types._v2025_11_25", "mcp_types._v2026_07_28", "mcp_types._wire_base"]
)
def test_the_types_of_a_protocol_version_are_a_module_of_their_own(name: str) -> None:
    assert importlib.import_module(name)


def test_pydantic_looks_for_plugins_in_its_loader() -> None:
    loader = importlib.import_module("pydantic.plugin._loader")
    assert hasattr(loader, "_plugins") and callable(loader.get_plugins)


def test_an_adapter_of_pydantic_can_build_later() -> None:
    assert {"config", "_parent_depth", "module"} <= inspect.signature(
        pydantic.TypeAdapter
    ).parameters.keys()
    assert callable(pydantic.TypeAdapter.rebuild)


def test_a_connection_of_h11_reads_from_the_buffer_that_can_be_replaced() -> None:
    buffer = importlib.import_module("h11._receivebuffer").ReceiveBuffer
    made = h11.Connection(h11.SERVER)._receive_buffer
    assert isinstance(made, buffer) and made._data == b"" and callable(made.maybe_extract_lines)


def test_watchfiles_has_the_notifier_that_its_documentation_names(tmp_path: Path) -> None:
    notifier = importlib.import_module("watchfiles._rust_notify").RustNotify(
        [str(tmp_path)], False, False, 300, True, True
    )
    assert notifier.watch(1, 1, 1, None) == "timeout"
    notifier.close()
