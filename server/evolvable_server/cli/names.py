"""The names of commands that are MCP tools as well."""

TOOLS = {
    "find_skill": "find",
    "load_skill": "load",
    "report_outcome": "report",
    "list_resources": "list",
    "get_resource": "get",
    "resource_history": "history",
    "update_resource": "update",
    "restore_resource": "restore",
    "remove_resource": "remove",
    "undo": "undo",
    "review_session": "review",
    "submit_review": "review",
    "review_inbox": "inbox",
    "compress_history": "compress",
    "evolve_start": "evolve start",
    "evolve_status": "evolve status",
    "evolve_pending": "evolve pending",
    "evolve_submit": "evolve submit",
    "evolve_stop": "evolve stop",
    "evolve_continue": "evolve continue",
    "evolve_report": "evolve report",
    "evolve_adopt": "evolve adopt",
    "evolve_opportunities": "evolve opportunities",
}
"""Every MCP tool, and the command that does the same."""
