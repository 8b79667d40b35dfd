"""The least that a server on this SDK can be: one tool, on stdio. What start.py compares with."""

from mcp.server import MCPServer

server: MCPServer[None] = MCPServer("bare")


@server.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


if __name__ == "__main__":
    server.run("stdio")
