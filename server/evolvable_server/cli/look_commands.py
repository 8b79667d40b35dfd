"""The commands show and diff. Neither changes anything."""

from collections.abc import Iterator, Sequence

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import found_code
from evolvable_server.cli.read_commands import show_document, version_range
from evolvable_server.cli.terminal import (
    Cell,
    count,
    local_time,
    one_line,
    page_output,
    remark,
    say,
    show_diff,
    show_fields,
    show_table,
    some,
    style_text,
    warn,
)
from evolvable_server.clients import has_hosts
from evolvable_store.resource import Ref
from evolvable_tools import author_words, verbs
from evolvable_tools.verbs import ContentComparison, OperationOverview, ResourceOverview

MOST = 5
"""Names that a line lists."""


@command("show")
@click.argument("what", metavar="REF|OPERATION")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Default: newest.")
@click.option("--path", metavar="FILE", help="A file of it; default its main file.")
def show_command(
    state: CommandContext, what: str, version: int | None, path: str | None
) -> Output[ResourceOverview] | Output[OperationOverview]:
    """Show one resource: its trust, use, versions and text; or one operation.

    OPERATION is a number of `evolvable log`: who made it and why, and the difference that it made.
    No use is counted. What is longer than the screen opens in $PAGER.
    """
    with state.library() as (library, caller):
        if what.isascii() and what.isdigit():
            if version or path:
                raise click.UsageError("--version and --path go with a ref.")
            # Eighteen digits fit into the 64 bits of SQLite.
            return Output(verbs.show_operation(library, caller, int(what[:18])), _show_operation)
        view = verbs.show_resource(library, caller, Ref.parse(what), version=version, path=path)
        hosts = has_hosts(library.store.home)
    return Output(view, lambda overview: _show_resource(overview, hosts=hosts))


def _show_resource(overview: ResourceOverview, *, hosts: bool) -> None:
    with page_output():
        info, state = overview.info, overview.state
        say(f"{info.ref}@{info.version}")
        if overview.notice:
            say(overview.notice)
        show_fields(list(_list_fields(overview, hosts=hosts)))
        click.echo()
        show_table(
            ["version", "when", "author", "why"],
            [
                [
                    (str(version.version), "bold"),
                    local_time(version.at),
                    author_words(version.author, version.by),
                    version.reason,
                ]
                for version in overview.versions
            ],
            wide=("why",),
            whole=bool(overview.notice),
        )
        # The overview has the newest versions alone.
        if overview.versions and overview.versions[-1].version > 1:
            say(
                f"(the newest {len(overview.versions)} of {state.latest}: evolvable history "
                f"{info.ref})"
            )
        if overview.document is not None:
            click.echo()
            show_document(overview.document)


def _list_fields(overview: ResourceOverview, *, hosts: bool) -> Iterator[tuple[Cell, Cell]]:
    """Yield the fields of a resource. hosts: whether any host reads the stable channel."""
    info, state = overview.info, overview.state
    fields: dict[str, str] = {
        "about": info.description,
        "author": author_words(info.author, info.by),
    }
    if state.head is None:
        fields["state"] = f"removed; `evolvable restore {info.ref} {state.latest}` brings it back"
    elif not info.evolvable:
        fields["state"] = "frozen: only a person may change it"
    fields["use"] = (
        f"loaded {count(state.uses, 'time')}, {state.rated} with an outcome"
        if state.uses
        else "never loaded"
    )
    # What hosts see matters only where a host reads the channel.
    if hosts and state.stable is not None and state.stable != state.head:
        fields["hosts see"] = (
            f"version {state.stable}; `evolvable lab publish {info.ref}` shows them the newest"
        )
    if state.approved is not None:
        fields["may run"] = f"version {state.approved}"
    places = [
        f"{place} (version {version or 'none'})"
        for place, version in sorted(state.directories.items())
    ]
    fields["folders"] = some(places, MOST) if places else "none"
    if overview.out_of_force:
        fields["out of force"] = "; ".join(overview.out_of_force)
    if state.proposals:
        numbers = some(list(map(str, state.proposals)), MOST)
        fields["waits"] = (
            f"{count(len(state.proposals), 'proposal')}: {numbers}; `evolvable inbox` decides"
        )
    if info.copied_from:
        fields["copied from"] = info.copied_from
    for name, text in fields.items():
        yield (name, "bold"), text


def _show_operation(overview: OperationOverview) -> None:
    with page_output():
        say(f"Operation {overview.operation}")
        if overview.notice:
            say(overview.notice)
        fields = {
            "when": local_time(overview.at),
            "author": author_words(overview.author, overview.by),
            "why": overview.reason,
            "session": overview.session or "",
            "reverts": ", ".join(map(str, overview.undoes)),
            "evidence": "; ".join(overview.evidence),
        }
        show_fields([((name, "bold"), text) for name, text in fields.items() if text])
        for change in overview.changes:
            before = f"version {change.before}" if change.before else verbs.NOTHING
            after = f"version {change.after}" if change.after else "removed"
            say("", f"{change.ref}: {before} to {after}")
            show_diff(change.diff)
        say("", f"Take it back: evolvable undo {overview.operation}")


@command("diff")
@click.argument("refs", metavar="[REF[@FROM..TO]] [REF]", nargs=-1)
def diff_command(state: CommandContext, refs: tuple[str, ...]) -> Output[ContentComparison]:
    """Show what differs.

    \b
    diff               what watched folders hold and the library does not
    diff REF           the same for one resource
    diff REF@3..5      from version 3 to version 5; 3.. to the newest
    diff REF@5         what version 5 changed
    diff REF REF       two resources, or two versions

    Exit code 4: something differs.
    """
    if len(refs) > 2:
        raise click.UsageError("Name two refs at most.")
    with state.library() as (library, caller):
        if len(refs) == 2:
            comparison = verbs.diff_resources(
                library, caller, Ref.parse(refs[0]), Ref.parse(refs[1])
            )
        elif refs and "@" in refs[0]:
            name, _, between = refs[0].rpartition("@")
            comparison = verbs.diff_versions(
                library, caller, Ref.parse(name), *version_range(between)
            )
        else:
            comparison = verbs.diff_working_copies(library, caller, list(map(Ref.parse, refs)))
        # For the message where nothing could be compared.
        folders = len(library.folders())
    return Output(
        comparison,
        lambda _: _show_comparison(comparison, folders, refs),
        found_code(comparison.differences),
    )


def _show_comparison(comparison: ContentComparison, folders: int, refs: Sequence[str]) -> None:
    with page_output():
        for difference in comparison.differences:
            click.echo(style_text(one_line(f"{difference.before} -> {difference.after}"), "bold"))
            if difference.problem:
                warn(f"It cannot be read: {difference.problem}.")
            show_diff(difference.diff)
    if comparison.differences:
        return
    if comparison.compared:
        remark("No difference.")
    elif not folders:
        remark(
            "No folder is watched, so there is nothing to compare with. `evolvable init FOLDER` "
            "watches one."
        )
    else:
        remark(
            f"{', '.join(refs)} lies in no watched folder. `evolvable history {refs[0]}` shows "
            "its versions."
        )
