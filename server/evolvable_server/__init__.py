"""Interfaces of the library: the MCP server, the command line, hooks, and the sync with folders on
disk.

Begin with `Config` and `read_config`: environment, home and configuration files are read here and
nowhere below. An annex or a plugin joins by `evolvable_server.plugins`, and draws pages with
`evolvable_server.page_kit`. `Serving` is a running server.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_server.app import lock_of
    from evolvable_server.approval_keys import ApproverKeys, PassphraseSigner
    from evolvable_server.config import (
        Config,
        file_status,
        is_person,
        library_names,
        model_environment,
        open_address,
        read_config,
        read_machine,
        read_oauth_client,
        read_sign_in_secret,
    )
    from evolvable_server.config_edits import check_account_file, edit_config, set_trusted
    from evolvable_server.config_file import check_owner
    from evolvable_server.environment import CONFIG, HOME, PROJECTS, REVIEWING
    from evolvable_server.grants import (
        SCOPE,
        Grant,
        Permission,
        SignIn,
        grant_permissions,
        listen_address,
        narrow_permissions,
    )
    from evolvable_server.model_setup import (
        Redaction,
        commands_of_role,
        named_commands,
        named_models,
        proposer_settings,
    )
    from evolvable_server.person_config import (
        NamedRemote,
        PersonConfig,
        account_home,
        read_person_config,
        registered_homes,
    )
    from evolvable_server.process_memory import tuned_memory
    from evolvable_server.second_config import own_path, read_library_config
    from evolvable_server.serving import Serving
else:
    __getattr__ = late_names(
        __name__,
        {
            "app": "lock_of",
            "approval_keys": "ApproverKeys PassphraseSigner",
            "config": (
                "Config file_status is_person library_names model_environment open_address "
                "read_config read_machine read_oauth_client read_sign_in_secret"
            ),
            "config_edits": "check_account_file edit_config set_trusted",
            "config_file": "check_owner",
            "environment": "CONFIG HOME PROJECTS REVIEWING",
            "grants": (
                "Grant Permission SCOPE SignIn grant_permissions listen_address narrow_permissions"
            ),
            "model_setup": (
                "Redaction commands_of_role named_commands named_models proposer_settings"
            ),
            "person_config": (
                "NamedRemote PersonConfig account_home read_person_config registered_homes"
            ),
            "process_memory": "tuned_memory",
            "second_config": "own_path read_library_config",
            "serving": "Serving",
        },
    )

__all__ = [
    "ApproverKeys",
    "CONFIG",
    "Config",
    "Grant",
    "HOME",
    "NamedRemote",
    "PROJECTS",
    "PassphraseSigner",
    "Permission",
    "PersonConfig",
    "REVIEWING",
    "Redaction",
    "SCOPE",
    "Serving",
    "SignIn",
    "account_home",
    "check_account_file",
    "check_owner",
    "commands_of_role",
    "edit_config",
    "file_status",
    "grant_permissions",
    "is_person",
    "library_names",
    "listen_address",
    "lock_of",
    "model_environment",
    "named_commands",
    "named_models",
    "narrow_permissions",
    "open_address",
    "own_path",
    "proposer_settings",
    "read_config",
    "read_library_config",
    "read_machine",
    "read_oauth_client",
    "read_person_config",
    "read_sign_in_secret",
    "registered_homes",
    "set_trusted",
    "tuned_memory",
]
