"""Who can ask: the MCP server, the command line, and what keeps them in step with the disk."""
