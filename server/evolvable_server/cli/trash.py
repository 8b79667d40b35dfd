"""The command for files that were taken out of a watched folder and that no version holds: trash."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, count, local_time, say, show_table, warn
from evolvable_store.errors import InvalidArgument, NotFound
from evolvable_store.workingcopy.file_moves import MAX_BYTES, RETENTION_SECONDS, Trash, TrashEntry
from evolvable_store.workingcopy.staging_dir import open_root


@dataclass(frozen=True, slots=True)
class TrashListing:
    """What is in the trash, newest first, and how long and how much of it is kept."""

    entries: list[TrashEntry]
    retention_days: float
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """What was put back. kept: paths that stayed in the trash, because something else has their place."""

    entry: TrashEntry
    kept: list[str]


@command("trash")
@click.argument("action", type=click.Choice(["list", "restore", "delete"]), default="list")
@click.argument("entry", required=False)
def trash_command(state: State, action: str, entry: str | None) -> None:
    """List and restore files that no version holds.

    When a removal or an undo takes a directory out of a watched folder, files in it that no version holds
    (node_modules, .venv, .DS_Store and the like) are moved here. They return by themselves when the directory is
    written again; `restore ENTRY` puts back everything that the directory held.
    """
    if (action == "list") != (entry is None):
        raise click.UsageError("`trash list` takes no entry; restore and delete take one.")
    with state.library() as (library, _):
        trash = Trash(library.store.home)
        if entry is None:
            listing = TrashListing(trash.entries(), RETENTION_SECONDS / 86_400, MAX_BYTES)
            state.show(listing, lambda: _show(listing))
            return
        found = next((one for one in trash.entries() if one.id == entry), None)
        if found is None:
            raise NotFound(
                f"There is nothing {ascii(entry[:40])} in the trash.", "`evolvable trash` lists its entries."
            )
        if action == "delete":
            trash.delete(found.id)
            state.show(PutBack(found, []), lambda: say(f"Deleted {found.id} for good."))
            return
        if found.folder not in {str(folder.path) for folder in library.folders()}:
            raise InvalidArgument(
                f"{found.folder} is not watched any more.", f"Copy the files from {library.store.home}/trash/{entry}."
            )
        root = Path(found.folder)
        with open_root(root) as opened:
            kept = trash.put_back(found.id, opened / found.directory)
    state.show(PutBack(found, kept), lambda: _show_put_back(found, kept))


def _show(listing: TrashListing) -> None:
    if not listing.entries:
        say("The trash is empty.")
        return
    rows: list[Row] = [
        [
            (one.id, "bold"),
            local_time(datetime.fromtimestamp(one.at, UTC).isoformat()),
            f"{one.folder}/{one.directory}",
            str(one.files),
            f"{one.size:,}",
        ]
        for one in listing.entries
    ]
    show_table(["entry", "when", "from", "files", "bytes"], rows, wide=("from",))
    say(f"\nKept for {listing.retention_days:.0f} days, at most {listing.max_bytes:,} bytes in all.")
    say("Put one back: evolvable trash restore ENTRY")


def _show_put_back(entry: TrashEntry, kept: list[str]) -> None:
    for path in kept:
        warn(f"{path} stays in the trash: something else has its place in {entry.folder}/{entry.directory}")
    say(f"Put back {count(entry.files, 'file')} into {entry.folder}/{entry.directory}.")
