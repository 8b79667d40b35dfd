"""A client that draws an MCP App: a page in Chromium with the App in a sandboxed frame, and the SDK's client behind it.

It speaks the protocol of ext-apps (2026-01-26) as a host does: it answers `ui/initialize`, passes calls of tools on to
the server, and hands results to the App.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio.from_thread
import mcp_types as types
from browser import Tab
from mcp import Client
from mcp.client.extension import advertise
from mcp_place import Place

APPS = advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})

HOST = "http://host.test/"

PAGE = """<!doctype html><title>host</title><iframe sandbox="allow-scripts" width="900" height="900"></iframe><script>
const frame = document.querySelector("iframe"), heard = [], asked = [];
const send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
addEventListener("message", async ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  if (data.id === undefined) { heard.push(data.method); return; }
  asked.push(data.method);
  if (data.method === "ui/initialize") {
    send({ id: data.id, result: { protocolVersion: "2026-01-26", hostInfo: { name: "test", version: "1" },
      hostCapabilities: CAPABILITIES, hostContext: { theme: "dark" } } });
  } else if (data.method === "tools/call") {
    send({ id: data.id, result: JSON.parse(await callTool(data.params.name, JSON.stringify(data.params.arguments))) });
  } else send({ id: data.id, error: { code: -32601, message: "no" } });
});
</script>"""


class AppHost:
    """One App in one page. call: calls a tool of the server, as the model behind the client does."""

    def __init__(self, tab: Tab, call: Callable[[str, dict[str, Any]], dict[str, Any]]) -> None:
        self.tab, self.call = tab, call
        self.frame = tab.page.frame_locator("iframe")

    def show(self, **arguments: Any) -> None:
        """Call review_inbox as a model does, and hand the result to the App."""
        result = self.call("review_inbox", arguments)
        message = {"method": "ui/notifications/tool-result", "params": result}
        self.tab.page.evaluate("message => send(message)", message)

    def run(self, script: str) -> Any:
        """Return what a script returns inside of the App."""
        return self.tab.page.frames[1].evaluate(script)


@contextlib.contextmanager
def drawn(browser: Any, place: Place, era: str, *, tools: bool = True, **options: Any) -> Iterator[AppHost]:
    """Yield the host with the App that the tool names. tools: the App may call tools. options: of the client."""
    with anyio.from_thread.start_blocking_portal() as portal:
        client = place.client(era, within=120, extensions=[APPS], **options)
        with (
            portal.wrap_async_context_manager(client) as connected,
            contextlib.closing(browser.new_context()) as context,
        ):

            def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
                result: Any = portal.call(connected.call_tool, name, arguments)
                return dict(result.model_dump(mode="json", by_alias=True, exclude_none=True))

            tab = Tab(context)
            capabilities = {"openLinks": {}} | ({"serverTools": {}} if tools else {})
            page = PAGE.replace("CAPABILITIES", json.dumps(capabilities))
            tab.page.route(HOST, lambda route: route.fulfill(content_type="text/html", body=page))
            tab.page.expose_function("callTool", lambda name, given: json.dumps(call(name, json.loads(given))))
            tab.page.goto(HOST)
            tab.page.evaluate("html => { frame.srcdoc = html }", read_app(portal, connected))
            tab.page.wait_for_function("heard.includes('ui/notifications/initialized')")
            yield AppHost(tab, call)


def read_app(portal: Any, client: Client) -> str:
    """Return the document of the App that the tool review_inbox names."""
    tools: Any = portal.call(client.list_tools)
    (tool,) = (one for one in tools.tools if one.name == "review_inbox")
    read: Any = portal.call(client.read_resource, tool.meta["ui"]["resourceUri"])
    (content,) = read.contents
    assert isinstance(content, types.TextResourceContents)
    assert content.mime_type == "text/html;profile=mcp-app"
    assert content.meta == {"ui": {"csp": {}, "prefersBorder": True}}
    return content.text
