"""Import the SDK with less work and memory: no optional packages, no plugins, and late what a
server may never need.
"""

import builtins
import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, Generic, TypeVar

import pydantic

from evolvable_store import check_program

try:
    from pydantic.plugin import _loader as plugin_loader
except ImportError:  # it is private to pydantic
    plugin_loader = None  # type: ignore[assignment]

HTTP_MODULES = ("uvicorn", "python_multipart", "multipart")
"""Optional modules that the SDK uses over HTTP alone; with their own imports, four megabytes."""

CLIENT_PACKAGES = ("mcp", "httpx2")
"""Packages whose own names a server on stdio does not use.

`mcp` imports the SDK's clients, and these use `httpx2`.
"""

LATE_TYPES = ("mcp_types._v2025_11_25", "mcp_types._v2026_07_28")
"""Types of the protocol before and since 2026. A client speaks one of the two."""


@contextlib.contextmanager
def light_sdk() -> Iterator[None]:
    """Have the body import the parts of the SDK that a server on stdio needs.

    The rest is imported at its first use. The SDK does not support this, so tests guard the names
    of this module.
    """
    use_no_plugins()
    defer_modules(*CLIENT_PACKAGES)
    with hidden_modules(*HTTP_MODULES), deferred_types(*LATE_TYPES), deferred_models():
        with contextlib.suppress(ImportError):
            # The base of LATE_TYPES: they inherit `defer_build` from it.
            importlib.import_module("mcp_types._wire_base")
        yield


@contextlib.contextmanager
def hidden_modules(*names: str) -> Iterator[None]:
    """Have the body go without these modules, as if they were not installed.

    Modules that are loaded stay. For imports that the importing package treats as optional, and
    whose result nothing in the body needs.
    """
    hidden: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            # Still hidden: a module that was imported meanwhile stays.
            if sys.modules.get(name, sys) is None:
                del sys.modules[name]


def defer_modules(*names: str) -> None:
    """Run these modules when an attribute that they define is first used, not at their import.

    Safe from any thread. Submodules of a package are imported as before.
    `importlib.util.LazyLoader` cannot do this. The import of a submodule asks for `__path__`, and
    before Python 3.12 every import for `__spec__`, and either runs the module.
    """
    for name in names:
        if name in sys.modules:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            continue
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        module.__getattr__ = _make_getattr(module, spec.loader.exec_module)  # type: ignore[method-assign]
        # As the import system does for `import package.module`.
        if spec.parent and spec.parent != name:
            setattr(sys.modules[spec.parent], name.rpartition(".")[2], module)


def _make_getattr(module: ModuleType, run: Callable[[ModuleType], None]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module that did not run yet.

    It runs the module, and then returns the module's attributes.
    """
    # Guards `ran`. Reentrant, because the module may ask for its own attributes while it runs.
    lock, ran = threading.RLock(), False

    def attribute(name: str) -> Any:
        nonlocal ran
        with lock:
            if not ran:
                # Before it runs, as the module may ask for its own attributes.
                ran = True
                try:
                    # The import system, which asks for this, found the module before.
                    check_program()
                    run(module)
                except BaseException:
                    ran = False
                    raise
            attributes = vars(module)
            if name in attributes:
                return attributes[name]
            # The module may have a `__getattr__` of its own.
            own_getattr = attributes.get("__getattr__", attribute)
            if own_getattr is not attribute:
                return own_getattr(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    return attribute


@contextlib.contextmanager
def deferred_types(*names: str) -> Iterator[None]:
    """Have the body name types of these modules without importing them.

    The body gets a `DeferredType` for each, which can do what the SDK does with such types. The
    first use of one imports its module.
    """
    deferred = {name: _make_module_of_types(name) for name in names if name not in sys.modules}
    sys.modules.update(deferred)
    try:
        yield
    finally:
        for name, module in deferred.items():
            _withdraw(name, module)


def _make_module_of_types(name: str) -> ModuleType:
    def attribute(type_name: str) -> DeferredType:
        if type_name.startswith("__"):  # the import system asks
            raise AttributeError(type_name)
        return DeferredType(partial(find, type_name))

    def find(type_name: str) -> Any:
        _withdraw(name, module)
        return getattr(importlib.import_module(name), type_name)

    module = ModuleType(name)
    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module


def _withdraw(name: str, module: ModuleType) -> None:
    if sys.modules.get(name) is module:
        del sys.modules[name]


class DeferredType:
    """A stand-in for a model: in a union, in a TypeAdapter, and for the validation of a value."""

    def __init__(self, find: Callable[[], Any]) -> None:
        self._find = find

    def __or__(self, other: Any) -> "DeferredType":
        return DeferredType(
            lambda: self._find() | (other._find() if isinstance(other, DeferredType) else other)
        )

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        # Also what typing looks for in the parameter of a generic class.
        return self._find()(*arguments, **options)

    def model_validate(self, value: Any, **options: Any) -> Any:
        """Return the model of a value, as pydantic does."""
        return self._find().model_validate(value, **options)

    def __get_pydantic_core_schema__(self, _: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(self._find())


@contextlib.contextmanager
def deferred_models() -> Iterator[None]:
    """Have pydantic build the validators of the models that the body defines at their first use.

    The SDK defines some 600 models and adapters of several protocol versions, and a server uses a
    few dozen of them. pydantic's option `defer_build` is public, and its late build is safe from
    any thread.
    """
    adapter: Any = pydantic.TypeAdapter
    # On the base class, so that the models of the body inherit it.
    pydantic.BaseModel.model_config["defer_build"] = True
    pydantic.TypeAdapter = _make_deferred_adapter(adapter)  # type: ignore[misc]
    try:
        yield
    finally:
        pydantic.TypeAdapter = adapter  # type: ignore[misc]
        del pydantic.BaseModel.model_config["defer_build"]


def _make_deferred_adapter(adapter: Any) -> Any:
    """Return a subclass of TypeAdapter that builds its validators at their first use."""
    type_variable = TypeVar("type_variable")

    class DeferredAdapter(adapter, Generic[type_variable]):  # type: ignore[misc]
        def __init__(
            self,
            type: Any,
            *,
            config: Any = None,
            _parent_depth: int = 2,
            module: str | None = None,
        ) -> None:
            # A model has a configuration of its own, and pydantic refuses a second one.
            is_model = isinstance(type, builtins.type) and issubclass(type, pydantic.BaseModel)
            if config is None and not is_model:
                config = pydantic.ConfigDict(defer_build=True)
            # One frame more than in pydantic, which looks for the caller's names at this depth.
            super().__init__(type, config=config, _parent_depth=_parent_depth + 1, module=module)

    return DeferredAdapter


def use_no_plugins() -> None:
    """Have pydantic look for no plugins: it would read the metadata of every installed package.

    pydantic's own switch is an environment variable, which each child of a server would inherit.
    """
    if plugin_loader is not None:
        plugin_loader._plugins = {}  # as after a search that found none
