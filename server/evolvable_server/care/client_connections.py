"""The clients of this machine as `setup` sees them: which are here, which are connected, and what
each answers.
"""

import asyncio
import json
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from evolvable_server.care.client_status import (
    PATIENCE_SECONDS,
    check_clients,
    client_entries,
    probe_start,
)
from evolvable_server.client_folders import ClientHomes
from evolvable_server.clients import (
    ClientConnection,
    all_clients,
    configuration_entry,
    connect,
    has_hooks,
    read_configuration,
    run_client,
    server_start,
)
from evolvable_server.clients.client import USER, Client
from evolvable_server.config import Config, Machine
from evolvable_server.environment import CONFIG, HOME
from evolvable_store import make_manifest, seed_folder
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Kind
from evolvable_store.workingcopy import plugin_place, plugin_skills, read_folder
from evolvable_tools import Caller, HealthProblem, Library, authorships
from evolvable_tools.verbs import MAX_PAGE, list_page

PLUGIN = "evolvable"
"""The name of the plugin, and of the marketplace that has it."""


class ClientState(StrEnum):
    """State of a client's connection to this library."""

    CONNECTED = "connected"
    """Its settings have an entry that starts the server over this library."""

    PLUGIN = "connected by the plugin"
    """The plugin is installed in it."""

    ELSEWHERE = "connected to another library"
    """Its settings have an entry of ours for another library."""

    OPEN = "not connected"
    """It could be connected."""

    BROKEN = "its settings cannot be read"
    """Its settings are to be corrected first."""


@dataclass(frozen=True, slots=True)
class FoundClient:
    """A client that is on this machine.

    path: its settings. note: explains the state, or ''. plugin: whether the plugin can be installed
    in it from here.
    """

    name: str
    title: str
    path: str
    state: ClientState
    note: str = ""
    plugin: bool = False

    @property
    def is_connected(self) -> bool:
        """Whether its agents reach this library."""
        return self.state in (ClientState.CONNECTED, ClientState.PLUGIN)


def find_clients(config: Config, machine: Machine, homes: ClientHomes) -> list[FoundClient]:
    """Return the clients that are on this machine. Nothing is started."""
    libraries: dict[str, Path | None] = {}
    for entry in client_entries(machine, []):
        try:
            library: Path | None = entry.library
        except EvolvableError:
            library = None
        # A client may have several entries: one for this library counts before all others.
        if libraries.get(entry.client.name) != config.home:
            libraries[entry.client.name] = library
    here = [client for client in all_clients().values() if _is_here(client, machine)]
    return [_describe_client(client, config, machine, homes, libraries) for client in here]


def _is_here(client: Client, machine: Machine) -> bool:
    path = client.file(machine, USER)
    if path is None:
        return False
    places = [path]
    # The folder of the settings proves that the client is here, except the home folder, which
    # always exists.
    if path.parent != machine.user:
        places.append(path.parent)
    # Claude Code's settings lie in the home folder itself; its own folder is ~/.claude.
    if client.name == "claude-code":
        places.append(machine.user / ".claude")
    return _find_program(client, machine) is not None or any(place.exists() for place in places)


def _find_program(client: Client, machine: Machine) -> str | None:
    return shutil.which(client.program, path=machine.programs) if client.program else None


def _describe_client(
    client: Client,
    config: Config,
    machine: Machine,
    homes: ClientHomes,
    libraries: dict[str, Path | None],
) -> FoundClient:
    path = client.file(machine, USER)
    assert path is not None
    state, note = ClientState.OPEN, ""
    if client.name in libraries:
        library = libraries[client.name]
        if library == config.home:
            state = ClientState.CONNECTED
        else:
            state = ClientState.ELSEWHERE
            note = f"{library}; `evolvable connect {client.name}` connects it to this one"
    elif _has_plugin(client, homes):
        state = ClientState.PLUGIN
    else:
        try:
            read_configuration(path)
        except EvolvableError as error:
            state, note = ClientState.BROKEN, f"{error.text} {error.hint}".strip()
    can_plug = state is ClientState.OPEN and not plugin_obstacle(client, config, machine)
    return FoundClient(client.name, client.title, str(path), state, note, can_plug)


def _has_plugin(client: Client, homes: ClientHomes) -> bool:
    own = {"claude-code": homes.claude, "codex": homes.codex}.get(client.name)
    return own is not None and any(map(is_own_plugin, plugin_skills(own)))


def is_own_plugin(folder: Path) -> bool:
    """Return whether a folder is one of the plugin that connects to this program."""
    place = plugin_place(folder)
    return place is not None and (place.plugin.name, place.plugin.parent.name) == (PLUGIN, PLUGIN)


# Connecting


def connect_client(
    config: Config, machine: Machine, name: str, *, hooks: bool = False
) -> ClientConnection:
    """Write the entry of the server, and the hooks, into the settings of a client.

    Raise as `connect`.
    """
    place = configuration_entry(machine, all_clients()[name], USER)
    return connect(place, server_start(config.home), hooks=hooks)


def plugin_obstacle(client: Client, config: Config, machine: Machine) -> str:
    """Return why the plugin, or hooks in its place, cannot be installed in a client from here, ''
    where they can.
    """
    if has_hooks(client.name):
        return ""
    if not client.plugin:
        return f"{client.title} has no plugins that hold the server"
    if _find_program(client, machine) is None:
        return f"its command `{client.program}` is not on your PATH"
    if shutil.which("evolvable", path=machine.programs) is None:
        return "the plugin starts `evolvable`, which is not on your PATH"
    if {HOME, CONFIG} & server_start(config.home).env.keys():
        return f"the plugin starts the server over the usual library, and not over {config.home}"
    if plugin_source() is None:
        return (
            "the clone that this program was installed from, which holds the plugin, is not there"
        )
    return ""


def plugin_source() -> Path | None:
    """Return the clone that holds the plugin: this program runs from it or was installed from it.

    None where there is none.
    """
    # From server/evolvable_server/care, the fourth parent is the root of a clone.
    places = [Path(__file__).resolve().parents[3]]
    try:
        # The installer's note on where the program came from (PEP 610); an install from an index
        # has none.
        origin = json.loads(metadata.distribution("evolvable").read_text("direct_url.json") or "{}")
        url = urlsplit(str(origin.get("url")))
    # AttributeError: valid JSON that is no object.
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        url = urlsplit("")
    if url.scheme == "file":
        places.append(Path(unquote(url.path)))
    for place in places:
        if (place / ".claude-plugin/marketplace.json").is_file():
            return place
    return None


def install_plugin(config: Config, machine: Machine, name: str) -> None:
    """Have a client install the plugin, or write its entry and its hooks where it runs no hook of
    the plugin.

    Raise InvalidArgument where the client cannot, or reports a failure, and as `connect`.
    """
    client = all_clients()[name]
    if has_hooks(name):
        connect_client(config, machine, name, hooks=True)
        return
    program, source = _find_program(client, machine), plugin_source()
    why = plugin_obstacle(client, config, machine)
    if why or program is None or source is None:
        raise InvalidArgument(
            f"The plugin cannot be installed in {client.title}: {why}.",
            f"`evolvable connect {name}` connects it without the plugin.",
        )
    marketplace, install = client.plugin
    # Not the end yet: the client may have the marketplace already.
    marketplace_failure = run_client(machine, [program, *marketplace, str(source)])
    failure = run_client(machine, [program, *install, f"{PLUGIN}@{PLUGIN}"])
    if failure is not None:
        reasons = "; ".join(filter(None, (marketplace_failure, failure)))
        words = " ".join((client.program, *install, f"{PLUGIN}@{PLUGIN}"))
        raise InvalidArgument(
            f"{client.title} did not install the plugin: {reasons}", f"Try: {words}"
        )


# Checking


@dataclass(frozen=True, slots=True)
class ClientCheck:
    """What the server of a connected client answered.

    where: its entry. seconds: until it listed its tools, None where it did not.
    answer: what find_skill names first for the task, 'nothing fits', or '' where it was not asked.
    """

    title: str
    where: str
    seconds: float | None
    answer: str


def check_connections(
    config: Config, machine: Machine, found: Iterable[FoundClient], task: str
) -> tuple[list[ClientCheck], list[HealthProblem]]:
    """Start the server of each connected client as the client would, and ask it for a skill.

    Return what each answered, and what is wrong. task: what the skill is for.
    """
    health = check_clients(machine, config, task)
    checks = [
        ClientCheck(entry.client, entry.path, entry.seconds, entry.answer)
        for entry in health.connected
        if entry.library == str(config.home)
    ]
    problems = list(health.problems)
    program = shutil.which("evolvable", path=machine.programs)
    for client in found:
        if client.state is not ClientState.PLUGIN or program is None:
            continue
        # The plugin has no entry with a command: it starts the `evolvable` that is on the PATH.
        start = asyncio.run(
            probe_start([program, "serve"], machine.passed, machine.project, PATIENCE_SECONDS, task)
        )
        seconds = round(start.seconds, 2) if start.lists_tools else None
        checks.append(ClientCheck(client.title, "the plugin", seconds, start.answer))
        if start.failure:
            what = f"The server of the plugin does not start: {start.failure}."
            problems.append(HealthProblem(what, "Try: evolvable serve"))
    return checks, problems


TASK = "write a good commit message for my staged changes"
"""The task that is looked up in a library of the bundled skills, one of which is for it."""

_PLAIN = re.compile(r"[\w ,.:;/()-]+")
"""A question that a person can type again: no shell asks for an escape between its quotes."""

# About two lines of a terminal: the question and the answers stay on one screen.
_QUESTION_LENGTH = 160
"""Characters that the question about a skill of the person may have."""


def sample_task(library: Library, caller: Caller) -> str:
    """Return what one of the person's skills is for, in the words of its description; else TASK.

    A description that would reach an agent between marks is left out. One that a person can type
    comes first.
    """
    # The trees of the bundled skills: an unchanged one says nothing about the person's own library.
    bundled = {
        make_manifest(read_folder(place).files).tree
        for place in (seed_folder() / "skills").iterdir()
    }
    entries, _ = list_page(
        library.index, caller.scopes, kind=Kind.SKILL, limit=MAX_PAGE, cursor=None
    )
    authors = authorships(library, [entry.id for entry in entries])
    questions = list[str]()
    for entry in entries:
        # The first sentence: it ends where a full stop, question mark or exclamation mark has a
        # space behind it.
        first = re.split(r"(?<=[.!?])\s", entry.description.strip())[0]
        question = textwrap.shorten(first, _QUESTION_LENGTH, placeholder="")
        if question and entry.tree not in bundled and not authors[entry.id].is_marked:
            questions.append(question)
    return next(filter(_PLAIN.fullmatch, questions), next(iter(questions), TASK))


def titles(clients: Sequence[FoundClient]) -> str:
    """Return the names of clients in a sentence."""
    names = [client.title for client in clients]
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
