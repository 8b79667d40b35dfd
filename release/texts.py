"""Make the texts that need version or identity: server.json, the versions of the manifests, marked
parts of pages.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from identity import Identity

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = ROOT / "skills_store/evolvable_store/__init__.py"

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
PUBLISHER = "io.modelcontextprotocol.registry/publisher-provided"

MANIFESTS = (
    ".claude-plugin/marketplace.json",
    "plugins/evolvable/.claude-plugin/plugin.json",
    "plugins/evolvable/.codex-plugin/plugin.json",
    "plugins/desktop/manifest.json",
    "server/evolvable_server/mcp/handshake.json",
)
"""The manifests that are written by hand but for their version; server.json is made whole."""

PLUGIN_MANIFESTS = MANIFESTS[1:3]

_VERSION = re.compile(r'("version": )"[^"]*"')


def read_version() -> str:
    """Return the version of the package, the only source of every other place."""
    (version,) = re.findall(
        r'^__version__ = "([^"]+)"$', VERSION_FILE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return str(version)


def write_version(version: str) -> None:
    """Make this the version of the package."""
    text = VERSION_FILE.read_text(encoding="utf-8")
    text = re.sub(
        r'^__version__ = "[^"]+"$', f'__version__ = "{version}"', text, flags=re.MULTILINE
    )
    VERSION_FILE.write_text(text, encoding="utf-8")


def server_entry(identity: Identity, version: str) -> str:
    """Return server.json.

    Until the package is published it names none, and a name that nobody can register.
    """
    about = "A versioned library of skills: finds the one that fits, and takes any change back."
    entry: dict[str, object] = {
        "$schema": SCHEMA,
        # `invalid` is reserved (RFC 2606): no domain ends in it.
        "name": f"{identity.namespace or 'invalid.not-published'}/evolvable",
        "title": "Evolvable",
        "description": about
        if identity.published
        else "A versioned library of skills. NOT PUBLISHED: no index has it yet.",
        "version": version,
    }
    if identity.repository:
        host = identity.repository.removeprefix("https://").partition(".")[0]
        entry["repository"] = {"url": identity.repository, "source": host}
    if identity.docs:
        entry["websiteUrl"] = identity.docs
    if identity.published:
        entry["packages"] = [_package(identity, version)]
    else:
        entry["_meta"] = {PUBLISHER: {"published": False}}
    return json.dumps(entry, indent=2) + "\n"


def _package(identity: Identity, version: str) -> dict[str, object]:
    home = {
        "name": "EVOLVABLE_HOME",
        "description": "The library's folder.",
        "format": "filepath",
        "isRequired": False,
        "default": "~/.evolvable",
    }
    return {
        "registryType": "pypi",
        "identifier": identity.index_name,
        "version": version,
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [{"type": "positional", "value": "serve"}],
        "environmentVariables": [home],
    }


def pinned_start(identity: Identity, version: str) -> dict[str, object]:
    """Return the entry of a client that starts exactly this version from the index."""
    return {
        "command": "uvx",
        "args": ["--from", f"{identity.index_name}=={version}", "evolvable", "serve"],
    }


def cursor_link(identity: Identity, version: str) -> str:
    """Return the link by which Cursor adds the server."""
    config = base64.b64encode(json.dumps(pinned_start(identity, version)).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?name=evolvable&config={quote(config)}"


def vscode_link(identity: Identity, version: str) -> str:
    """Return the link by which VS Code adds the server."""
    return "vscode:mcp/install?" + quote(
        json.dumps({"name": "evolvable", **pinned_start(identity, version)})
    )


def _install(identity: Identity, version: str) -> str:
    if not identity.published:
        return ""
    name = f"{identity.index_name}=={version}"
    return (
        "From the package index, without a clone:\n\n```console\n"
        f"$ pipx install {name} && evolvable setup\n```\n"
    )


def _links(identity: Identity, version: str) -> str:
    if not identity.published:
        return ""
    entry = json.dumps({"mcpServers": {"evolvable": pinned_start(identity, version)}})
    cursor, vscode = cursor_link(identity, version), vscode_link(identity, version)
    return (
        f"Add this version to [Cursor]({cursor}) or [VS Code]({vscode}), or paste:\n\n```json\n"
        f"{entry}\n```\n"
    )


def _upgrade(identity: Identity, version: str) -> str:
    if not identity.published:
        return ""
    return (
        "From the package index, `evolvable care upgrade VERSION` takes that version, and no "
        f"other. This page belongs to {version}.\n"
    )


def _contact(identity: Identity, version: str) -> str:
    return f"Write to {identity.contact}.\n" if identity.contact else ""


BLOCKS: dict[str, tuple[tuple[str, ...], Callable[[Identity, str], str]]] = {
    "install": (("README.md",), _install),
    "links": (("docs/clients.md",), _links),
    "upgrade": (("docs/upgrading.md",), _upgrade),
    "contact": (("SECURITY.md", ".github/CODE_OF_CONDUCT.md"), _contact),
}
"""Name of a marked part -> the files that have it, and what makes it; '' while the identity has not
what it needs.
"""


def with_block(text: str, name: str, part: str) -> str:
    """Return the text with this between the marks of the part.

    Raises ValueError where the marks are missing.
    """
    mark = re.compile(rf"(<!-- release: {name} -->\n).*?(<!-- release end -->)", re.DOTALL)
    if not mark.search(text):
        raise ValueError(f"The marks of the part {name!r} are missing.")
    return mark.sub(
        lambda found: found[1] + (f"\n{part}\n" if part else "") + found[2], text, count=1
    )


def _with_addresses(text: str, identity: Identity) -> str:
    """Return a plugin's manifest with the addresses that somebody holds, and without the others."""
    manifest = json.loads(text)
    wanted = {"homepage": identity.docs or identity.repository, "repository": identity.repository}
    if all(manifest.get(key, "") == value for key, value in wanted.items()):
        return text
    kept = {key: value for key, value in manifest.items() if key not in wanted}
    kept |= {key: value for key, value in wanted.items() if value}
    return json.dumps(kept, indent=2, ensure_ascii=False) + "\n"


def release_texts(identity: Identity, version: str) -> Iterator[tuple[Path, str]]:
    """Yield every file that depends on version or identity, with the text that it must have."""
    yield ROOT / "server.json", server_entry(identity, version)
    for name in MANIFESTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        text = _VERSION.sub(rf'\g<1>"{version}"', text)
        yield ROOT / name, _with_addresses(text, identity) if name in PLUGIN_MANIFESTS else text
    for block, (files, make) in BLOCKS.items():
        for name in files:
            text = (ROOT / name).read_text(encoding="utf-8")
            yield ROOT / name, with_block(text, block, make(identity, version))


def write_texts(identity: Identity, version: str) -> list[Path]:
    """Write the texts that are out of date; return their files."""
    changed = [
        (path, text)
        for path, text in release_texts(identity, version)
        if path.read_text("utf-8") != text
    ]
    for path, text in changed:
        path.write_text(text, encoding="utf-8")
    return [path for path, _ in changed]


def stale_texts(identity: Identity, version: str) -> list[Path]:
    """Return the files that `write_texts` would change."""
    return [
        path for path, text in release_texts(identity, version) if path.read_text("utf-8") != text
    ]
