"""The command that scans: resources of the library, files and folders."""

from dataclasses import dataclass, replace
from pathlib import Path

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, say
from evolvable_store.operation import Principal
from evolvable_store.resource import Ref
from evolvable_tools.untrusted_text import AnswerMarks
from evolvable_tools.verbs.scan_import import Scanned

REFUSED = 1
"""The exit code of `scan` when something would be refused."""


@dataclass(frozen=True, slots=True)
class Scans:
    """What was scanned, in the order it was named. notice: what the marks around excerpts mean, '' without any."""

    scanned: list[Scanned]
    notice: str = ""


@command("scan")
@click.argument("what", nargs=-1, metavar="[REF|PATH]...")
@click.option("--all", "everything", is_flag=True, help="Show what passes, and every finding that is only shown.")
@click.pass_context
def scan_command(ctx: click.Context, state: State, what: tuple[str, ...], everything: bool) -> None:
    """Look for what no resource should contain.

    Scans what is named, or everything you see in the library, as if an agent brought it: what would be refused, what
    would wait in the inbox, and what each has the means to do. A PATH is a folder, or a file: write ./pdf for a folder
    whose name is also a skill's. Exit code 1: something would be refused.
    """
    from evolvable_tools.verbs.scan_import import scan_path, scan_resources

    paths = [Path(text) for text in what if _is_path(text)]
    refs = [Ref.parse(text) for text in what if not _is_path(text)]
    scanned = [one for path in paths for one in scan_path(path)]
    if refs or not what:
        with state.library() as (library, caller):
            scanned += scan_resources(library, caller, refs)
    marks = AnswerMarks(state.identity.principal is not Principal.PERSON)
    scanned = [_marked(one, marks) for one in scanned]
    if marks.notice and not state.json:
        say(marks.notice)
    state.show(Scans(scanned, marks.notice), lambda: _show(scanned, everything or len(scanned) == 1))
    if any(one.verdict == "refused" for one in scanned):
        ctx.exit(REFUSED)


def _marked(one: Scanned, marks: AnswerMarks) -> Scanned:
    """Return what was found, with the excerpts between marks where an agent reads them."""
    findings = [replace(found, excerpt=marks.line(found.excerpt)) for found in one.findings]
    return replace(one, findings=findings, capabilities=[marks.line(text) for text in one.capabilities])


def _is_path(text: str) -> bool:
    return (":" not in text and "/" in text) or text in (".", "..") or Path(text).is_file()


def _show(scanned: list[Scanned], everything: bool) -> None:
    for one in scanned:
        if one.verdict == "passes" and not everything:
            continue
        say(f"{one.what}: {one.verdict}")
        for finding in one.findings:
            if everything or finding.severity != "low":
                say(f"  {finding.severity}: {finding}")
                say(f"    {finding.hint}")
        if everything and one.capabilities:
            say(f"  has the means to: {', '.join(one.capabilities)}")
    refused, waiting = (sum(one.verdict == verdict for one in scanned) for verdict in ("refused", "waits"))
    say(f"Scanned {count(len(scanned), 'resource')}: {refused:,} would be refused, {waiting:,} would wait for you.")
