"""The commands that search and list: find, list."""

import click

from evolvable_server.cli.state import KIND, State, command
from evolvable_server.cli.terminal import Row, count, one_line, say, shortened, show_table, show_text
from evolvable_store.resource import Kind, check_scope
from evolvable_tools.verbs import search

NONE_FITS = 3
"""The exit code of `find` when the library holds nothing for the task."""

NOISE = 0.05
"""Where nothing fits, what is less sure than this is not shown to a person."""

MAX_SHOWN = 200
"""Characters of a description; `list` and `load` show all of it."""


@command("find")
@click.argument("task", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 20), default=5, show_default=True, help="How many matches.")
@click.option("--kind", type=KIND, default="skill", show_default=True)
@click.option("--scope", help="Search only this scope: 'user' or a project's name.")
@click.option("--mode", type=click.Choice(["auto", "keyword", "text", "paper"]), default="auto", show_default=True)
@click.pass_context
def find_command(
    ctx: click.Context, state: State, task: tuple[str, ...], limit: int, kind: str, scope: str | None, mode: str
) -> None:
    """Find the skills that fit a TASK.

    The best comes first, each with how sure the match is and why. Exit code 3: nothing in the library fits.
    """
    with state.library() as (library, caller):
        scopes = (check_scope(scope),) if scope else None
        found = search.find_skill(
            library, caller, " ".join(task), limit=limit, kind=Kind(kind), scopes=scopes, mode=mode
        )
    state.show(found, lambda: show_found(found))
    if found.none_fits:
        ctx.exit(NONE_FITS)


def show_found(found: search.FoundSkills) -> None:
    """Writes the matches, each with how sure it is and why, and what to type next."""
    matches = [match for match in found.matches if match.confidence >= NOISE or not found.none_fits]
    if found.none_fits:
        say("Nothing in the library fits this task." + (" The nearest:" if matches else ""))
    if found.notice:
        say(found.notice)
    for match in matches:
        how = f"{match.stage}, {match.confidence:.0%} sure, {match.maturity}"
        click.echo(f"{click.style(one_line(f'{match.ref}@{match.version}'), bold=True)}  {one_line(how)}")
        # A description between marks stays whole: a cut would take the closing mark.
        show_text(match.description if found.notice else shortened(match.description, MAX_SHOWN), indent=4)
        show_text(match.why, "dim", indent=4)
        if match.notice:
            show_text(match.notice, "yellow", indent=4)
    if found.matches and not found.none_fits:
        say(f"\nOpen it: evolvable load {found.matches[0].ref} --search {found.search_id}")


@command("list")
@click.argument("query", required=False)
@click.option("--kind", type=KIND, help="Only this kind.")
@click.option("--scope", help="Only this scope: 'user' or a project's name.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@click.option("--cursor", help="Go on where the page before ended.")
def list_command(
    state: State, query: str | None, kind: str | None, scope: str | None, limit: int, cursor: str | None
) -> None:
    """List what the library holds.

    With QUERY, only what has this text in its name or description.
    """
    with state.library() as (library, caller):
        listing = search.list_resources(
            library,
            caller,
            kind=Kind(kind) if kind else None,
            query=query,
            scope=check_scope(scope) if scope else None,
            limit=limit,
            cursor=cursor,
        )
    state.show(listing, lambda: _show_listing(listing))


def _show_listing(listing: search.Listing) -> None:
    if not listing.resources:
        say("Nothing. `evolvable init` takes in folders of skills, `evolvable import` an archive.")
        return
    rows: list[Row] = [
        [(f"{r.ref}@{r.version}", "bold"), r.trust, r.maturity, _uses(r), r.description] for r in listing.resources
    ]
    if listing.notice:
        say(listing.notice)
    columns = ["ref", "trust", "maturity", "used", "description"]
    show_table(columns, rows, wide=("description",), cut=not listing.notice)
    if listing.next_cursor:
        say(f"\nMore: the same command with --cursor {listing.next_cursor}")


def _uses(listed: search.ListedResource) -> str:
    if not listed.uses:
        return "never"
    success = "" if listed.success is None else f", {listed.success:.0%} well"
    verified = f" ({listed.verified} verified)" if listed.verified else ""
    return count(listed.uses, "time") + success + verified
