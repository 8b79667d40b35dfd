"""The hook by which hatchling sets `readme` and `urls` while the project is built; pyproject.toml
names this file.

It imports nothing that the environment of a build lacks.
"""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = Path(__file__).resolve().parent.parent


def _load(name: str) -> ModuleType:
    """Import a file beside this one: the hook is loaded by its path, and its folder is on no import
    path.
    """
    spec = importlib.util.spec_from_file_location(
        f"evolvable_release_{name}", Path(__file__).with_name(f"{name}.py")
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"release/{name}.py is missing.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class ReleaseMetadata(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml leaves to the build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill both in, from README.md and release/identity.toml."""
        identity = _load("identity").read_identity()
        made = _load("index_text")
        version = _version()
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        shown = made.index_text(text, identity.repository, version, identity.namespace)
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
        metadata["urls"] = made.project_urls(identity.repository, identity.docs, version)


def _version() -> str:
    source = (ROOT / "skills_store/evolvable_store/__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    return str(version)
