"""The library as an ordinary git repository: commits out of operations, and what commits of others
would change.

Begin with `Remote`, `push` and `open_pull`. Commits of others are hostile input: they become
proposals (`IncomingResource`).
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_teams.remotes.git_process import check_address, check_branch, is_local
    from evolvable_teams.remotes.remote import PARTS, PushResult, Remote, check_remote_name, push
    from evolvable_teams.remotes.remote_merge import Arrival, PullResult
    from evolvable_teams.remotes.remote_pull import (
        Consent,
        IncomingResource,
        open_pull,
        purge_as_elsewhere,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "git_process": "check_address check_branch is_local",
            "remote": "PARTS PushResult Remote check_remote_name push",
            "remote_merge": "Arrival PullResult",
            "remote_pull": "Consent IncomingResource open_pull purge_as_elsewhere",
        },
    )

__all__ = [
    "Arrival",
    "Consent",
    "IncomingResource",
    "PARTS",
    "PullResult",
    "PushResult",
    "Remote",
    "check_address",
    "check_branch",
    "check_remote_name",
    "is_local",
    "open_pull",
    "purge_as_elsewhere",
    "push",
]
