"""The library as an ordinary git repository: commits out of operations, and what commits of others would change.

Begin with `Remote`, `push` and `open_pull`. Commits of others are hostile input: they become proposals
(`IncomingResource`).
"""

from typing import TYPE_CHECKING

from evolvable_store import late_names

if TYPE_CHECKING:
    from evolvable_teams.remotes.forge_merges import FORGES, Forge, MergeReader, named_forge, parse_forge
    from evolvable_teams.remotes.git_process import check_address, check_branch, is_local
    from evolvable_teams.remotes.remote import PARTS, PushResult, Remote, check_remote_name, push
    from evolvable_teams.remotes.remote_merge import Arrival, PullResult
    from evolvable_teams.remotes.remote_pull import Consent, IncomingResource, open_pull, purge_as_elsewhere
else:
    __getattr__ = late_names(
        __name__,
        {
            "forge_merges": "FORGES Forge MergeReader named_forge parse_forge",
            "git_process": "check_address check_branch is_local",
            "remote": "PARTS PushResult Remote check_remote_name push",
            "remote_merge": "Arrival PullResult",
            "remote_pull": "Consent IncomingResource open_pull purge_as_elsewhere",
        },
    )

__all__ = [
    "Arrival",
    "Consent",
    "FORGES",
    "Forge",
    "IncomingResource",
    "MergeReader",
    "PARTS",
    "PullResult",
    "PushResult",
    "Remote",
    "check_address",
    "check_branch",
    "check_remote_name",
    "is_local",
    "named_forge",
    "open_pull",
    "parse_forge",
    "purge_as_elsewhere",
    "push",
]
