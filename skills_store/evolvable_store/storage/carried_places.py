"""The watched folders of another library that a move or a backup carried into this home.

Two libraries must not write into one folder, so these have no effect until the person agrees.
"""

import json
import os
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_store.paths import CARRIED_PLACES
from evolvable_store.regular_files import private_file
from evolvable_store.resource import Kind
from evolvable_store.storage.bindings import Binding, WaitingPlaces, WatchedFolder

if TYPE_CHECKING:
    from evolvable_store.storage.bindings import Bindings

# 64 MiB: some hundred thousand bindings. A longer file is cut, and then counts as damaged.
_MAX_BYTES = 2**26


def carry_places(bindings: "Bindings", target: Path) -> None:
    """Write the watched folders of a library into a home that has none, or into a backup.

    Raise OSError.
    """
    folders = bindings.folders()
    data = {
        "folders": [
            (folder.id, folder.scope, str(folder.kind), str(folder.path)) for folder in folders
        ],
        "bindings": [
            astuple(binding)[:4]
            for folder in folders
            for binding in bindings.of_folder(folder).values()
        ],
    }
    if folders:
        with open(target / CARRIED_PLACES, "w", encoding="utf-8", opener=private_file) as file:
            json.dump(data, file)
            file.flush()
            # A backup is on the disk when the command returns.
            os.fsync(file.fileno())


def carried_places(home: Path) -> WaitingPlaces:
    """Return the places that were carried into a home; none where the file is damaged."""
    places = WaitingPlaces()
    try:
        with open(home / CARRIED_PLACES, "rb") as file:
            data = json.loads(file.read(_MAX_BYTES))
        _add_places(places, data["folders"], data["bindings"])
    except (OSError, ValueError, KeyError, TypeError):
        return WaitingPlaces()
    return places


def _add_places(places: WaitingPlaces, folders: Any, bindings: Any) -> None:
    for number, scope, kind, path in folders:
        if is_folder(kind, path):
            places.folders.append(WatchedFolder(int(number), str(scope), Kind(kind), Path(path)))
    # Bindings of a folder that was refused are dropped with it.
    folder_ids = {folder.id for folder in places.folders}
    for folder, directory, resource, version in bindings:
        if folder in folder_ids and is_below(directory):
            places.bindings.append(Binding(int(folder), directory, int(resource), version, ""))
    places.rows["carried"] = places.folders


def forget_carried(home: Path) -> None:
    """Delete the file with carried places of a home. Raise OSError."""
    (home / CARRIED_PLACES).unlink(missing_ok=True)


def is_folder(kind: str, path: str) -> bool:
    """Return whether a row of another library names a folder as this program does."""
    # The file may come from anybody: the path that the person sees must be the one that is written.
    if kind not in {*Kind} or not path.isprintable():
        return False
    return Path(path).is_absolute() and ".." not in Path(path).parts


def is_below(directory: str) -> bool:
    """Return whether a text names a directory below a folder, as discovery does."""
    return directory.isprintable() and not {"", ".", ".."} & set(directory.split("/"))
