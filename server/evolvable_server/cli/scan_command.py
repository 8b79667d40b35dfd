"""The command scan, which checks resources, files and folders as if an agent brought them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.terminal import count, progress, say
from evolvable_store import Principal
from evolvable_store.resource import Ref
from evolvable_tools import AnswerMarks
from evolvable_tools.verbs import Scanned, scan_path, scan_resources


@command("scan")
@click.argument("what", nargs=-1, metavar="[REF|PATH]...")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show what passes, and every finding that is only shown.",
)
def scan_command(
    state: CommandContext, what: tuple[str, ...], everything: bool
) -> Output[dict[str, Any]]:
    """Look for what no resource should contain.

    Scans what is named, or everything you see in the library, as if an agent brought it: what would
    be refused, what would wait in the inbox, and what each has the means to do. A PATH is a folder,
    or a file: write ./pdf for a folder whose name is also a skill's. Exit code 4: something would
    be refused or wait.
    """
    paths = [Path(text) for text in what if _is_path(text)]
    refs = [Ref.parse(text) for text in what if not _is_path(text)]
    scanned: list[Scanned] = []
    for path in paths:
        with progress(f"Scanning {path}") as show:
            scanned += scan_path(path, show)
    # Without arguments everything in the library is scanned.
    if refs or not what:
        with state.library() as (library, caller), progress("Scanning") as show:
            scanned += scan_resources(library, caller, refs, show)
    # For an agent, foreign text stands between marks.
    marks = AnswerMarks(state.identity.principal is not Principal.PERSON)
    scanned = [_mark_foreign_text(result, marks) for result in scanned]
    if marks.notice and not state.json:
        say(marks.notice)
    return Output(
        {"scanned": scanned, "notice": marks.notice},
        lambda _: _show_scan(scanned, everything or len(scanned) == 1),
        found_code(*(result.verdict != "passes" for result in scanned)),
    )


def _mark_foreign_text(result: Scanned, marks: AnswerMarks) -> Scanned:
    """Return the result of a scan, with foreign text between marks where an agent reads it."""
    findings = [
        replace(finding, excerpt=marks.line(finding.excerpt)) for finding in result.findings
    ]
    capabilities = list(map(marks.line, result.capabilities))
    problems = list(map(marks.line, result.problems))
    return replace(result, findings=findings, capabilities=capabilities, problems=problems)


def _is_path(text: str) -> bool:
    # A ref may have a slash too, and then has the colon of its kind.
    return (":" not in text and "/" in text) or text in (".", "..") or Path(text).is_file()


def _show_scan(scanned: list[Scanned], everything: bool) -> None:
    for result in scanned:
        if result.verdict == "passes" and not everything:
            continue
        say(f"{result.what}: {result.verdict}", *(f"  {problem}" for problem in result.problems))
        for finding in result.findings:
            if everything or finding.severity != "low":
                say(f"  {finding.severity}: {finding}", f"    {finding.hint}")
        if everything and result.capabilities:
            say(f"  has the means to: {', '.join(result.capabilities)}")
    refused = sum(result.verdict == "refused" for result in scanned)
    waiting = sum(result.verdict == "waits" for result in scanned)
    say(
        f"Scanned {count(len(scanned), 'resource')}: {refused:,} would be refused, {waiting:,} "
        "would wait for you."
    )
