"""Builds the bundle for Claude Desktop: `python plugins/desktop/build.py evolvable.mcpb`, with Node 20 or newer.

The bundle holds the program's source and no dependency: Claude Desktop has `uv` install those when it is opened first.
Validated and packed by Anthropic's own tool, `mcpb`, which is fetched by `npx` unless --mcpb names it.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

MCPB = ("npx", "--yes", "@anthropic-ai/mcpb@2.1.2")

ROOT = Path(__file__).resolve().parents[2]

PARTS = ("server", "tools", "skills_store", "pyproject.toml", "README.md", "LICENSE")
"""What is packed: what the package is built from."""


def stage(folder: Path) -> None:
    """Puts all that belongs into the bundle below an empty folder."""
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc", ".*_cache")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=left_out)
        else:
            shutil.copy2(source, folder / part)
    shutil.copy2(Path(__file__).with_name("manifest.json"), folder / "manifest.json")


def build(bundle: Path, mcpb: tuple[str, ...] = MCPB) -> None:
    """Writes the bundle. Raises CalledProcessError when the manifest is not valid or cannot be packed."""
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
