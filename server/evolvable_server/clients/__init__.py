"""Clients that can be connected: their configuration files, and our entry in them.

Begin with `connect` and `disconnect`, and `all_clients` for the table of known clients.
`evolvable_server.clients.client` has `Client`, what a plugin describes a further one with.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_server.clients.attendance import why_unattended
    from evolvable_server.clients.config_files import read_configuration
    from evolvable_server.clients.hook_files import has_hooks
    from evolvable_server.clients.memory_files import (
        TITLES,
        MemoryCopy,
        copy_statuses,
        disable_copies,
        enable_copies,
        installed_clients,
        memory_text,
        read_enabled_copies,
        strip_block,
    )
    from evolvable_server.clients.other_lists import (
        CutList,
        choose_for_client,
        cut_lists,
        is_of_other_client,
        take_out_of_client,
    )
    from evolvable_server.clients.paste_forms import PASTED, entry_forms
    from evolvable_server.clients.project_memory import (
        MemoryProject,
        disable_project_files,
        enable_project_file,
        memory_project,
        project_file_statuses,
        project_files,
        project_memory_files,
        refresh_memory_files,
        tracking_in_project,
    )
    from evolvable_server.clients.registration import (
        ClientConnection,
        ConfigurationEntry,
        check_lasting,
        configuration_entry,
        connect,
        disconnect,
        entry_home,
        is_ours,
        run_client,
        server_start,
        strict_json_warnings,
    )
    from evolvable_server.clients.registry import (
        CODEX,
        VSCODE,
        WAITS_SECONDS,
        HeardCall,
        add_client_log,
        all_clients,
        has_hosts,
        read_client_log,
    )
    from evolvable_server.clients.skill_list import (
        SHORTEN,
        ClientList,
        ListChange,
        MeasuredList,
        choose_collection,
        chosen_lists,
        client_lists,
        crowded_list,
        list_on_disk,
        listed_skills,
        measure_list,
        project_list,
        room_of_projects,
        take_out,
        unlisted_newcomers,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "attendance": "why_unattended",
            "config_files": "read_configuration",
            "hook_files": "has_hooks",
            "memory_files": (
                "MemoryCopy TITLES copy_statuses disable_copies enable_copies "
                "installed_clients memory_text read_enabled_copies strip_block"
            ),
            "other_lists": (
                "CutList choose_for_client cut_lists is_of_other_client take_out_of_client"
            ),
            "paste_forms": "PASTED entry_forms",
            "project_memory": (
                "MemoryProject disable_project_files enable_project_file memory_project "
                "project_file_statuses project_files project_memory_files "
                "refresh_memory_files tracking_in_project"
            ),
            "registration": (
                "ClientConnection ConfigurationEntry check_lasting configuration_entry "
                "connect disconnect entry_home is_ours run_client server_start "
                "strict_json_warnings"
            ),
            "registry": (
                "CODEX HeardCall VSCODE WAITS_SECONDS add_client_log all_clients has_hosts "
                "read_client_log"
            ),
            "skill_list": (
                "ClientList ListChange MeasuredList SHORTEN choose_collection chosen_lists "
                "client_lists crowded_list list_on_disk listed_skills measure_list "
                "project_list room_of_projects take_out unlisted_newcomers"
            ),
        },
    )

__all__ = [
    "tracking_in_project",
    "project_memory_files",
    "project_files",
    "project_file_statuses",
    "memory_project",
    "enable_project_file",
    "disable_project_files",
    "MemoryProject",
    "CODEX",
    "ClientConnection",
    "ClientList",
    "ConfigurationEntry",
    "CutList",
    "HeardCall",
    "ListChange",
    "MeasuredList",
    "MemoryCopy",
    "PASTED",
    "SHORTEN",
    "TITLES",
    "VSCODE",
    "WAITS_SECONDS",
    "add_client_log",
    "all_clients",
    "check_lasting",
    "choose_collection",
    "choose_for_client",
    "chosen_lists",
    "client_lists",
    "configuration_entry",
    "connect",
    "copy_statuses",
    "crowded_list",
    "cut_lists",
    "disable_copies",
    "disconnect",
    "enable_copies",
    "entry_forms",
    "entry_home",
    "has_hooks",
    "has_hosts",
    "installed_clients",
    "is_of_other_client",
    "is_ours",
    "list_on_disk",
    "listed_skills",
    "measure_list",
    "memory_text",
    "project_list",
    "read_client_log",
    "read_configuration",
    "read_enabled_copies",
    "refresh_memory_files",
    "room_of_projects",
    "run_client",
    "server_start",
    "strict_json_warnings",
    "strip_block",
    "take_out",
    "take_out_of_client",
    "unlisted_newcomers",
    "why_unattended",
]
