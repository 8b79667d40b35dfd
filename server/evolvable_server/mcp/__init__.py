"""The MCP server: how the library speaks with a client."""
