"""Export and import: JSON with every version, a zip, plain folders."""

from evolvable_store.archive.folders import export_folders, import_folders
from evolvable_store.archive.history_export import export_json
from evolvable_store.archive.history_import import import_json
from evolvable_store.archive.taking_in import Imported, Look
from evolvable_store.archive.zips import export_zip, import_zip

__all__ = [
    "Imported",
    "Look",
    "export_folders",
    "export_json",
    "export_zip",
    "import_folders",
    "import_json",
    "import_zip",
]
