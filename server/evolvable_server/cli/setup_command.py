"""The command setup: what is here, three questions (yours, connect, offers), and what has changed
since the last run.

At a terminal it asks. With a flag it asks nothing, and does what the flags say. What a person
answered is done before the next question, so an interrupt leaves nothing half done.
"""

import contextlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from evolvable_server.care import (
    ClientCheck,
    ClientState,
    FoundClient,
    check_connections,
    connect_client,
    describe_changes,
    find_clients,
    find_offers,
    install_plugin,
    is_own_plugin,
    read_record,
    sample_task,
    setup_offers,
    take_record,
    titles,
    write_record,
)
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.folder_choice import FolderChoice, check_links
from evolvable_server.cli.folder_commands import show_sync
from evolvable_server.cli.folder_import import (
    SyncResult,
    choose_folders,
    import_folders,
    watched_paths,
)
from evolvable_server.cli.folder_reception import (
    Confirmed,
    ask_folders,
    describe_folder,
    yes_or_none,
)
from evolvable_server.cli.maintenance import show_near_duplicates
from evolvable_server.cli.terminal import ask, count, local_time, progress, remark, say, some, warn
from evolvable_server.client_folders import client_folders, project_folders, read_client_homes
from evolvable_server.clients import SHORTEN, all_clients, crowded_list, has_hooks, list_on_disk
from evolvable_server.config import NO_TERMINAL, is_person, read_machine
from evolvable_server.plugins import SetupOffer
from evolvable_store import Identity, Principal, holds_library
from evolvable_store.errors import EvolvableError, InvalidArgument, NoLibrary, Refused
from evolvable_tools import HealthProblem

MAX_NAMED = 5
"""Kinds of resources that a line names."""


@dataclass(frozen=True, slots=True)
class SetupFlags:
    """What the flags answer.

    folders: import the clients' folders. connect, plugin: clients. take: offers.
    """

    folders: bool
    connect: Sequence[str]
    plugin: Sequence[str]
    take: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.folders or self.connect or self.plugin or self.take)


@dataclass(frozen=True, slots=True)
class FolderLook:
    """A folder that is not imported. lines: what it holds, who brought it, what the scan found."""

    path: str
    scope: str
    kind: str
    lines: list[str]


@dataclass(slots=True)
class SetupResult:
    """What was there, what was done, and what comes next.

    listing: how full Claude Code's list of skills is, '' without skills. not_imported: folders of
    clients that the library does not watch. made: whether the library was made. checks: what the
    servers of connected clients answered. offered: the offers that are open; taken: what those that
    were taken did. since, changes: the time of the last run, '' for none, and what has changed.
    decided: whether somebody was asked, or flags were given.
    """

    home: str
    clients: list[FoundClient] = field(default_factory=list)
    listing: str = ""
    not_imported: list[FolderLook] = field(default_factory=list)
    made: bool = False
    resources: dict[str, int] = field(default_factory=dict)
    folders: list[SyncResult] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    task: str = ""
    checks: list[ClientCheck] = field(default_factory=list)
    problems: list[HealthProblem] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    since: str = ""
    changes: list[str] = field(default_factory=list)
    decided: bool = False
    next: list[str] = field(default_factory=list)


@command("setup")
@click.option("--yes", is_flag=True, help="Import the folders of the clients without asking.")
@click.option(
    "--connect",
    multiple=True,
    metavar="CLIENT",
    help="Connect this client; `all` for those found here.",
)
@click.option(
    "--plugin",
    multiple=True,
    metavar="CLIENT",
    help="Install the plugin in this client, which connects it.",
)
@click.option(
    "--take", multiple=True, metavar="OFFER", help="Take this offer, such as shorten or learn."
)
@click.option("--verbose", is_flag=True, help="Show every warning.")
def setup_command(
    state: CommandContext, verbose: bool, yes: bool, **options: Any
) -> Output[SetupResult]:
    """Import your skills, connect your clients, and see what has changed.

    Shows the clients that are here, the folders that they read, what Claude Code's list leaves out,
    and what the scan found. Asks which folders are yours, whether the clients are to be connected,
    and which offers you take; all offers are off. Then each connected client's server is started
    and asked for a skill. Run again, it asks only about what is new, and says what has changed.
    With a flag it asks nothing and does what the flags say.
    """
    flags = SetupFlags(yes, **options)
    _check_allowed(state, flags)
    run = SetupRun(state, flags)
    run.look()
    if run.result.decided:
        run.import_folders()
        run.connect_clients()
        run.take_offers()
    run.finish()
    return Output(run.result, lambda result: _show_result(result, verbose))


def _check_allowed(state: CommandContext, flags: SetupFlags) -> None:
    """Raise Refused for flags that answer for a person who is not there, InvalidArgument for an
    unknown client.
    """
    clients = all_clients()
    for name in (*flags.connect, *flags.plugin):
        if name not in clients and not (name == "all" and name in flags.connect):
            raise InvalidArgument(
                f"{name[:80]!r} is no client.", f"The clients: {', '.join(clients)}."
            )
    identity = state.identity
    if not flags or identity.principal is Principal.PERSON:
        return
    if identity.principal is Principal.AGENT and identity.via != NO_TERMINAL:
        raise Refused(
            "`setup` with flags is refused: only a person says which folders are theirs and what "
            "clients start, and this command runs for an agent. Nothing was changed.",
            "Ask the user to run `evolvable setup` at a terminal. Without flags it shows "
            "what is here.",
        )
    if flags.connect or flags.plugin or flags.take:
        raise Refused(
            "--connect, --plugin and --take are refused: only a person changes what clients start "
            "and list. They need a terminal. Nothing was changed.",
            "Without a terminal, `evolvable setup --yes` imports the clients' own folders.",
        )


class SetupRun:
    """One run of the command: the clients and folders here, and the result so far."""

    def __init__(self, state: CommandContext, flags: SetupFlags) -> None:
        self._state, self._flags = state, flags
        self._config = state.config()
        self._machine = read_machine(self._config.project)
        self._homes = read_client_homes(self._config, unasked=flags.folders)
        self._choices: list[FolderChoice] = []
        self._watched = watched_paths(state)
        # Flags answer in the person's place, so nothing is asked.
        self._asks = not flags and is_person()
        self.result = SetupResult(str(self._config.home), decided=self._asks or bool(flags))

    def _list_new_folders(self) -> list[FolderChoice]:
        return [choice for choice in self._choices if choice.path.resolve() not in self._watched]

    def look(self) -> None:
        """Find clients and folders; on a terminal, show them."""
        remark(*self._homes.remarks)
        # The folder of our own plugin is a part of the program.
        folders = [
            folder
            for folder in client_folders(self._homes, self._config.project)
            if not is_own_plugin(folder.path)
        ]
        theirs = project_folders(self._homes.user, self._config.project)
        check_links([folder.path for folder in theirs], folders, is_named=False)
        self._choices = choose_folders(
            self._state, self._homes, [folder.path for folder in folders]
        )
        self._find_clients()
        measured = list_on_disk(self._machine)
        self.result.listing = measured.text if measured.skills else ""
        if self._asks:
            remark(*_describe_clients(self.result))
        # Without a question and without --yes the folders are only shown.
        elif not self._flags.folders:
            looks = [(choice, describe_folder(choice)[0]) for choice in self._list_new_folders()]
            self.result.not_imported = [
                FolderLook(str(choice.path), choice.scope, choice.kind, lines)
                for choice, lines in looks
            ]

    def _find_clients(self) -> None:
        self.result.clients = find_clients(self._config, self._machine, self._homes)

    def import_folders(self) -> None:
        """Ask which folders are the person's, and import them with what has changed in the watched
        ones.
        """
        new, confirmed = self._list_new_folders(), Confirmed()
        if self._asks:
            remark("", "1 of 3: your folders" + ("" if new else ": no new one"))
            confirmed, _ = ask_folders(new, self._config.person.is_yours)
        # Watched folders are imported again, for what has changed in them.
        chosen = [
            choice
            for choice in self._choices
            if choice in confirmed or choice not in new or self._flags.folders
        ]
        if chosen:
            done = import_folders(
                self._state, chosen, confirmed, yes=self._flags.folders, watched=self._watched
            )
            self.result.made = done.made
            self.result.folders = done.folders
            self.result.doubles = done.doubles

    def connect_clients(self) -> None:
        """Ask whether the clients are connected, and connect them."""
        unconnected = [client for client in self.result.clients if client.state is ClientState.OPEN]
        connect, plugin = list(self._flags.connect), list(self._flags.plugin)
        # `all` stands for those that were found and are not connected.
        if "all" in connect:
            connect = [
                *(word for word in connect if word != "all"),
                *(client.name for client in unconnected),
            ]
            connect = [word for word in dict.fromkeys(connect) if word not in plugin]
        if self._asks:
            connect, plugin = self._ask_clients(unconnected)
        if not (connect or plugin):
            return
        # The library first: a client may start its server as soon as its settings have the entry.
        if not holds_library(self._config.home):
            with self._state.library(create=True):
                self.result.made = True
        for name in plugin:
            with (
                _warn_of_errors(f"{all_clients()[name].title} is not connected"),
                progress("Installing the plugin"),
            ):
                install_plugin(self._config, self._machine, name)
                what = "is connected, with its hooks" if has_hooks(name) else "has the plugin"
                remark(f"{all_clients()[name].title} {what}.")
        for name in connect:
            with _warn_of_errors(f"{all_clients()[name].title} is not connected"):
                done = connect_client(self._config, self._machine, name)
                remark(f"{done.title}: {done.done}, {done.name} in {done.path}")
                if done.backup:
                    remark(f"  the file as it was: {done.backup}")
                warn(*done.warnings)
        # Again, for the states that the new entries lead to.
        self._find_clients()

    def _ask_clients(self, unconnected: Sequence[FoundClient]) -> tuple[list[str], list[str]]:
        """Return the clients to connect, and those that get the plugin."""
        remark("", "2 of 3: your clients" + ("" if unconnected else ": none to connect"))
        if not unconnected:
            return [], []
        them = "it" if len(unconnected) == 1 else "them"
        names = [client.name for client in unconnected]
        with_plugin = [client for client in unconnected if client.plugin]
        remark(
            f"Connecting writes one entry into the settings of {titles(unconnected)}, and keeps "
            "a copy of the file."
        )
        remark(*(f"  {client.title}: {client.path}" for client in unconnected))
        if not with_plugin:
            connect = yes_or_none(f"Connect {them}?", default=True)
            return names if connect else [], []
        remark(
            f"The plugin, for {titles(with_plugin)}, connects too. Its hooks also name the skill "
            "that fits each prompt and note which skills were opened. Where a client runs no "
            "hook of it, they are written into its settings."
        )
        answer = _ask_choice(f"Connect {them}? y: yes, p: with the plugin, n: no", ("y", "p", "n"))
        if answer not in ("y", "p"):
            return [], []
        plugged = [client.name for client in with_plugin] if answer == "p" else []
        return [name for name in names if name not in plugged], plugged

    def take_offers(self) -> None:
        """Ask which offers are taken, and take them."""
        if not holds_library(self._config.home):
            return
        with self._state.library() as (library, caller):
            offers = setup_offers(self._config, library)
            # Raises for an unknown offer before any is taken.
            chosen = find_offers(offers, self._flags.take)
            if self._asks:
                chosen = _ask_offers([offer for offer in offers if not offer.obstacle])
            for offer in chosen:
                with (
                    _warn_of_errors(f"The offer {offer.name} was not taken"),
                    progress(f"Taking the offer {offer.name}") as show,
                ):
                    self.result.taken += offer.take(library, caller, show)

    def finish(self) -> None:
        """Check the connected clients, and note what there is now."""
        result = self.result
        # Where nothing was imported or connected, there may be no library.
        with contextlib.suppress(NoLibrary), self._state.library() as (library, caller):
            numbers = Counter(str(head.kind) for head in library.store.heads())
            result.resources = dict(sorted(numbers.items()))
            result.task = sample_task(library, caller) if result.resources else ""
            # Measured by the library where the list is too long, else on the disk, where an offer
            # may have changed it.
            if (crowded := crowded_list(library, self._machine)) is not None:
                result.listing = crowded.text
            elif result.taken:
                measured = list_on_disk(self._machine)
                result.listing = measured.text if measured.skills else ""
            result.offered = [
                offer.name for offer in setup_offers(self._config, library) if not offer.obstacle
            ]
            before, now = read_record(self._config.home), take_record(library, result.clients)
            if before is not None:
                result.since = before.at
                result.changes = describe_changes(library, before, now, result.clients)
            if result.decided:
                # Not after a mere look: the next run compares with the last one that decided
                # something.
                write_record(self._config.home, now)
        # The library is closed by now: the servers of the clients open it themselves.
        if result.decided and result.task:
            with progress("Asking the servers of your clients"):
                result.checks, result.problems = check_connections(
                    self._config, self._machine, result.clients, result.task
                )
        if result.decided:
            result.next = list(_list_next_steps(result))
        else:
            result.next = list(_list_undecided_steps(self._state.identity))


@contextlib.contextmanager
def _warn_of_errors(what: str) -> Iterator[None]:
    """Warn of an error, and go on."""
    try:
        yield
    except EvolvableError as error:
        warn(f"{what}: {error.text} {error.hint}".strip())


def _ask_choice(question: str, answers: Sequence[str]) -> str:
    """Return one of the answers, by default the first; '' where nobody answers.

    An interrupt ends the command.
    """
    while True:
        typed = _ask_text(f"{question} [{answers[0].upper()}/{'/'.join(answers[1:])}]")
        if typed is None:
            return ""
        # The first letter counts, so that `yes` is y.
        word = typed.strip().lower()[:1] or answers[0]
        if word in answers:
            return word
        remark(f"Type one of {', '.join(answers)}.")


def _ask_text(question: str) -> str | None:
    """Return what the person types, '' for Enter, None where nobody answers.

    An interrupt ends the command.
    """
    try:
        return ask(question, default="", show_default=False, err=True)
    except click.Abort as abort:
        if not isinstance(abort.__cause__ or abort.__context__, EOFError):
            raise
        remark("")
        return None


def _ask_offers(offers: Sequence[SetupOffer]) -> list[SetupOffer]:
    """Show the offers, and return those that the person takes."""
    remark("", "3 of 3: offers, each of them off" if offers else "3 of 3: offers: none")
    remark(
        *(f"  {number}  {offer.name}: {offer.text}" for number, offer in enumerate(offers, start=1))
    )
    while offers:
        typed = _ask_text("Take which, by number? [none]")
        words = re.split(r"[,\s]+", (typed or "").strip().lower())
        if words in ([""], ["n"], ["no"], ["none"]):
            return []
        # y is clear only about a single offer.
        if words == ["all"] or (words in (["y"], ["yes"]) and len(offers) == 1):
            return list(offers)
        by_word = {str(number): offer for number, offer in enumerate(offers, start=1)}
        by_word |= {offer.name: offer for offer in offers}
        if all(word in by_word for word in words if word):
            return list({by_word[word].name: by_word[word] for word in words if word}.values())
        remark(f"Type numbers from 1 to {len(offers)}, or Enter.")
    return []


# What is written


def _describe_clients(result: SetupResult) -> list[str]:
    """Return lines about the clients, those that are missing, and Claude Code's list."""
    lines = []
    for client in result.clients:
        note = f" ({client.note})" if client.note else ""
        lines.append(f"{client.title}: {client.state}{note}")
    if result.listing:
        lines.append(result.listing)
    present = {client.name for client in result.clients}
    missing = [client.title for name, client in all_clients().items() if name not in present]
    if missing:
        lines.append(f"Not found here: {', '.join(missing)}.")
    return lines


def _list_undecided_steps(identity: Identity) -> Iterator[str]:
    """Yield the next steps where nobody was asked: they name who can answer."""
    if identity.via != NO_TERMINAL and identity.principal is Principal.AGENT:
        yield "a person answers. Ask the user to run `evolvable setup` at a terminal"
        return
    yield (
        "evolvable setup         (at a terminal, where neither its input nor its output is a pipe "
        "or a file: it asks)"
    )
    yield (
        "evolvable setup --yes   (without one: imports the clients' own folders; the rest needs "
        "a terminal)"
    )


def _list_next_steps(result: SetupResult) -> Iterator[str]:
    if not result.resources:
        yield "evolvable init FOLDER   (imports the skills of any other folder)"
        yield "evolvable quickstart    (a demonstration in a temporary library)"
        return
    number = sum(len(folder.held) for folder in result.folders)
    if number:
        yield (
            f"evolvable inbox   ({count(number, 'skill')} wait{'s' * (number == 1)} for "
            "your decision)"
        )
    if connected := [client for client in result.clients if client.is_connected]:
        yield (
            f"begin a new session of {connected[0].title}, and ask it which skill it has for a "
            "task of yours"
        )
    elif unconnected := [client for client in result.clients if client.state is ClientState.OPEN]:
        yield f"evolvable setup --connect all   (connects {titles(unconnected)})"
    yield f"evolvable find {shlex.quote(result.task)}"


def _show_result(result: SetupResult, verbose: bool) -> None:
    if not result.decided:
        _show_look(result)
        return
    say("")
    if result.since:
        _show_changes(result)
    if result.made or result.resources:
        kinds = [count(number, kind) for kind, number in result.resources.items()]
        contents = some(kinds, MAX_NAMED) or "nothing yet"
        say(f"The library in {result.home} holds {contents}.")
    else:
        say("Nothing was imported or connected.")
    if any(map(_has_changes, result.folders)):
        show_sync(result.folders, verbose)
    show_near_duplicates(result.doubles)
    say(*result.taken)
    if "lose" in result.listing:
        fewer = f"; `{SHORTEN}` lists fewer" if "shorten" in result.offered else ""
        say(f"{result.listing}{fewer}.")
    for check in result.checks:
        _show_check(check, result.task)
    warn(*(f"{problem.what} {problem.next}".strip() for problem in result.problems))
    _show_next(result)


def _has_changes(folder: SyncResult) -> bool:
    brought = folder.taken or folder.held
    return bool(brought or folder.refused or folder.conflicts or folder.missing)


def _show_look(result: SetupResult) -> None:
    say(*_describe_clients(result))
    for folder in result.not_imported:
        say("", *folder.lines)
    if result.since:
        say("")
        _show_changes(result)
    say("", "Nothing was changed.")
    _show_next(result)


def _show_changes(result: SetupResult) -> None:
    at = local_time(result.since)
    if not result.changes:
        say(f"Nothing has changed since the last setup, {at}.")
        return
    say(f"Since the last setup, {at}:", *(f"  {line}" for line in result.changes))


def _show_check(check: ClientCheck, task: str) -> None:
    if check.seconds is None:
        return
    question = f'; find_skill("{task}"): {check.answer}' if check.answer else ""
    say(f"{check.title} works: its server answered in {check.seconds:.1f} s{question}")


def _show_next(result: SetupResult) -> None:
    say("")
    for number, step in enumerate(result.next):
        say(f"{'Next: ' if number == 0 else '      '}{step}")
