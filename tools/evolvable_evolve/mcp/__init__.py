"""The MCP tools of the annex of evolution."""
