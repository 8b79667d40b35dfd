"""Look after an installation: its setup, what doctor reports, archives and backups, uninstalling.

Begin with `examine`, the report of doctor (`Health`), and `export` and `back_up`. `find_clients`,
`setup_offers` and `take_record` are what `setup` asks about; `read_standing` is what `status`,
`folders` and `doctor` have in common. The command line and the page call the same functions.
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
    from evolvable_server.care.auto_reviews import (
        AutoStatus,
        auto_line,
        auto_status,
        budget_words,
        switch_off,
        switch_on,
    )
    from evolvable_server.care.client_connections import (
        ClientCheck,
        ClientState,
        FoundClient,
        check_connections,
        connect_client,
        find_clients,
        install_plugin,
        is_own_plugin,
        sample_task,
        titles,
    )
    from evolvable_server.care.client_status import Connected
    from evolvable_server.care.doctor import Health, describe_sandbox, examine
    from evolvable_server.care.offers import find_offers, setup_offers
    from evolvable_server.care.setup_record import (
        describe_changes,
        read_record,
        take_record,
        write_record,
    )
    from evolvable_server.care.standing import Standing, Topic, read_standing
    from evolvable_server.care.uninstall import Uninstalled, plan_account_removal, plan_removal
    from evolvable_server.care.upgrade import ask_new_program, plan_upgrade, replace_program
else:
    __getattr__ = late_names(
        __name__,
        {
            "archives": "ExportResult FORMATS ImportResult back_up export format_of import_source",
            "auto_reviews": "AutoStatus auto_line auto_status budget_words switch_off switch_on",
            "client_connections": (
                "ClientCheck ClientState FoundClient check_connections connect_client find_clients "
                "install_plugin is_own_plugin sample_task titles"
            ),
            "client_status": "Connected",
            "doctor": "Health describe_sandbox examine",
            "offers": "find_offers setup_offers",
            "setup_record": "describe_changes read_record take_record write_record",
            "standing": "Standing Topic read_standing",
            "uninstall": "Uninstalled plan_account_removal plan_removal",
            "upgrade": "ask_new_program plan_upgrade replace_program",
        },
    )

__all__ = [
    "AutoStatus",
    "ClientCheck",
    "ClientState",
    "Connected",
    "ExportResult",
    "FORMATS",
    "FoundClient",
    "Health",
    "Standing",
    "Topic",
    "ImportResult",
    "Uninstalled",
    "ask_new_program",
    "auto_line",
    "auto_status",
    "back_up",
    "budget_words",
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
    "plan_upgrade",
    "read_record",
    "read_standing",
    "replace_program",
    "sample_task",
    "setup_offers",
    "switch_off",
    "switch_on",
    "take_record",
    "titles",
    "write_record",
]
