"""The inbox as an MCP App: the page that a client draws for a result of `review_inbox`, in a sandbox of its own.

The page has no address, no token and no connection: it reads proposals by calls that the client makes for it. It
decides nothing. For a decision that it asks for, the server asks the person in the client.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.server.extension import Extension

# Start time: the SDK's module of Apps takes 2 ms. A test compares the two names below with that module's.
APPS = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"

INBOX_URI = "ui://evolvable/inbox.html"

TOOL_META: dict[str, Any] = {"ui": {"resourceUri": INBOX_URI}}
"""The `_meta` of the tool whose results the page shows. Clients without Apps pass it over."""

# No host is named: the client lets the page connect to nothing and load nothing.
_RESOURCE_META: dict[str, Any] = {"ui": {"csp": {}, "prefersBorder": True}}

_FOLDER = Path(__file__).with_name("static")


class AppsExtension(Extension):
    """Declares that the server has a page for clients that draw Apps. `resources.Resources` serves it."""

    identifier = APPS


def read_inbox(uri: str) -> types.ReadResourceResult:
    """Return the page as a resource."""
    content = types.TextResourceContents(uri=uri, text=inbox_html(), mime_type=MIME, _meta=_RESOURCE_META)
    return types.ReadResourceResult(contents=[content])


@cache
def inbox_html() -> str:
    """Return the whole document. Its policy allows the one script and the one style that stand in it."""
    script, style = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("inbox.js", "inbox.css"))
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none';"
        " form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Inbox of Evolvable</title><style>{style}</style></head>\n"
        '<body><header><b>Evolvable inbox</b><span id="count" class="soft"></span>'
        '<button id="refresh" type="button" hidden>Refresh</button></header>'
        '<p id="note" role="status"></p>'
        '<nav aria-label="Proposals that wait"><ol id="queue"></ol></nav><main></main>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
