"""The face of a package: its public names, each imported from its module when it is first used.

A package says in its `__init__` which names others may use. Importing all their modules there would
make every start wait for modules that it does not use, so the `__init__` imports them for type
checkers alone, and `late_names` finds them at run time (PEP 562). Modules inside of a package
import each other directly and never the face.
"""

import sys
from importlib import import_module

TYPE_CHECKING = False  # as that of typing: every start imports this module, a hook's too

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def late_names(package: str, modules: "Mapping[str, str]") -> "Callable[[str], Any]":
    """Return a `__getattr__` for a package, which imports the module of a public name at the first
    access.

    It caches no value: each access reads the module's attribute again, so a change to the module is
    visible everywhere. It raises AttributeError for a name that `modules` does not list.

    Args:
        package: the name of the package.
        modules: the public names, separated by spaces, by the module of the package that defines
        them.
    """
    # Flattened once: each later lookup is one access to a dict.
    homes = {}
    for module, names in modules.items():
        for name in names.split():
            homes[name] = f"{package}.{module}"

    def public_name(name: str) -> "Any":
        # Also answers for __path__ and the like, which Python asks of every module.
        module = homes.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded = sys.modules.get(module)
        # The fast way first: import_module takes a lock and several times as long for a loaded
        # module. A module that another thread has begun to run lacks what stands further below in
        # it: the import waits for its end.
        spec = getattr(loaded, "__spec__", None)
        if loaded is None or getattr(spec, "_initializing", False):
            loaded = import_module(module)
        return getattr(loaded, name)

    return public_name
