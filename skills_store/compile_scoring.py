"""Compile search/_scoring.c while the project is built.

Without a compiler, the same loops run in Python.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.wheel import WheelBuilder
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

PURE = "EVOLVABLE_PURE_WHEEL"
"""The environment variable that asks for the wheel without the module, for platforms that have none
of their own.
"""

_ABI = "cp311-abi3"
"""_scoring.c keeps to the limited API of 3.11, so one module serves that Python and every later
one.
"""

_PACKAGE = Path(__file__).parent / "evolvable_store" / "search"
# Without the second a product and a sum may become one step, and round otherwise than in Python.
_FLAGS = [] if os.name == "nt" else ["-O3", "-ffp-contract=off"]


class CompileScoring(BuildHookInterface):  # type: ignore[misc]
    """Puts the compiled module into a wheel, or beside its source where the project is installed as
    editable.
    """

    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile it, or warns that it was not."""
        if self.target_name != "wheel" or os.environ.get(PURE):
            return
        self._scratch = tempfile.TemporaryDirectory()
        try:
            compiled = _compile(
                _PACKAGE.parents[1] if version == "editable" else Path(self._scratch.name)
            )
        except Exception as error:  # a compiler that is missing or broken raises what it likes
            self.app.display_warning(
                f"_scoring.c was not compiled, so text is searched in Python, and slower: {error}"
            )
            return
        build_data["force_include"][str(compiled)] = f"evolvable_store/search/{compiled.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"{_ABI}-{self._platform()}"

    def _platform(self) -> str:
        """Return the platform of the tag that hatchling would choose: it knows the architectures of
        a Mac.
        """
        tag: str = WheelBuilder(str(self.root)).get_best_matching_tag()
        return tag.rpartition("-")[2]

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        if self._scratch is not None:
            self._scratch.cleanup()


def _compile(place: Path) -> Path:
    """Return the module, in the folder of its package below the place."""
    source = str(_PACKAGE / "_scoring.c")
    module = Extension(
        "evolvable_store.search._scoring", [source], extra_compile_args=_FLAGS, py_limited_api=True
    )
    with tempfile.TemporaryDirectory() as scratch:
        command = build_ext(Distribution({"name": "evolvable", "ext_modules": [module]}))
        command.build_lib, command.build_temp = str(place), scratch
        command.ensure_finalized()
        command.run()
    return Path(command.get_outputs()[0])
