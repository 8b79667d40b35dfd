"""Builds the bundle for Claude Desktop: `python plugins/desktop/build.py evolvable.mcpb`, with Node
20 or newer.

The bundle holds the program's source and no dependency: when it is opened first, start.py has `uv`
install those that requirements.lock names, and checks their hashes. Validated and packed by
Anthropic's own tool, `mcpb`, which is fetched by `npx` unless --mcpb names it.
"""

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

MCPB = ("npx", "--yes", "@anthropic-ai/mcpb@2.1.2")

ROOT = Path(__file__).resolve().parents[2]

PARTS = (
    "server",
    "tools",
    "skills_store",
    "requirements.lock",
    "README.md",
    "LICENSE",
    "SECURITY.md",
)
"""What is packed of the project: what runs, and what it needs."""

PROJECT = """\
# Claude Desktop asks for this file. It names no dependency, so that nothing is resolved on a user's
# machine: start.py installs the packages of requirements.lock.
[project]
name = "evolvable-bundle"
version = "{version}"
requires-python = ">=3.11"
dependencies = []

[tool.uv]
package = false
"""


def stage(folder: Path) -> None:
    """Puts all that belongs into the bundle below an empty folder."""
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc", ".*_cache")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=left_out)
        else:
            shutil.copy2(source, folder / part)
    for own in ("manifest.json", "start.py"):
        shutil.copy2(Path(__file__).with_name(own), folder / own)
    version = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["version"]
    (folder / "pyproject.toml").write_text(PROJECT.format(version=version), encoding="utf-8")


def build(bundle: Path, mcpb: tuple[str, ...] = MCPB) -> None:
    """Writes the bundle.

    Raises CalledProcessError when the manifest is not valid or cannot be packed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "evolvable"
        folder.mkdir()
        stage(folder)
        subprocess.run([*mcpb, "validate", str(folder / "manifest.json")], check=True)
        subprocess.run([*mcpb, "pack", str(folder), str(bundle.resolve())], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--mcpb", help="the path of the tool, in place of npx")
    given = parser.parse_args()
    build(given.bundle, (given.mcpb,) if given.mcpb else MCPB)
