"""The record of the last `setup`, in the library's folder, and the changes since then."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from evolvable_server.care.client_connections import FoundClient
from evolvable_store import read_regular, write_private
from evolvable_tools import Library, count, some
from evolvable_tools.verbs.folder_states import folder_states
from evolvable_tools.verbs.library_status import changes_since

FILE = "setup.json"

# Room for several thousand folders.
_MAX = 1_000_000
"""Bytes of a record that are read."""

_MOST = 5
"""Refs that a line lists."""


@dataclass(frozen=True, slots=True)
class SetupRecord:
    """The state at one run of `setup`.

    operation: the number of the newest. folders: path -> resources. clients: name -> state.
    """

    at: str
    operation: int
    folders: Mapping[str, int]
    clients: Mapping[str, str]


def take_record(library: Library, clients: list[FoundClient]) -> SetupRecord:
    """Return the record of the present state."""
    newest = library.store.operations(1)
    folders = {folder.path: folder.resources for folder in folder_states(library)}
    states = {client.name: client.state.value for client in clients}
    return SetupRecord(library.store.now(), newest[0].id if newest else 0, folders, states)


def read_record(home: Path) -> SetupRecord | None:
    """Return the record of the last run, None where there is none or it cannot be read."""
    try:
        fields = json.loads(read_regular(home / FILE, _MAX))
        return SetupRecord(
            at=str(fields["at"]),
            operation=int(fields["operation"]),
            folders={str(path): int(number) for path, number in fields["folders"].items()},
            clients={str(name): str(state) for name, state in fields["clients"].items()},
        )
    # Another version may have written other fields: such a record counts as none.
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def write_record(home: Path, record: SetupRecord) -> None:
    """Store a record in place of the last one."""
    write_private(home / FILE, json.dumps(asdict(record)) + "\n")


def describe_changes(
    library: Library, before: SetupRecord, now: SetupRecord, clients: list[FoundClient]
) -> list[str]:
    """Return what has changed between two runs, in lines; none where nothing has."""
    since = changes_since(library, before.operation)
    lines = []
    if since.by:
        by = ", ".join(f"{number} by {author}" for author, number in since.by.items())
        lines.append(f"changes: {by}; {some(since.refs, _MOST)}: evolvable log")
    return [
        *lines,
        *_describe_folder_changes(before.folders, now.folders),
        *_describe_client_changes(before.clients, clients),
    ]


def _describe_folder_changes(before: Mapping[str, int], now: Mapping[str, int]) -> Iterator[str]:
    for path in sorted(before.keys() | now.keys()):
        if path not in now:
            yield f"{path} is not watched any more"
        elif path not in before:
            yield f"{path} is watched now: {count(now[path], 'resource')}"
        elif (more := now[path] - before[path]) != 0:
            word = "more" if more > 0 else "fewer"
            yield f"{path} holds {count(now[path], 'resource')}, {abs(more):,} {word}"


def _describe_client_changes(
    before: Mapping[str, str], clients: list[FoundClient]
) -> Iterator[str]:
    now = {client.name: client for client in clients}
    for name, client in now.items():
        if name not in before:
            yield f"{client.title} is here now: {client.state}"
        elif before[name] != client.state:
            yield f"{client.title} was {before[name]}; now: {client.state}"
    for name in before.keys() - now.keys():
        yield f"{name} is not here any more"
