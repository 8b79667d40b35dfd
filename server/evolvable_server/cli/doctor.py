"""The command that looks whether everything is as it should be: doctor."""

from typing import TYPE_CHECKING

import click

from evolvable_server.cli.doubles import show_doubles
from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, local_time, safe, say, show_table
from evolvable_server.config import read_machine

if TYPE_CHECKING:
    from evolvable_server.cli.doctor_clients import Connected
    from evolvable_server.cli.health import Health
    from evolvable_server.config import Config

UNWELL = 1
"""The exit code of `doctor` when something is wrong."""

_NOT_COMPILED = "in Python, slower in large libraries: install a C compiler, then Evolvable again"


@command("doctor")
@click.option("--verbose", is_flag=True, help="Show every warning about what is in the library.")
@click.pass_context
def doctor_command(ctx: click.Context, state: State, verbose: bool) -> None:
    """Look for what is wrong.

    Shows the program, its SQLite, the library, the folders and the clients that are connected, and says what is wrong
    with them. A server that a client is told to start is started once, and timed. Exit code 1: something is wrong.
    `evolvable fsck` checks every byte.
    """
    from evolvable_server.cli.doctor_places import look_around
    from evolvable_server.cli.health import examine
    from evolvable_server.settings import settings_of

    config = state.config()
    health = examine(config.home)
    look_around(health, config, read_machine(config.project))
    health.sandbox = _sandbox(config)
    health.settings = settings_of(config, home=state.home)
    state.show(health, lambda: _show(health, verbose))
    if health.problems:
        ctx.exit(UNWELL)


def _show(health: "Health", verbose: bool) -> None:
    rows = [*_program_rows(health), ("sandbox", health.sandbox), *_library_rows(health)]
    rows += map(_client_row, health.clients)
    rows += [("setting", f"{one.name}: {one.value} ({one.source})") for one in health.settings]
    rows += [("memory", f"{one.title} reads it in {one.path}: {one.state}") for one in health.memory]
    show_table(("", " "), [[(name, "bold"), text] for name, text in rows], wide=(" ",))
    for remark in health.warnings if verbose else ():
        say(f"\nwarnings of {remark.directory}:")
        for text in remark.problems:
            say(f"  - {text}")
    show_doubles(health.doubles)
    say()
    for setting in health.settings:
        if setting.ignored:
            say(f"Ignored: {setting.ignored}.")
    for note in health.notes:
        say(f"Note: {note}")
    for problem in health.problems:
        click.echo(f"{click.style('Wrong:', fg='red', bold=True)} {safe(f'{problem.what} {problem.next}'.strip())}")
    say(f"{count(len(health.problems), 'problem')}." if health.problems else "All is well.")


def _sandbox(config: "Config") -> str:
    """Return what trials of an evolution run in, found out by a run, and why nothing better is used."""
    from evolvable_server.evolving import sandbox_choice
    from evolvable_tools.sandbox import sandbox_of

    found = sandbox_of(sandbox_choice(config), fresh=True)
    if found.sandbox is not None:
        return f"{found.name}" + (f" ({found.why})" if found.why else "")
    return f"none: what a candidate could execute waits for a person ({found.why or 'no mechanism is known here'})"


def _client_row(one: "Connected") -> tuple[str, str]:
    speed = "not started" if one.seconds is None else f"starts in {one.seconds:.1f} s"
    last = f"last session {local_time(one.last_session)}" if one.last_session else "never called"
    return "client", f"{one.client} ({one.scope}): {one.name} in {one.path}, {speed}, {last}"


def _program_rows(health: "Health") -> list[tuple[str, str]]:
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


def _library_rows(health: "Health") -> list[tuple[str, str]]:
    facts = health.library
    if facts is None:
        return [("library", f"none in {health.home}")]
    kinds = ", ".join(count(number, kind) for kind, number in facts.resources.items())
    rows = ", ".join(f"{name} {number:,}" for name, number in facts.tables.items())
    warnings = sum(len(remark.problems) for remark in health.warnings)
    where = f"{count(warnings, 'warning')} about {count(len(health.warnings), 'resource')}" if warnings else "none"
    return [
        ("library", f"{facts.path}, {facts.bytes:,} bytes, schema {facts.schema}"),
        ("holds", kinds or "nothing yet"),
        ("tables", rows),
        ("index", "wrong" if facts.index else "in step"),
        ("embedder", health.embedder),
        *[("folder", f"{folder.path} ({folder.scope}, {folder.resources} held)") for folder in health.folders],
        ("warnings", where),
        *[("open in", process) for process in facts.open_in],
    ]
