"""The folders of plugins that a person installed in a client, and the version of each that counts.

Claude Code and Codex keep a plugin in `plugins/cache/MARKETPLACE/PLUGIN/VERSION` below their own
folder. Claude Code marks a version that it no longer uses with a file, and deletes it later. Other
people wrote the files of a plugin, so they are read and never written.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.resource import PLUGIN, slugify
from evolvable_store.storage import WatchedFolder

_CACHE = ("plugins", "cache")
_ORPHANED = ".orphaned_at"
"""The file in a version of a plugin that Claude Code no longer uses."""

SKILLS = "skills"

# Nine digits at most: the name of a folder may be anything.
_RELEASE = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PluginPlace:
    """A folder in a version of a plugin.

    plugin: the folder of its versions. inside: the path in the version.
    """

    plugin: Path
    version: str
    inside: Path

    @property
    def scopes(self) -> Iterator[str]:
        """The scopes that it may have, the first one best."""
        name, market = slugify(self.plugin.name) or "plugin", slugify(self.plugin.parent.name)
        yield f"{PLUGIN}{name}"
        if both := slugify(f"{name}-{market}"):
            yield f"{PLUGIN}{both}"
        # Two markets may have a plugin of one name.
        yield from (f"{PLUGIN}{slugify(f'{name}-{number}')}" for number in range(2, 1_000))


def plugin_place(folder: Path) -> PluginPlace | None:
    """Return which plugin a folder belongs to, None for a folder in no version of a plugin."""
    parts = folder.parts
    # MARKETPLACE, PLUGIN and VERSION have to follow.
    for at in range(len(parts) - 4):
        if parts[at : at + 2] == _CACHE:
            plugin, inside = Path(*parts[: at + 4]), Path(*parts[at + 5 :])
            return PluginPlace(plugin, parts[at + 4], inside)
    return None


def plugin_scope(
    place: PluginPlace, folders: Iterable[WatchedFolder], chosen: Mapping[str, Path]
) -> str:
    """Return the scope of a plugin.

    It is the one of a watched folder of the plugin, else the first that no other plugin has.
    chosen: scopes of plugins that are not watched yet.
    """
    plugins_by_scope = dict(chosen)
    for folder in folders:
        if folder.scope.startswith(PLUGIN) and (other := plugin_place(folder.path)) is not None:
            if other.plugin == place.plugin:
                return folder.scope
            plugins_by_scope[folder.scope] = other.plugin
    return next(
        scope for scope in place.scopes if plugins_by_scope.get(scope, place.plugin) == place.plugin
    )


def newest_version(plugin: Path) -> Path | None:
    """Return the newest version of a plugin that its client uses, None where there is none."""
    versions = [
        folder for folder in _list_folders(plugin) if not os.path.lexists(folder / _ORPHANED)
    ]
    return max(versions, key=_make_age_key, default=None)


def plugin_skills(client: Path) -> list[Path]:
    """Return the folder of skills of each plugin in a client's own folder.

    It is that of the newest version.
    """
    cache = Path(os.path.realpath(client)).joinpath(*_CACHE)
    plugins = [plugin for market in _list_folders(cache) for plugin in _list_folders(market)]
    newest = filter(None, map(newest_version, plugins))
    return [version / SKILLS for version in newest if _is_folder(version / SKILLS)]


def find_moved_folder(folder: WatchedFolder) -> Path | None:
    """Return the folder in the newest version of a plugin, None where the watched one is in it."""
    place = plugin_place(folder.path)
    newest = newest_version(place.plugin) if place is not None else None
    if place is None or newest is None or newest.name == place.version:
        return None
    candidate = newest / place.inside
    return candidate if _is_folder(candidate) else None


def _list_folders(place: Path) -> list[Path]:
    """Return the folders in a folder, without links and hidden ones, by name."""
    try:
        return sorted(
            place / entry.name
            for entry in os.scandir(place)
            if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."
        )
    except OSError:
        return []


def _is_folder(place: Path) -> bool:
    """Return whether a folder is at this path, without a link on the way."""
    # A plugin could name any folder of the person through a link.
    return place.is_dir() and os.path.realpath(place) == str(place)


def _make_age_key(version: Path) -> tuple[tuple[int, ...], bool, float]:
    """Return a sort key for versions: by numbers, previews before their release, then by time."""
    match = _RELEASE.fullmatch(version.name)
    numbers = tuple(map(int, match[1].split("."))) if match else ()
    # The hash of a commit can begin with digits, and says nothing of its age.
    is_commit = match is None or re.fullmatch(r"[0-9a-f]{7,64}", version.name) is not None
    try:
        made_at = os.stat(version).st_mtime
    except OSError:
        made_at = 0.0
    is_preview = match is not None and match[2].startswith("-")
    return (() if is_commit else numbers), not is_preview, made_at
