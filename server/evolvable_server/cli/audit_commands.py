"""The command audit: the log of decisions."""

from dataclasses import asdict
from pathlib import Path

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.terminal import one_line, say
from evolvable_store.errors import InvalidArgument
from evolvable_store.storage import AuditEntry
from evolvable_tools import AuditReport, export_log, read_export, verify_entries, verify_log

PATH = click.Path(path_type=Path, dir_okay=False)


@command("audit", table=True)
@click.option(
    "--verify", is_flag=True, help="Check the chain of hashes, and that every approval is in it."
)
@click.option(
    "--head", metavar="NUMBER:HASH", default="", help="With --verify: a head that you noted before."
)
@click.option(
    "--export", "target", type=PATH, help="Write the whole log to a new file, a JSON object a line."
)
@click.option("--from", "source", type=PATH, help="With --verify: check an exported file instead.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=20, help="Newest rows to show [default: 20]."
)
def audit_command(
    state: CommandContext,
    verify: bool,
    head: str,
    target: Path | None,
    source: Path | None,
    limit: int,
) -> Output[object]:
    """Show the log of decisions: who approved, rejected, adopted, trusted or took back what, from
    where and when.

    Each row holds the hash of the row before it. Keep the head that --verify prints on another
    machine: without it, rows that are missing at the end are not noticed. Exit code 4 when --verify
    finds something.
    """
    if (head or source) and not verify:
        raise click.UsageError("--head and --from go with --verify.")
    # An exported file is checked without the library, on any machine.
    if source is not None:
        try:
            return _report_verification(verify_entries(read_export(source), head))
        except OSError as error:
            raise InvalidArgument(f"{source} cannot be read: {error.strerror}.") from None
    with state.library() as (library, _):
        if target is not None:
            rows = export_log(library, target)
            return Output(
                {"file": str(target), "rows": rows}, lambda _: say(f"{target} has {rows} rows.")
            )
        if verify:
            return _report_verification(verify_log(library, head))
        entries = library.store.backend.audit.newest(limit)
    return Output({"rows": [asdict(entry) for entry in entries]}, lambda _: _show_entries(entries))


def _report_verification(report: AuditReport) -> Output[object]:
    def show(_: object) -> None:
        for problem in report.problems:
            say(f"  {problem}")
        state = "intact" if report.intact else "NOT intact"
        say(
            f"The chain of {report.entries} rows is {state}."
            + (f" Head: {report.head}" if report.head else "")
        )

    return Output(asdict(report) | {"intact": report.intact}, show, found_code(not report.intact))


def _show_entries(entries: list[AuditEntry]) -> None:
    if not entries:
        say("No decision was recorded yet.")
    for entry in entries:
        author = f"{entry.principal} ({entry.via})" if entry.via else entry.principal
        operation = f", operation {entry.operation}" if entry.operation is not None else ""
        say(
            f"{entry.number}  {entry.at[:19]}Z  "
            f"{one_line(f'{entry.decision} {entry.subject}')}{operation}"
        )
        say(f"    by {one_line(author)} from {one_line(entry.address)}")
