"""Import the SDK with less work and memory: no optional packages, no plugins, and models that are built late."""

import builtins
import contextlib
import sys
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import pydantic

try:
    from pydantic.plugin import _loader as plugin_loader
except ImportError:  # it is private to pydantic
    plugin_loader = None  # type: ignore[assignment]


@contextlib.contextmanager
def hidden_modules(*names: str) -> Iterator[None]:
    """Have the body go without these modules, as if they were not installed; those that are loaded stay.

    For imports that the importing package treats as optional, and whose result nothing in the body needs.
    """
    hidden: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name, sys) is None:
                del sys.modules[name]


@contextlib.contextmanager
def deferred_models() -> Iterator[None]:
    """Have pydantic build what validates a model that the body defines when it is first used, and not at once.

    The SDK defines some 600 models and adapters of several protocol versions, and a server uses a few dozen of them.
    Both ways of pydantic are public (`defer_build`), safe from any thread, and give the same answers.
    """
    adapter: Any = pydantic.TypeAdapter
    pydantic.BaseModel.model_config["defer_build"] = True
    pydantic.TypeAdapter = _deferring(adapter)  # type: ignore[misc]
    try:
        yield
    finally:
        pydantic.TypeAdapter = adapter  # type: ignore[misc]
        del pydantic.BaseModel.model_config["defer_build"]


def _deferring(adapter: Any) -> Any:
    """Return a class like pydantic's TypeAdapter whose instances build at their first use where they may."""
    type_variable = TypeVar("type_variable")

    class DeferredAdapter(adapter, Generic[type_variable]):  # type: ignore[misc]
        def __init__(self, type: Any, *, config: Any = None, _parent_depth: int = 2, module: str | None = None) -> None:
            # A model has a configuration of its own, and pydantic refuses a second one.
            if config is None and not (isinstance(type, builtins.type) and issubclass(type, pydantic.BaseModel)):
                config = pydantic.ConfigDict(defer_build=True)
            super().__init__(type, config=config, _parent_depth=_parent_depth + 1, module=module)

    return DeferredAdapter


def use_no_plugins() -> None:
    """Have pydantic look for no plugins: to find them it reads the metadata of every installed package.

    Its own switch for that is a variable of the environment, which each child of a server would inherit.
    """
    if plugin_loader is not None:
        plugin_loader._plugins = {}  # as after a search that found none
