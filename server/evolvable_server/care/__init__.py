"""Look after an installation: what doctor reports, archives and backups, uninstalling.

Begin with `examine`, the report of doctor (`Health`), and `export` and `back_up`. The command line and the page call
the same functions.
"""

from typing import TYPE_CHECKING

from evolvable_store import late_names

if TYPE_CHECKING:
    from evolvable_server.care.archives import (
        FORMATS,
        ExportResult,
        ImportResult,
        back_up,
        export,
        format_of,
        import_source,
    )
    from evolvable_server.care.client_status import Connected
    from evolvable_server.care.doctor import Health, describe_sandbox, examine
    from evolvable_server.care.uninstall import Uninstalled, plan_account_removal, plan_removal
else:
    __getattr__ = late_names(
        __name__,
        {
            "archives": "ExportResult FORMATS ImportResult back_up export format_of import_source",
            "client_status": "Connected",
            "doctor": "Health describe_sandbox examine",
            "uninstall": "Uninstalled plan_account_removal plan_removal",
        },
    )

__all__ = [
    "Connected",
    "ExportResult",
    "FORMATS",
    "Health",
    "ImportResult",
    "Uninstalled",
    "back_up",
    "describe_sandbox",
    "examine",
    "export",
    "format_of",
    "import_source",
    "plan_account_removal",
    "plan_removal",
]
