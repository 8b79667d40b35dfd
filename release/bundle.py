"""Build the bundle for Claude Desktop with its hash, and check server.json by the registry's
schema.
"""

import hashlib
import json
import sys
from pathlib import Path

from report import Failed, NotHere, find_tool, run

ROOT = Path(__file__).resolve().parent.parent


def build_bundle(folder: Path, node_folder: Path | None) -> str:
    """Build evolvable.mcpb into the folder, and a file with its hash beside it."""
    find_tool("node")
    own = node_folder / "node_modules/.bin/mcpb" if node_folder else None
    if own is not None and not own.exists():
        raise NotHere(f"`npm install @anthropic-ai/mcpb` in {node_folder}")
    tool = ["--mcpb", str(own.resolve())] if own else []
    bundle = folder / "evolvable.mcpb"
    folder.mkdir(parents=True, exist_ok=True)
    run([sys.executable, ROOT / "plugins/desktop/build.py", bundle, *tool])
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    bundle.with_suffix(".mcpb.sha256").write_text(f"{digest}  {bundle.name}\n", encoding="utf-8")
    return f"{bundle.stat().st_size / 1e6:.1f} MB, sha256 {digest}"


def check_entry(schema: Path | None) -> str:
    """Validate server.json by a copy of the registry's schema.

    Its `$id` must be the one that server.json names.
    """
    if schema is None:
        raise NotHere("`--schema FILE` names a copy of the registry's schema")
    wanted = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))["$schema"]
    there = json.loads(schema.read_text(encoding="utf-8")).get("$id")
    if there != wanted:
        raise Failed(f"{schema} is {there}, and server.json names {wanted}")
    run([find_tool("check-jsonschema"), "--schemafile", schema, ROOT / "server.json"])
    digest = hashlib.sha256(schema.read_bytes()).hexdigest()
    return f"valid by {wanted.split('/')[-2]} (sha256 of the schema {digest[:16]}...)"
