"""Look after a library: its health, its weekly digest, copies of it, its recovery from a backup.

Begin with `check_library`, what is wrong and what to do about it. `copy_skills` copies skills
between homes; `checked_copy` and `check_backup` are the steps of a recovery.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.care.copying import Copied, copy_skills
    from evolvable_tools.care.digest import (
        PARTS,
        TITLE,
        WEEK,
        Digest,
        DigestLine,
        DigestPart,
        digest_markdown,
        weekly_digest,
    )
    from evolvable_tools.care.findings import (
        near_duplicate_lines,
        open_secrets,
        scan_for_secrets,
        secret_lines,
    )
    from evolvable_tools.care.library_health import LibraryHealth, check_library, program_versions
    from evolvable_tools.care.recovery import (
        REPLACED,
        check_backup,
        check_closed,
        checked_copy,
        replaced_libraries,
        watched_folders,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "copying": "Copied copy_skills",
            "digest": "Digest DigestLine DigestPart PARTS TITLE WEEK digest_markdown weekly_digest",
            "findings": "near_duplicate_lines open_secrets scan_for_secrets secret_lines",
            "library_health": "LibraryHealth check_library program_versions",
            "recovery": (
                "REPLACED check_backup check_closed checked_copy replaced_libraries watched_folders"
            ),
        },
    )

__all__ = [
    "Copied",
    "Digest",
    "DigestLine",
    "DigestPart",
    "LibraryHealth",
    "PARTS",
    "REPLACED",
    "TITLE",
    "WEEK",
    "check_backup",
    "check_closed",
    "check_library",
    "checked_copy",
    "copy_skills",
    "digest_markdown",
    "near_duplicate_lines",
    "open_secrets",
    "program_versions",
    "replaced_libraries",
    "scan_for_secrets",
    "secret_lines",
    "watched_folders",
    "weekly_digest",
]
