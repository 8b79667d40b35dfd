"""Export and import of a library: JSON with every version, a zip, plain folders.

Begin with `export_json` and `import_json`, which lose nothing. `export_folders`, `import_folders`
and their zip counterparts carry the newest versions as files. An archive is hostile input:
`folder_candidate` says what would come in before anything does.
"""

from evolvable_store.faces import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_store.bundle.archive_reader import check_evidence
    from evolvable_store.bundle.export import (
        SHAPES,
        backup,
        export_json,
        import_evidence,
        open_atomic,
        select_heads,
    )
    from evolvable_store.bundle.folders import (
        export_folders,
        export_zip,
        find_folders,
        folder_candidate,
        import_folders,
        import_zip,
        read_looks,
    )
    from evolvable_store.bundle.import_ import ImportReport, import_json
else:
    __getattr__ = late_names(
        __name__,
        {
            "archive_reader": "check_evidence",
            "export": "SHAPES backup export_json import_evidence open_atomic select_heads",
            "folders": (
                "export_folders export_zip find_folders folder_candidate import_folders "
                "import_zip read_looks"
            ),
            "import_": "ImportReport import_json",
        },
    )

__all__ = [
    "ImportReport",
    "SHAPES",
    "backup",
    "check_evidence",
    "export_folders",
    "export_json",
    "export_zip",
    "find_folders",
    "folder_candidate",
    "import_evidence",
    "import_folders",
    "import_json",
    "import_zip",
    "open_atomic",
    "read_looks",
    "select_heads",
]
