"""The MCP tools of the annex of evolution.

`add_evolving`, `add_rspl`, `add_approved_tools` and `add_ags` declare one group each;
`evolvable_evolve.plugin` calls them.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.mcp.ags_tools import add_ags
    from evolvable_evolve.mcp.evolve_tools import add_evolving
    from evolvable_evolve.mcp.rspl_tools import add_approved_tools, add_rspl
else:
    __getattr__ = late_names(
        __name__,
        {
            "ags_tools": "add_ags",
            "evolve_tools": "add_evolving",
            "rspl_tools": "add_approved_tools add_rspl",
        },
    )

__all__ = ["add_ags", "add_approved_tools", "add_evolving", "add_rspl"]
