"""Interfaces of the library: the MCP server, the command line, hooks, and the sync with folders on disk."""
