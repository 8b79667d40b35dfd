"""The command doctor, which reports what is wrong with the installation."""

from collections.abc import Iterator
from pathlib import Path

import click

from evolvable_server.care import Connected, Health, Topic, describe_sandbox, examine
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.maintenance import show_near_duplicates, show_problems
from evolvable_server.cli.terminal import (
    count,
    local_time,
    progress,
    say,
    say_labelled,
    show_fields,
)
from evolvable_store import holds_library

_NOT_COMPILED = "in Python, slower in large libraries: install a C compiler, then Evolvable again"


@command("doctor")
@click.option("--verbose", is_flag=True, help="Show every check, every setting and every warning.")
def doctor_command(state: CommandContext, verbose: bool) -> Output[Health]:
    """Look for what is wrong.

    Checks the program, its SQLite, the library, the folders and the clients that are connected.
    What is well is one line; what is wrong is said each with what to do. A server that a client is
    told to start is started once, and timed. Exit code 4: something is wrong. `evolvable care fsck`
    checks every byte.
    """
    config = state.config()
    health = examine(config, progress, state.home)
    with progress("Trying the sandbox"):
        health.sandbox = describe_sandbox(config)
    return Output(health, lambda _: _show_health(health, verbose), found_code(health.problems))


def _show_health(health: Health, verbose: bool) -> None:
    if verbose:
        _show_all(health)
    else:
        say_labelled("Well: ", f"{', '.join(_describe_well(health))}.", "bold green")
        show_fields(
            [((line.topic, "bold"), line.text) for line in health.standing if not line.well]
        )
    show_near_duplicates(health.doubles)
    notes = [*health.notes, *([] if verbose else _list_more_notes(health))]
    lines = [f"Ignored: {setting.ignored}." for setting in health.settings if setting.ignored]
    lines += [f"Note: {note}" for note in notes]
    if lines or health.problems:
        say("", *lines)
    show_problems(health.problems)
    say(f"{count(len(health.problems), 'problem')}." if health.problems else "All is well.")


def _show_all(health: Health) -> None:
    sandbox = [("sandbox", health.sandbox)] if health.sandbox else []
    rows = [*_list_program_rows(health), *sandbox, *_list_library_rows(health)]
    rows += [("client", _describe_client(client)) for client in health.clients]
    rows += [
        (str(line.topic), line.text) for line in health.standing if line.topic is not Topic.FOLDER
    ]
    rows += [
        ("setting", f"{setting.name}: {setting.value} ({setting.source})")
        for setting in health.settings
    ]
    rows += [
        ("memory", f"{copy.title} reads it in {copy.path}: {copy.state}") for copy in health.memory
    ]
    show_fields([((name, "bold"), text) for name, text in rows])
    for remark in health.warnings:
        say(f"\nwarnings of {remark.directory}:", *(f"  - {text}" for text in remark.problems))


def _describe_well(health: Health) -> Iterator[str]:
    """Yield what is well, in a few words each."""
    facts = health.library
    yield "the program, Python and SQLite"
    if facts is not None:
        contents = ", ".join(count(number, kind) for kind, number in facts.resources.items())
        yield f"the library {facts.path} ({contents or 'nothing yet'})"
        # It holds what is wrong with the index.
        if not facts.index:
            yield "its index"
    if number := sum(1 for line in health.standing if line.topic is Topic.FOLDER and line.well):
        yield f"{count(number, 'folder')} in sync"
    for client in health.clients:
        if client.seconds is not None:
            yield f"the server of {client.client}, which starts in {client.seconds:.1f} s"
    yield from (
        f"what {copy.title} reads of the memories"
        for copy in health.memory
        if copy.state == "current"
    )


def _list_more_notes(health: Health) -> Iterator[str]:
    """Yield notes on what is no fault, which `--verbose` shows in rows."""
    # Before the first setup, a missing library is no fault.
    if health.library is None and not holds_library(Path(health.home)):
        yield f"There is no library in {health.home} yet: evolvable setup"
    if not health.program.compiled:
        yield f"The search runs {_NOT_COMPILED}."
    if number := sum(len(remark.problems) for remark in health.warnings):
        where = count(len(health.warnings), "resource")
        yield f"{count(number, 'warning')} about {where}: `evolvable doctor --verbose` shows them."


def _describe_client(connected: Connected) -> str:
    speed = "not started" if connected.seconds is None else f"starts in {connected.seconds:.1f} s"
    last = "never called"
    if connected.last_session:
        last = f"last session {local_time(connected.last_session)}"
    return (
        f"{connected.client} ({connected.scope}): {connected.name} in {connected.path}, "
        f"{speed}, {last}"
    )


def _list_program_rows(health: Health) -> list[tuple[str, str]]:
    program, sqlite = health.program, health.sqlite
    packages = ", ".join(
        f"{name} {version or 'missing'}" for name, version in program.packages.items()
    )
    journal = f", journal {sqlite.journal}" if sqlite.journal else ""
    return [
        ("evolvable", program.evolvable),
        ("python", f"{program.python} ({program.executable}) on {program.platform}"),
        ("packages", packages),
        ("sqlite", f"{sqlite.version} of {sqlite.module}{journal}: {sqlite.why}"),
        ("search", "compiled" if program.compiled else _NOT_COMPILED),
    ]


def _list_library_rows(health: Health) -> list[tuple[str, str]]:
    facts = health.library
    if facts is None:
        return [("library", f"none in {health.home}")]
    kinds = ", ".join(count(number, kind) for kind, number in facts.resources.items())
    warnings = sum(len(remark.problems) for remark in health.warnings)
    where = "none"
    if warnings:
        where = f"{count(warnings, 'warning')} about {count(len(health.warnings), 'resource')}"
    return [
        ("library", f"{facts.path}, {facts.bytes:,} bytes, schema {facts.schema}"),
        ("holds", kinds or "nothing yet"),
        ("index", "wrong" if facts.index else "in sync"),
        ("embedder", health.embedder),
        *[
            ("folder", f"{folder.path} ({folder.scope}, holds {folder.resources}): {folder.state}")
            for folder in health.folders
        ],
        ("warnings", where),
        *[("open in", process) for process in facts.open_in],
    ]
