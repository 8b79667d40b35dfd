"""The storage layer: resources, their versions, and how they change. Knows no client, no model and
no settings.

Begin with `Store`: it opens a library, and `Store.transaction` is the only way to change a name in
it. A change is an `Operation` by an `Actor`; a version is a `Manifest` of `File`s.
`evolvable_store.resource` has `Ref` and `Kind`, `evolvable_store.errors` every error. The tables,
the index, the folders and the archives are packages with faces of their own: `storage`, `search`,
`workingcopy`, `bundle`.
"""

from evolvable_store.faces import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_store.agent_grants import (
        ALL_TOOLS,
        plain_key,
        read_grants,
        split_outside_brackets,
    )
    from evolvable_store.fork_lines import forked_agent, with_fork
    from evolvable_store.frontmatter import (
        DELEGATE_WORDS,
        MAX_DESCRIPTION,
        MAX_FRONTMATTER,
        NO_FRONTMATTER,
        Delegate,
        Document,
        Severity,
        find_frontmatter,
        head_text,
        is_frozen,
        is_person_only,
        parse_document,
        summarize,
    )
    from evolvable_store.fsck import FsckReport, check_library
    from evolvable_store.gc import (
        DetectedSecret,
        SecretFindings,
        SecretOccurrence,
        blobs_with,
        collect,
        purge_content,
    )
    from evolvable_store.merge import MergeResult, Overlap, changed_lines, merge_files
    from evolvable_store.objects import (
        ABSENT,
        EXECUTABLE,
        MAX_FILE,
        MAX_FILES,
        MAX_RESOURCE,
        PLAIN,
        TOMBSTONES,
        File,
        Files,
        Manifest,
        Tombstone,
        TreeEntry,
        blob_hash,
        make_manifest,
        pack,
        pack_tombstone,
        unpack,
    )
    from evolvable_store.operation import (
        QUICKSTART,
        Actor,
        Change,
        Head,
        Identity,
        Intent,
        Operation,
        Principal,
        Signer,
        implied_principal,
        read_pull,
    )
    from evolvable_store.paths import (
        ADDRESS_FILE,
        AGENT_RUNS,
        CARRIED_PLACES,
        CHANGE_MARK,
        CONFIGURATION,
        EMBEDDED_FOLDER,
        FOLDER_NAMES,
        GIT_POSITIONS,
        HELD_POWERS,
        INSTALLED_SKILLS,
        LIBRARY_FILE,
        LIBRARY_FILES,
        MAX_DEPTH,
        MIRRORS,
        NEAR_DUPLICATES,
        PLACES_FILE,
        PLACES_FILES,
        RUNS,
        UNWRITTEN,
        Registered,
        check_home,
        check_path,
        holds_library,
        home_exposure,
        is_address,
        is_ignored,
        is_sync_copy,
        no_homes,
        open_elsewhere,
        path_problem,
        running_postgres,
        seed_folder,
        work_tree,
    )
    from evolvable_store.power_fields import HeldPowers, different_powers, power_values, written_key
    from evolvable_store.program_files import check_program, guard_imports
    from evolvable_store.provenance import FilePart
    from evolvable_store.regular_files import (
        private_file,
        read_regular,
        regular_file,
        write_private,
    )
    from evolvable_store.review_queue import (
        QueuedSession,
        enqueue,
        file_name,
        finish_session,
        give_back,
        reclaim,
        take_session,
        waiting_sessions,
    )
    from evolvable_store.safe_yaml import InvalidYaml, UnsafeYaml, load_yaml
    from evolvable_store.secret_copies import holds_text, unpack_archive, without_texts
    from evolvable_store.store import Store
    from evolvable_store.transaction import Transaction, WriteResult, arrive, format_time
    from evolvable_store.used_days import USED_DAYS_FILE, days_of_use, plan_day, planned_day
    from evolvable_store.validation import (
        MEMORY_CAPS,
        Problem,
        added_conflicts,
        blocking_problems,
        broken_rules,
        find_problems,
        lost_files,
        main_path,
        named_problems,
        unclear_problems,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "agent_grants": "ALL_TOOLS plain_key read_grants split_outside_brackets",
            "fork_lines": "forked_agent with_fork",
            "frontmatter": (
                "DELEGATE_WORDS Delegate Document MAX_DESCRIPTION MAX_FRONTMATTER "
                "NO_FRONTMATTER Severity find_frontmatter head_text is_frozen is_person_only "
                "parse_document summarize"
            ),
            "fsck": "FsckReport check_library",
            "gc": "DetectedSecret SecretFindings SecretOccurrence blobs_with collect purge_content",
            "merge": "MergeResult Overlap changed_lines merge_files",
            "objects": (
                "ABSENT EXECUTABLE File Files MAX_FILE MAX_FILES MAX_RESOURCE Manifest PLAIN "
                "TOMBSTONES Tombstone TreeEntry blob_hash make_manifest pack "
                "pack_tombstone unpack"
            ),
            "operation": (
                "Actor Change Head Identity Intent Operation Principal QUICKSTART Signer "
                "implied_principal read_pull"
            ),
            "paths": (
                "ADDRESS_FILE AGENT_RUNS CARRIED_PLACES CHANGE_MARK CONFIGURATION EMBEDDED_FOLDER "
                "FOLDER_NAMES GIT_POSITIONS HELD_POWERS INSTALLED_SKILLS LIBRARY_FILE "
                "LIBRARY_FILES MAX_DEPTH MIRRORS NEAR_DUPLICATES PLACES_FILE PLACES_FILES "
                "RUNS Registered UNWRITTEN check_home check_path holds_library home_exposure "
                "is_address is_ignored is_sync_copy no_homes open_elsewhere path_problem "
                "running_postgres seed_folder work_tree"
            ),
            "power_fields": "HeldPowers different_powers power_values written_key",
            "program_files": "check_program guard_imports",
            "provenance": "FilePart",
            "regular_files": "private_file read_regular regular_file write_private",
            "review_queue": (
                "QueuedSession enqueue file_name finish_session give_back reclaim "
                "take_session waiting_sessions"
            ),
            "safe_yaml": "InvalidYaml UnsafeYaml load_yaml",
            "secret_copies": "holds_text unpack_archive without_texts",
            "store": "Store",
            "transaction": "Transaction WriteResult arrive format_time",
            "used_days": "USED_DAYS_FILE days_of_use plan_day planned_day",
            "validation": (
                "MEMORY_CAPS Problem added_conflicts blocking_problems broken_rules find_problems "
                "lost_files main_path named_problems unclear_problems"
            ),
        },
    )

__all__ = [
    "ABSENT",
    "ADDRESS_FILE",
    "AGENT_RUNS",
    "ALL_TOOLS",
    "Actor",
    "CARRIED_PLACES",
    "CHANGE_MARK",
    "CONFIGURATION",
    "Change",
    "DELEGATE_WORDS",
    "Delegate",
    "DetectedSecret",
    "Document",
    "EMBEDDED_FOLDER",
    "EXECUTABLE",
    "FOLDER_NAMES",
    "File",
    "FilePart",
    "Files",
    "FsckReport",
    "GIT_POSITIONS",
    "HELD_POWERS",
    "Head",
    "HeldPowers",
    "INSTALLED_SKILLS",
    "Identity",
    "Intent",
    "InvalidYaml",
    "LIBRARY_FILE",
    "LIBRARY_FILES",
    "MAX_DEPTH",
    "MAX_DESCRIPTION",
    "MAX_FILE",
    "MAX_FILES",
    "MAX_FRONTMATTER",
    "MAX_RESOURCE",
    "MEMORY_CAPS",
    "MIRRORS",
    "Manifest",
    "MergeResult",
    "NEAR_DUPLICATES",
    "NO_FRONTMATTER",
    "Operation",
    "Overlap",
    "PLACES_FILE",
    "PLACES_FILES",
    "PLAIN",
    "Principal",
    "Problem",
    "QUICKSTART",
    "QueuedSession",
    "RUNS",
    "Registered",
    "SecretFindings",
    "SecretOccurrence",
    "Severity",
    "Signer",
    "Store",
    "TOMBSTONES",
    "Tombstone",
    "Transaction",
    "TreeEntry",
    "UNWRITTEN",
    "USED_DAYS_FILE",
    "UnsafeYaml",
    "WriteResult",
    "added_conflicts",
    "arrive",
    "blob_hash",
    "blobs_with",
    "blocking_problems",
    "broken_rules",
    "changed_lines",
    "check_home",
    "check_library",
    "check_path",
    "check_program",
    "collect",
    "days_of_use",
    "different_powers",
    "enqueue",
    "file_name",
    "find_frontmatter",
    "find_problems",
    "finish_session",
    "forked_agent",
    "format_time",
    "give_back",
    "guard_imports",
    "head_text",
    "holds_library",
    "holds_text",
    "home_exposure",
    "implied_principal",
    "is_address",
    "is_frozen",
    "is_ignored",
    "is_person_only",
    "is_sync_copy",
    "late_names",
    "load_yaml",
    "lost_files",
    "main_path",
    "make_manifest",
    "merge_files",
    "named_problems",
    "no_homes",
    "open_elsewhere",
    "pack",
    "pack_tombstone",
    "parse_document",
    "path_problem",
    "plain_key",
    "plan_day",
    "planned_day",
    "power_values",
    "private_file",
    "purge_content",
    "read_grants",
    "read_pull",
    "read_regular",
    "reclaim",
    "regular_file",
    "running_postgres",
    "seed_folder",
    "split_outside_brackets",
    "summarize",
    "take_session",
    "unclear_problems",
    "unpack",
    "unpack_archive",
    "waiting_sessions",
    "without_texts",
    "with_fork",
    "work_tree",
    "write_private",
    "written_key",
]


__version__ = "0.1.0"
