"""Look after an installation: what doctor reports, archives and backups, uninstalling.

Begin with `examine`, the report of doctor (`Health`), and `export` and `back_up`. The command line and the page call
the same functions.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

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
    from evolvable_server.care.setup import (
        ClientCheck,
        ClientState,
        FoundClient,
        check_connections,
        connect_client,
        describe_changes,
        find_clients,
        find_offers,
        install_plugin,
        is_own_plugin,
        read_record,
        sample_task,
        setup_offers,
        take_record,
        titles,
        write_record,
    )
    from evolvable_server.care.uninstall import Uninstalled, plan_account_removal, plan_removal
else:
    __getattr__ = late_names(
        __name__,
        {
            "archives": "ExportResult FORMATS ImportResult back_up export format_of import_source",
            "client_status": "Connected",
            "doctor": "Health describe_sandbox examine",
            "setup": (
                "ClientCheck ClientState FoundClient check_connections connect_client describe_changes "
                "find_clients find_offers install_plugin is_own_plugin read_record sample_task setup_offers "
                "take_record titles write_record"
            ),
            "uninstall": "Uninstalled plan_account_removal plan_removal",
        },
    )

__all__ = [
    "ClientCheck",
    "ClientState",
    "Connected",
    "ExportResult",
    "FORMATS",
    "FoundClient",
    "Health",
    "ImportResult",
    "Uninstalled",
    "back_up",
    "check_connections",
    "connect_client",
    "describe_changes",
    "describe_sandbox",
    "examine",
    "export",
    "find_clients",
    "find_offers",
    "format_of",
    "import_source",
    "install_plugin",
    "is_own_plugin",
    "plan_account_removal",
    "plan_removal",
    "read_record",
    "sample_task",
    "setup_offers",
    "take_record",
    "titles",
    "write_record",
]
