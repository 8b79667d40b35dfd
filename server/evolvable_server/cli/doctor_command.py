"""The command doctor, which reports what is wrong with the installation."""

from collections.abc import Iterator
from pathlib import Path

import click

from evolvable_server.care import Connected, Health, Topic, describe_sandbox, examine
from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.maintenance import show_near_duplicates, show_problems
from evolvable_server.cli.terminal import count, local_time, progress, say, say_labelled, show_fields
from evolvable_store import holds_library

_NOT_COMPILED = "in Python, slower in large libraries: install a C compiler, then Evolvable again"


@command("doctor")
@click.option("--verbose", is_flag=True, help="Show every check, every setting and every warning.")
def doctor_command(state: CommandContext, verbose: bool) -> Output[Health]:
    """Look for what is wrong.

    Checks the program, its SQLite, the library, the folders and the clients that are connected. What is well is one
    line; what is wrong is said each with what to do. A server that a client is told to start is started once, and
    timed. Exit code 4: something is wrong. `evolvable care fsck` checks every byte.
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
        say_labelled("Well: ", f"{', '.join(_well(health))}.", "bold green")
        show_fields([((one.topic, "bold"), one.text) for one in health.standing if not one.well])
    show_near_duplicates(health.doubles)
    notes = [f"Ignored: {setting.ignored}." for setting in health.settings if setting.ignored]
    notes += [f"Note: {note}" for note in [*health.notes, *([] if verbose else _more_notes(health))]]
    say(*[""] * bool(notes or health.problems), *notes)
    show_problems(health.problems)
    say(f"{count(len(health.problems), 'problem')}." if health.problems else "All is well.")


def _show_all(health: Health) -> None:
    sandbox = [("sandbox", health.sandbox)] if health.sandbox else []
    rows = [*_program_rows(health), *sandbox, *_library_rows(health)]
    rows += [("client", _client(one)) for one in health.clients]
    rows += [(str(one.topic), one.text) for one in health.standing if one.topic is not Topic.FOLDER]
    rows += [("setting", f"{one.name}: {one.value} ({one.source})") for one in health.settings]
    rows += [("memory", f"{one.title} reads it in {one.path}: {one.state}") for one in health.memory]
    show_fields([((name, "bold"), text) for name, text in rows])
    for remark in health.warnings:
        say(f"\nwarnings of {remark.directory}:", *(f"  - {text}" for text in remark.problems))


def _well(health: Health) -> Iterator[str]:
    """Yield what is well, in a few words each."""
    facts = health.library
    yield "the program, Python and SQLite"
    if facts is not None:
        held = ", ".join(count(number, kind) for kind, number in facts.resources.items())
        yield f"the library {facts.path} ({held or 'nothing yet'})"
        # It holds what is wrong with the index.
        if not facts.index:
            yield "its index"
    if number := sum(1 for one in health.standing if one.topic is Topic.FOLDER and one.well):
        yield f"{count(number, 'folder')} in sync"
    for one in health.clients:
        if one.seconds is not None:
            yield f"the server of {one.client}, which starts in {one.seconds:.1f} s"
    yield from (f"what {one.title} reads of the memories" for one in health.memory if one.state == "current")


def _more_notes(health: Health) -> Iterator[str]:
    """Yield what is no fault and stands in a row of `--verbose`."""
    # Before the first setup, a missing library is no fault.
    if health.library is None and not holds_library(Path(health.home)):
        yield f"There is no library in {health.home} yet: evolvable setup"
    if not health.program.compiled:
        yield f"The search runs {_NOT_COMPILED}."
    if number := sum(len(remark.problems) for remark in health.warnings):
        where = count(len(health.warnings), "resource")
        yield f"{count(number, 'warning')} about {where}: `evolvable doctor --verbose` shows them."


def _client(one: Connected) -> str:
    speed = "not started" if one.seconds is None else f"starts in {one.seconds:.1f} s"
    last = f"last session {local_time(one.last_session)}" if one.last_session else "never called"
    return f"{one.client} ({one.scope}): {one.name} in {one.path}, {speed}, {last}"


def _program_rows(health: Health) -> list[tuple[str, str]]:
    program, sqlite = health.program, health.sqlite
    packages = ", ".join(f"{name} {version or 'missing'}" for name, version in program.packages.items())
    journal = f", journal {sqlite.journal}" if sqlite.journal else ""
    return [
        ("evolvable", program.evolvable),
        ("python", f"{program.python} ({program.executable}) on {program.platform}"),
        ("packages", packages),
        ("sqlite", f"{sqlite.version} of {sqlite.module}{journal}: {sqlite.why}"),
        ("search", "compiled" if program.compiled else _NOT_COMPILED),
    ]


def _library_rows(health: Health) -> list[tuple[str, str]]:
    facts = health.library
    if facts is None:
        return [("library", f"none in {health.home}")]
    kinds = ", ".join(count(number, kind) for kind, number in facts.resources.items())
    warnings = sum(len(remark.problems) for remark in health.warnings)
    where = f"{count(warnings, 'warning')} about {count(len(health.warnings), 'resource')}" if warnings else "none"
    return [
        ("library", f"{facts.path}, {facts.bytes:,} bytes, schema {facts.schema}"),
        ("holds", kinds or "nothing yet"),
        ("index", "wrong" if facts.index else "in sync"),
        ("embedder", health.embedder),
        *[("folder", f"{one.path} ({one.scope}, holds {one.resources}): {one.state}") for one in health.folders],
        ("warnings", where),
        *[("open in", process) for process in facts.open_in],
    ]
