"""The state of a library's surroundings: its folders, the clients, their lists of skills, and the
inbox.

`status`, `folders` and `doctor` show these lines in the same words. Nothing is started and nothing
is changed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from evolvable_server.care.client_connections import ClientState, FoundClient, find_clients
from evolvable_server.client_folders import read_client_homes
from evolvable_server.clients import SHORTEN, crowded_list, cut_lists
from evolvable_server.config import Config, read_machine
from evolvable_server.watch_failures import watch_failures
from evolvable_tools import HealthProblem, Library, some
from evolvable_tools.verbs.folder_states import IN_SYNC, WatchedRoot, folder_problems, folder_states
from evolvable_tools.verbs.library_status import waiting_line

MOST = 5
"""Names that a line lists."""


class Topic(StrEnum):
    """The subject of a line, with which `status` and `doctor` begin it."""

    WAITS = "waits"
    FOLDER = "folder"
    CLIENT = "client"
    LIST = "listed"


@dataclass(frozen=True, slots=True)
class StandingLine:
    """The state of one subject.

    name: which one of its topic, '' where there is one alone. state: in words, with the command to
    go on with. well: whether nothing is to be done about it.
    """

    topic: Topic
    name: str
    state: str
    well: bool

    @property
    def text(self) -> str:
        """The line for a person."""
        return f"{self.name}: {self.state}" if self.name else self.state


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of all subjects.

    problems: what is wrong with the folders, the worst first, and what to do.
    """

    folders: Sequence[WatchedRoot]
    lines: Sequence[StandingLine]
    problems: Sequence[HealthProblem]

    def about(self, topic: Topic) -> list[StandingLine]:
        """Return the lines about one topic."""
        return [line for line in self.lines if line.topic is topic]


def read_standing(library: Library, config: Config) -> Standing:
    """Return the state of a library's folders, its clients, their lists and the inbox."""
    folders = folder_states(library)
    problems = [
        HealthProblem(wrong.what, wrong.next)
        for folder in folders
        for wrong in folder_problems(folder)
    ]
    failures = watch_failures(library.store.home, [Path(folder.path) for folder in folders])
    problems += [HealthProblem(failure.what, failure.remedy) for failure in failures]
    clients = find_clients(config, read_machine(config.project), read_client_homes(config))
    waits = waiting_line(library)
    lines = [StandingLine(Topic.WAITS, "", waits, False)] if waits else []
    lines += [folder_line(folder) for folder in folders]
    lines += map(_describe_client, clients)
    lines += _describe_lists(library, config, clients)
    return Standing(folders, lines, problems)


def folder_line(folder: WatchedRoot) -> StandingLine:
    """Return the line about a watched folder, without its problems."""
    refused = some([issue.directory for issue in folder.not_imported], MOST)
    hints = {
        "changed on disk": ", `evolvable diff` shows how",
        "not imported": f" ({refused}), `evolvable doctor` says why",
        "waiting for git": f": {some(folder.waiting_for_git, MOST)}",
    }
    # A part may begin with its count, as in `3 changed on disk`.
    parts = [
        f"{part}{hints.get(part.lstrip('0123456789 '), '')}" for part in folder.state.split(", ")
    ]
    state = folder.obstacle or "; ".join(parts)
    pulled = f"; last pull, commit {folder.pulled}" if folder.pulled else ""
    return StandingLine(
        Topic.FOLDER, f"{folder.path} ({folder.scope})", f"{state}{pulled}", folder.state == IN_SYNC
    )


def _describe_client(client: FoundClient) -> StandingLine:
    note = client.note
    if client.state is ClientState.OPEN:
        note = f"`evolvable connect {client.name}` connects it"
    state = f"{client.state}; {note}" if note else str(client.state)
    return StandingLine(Topic.CLIENT, client.title, state, client.is_connected)


def _describe_lists(
    library: Library, config: Config, clients: Sequence[FoundClient]
) -> Iterator[StandingLine]:
    """Yield a line on each list of a client that leaves out descriptions."""
    machine = read_machine(config.project)
    if crowded := crowded_list(library, machine):
        # find_skill makes up for what the list leaves out, if the client is connected.
        can_find = any(client.name == "claude-code" and client.is_connected for client in clients)
        fewer = f"; `{SHORTEN}` lists fewer" if can_find else ""
        yield StandingLine(Topic.LIST, "", f"{crowded.text}{fewer}", False)
    for cut_list in cut_lists(library, machine):
        if cut_list.cut:
            use = "`evolvable client collection use NAME --client CLIENT` lists fewer"
            yield StandingLine(Topic.LIST, "", f"{cut_list.text}; {use}", False)
