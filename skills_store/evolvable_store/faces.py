"""The face of a package: its public names, each imported from its module when it is first used.

A package says in its `__init__` which names others may use. Importing all their modules there would make every start
wait for modules that it does not use, so the `__init__` imports them for type checkers alone, and `late_names` finds
them at run time (PEP 562). Modules inside of a package import each other directly and never the face.
"""

import sys
from importlib import import_module

TYPE_CHECKING = False  # as that of typing: every start imports this module, a hook's too

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def late_names(package: str, modules: "Mapping[str, str]") -> "Callable[[str], Any]":
    """Return the `__getattr__` of a package that imports the module of a name when the name is asked for.

    Nothing is kept: who asks again gets the module's value of that moment, so that a module that a test or an operator
    changes has changed for all. Raise AttributeError for a name that no module is named for.

    Args:
        package: the name of the package.
        modules: the public names, separated by spaces, by the module of the package that defines them.
    """
    homes = {}
    for module, names in modules.items():
        for name in names.split():
            homes[name] = f"{package}.{module}"

    def public_name(name: str) -> "Any":
        module = homes.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(sys.modules[module], name)
        except (KeyError, AttributeError):  # not loaded, or another thread is at it: the import waits for that
            return getattr(import_module(module), name)

    return public_name
