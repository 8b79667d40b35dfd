"""Export and import: JSON with every version, a zip, plain folders."""

from evolvable_store.bundle.export import export_json
from evolvable_store.bundle.folders import export_folders, export_zip, folder_candidate, import_folders, import_zip
from evolvable_store.bundle.import_ import ImportCheck, ImportReport, import_json

__all__ = [
    "ImportReport",
    "ImportCheck",
    "export_folders",
    "export_json",
    "export_zip",
    "folder_candidate",
    "import_folders",
    "import_json",
    "import_zip",
]
