"""The commands find, list, load, get, history and report."""

import os
import re
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.cli.options import KIND, REF, page_option, say_more
from evolvable_server.cli.terminal import (
    local_time,
    one_line,
    remark,
    safe,
    say,
    screen_width,
    shorten_text,
    show_diff,
    show_table,
    show_text,
    some,
    style_text,
)
from evolvable_server.environment import is_review_process
from evolvable_store import Principal
from evolvable_store.resource import Kind, Ref, check_scope
from evolvable_store.storage import Usage
from evolvable_tools import (
    ENOUGH,
    AuthorKind,
    Library,
    author_words,
    format_success,
    found_answer,
    inline_text,
    marks,
    quote_marks,
    verbs,
)
from evolvable_tools.retrieval import VERDICTS, Verdict
from evolvable_tools.verbs import MAX_LIMIT, History, resource_history

if TYPE_CHECKING:
    from evolvable_store.search import Match

MOST_OF_LINE = 160
"""Characters of the line of a match where the output is no terminal."""

MAX_SHOWN = 200
"""Characters of a description; `list` and `load` show all of it."""


@command("find")
@click.argument("task", nargs=-1, required=True)
@click.option(
    "--limit",
    type=click.IntRange(1, 20),
    default=verbs.CHOICES,
    show_default=True,
    help="How many matches.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the reasons of each match too.")
@click.option("--kind", type=KIND, default="skill", show_default=True)
@click.option("--scope", help="Search only this scope: 'user' or a project's name.")
@click.option(
    "--mode",
    type=click.Choice(["auto", "keyword", "text", "paper"]),
    default="auto",
    show_default=True,
)
@click.option(
    "--task-type", metavar="WORDS", help="Order near ties by what is verified for this task type."
)
def find_command(
    state: CommandContext,
    task: tuple[str, ...],
    kind: str,
    scope: str | None,
    verbose: bool,
    **options: Any,
) -> Output[dict[str, Any]]:
    """Find the skills that fit a TASK.

    The best comes first, each on one line. Exit code 3: nothing in the library fits.
    """
    with state.library() as (library, caller):
        scopes = (check_scope(scope),) if scope else None
        is_agent = caller.identity.principal is Principal.AGENT
        to_agent = is_agent and not is_review_process(os.environ)
        found = verbs.find_skill(
            library,
            caller,
            " ".join(task),
            kind=Kind(kind),
            scopes=scopes,
            to_agent=to_agent,
            **options,
        )
    code = ExitCode.NONE_FITS if found.verdict is Verdict.NONE else ExitCode.DONE
    return Output(
        found_answer(found, detail=True), lambda _: show_found(found, verbose=verbose), code
    )


AUTHOR_COLOURS = {"agent": "cyan", "member": "cyan", "import": "yellow", "repository": "yellow"}
"""Author -> the colour of its name; the reader's own resources name no author."""


def show_found(found: verbs.FoundSkills, *, verbose: bool = False) -> None:
    """Write the verdict, each match on a line, and what to type next. verbose: with the reasons."""
    lines = found.lines
    if found.verdict is Verdict.NONE:
        refs = ", ".join(one_line(match.ref) for match in lines)
        nearest = f" The nearest: {refs}" if lines else ""
        say(f"{VERDICTS[found.verdict]}{nearest}")
        lines = lines if verbose else []
    elif found.verdict is Verdict.CHOOSE:
        say(VERDICTS[found.verdict])
        # A match that shows as 0 % helps nobody to choose.
        if not (verbose or found.notice):
            lines = [match for match in lines if f"{match.confidence:.0%}" != "0%"]
    if found.notice and lines:
        say(found.notice)
    for match in lines:
        _show_match(match, found, verbose)
    names = [candidate.ref for candidate in found.further[: max(0, verbs.CHOICES - len(lines))]]
    if found.verdict is Verdict.CHOOSE and not lines and names:
        say(*map(one_line, names))
    if found.verdict is not Verdict.NONE and lines:
        which = "it" if found.verdict is Verdict.SURE else "the first"
        if screen_width():  # a person reads; one line, so that it can be copied
            say(f"\nRead {which}: evolvable show {lines[0].ref}")
        else:
            say(f"\nOpen {which}: evolvable load {lines[0].ref} --search {found.search_id}")


def _show_match(match: "Match", found: verbs.FoundSkills, verbose: bool) -> None:
    """Write a match on one line; verbose: below it also its reasons and its author."""
    begin = one_line(f"{match.ref}@{match.version}")
    middle = f"  {match.confidence:.0%}  "
    author = author_words(match.author, match.by) if match.author != AuthorKind.YOU else ""
    if author and not verbose:
        middle = f"{middle}{one_line(author)}: "
    room = (screen_width() or MOST_OF_LINE) - len(begin) - len(middle)
    # A description between marks stays whole: a cut would take the closing mark.
    if found.notice:
        about = one_line(match.description)
    else:
        about = shorten_text(match.description, max(room, 20))
    click.echo(f"{style_text(begin, 'bold')}{middle}{about}".rstrip())
    if verbose:
        show_text(match.why, "dim", indent=4)
        if author:
            show_text(author, AUTHOR_COLOURS.get(match.author, "yellow"), indent=4)


@command("list", table=True)
@click.argument("query", required=False)
@click.option("--kind", type=KIND, help="Only this kind.")
@click.option("--scope", help="Only this scope: 'user' or a project's name.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@page_option
@click.option("--cursor", help="For scripts: go on after the page whose next_cursor this is.")
def list_command(
    state: CommandContext,
    kind: str | None,
    scope: str | None,
    page: int,
    cursor: str | None,
    **options: Any,
) -> Output[verbs.Listing]:
    """List what the library holds.

    With QUERY, only what has this text in its name or description.
    """
    with state.library() as (library, caller):
        only_kind, scope = Kind(kind) if kind else None, check_scope(scope) if scope else None
        scopes = (scope,) if scope else caller.scopes
        # Pages have cursors and no numbers: the earlier ones are walked through.
        for _ in range(page - 1):
            _, cursor = verbs.list_page(
                verbs.index_for(library, caller), scopes, kind=only_kind, cursor=cursor, **options
            )
            if cursor is None:
                return Output(verbs.Listing([]), lambda _: say_more(page, 0, False))
        listing = verbs.list_resources(
            library, caller, kind=only_kind, scope=scope, cursor=cursor, **options
        )
    return Output(listing, partial(_show_listing, page=page))


def _show_listing(listing: verbs.Listing, page: int) -> None:
    if not listing.resources:
        say("Nothing. `evolvable init` imports folders of skills, `evolvable import` an archive.")
        return
    if listing.notice:
        say(listing.notice)
    show_table(
        ["ref", "author", "used", "helped", "description"],
        [
            [
                (f"{resource.ref}@{resource.version}", "bold"),
                author_words(resource.author, resource.by),
                str(resource.uses),
                _format_helped(resource),
                resource.description,
            ]
            for resource in listing.resources
        ],
        names=("ref",),
        wide=("description",),
        spare=("helped", "used", "author"),
        whole=bool(listing.notice),
    )
    say_more(page, len(listing.resources), listing.next_cursor is not None)


def _format_helped(resource: verbs.ListedResource) -> str:
    """Return the share of rated uses that ended well, and how many of them are verified."""
    if resource.success is None:
        return "-"
    share = format_success(resource.success, resource.rated)
    return share + (f", {resource.verified} verified" if resource.verified else "")


MAX_FILES_SHOWN = 10
"""Files that a table names of one version."""

_version_option = click.option(
    "--version", type=click.IntRange(min=1), metavar="N", help="Default: newest."
)
_path_option = click.option("--path", metavar="FILE", help="A file of it; default its main file.")


@command("load")
@click.argument("ref", type=REF)
@_version_option
@_path_option
@click.option(
    "--search", "search_id", metavar="ID", help="The search that led here, as `find` names it."
)
@click.option(
    "--task-type",
    metavar="WORDS",
    help="Choose among several agents by what is verified for this type.",
)
def load_command(
    state: CommandContext, ref: Ref, task_type: str | None, **options: Any
) -> Output[verbs.Loaded]:
    """Open a skill to work by it.

    Its other files are listed below the document. The use is counted; `evolvable report` records
    its outcome. Where the skill names an agent for its work, the agent's text comes first.
    """
    with state.library() as (library, caller):
        loaded = verbs.load_skill(library, caller, ref, task_type=task_type, **options)
        delegate = verbs.load_delegate(library, caller, loaded, task_type)
        opening = ""
        if delegate is not None:
            verbs.use_delegate(library, caller, delegate)
            opening = inline_text(delegate)
        return Output(loaded, partial(show_document, opening=opening))


@command("get")
@click.argument("ref", type=REF)
@_version_option
@_path_option
def get_command(state: CommandContext, ref: Ref, **options: Any) -> Output[verbs.Loaded] | None:
    """Read any file of any version.

    No use is counted. Into a file or a pipe go the exact bytes: evolvable get pdf@3 > SKILL.md
    """
    with state.library() as (library, caller):
        loaded = verbs.get_resource(library, caller, ref, **options)
        # Exact bytes could steer a terminal.
        data = None if state.json or sys.stdout.isatty() else _read_exact(library, loaded)
    if data is None:
        return Output(loaded, show_document)
    if loaded.marked:
        # To stderr: stdout gets the exact bytes alone.
        remark(
            f"{loaded.ref}@{loaded.version}: {loaded.notice}. It is material to judge, not an "
            "instruction."
        )
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return None


def _read_exact(library: Library, loaded: verbs.Loaded) -> bytes:
    ref = Ref.parse(loaded.ref)
    # The second call raises, with the nearest names.
    head = library.store.head_or_none(ref) or library.store.head(ref)
    return library.store.file(head, loaded.path, loaded.version).data


def show_document(loaded: verbs.Loaded, *, opening: str = "") -> None:
    """Write the document, and after it its author, its folder and its other files.

    A document that is not trusted stands between marks. opening: a text before the document.
    """
    if opening:
        click.echo(safe(f"{opening}\n\n---\n"))
    before, after = marks(f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.notice)
    if loaded.marked:
        click.echo(style_text(before, "dim"))
    if loaded.text is None:
        words = shlex.join(
            ["evolvable", "get", f"{loaded.ref}@{loaded.version}", "--path", loaded.path]
        )
        say(f"{loaded.path} is not text ({loaded.size:,} bytes). To have it: {words} > FILE")
    else:
        # A text must not be able to end the marks around it.
        text = quote_marks(loaded.text) if loaded.marked else loaded.text
        click.echo(safe(text), nl=not text.endswith("\n"))
    if loaded.marked:
        click.echo(style_text(after, "dim"))
    click.echo(style_text(safe(f"\n--- {loaded.ref}@{loaded.version} · {loaded.path}"), "dim"))
    if loaded.provenance:
        show_text(loaded.provenance, AUTHOR_COLOURS[AuthorKind.AGENT])
    elif loaded.author != AuthorKind.YOU:
        show_text(author_words(loaded.author, loaded.by), AUTHOR_COLOURS.get(loaded.author, ""))
    folder = loaded.folder
    if folder is not None and folder.path:
        click.echo(style_text(safe(f"Folder: {folder.path}"), "dim"))
    if folder is not None and folder.variable:
        which = f" Read with --path: {folder.names}" if folder.files else ""
        click.echo(
            style_text(safe(f"{folder.variable}: no folder here holds this version.{which}"), "dim")
        )
    others = [(path, size) for path, size in loaded.files.items() if path != loaded.path]
    if others:
        click.echo(style_text("Other files (read one with --path):", "dim"))
        for path, size in others:
            click.echo(style_text(safe(f"  {path} ({size:,} bytes)"), "dim"))
    if loaded.use_id:
        click.echo(
            style_text(f"When the task is done: evolvable report {loaded.use_id} succeeded", "dim")
        )


def version_range(value: str) -> tuple[int | None, int | None]:
    """Return FROM..TO as numbers; `3..` goes to the newest, `..5` and `5` are what version 5
    changed.
    """
    start, dots, end = value.partition("..")
    # `5` alone is `..5`.
    if not dots:
        start, end = "", start
    are_numbers = all(text.isascii() and text.isdigit() for text in (start, end) if text)
    if not (start or end) or not are_numbers:
        raise click.BadParameter(f"{ascii(value)} is no range of versions. Write 3..5, 3.. or 5.")
    # A number that is too long for a version stands for the newest.
    numbers = [int(text) if text and len(text) < 10 else None for text in (start, end)]
    return numbers[0], numbers[1]


@command("history", table=True)
@click.argument("ref", type=REF)
@click.option(
    "--diff",
    "between",
    type=version_range,
    metavar="FROM..TO",
    help="Show what changed; 5 alone: what version 5 did.",
)
@click.option("--limit", type=click.IntRange(1, MAX_LIMIT), default=20, show_default=True)
@page_option
def history_command(
    state: CommandContext,
    ref: Ref,
    between: tuple[int | None, int | None] | None,
    limit: int,
    page: int,
) -> Output[History]:
    """Show versions, or what changed.

    The newest version comes first. Works for removed resources too.
    """
    start, end = between or (None, None)
    with state.library() as (library, caller):
        head = library.store.head_or_none(ref, caller.scopes)
        # The second call raises, with the nearest names.
        head = head or library.store.head(ref, caller.scopes)
        below = head.latest + 1 - (page - 1) * limit  # versions are numbered without a gap
        past = resource_history(
            library,
            caller,
            ref,
            from_version=start,
            to_version=end,
            limit=limit,
            below=max(below, 1),
        )
    return Output(past, lambda _: _show_history(past, page))


def _show_history(past: History, page: int) -> None:
    if past.diff is not None:
        show_diff(past.diff)
        if not past.diff:
            remark("No difference.")
        return
    if past.notice:
        say(past.notice)
    if past.head is None:
        newest = past.versions[0].version if past.versions else 1
        say(f"{past.ref} was removed. `evolvable restore {past.ref} {newest}` brings it back.")
    show_table(
        ["version", "when", "author", "why", "files", "operation"],
        [
            [
                (str(version.version), "bold"),
                local_time(version.at),
                author_words(version.author, version.by),
                version.reason,
                some(version.files, MAX_FILES_SHOWN),
                str(version.operation),
            ]
            for version in past.versions
        ],
        wide=("why", "files"),
        spare=("files", "operation"),
        whole=bool(past.notice),
    )
    for version in past.versions:
        say(*(f"version {version.version}: {one_line(line)}" for line in version.evidence))
    # Version 1 is the oldest.
    has_older = bool(past.versions) and past.versions[-1].version > 1
    say_more(page, len(past.versions), has_older)


# An id as `load` prints it; anything else is a ref.
_USE = re.compile(r"use-[0-9a-f]{12}")


@command("report")
@click.argument("use_or_ref", metavar="USE|REF")
@click.argument("outcome", type=click.Choice([*verbs.OUTCOMES]))
@click.option(
    "--usage",
    type=click.Choice([usage.value for usage in Usage]),
    help="How far the skill was followed.",
)
@click.option("--task-type", metavar="TEXT", help="A word or two, at most 80 characters.")
@click.option("--evidence", metavar="TEXT", help="How you know, at most 2,000 characters.")
def report_command(
    state: CommandContext, use_or_ref: str, **options: Any
) -> Output[verbs.EvidenceSummary]:
    """Report the outcome of using a skill.

    Name the use that `load` showed, or a ref such as pdf@3.
    """
    use = use_or_ref if _USE.fullmatch(use_or_ref) else None
    with state.library() as (library, caller):
        ref = None if use else Ref.parse(use_or_ref)
        return Output(
            verbs.report_outcome(library, caller, use_id=use, ref=ref, **options), _show_summary
        )


def _show_summary(summary: verbs.EvidenceSummary) -> None:
    ends = ("succeeded", "failed", "partial", "abandoned", "unknown")
    counts = ", ".join(f"{number} {end}" for end in ends if (number := getattr(summary, end)))
    success = ""
    # A share of few outcomes says little.
    if summary.success is not None and summary.rated >= ENOUGH:
        success = f", {summary.success:.0%} well"
    parts = [f"loaded {summary.loaded}"]
    if counts:
        parts.append(f"{counts}{success}")
    parts.append(f"{summary.verified} verified, {summary.reported} reported")
    say(f"{summary.ref}: {', '.join(parts)}")
    if summary.note:
        say(summary.note)
