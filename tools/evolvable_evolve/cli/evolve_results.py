"""The commands on the result of a run: evolve report, adopt, allow, watch, opportunities."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from evolvable_evolve import evolution
from evolvable_evolve.cli.evolve_measure import show_measurement
from evolvable_evolve.cli.try_command import show_try
from evolvable_evolve.evolution import (
    BlindPair,
    RemovedRun,
    changed_test_tasks,
    decide_held_candidate,
    draw_blind_pairs,
    find_opportunities,
    find_run,
    get_held_candidate,
    load_run,
    read_measurement,
    read_try,
    record_preferences,
    record_shown_test,
    remove_run,
    write_report,
)
from evolvable_evolve.run_launcher import start_driver
from evolvable_server import Redaction, is_person
from evolvable_server.cli import CommandContext, Output, command
from evolvable_server.cli.terminal import ask, confirm, count, remark, say, show_table, warn
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools import Caller, Library
from evolvable_tools.outcomes import verdict_words


@command("adopt")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--undo", "undoing", is_flag=True, help="Take the adoption back.")
@click.option("--unproven", is_flag=True, help="Also without PROMOTE; the history says so.")
@click.option("-m", "--reason", default="", help="Why; kept in the history.")
def adopt_command(
    state: CommandContext, run: str | None, undoing: bool, unproven: bool, reason: str
) -> Output[Any]:
    """Make live what a run promoted, in one operation, when nothing changed since it was measured.

    Where a judge scored the answers, you compare up to five pairs first without seeing which
    program gave them.
    """
    with state.library() as (library, caller):
        if undoing:
            return Output(evolution.unadopt(library, caller, run, reason), _show_back)
        person = is_person()
        if person:
            _confirm_adoption(state, library, caller, run, unproven)
        # The person who preferred the base's answers was asked about it above.
        options = {"unproven": unproven, "base_preferred": person}
        return Output(evolution.adopt(library, caller, run, reason, **options), _show_adopted)


def _confirm_adoption(
    state: CommandContext, library: Library, caller: Caller, run: str | None, unproven: bool
) -> None:
    """Show what would be adopted and ask.

    The answers come first and without names, because the difference shows the style.
    """
    # Before the pairs: it raises where there is nothing to adopt, and nobody compares in vain.
    evolution.preview_adoption(library.store.home, run, unproven=unproven)
    if pairs := draw_blind_pairs(library, caller, run):
        preferred = record_preferences(library, caller, run, pairs, _compare_pairs(pairs, state))
        remark(f"{preferred}.")
    preview = evolution.preview_adoption(library.store.home, run, unproven=unproven)
    title = f"{preview.verdict or 'no verdict'} [{preview.label}]: {preview.why}"
    _show_change(title, preview, state)
    confirm("Make this live?", err=state.json)
    if preview.preferences is not None and preview.preferences.doubtful:
        warning = f"{preview.preferences}: the judge may like what you do not."
        confirm(f"{warning} Make it live all the same?", err=state.json)


def _compare_pairs(pairs: Sequence[BlindPair], state: CommandContext) -> list[str]:
    """Return the choice of the person for each pair: `1`, `2`, or `=` for no difference."""
    write, choices = remark if state.json else say, []
    write("A judge scored these answers. Compare them before you see which program gave which.")
    for number, pair in enumerate(pairs, 1):
        write("", f"{number} of {len(pairs)}. Task: {pair.prompt or pair.task}")
        write("--- answer 1", *pair.first.split("\n"), "--- answer 2", *pair.second.split("\n"))
        choice = ask(
            "Which is better (= for no difference)",
            type=click.Choice(["1", "2", "="]),
            err=state.json,
        )
        choices.append(choice)
    return choices


@command("remove")
@click.argument("run", metavar="RUN")
def remove_command(state: CommandContext, run: str) -> Output[RemovedRun]:
    """Remove the folder of a run; its report and the head of its ledger stay.

    A run is kept while it runs, while what it found is live, and while another run or a proposal
    refers to it.
    """
    with state.library() as (library, _):
        if is_person():
            confirm(f"Remove run {find_run(library.store.home, run).id} for good?", err=state.json)
        removed = remove_run(library, run)
    message = (
        f"Removed run {removed.run}, {removed.freed:,} bytes. Its report stays: {removed.report}"
    )
    return Output(removed, lambda _: say(message))


@command("allow")
@click.argument("run", metavar="RUN")
@click.argument("candidate", required=False, metavar="[CANDIDATE]")
@click.option("--refuse", is_flag=True, help="Do not let it run; the search goes on without it.")
def allow_command(
    state: CommandContext, run: str, candidate: str | None, refuse: bool
) -> Output[Any]:
    """Decide whether a candidate runs where there is no sandbox, after all of its
    change is shown.
    """
    home = state.config().home
    held = get_held_candidate(home, run, candidate)
    if not is_person():
        raise Refused(
            f"{held.candidate} of run {held.run} runs only after a person has seen its change "
            "at a terminal.",
            "Tell the user that it waits.",
        )
    _show_change(f"{held.candidate} of run {held.run}: {held.why}.", held, state)
    if not refuse:
        confirm("Run this with your rights?", err=state.json)
    with state.library() as (_, caller):
        decided = decide_held_candidate(caller, home, held, allowed=not refuse, via="terminal")
    start_driver(home, find_run(home, decided.run))
    message = f"{decided.candidate} {'may' if decided.allowed else 'may not'} run; it goes on."
    return Output(decided, lambda _: say(message))


def _show_change(title: str, change: Any, state: CommandContext) -> None:
    """Show a whole difference under a title, its new capabilities, and the findings of the scan."""
    write = remark if state.json else say  # with --json the result alone is on stdout
    # Only \n ends a line: text after another line end would stand there without a sign, as if it
    # were not new.
    write(title, *(change.diff.split("\n") if change.diff else ()))
    for what, rows in (("It can do now", change.capabilities), ("The scan found", change.findings)):
        write(f"{what}:" if rows else f"{what}: nothing new.", *(f"  - {row}" for row in rows))


def _show_adopted(adopted: Any) -> None:
    for change in adopted.changes:
        before = f"@{change.before}" if change.before else "new"
        say(f"{change.ref}: {before} -> {f'@{change.after}' if change.after else 'removed'}")
    warn(*adopted.warnings)
    say(f"Operation {adopted.operation}. `{adopted.back}` takes it back.")


def _show_back(back: Any) -> None:
    say(*(f"Restored: {ref}" for ref in back.restored))
    warn(*(f"{conflict.ref}: {conflict.reason}" for conflict in back.conflicts))
    say(f"Operation {back.operation}." if back.operation else "Nothing was taken back.")


@command("watch")
@click.option("--dry-run", is_flag=True, help="Propose nothing.")
def watch_command(
    state: CommandContext, dry_run: bool
) -> Output[list[evolution.MonitoredAdoption]]:
    """Compare what was adopted with what it replaced, by real sessions; what is worse is proposed
    to be taken back.
    """
    with state.library() as (library, caller):
        watched = evolution.monitor_adoptions(library, caller, propose=not dry_run)
    return Output(watched, _show_watched)


def _show_watched(watched: list[evolution.MonitoredAdoption]) -> None:
    if not watched:
        say("Nothing that was adopted is live.")
    for adoption in watched:
        verdict = verdict_words(adoption.verdict)
        say(f"Run {adoption.run}, operation {adoption.operation}: {verdict}")
        for part in adoption.compared:
            rates = f"now {part.after}, before {part.before}"
            say(f"  {part.ref}: {rates}: {verdict_words(part.verdict)}")
        if adoption.proposals:
            numbers = " ".join(map(str, adoption.proposals))
            proposals = count(len(adoption.proposals), "proposal")
            remark(f"{proposals} to take it back: evolvable inbox show {numbers}")


@command("opportunities")
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True)
def opportunities_command(state: CommandContext, days: int) -> Output[Any]:
    """Show which resources deserve work, and why."""
    with state.library() as (library, caller):
        return Output(find_opportunities(library, caller, days=days), _show_opportunities)


def _show_opportunities(found: Any) -> None:
    if not found.found:
        say("Nothing stands out. Sessions say more the more of them there are.")
        return
    heads = ["Resource", "Reason", "Numbers", "Runs"]
    rows = [
        [
            opportunity.ref,
            opportunity.reason,
            opportunity.numbers,
            "; ".join(opportunity.runs) or "-",
        ]
        for opportunity in found.found
    ]
    show_table(heads, rows, names=("Resource",), wide=("Numbers", "Runs"), spare=("Runs",))
    remark(f"Task sets to measure on: {', '.join(found.task_sets) or 'none yet'}")


@command("report")
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where report.html and report.json go.",
)
@click.option(
    "--show-test",
    is_flag=True,
    help="Name the test tasks that changed: a further look at each of them.",
)
def report_command(
    state: CommandContext, run: str | None, out: Path | None, show_test: bool
) -> Output[Any]:
    """Write what a run came to as one HTML page and report.json, and show it here."""
    home = state.config().home
    if (tried := read_try(home, run)) is not None:
        return Output(tried, show_try)
    tested = _confirm_shown_test(state, run) if show_test else None
    written = write_report(find_run(home, run), out, Redaction(home).redactor())
    measured = read_measurement(home, written.run)

    def show(_: Any) -> None:
        _show_report(written)
        for change, tasks in (tested or {}).items():
            say(f"{change.capitalize()} in test: {', '.join(tasks)}")
        if measured is not None:
            show_measurement(measured)

    fields = (("measurement", measured), ("test", tested))
    more = {name: value for name, value in fields if value is not None}
    return Output({**asdict(written), **more} if more else written, show)


def _confirm_shown_test(state: CommandContext, run: str | None) -> dict[str, list[str]]:
    """Return the test tasks of a run whose result changed, by how it changed.

    A person confirms first that this is a further look at each of them.
    """
    folder, run_state = load_run(state.config().home, run)
    if not is_person():
        raise Refused(
            "Which sealed tasks passed is shown to a person alone.",
            "Tell the user: `evolvable evolve report --show-test` at a terminal.",
        )
    changed = changed_test_tasks(run_state)
    if not changed:
        raise InvalidArgument(
            f"Run {folder.id} has not finished a sealed test.", "There is nothing of it to show."
        )
    tasks = [task for task_ids in changed.values() for task in task_ids]
    confirm(
        f"This is a further look at {len(tasks)} test tasks and cannot be taken back. Show them?",
        err=state.json,
    )
    with state.library() as (library, caller):
        record_shown_test(library, caller, folder.id, run_state.settings, tasks)
    return changed


def _show_report(reported: Any) -> None:
    say(reported.text)
    remark(f"{reported.html} has the pictures.")
