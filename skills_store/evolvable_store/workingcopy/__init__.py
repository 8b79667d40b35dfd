"""Watched folders: reading them, comparing them with the library, and writing to them safely.

Begin with `WorkingCopies`, the folders of one library: it imports what a person saved and writes
out new versions. `read_folder` reads one directory (`FolderContents`), `Projects` says which folder
belongs to which project, `Trash` keeps what was replaced. Everything in a folder is hostile input.
"""

from evolvable_store.faces import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_store.workingcopy.discovery import COMMANDS, count_resources, discover, is_single
    from evolvable_store.workingcopy.folder_lock import FolderOwner, exclusive
    from evolvable_store.workingcopy.folder_names import FolderNames
    from evolvable_store.workingcopy.git_history import TreeTooLarge, commit_files, recent_commits
    from evolvable_store.workingcopy.git_objects import GitDamaged, tree_entries
    from evolvable_store.workingcopy.git_repository import repositories_around
    from evolvable_store.workingcopy.git_tracking import GitTracking, read_git_tracking
    from evolvable_store.workingcopy.incoming import (
        REPOSITORY,
        DirectoryIssue,
        HoldDecision,
        IncomingDirectory,
        SyncReport,
    )
    from evolvable_store.workingcopy.late_origin import record_maker
    from evolvable_store.workingcopy.leftovers import copied_from
    from evolvable_store.workingcopy.openat import link_out_of_repository
    from evolvable_store.workingcopy.origins import holds_one
    from evolvable_store.workingcopy.plugin_folders import (
        PluginPlace,
        plugin_place,
        plugin_scope,
        plugin_skills,
    )
    from evolvable_store.workingcopy.project_changes import (
        enter_project,
        is_shared,
        likely_scopes,
        main_folder,
        move_project,
        next_scope,
        refresh_marks,
        rename_project,
        scope_name,
        separate_projects,
    )
    from evolvable_store.workingcopy.project_map import (
        PROJECTS_FILE,
        Project,
        add_projects,
        change_projects,
        copy_projects,
        read_projects,
        take_notices,
    )
    from evolvable_store.workingcopy.project_places import (
        project_of,
        skill_folders,
        surroundings_of,
    )
    from evolvable_store.workingcopy.projects import Projects, scopes_by_map
    from evolvable_store.workingcopy.put_back import is_put_back
    from evolvable_store.workingcopy.registry import WorkingCopies
    from evolvable_store.workingcopy.resource_merge import merge_back, merge_resource, name_overlaps
    from evolvable_store.workingcopy.staged_checkout import StagedCheckout
    from evolvable_store.workingcopy.staging_dir import open_root, possible_staging, sync_folder
    from evolvable_store.workingcopy.status import DirectoryState
    from evolvable_store.workingcopy.sync_plan import (
        check_directory,
        known_files,
        known_manifest,
        name_taken,
        reasons_against,
    )
    from evolvable_store.workingcopy.trash import MAX_BYTES, RETENTION_DAYS, Trash, TrashEntry
    from evolvable_store.workingcopy.tree_reader import (
        SYNC_COPY,
        FolderContents,
        read_folder,
        read_single,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "discovery": "COMMANDS count_resources discover is_single",
            "folder_lock": "FolderOwner exclusive",
            "folder_names": "FolderNames",
            "git_history": "TreeTooLarge commit_files recent_commits",
            "git_objects": "GitDamaged tree_entries",
            "git_repository": "repositories_around",
            "git_tracking": "GitTracking read_git_tracking",
            "incoming": "DirectoryIssue HoldDecision IncomingDirectory REPOSITORY SyncReport",
            "late_origin": "record_maker",
            "leftovers": "copied_from",
            "openat": "link_out_of_repository",
            "origins": "holds_one",
            "plugin_folders": "PluginPlace plugin_place plugin_scope plugin_skills",
            "project_changes": (
                "enter_project is_shared likely_scopes main_folder move_project next_scope "
                "refresh_marks rename_project scope_name separate_projects"
            ),
            "project_map": (
                "PROJECTS_FILE Project add_projects change_projects copy_projects "
                "read_projects take_notices"
            ),
            "project_places": "project_of skill_folders surroundings_of",
            "projects": "Projects scopes_by_map",
            "put_back": "is_put_back",
            "registry": "WorkingCopies",
            "resource_merge": "merge_back merge_resource name_overlaps",
            "staged_checkout": "StagedCheckout",
            "staging_dir": "open_root possible_staging sync_folder",
            "status": "DirectoryState",
            "sync_plan": "check_directory known_files known_manifest name_taken reasons_against",
            "tree_reader": "FolderContents SYNC_COPY read_folder read_single",
            "trash": "MAX_BYTES RETENTION_DAYS Trash TrashEntry",
        },
    )

__all__ = [
    "COMMANDS",
    "DirectoryIssue",
    "DirectoryState",
    "FolderContents",
    "FolderNames",
    "FolderOwner",
    "GitDamaged",
    "GitTracking",
    "HoldDecision",
    "IncomingDirectory",
    "MAX_BYTES",
    "PROJECTS_FILE",
    "PluginPlace",
    "Project",
    "Projects",
    "REPOSITORY",
    "RETENTION_DAYS",
    "SYNC_COPY",
    "StagedCheckout",
    "SyncReport",
    "Trash",
    "TrashEntry",
    "TreeTooLarge",
    "WorkingCopies",
    "add_projects",
    "change_projects",
    "check_directory",
    "commit_files",
    "copied_from",
    "copy_projects",
    "count_resources",
    "discover",
    "enter_project",
    "exclusive",
    "holds_one",
    "is_put_back",
    "is_shared",
    "is_single",
    "known_files",
    "known_manifest",
    "likely_scopes",
    "link_out_of_repository",
    "main_folder",
    "merge_back",
    "merge_resource",
    "move_project",
    "name_overlaps",
    "name_taken",
    "next_scope",
    "open_root",
    "plugin_place",
    "plugin_scope",
    "plugin_skills",
    "possible_staging",
    "project_of",
    "read_folder",
    "read_git_tracking",
    "read_projects",
    "read_single",
    "reasons_against",
    "recent_commits",
    "record_maker",
    "refresh_marks",
    "rename_project",
    "repositories_around",
    "scope_name",
    "scopes_by_map",
    "separate_projects",
    "skill_folders",
    "surroundings_of",
    "sync_folder",
    "take_notices",
    "tree_entries",
]
