"""The first setup of an installation: the clients here, what is offered, and what has changed since the last time."""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_server.care.setup.clients import (
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
    from evolvable_server.care.setup.offers import find_offers, setup_offers
    from evolvable_server.care.setup.record import describe_changes, read_record, take_record, write_record
else:
    __getattr__ = late_names(
        __name__,
        {
            "clients": (
                "ClientCheck ClientState FoundClient check_connections connect_client find_clients "
                "install_plugin is_own_plugin sample_task titles"
            ),
            "offers": "find_offers setup_offers",
            "record": "describe_changes read_record take_record write_record",
        },
    )

__all__ = [
    "ClientCheck",
    "ClientState",
    "FoundClient",
    "check_connections",
    "connect_client",
    "describe_changes",
    "find_clients",
    "find_offers",
    "install_plugin",
    "is_own_plugin",
    "read_record",
    "sample_task",
    "setup_offers",
    "take_record",
    "titles",
    "write_record",
]
