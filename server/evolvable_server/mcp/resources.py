"""Skills as MCP resources: a concrete list, a template beside it, and reading."""

import base64
import mimetypes
from typing import Any

import mcp_types as types
from anyio.to_thread import run_sync
from mcp.shared.exceptions import MCPError

from evolvable_server.mcp.server import LibraryServer
from evolvable_server.mcp.uris import resolve, uri_of
from evolvable_store.errors import EvolvableError
from evolvable_store.index import Entry
from evolvable_store.resource import Kind
from evolvable_tools import finding
from evolvable_tools.library import Caller, Library

PAGE = 500
"""Resources of one page of resources/list."""

TEMPLATE = "skill://{+path}"


class Resources:
    """The handlers of resources/*, over one library and the scopes of one caller."""

    def __init__(self, library: Library, caller: Caller) -> None:
        self._library, self._caller = library, caller

    async def page(self, _: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        """Returns one page of skills, each by the URI of its SKILL.md."""
        cursor = params.cursor if params else None
        try:
            page = await run_sync(self._entries, cursor)
        except EvolvableError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=error.text) from None
        return types.ListResourcesResult(resources=[_as_resource(e) for e in page[0]], next_cursor=page[1])

    def _entries(self, cursor: str | None) -> tuple[list[Entry], str | None]:
        return finding.page(self._library, self._caller.scopes, kind=Kind.SKILL, limit=PAGE, cursor=cursor)

    async def templates(self, _: Any, params: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        """Returns the one template: any file of any skill."""
        template = types.ResourceTemplate(
            uri_template=TEMPLATE,
            name="skill-file",
            title="A file of a skill",
            description="<name>/<file> of a skill, <project>/<name>/<file> of a project's; e.g. skill://pdf/SKILL.md",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, _: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """Returns a file's exact bytes: as text when it is UTF-8, else as a blob."""
        uri = str(params.uri)
        try:
            data, mime = await run_sync(self._read, uri)
        except EvolvableError as error:
            raise MCPError(code=types.INVALID_PARAMS, message=error.text, data={"uri": uri}) from None
        return types.ReadResourceResult(contents=[_contents(uri, data, mime)])

    def _read(self, uri: str) -> tuple[bytes, str]:
        head, path = resolve(self._library.store, uri)
        return self._library.store.file(head, path).data, mime_of(path)


def mime_of(path: str) -> str:
    """Returns the media type that a file's name suggests."""
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _contents(uri: str, data: bytes, mime: str) -> types.TextResourceContents | types.BlobResourceContents:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return types.BlobResourceContents(uri=uri, blob=base64.b64encode(data).decode("ascii"), mime_type=mime)
    if mime == "application/octet-stream":
        mime = "text/plain"
    return types.TextResourceContents(uri=uri, text=text, mime_type=mime)


def _as_resource(entry: Entry) -> types.Resource:
    return types.Resource(
        uri=uri_of(entry.scope, entry.name, "SKILL.md"),
        name=entry.name,
        description=entry.description,
        mime_type="text/markdown",
    )


def add_resources(server: LibraryServer, library: Library, caller: Caller) -> None:
    """Makes the server answer resources/list, resources/templates/list and resources/read from the library."""
    handlers = Resources(library, caller)
    low = server._lowlevel_server
    # The list is live and paged; MCPServer's own handlers know only what was registered at start.
    low.add_request_handler("resources/list", types.PaginatedRequestParams, handlers.page)
    low.add_request_handler("resources/templates/list", types.PaginatedRequestParams, handlers.templates)
    low.add_request_handler("resources/read", types.ReadResourceRequestParams, handlers.read)
