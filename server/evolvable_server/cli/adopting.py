"""The commands around what a run came to: evolve report, adopt, watch, opportunities."""

from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, remark, say, show_table, warn
from evolvable_server.principals import is_person


@command("adopt")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--undo", "undoing", is_flag=True, help="Take the adoption back.")
@click.option("--unproven", is_flag=True, help="Also without PROMOTE; the history says so.")
@click.option("-m", "--reason", default="", help="Why; kept in the history.")
def adopt_command(state: State, run: str | None, undoing: bool, unproven: bool, reason: str) -> None:
    """Make live what a run promoted, in one operation, when nothing changed since it was measured."""
    from evolvable_tools.evolve.deploy import adopt, preview_adoption, unadopt

    with state.library() as (library, caller):
        if undoing:
            back = unadopt(library, caller, run, reason)
            state.show(back, lambda: _show_back(back))
            return
        if is_person():
            shown = preview_adoption(library.store.home, run, unproven=unproven)
            _tell(f"{shown.verdict or 'no verdict'} [{shown.label}]: {shown.why}", state)
            show_change(shown, state)
            click.confirm("Make this live?", abort=True, err=state.json)
        adopted = adopt(library, caller, run, reason, unproven=unproven)
    state.show(adopted, lambda: _show_adopted(adopted))


@command("allow")
@click.argument("run", metavar="RUN")
@click.argument("candidate", required=False, metavar="[CANDIDATE]")
@click.option("--refuse", is_flag=True, help="Do not let it run; the search goes on without it.")
def allow_command(state: State, run: str, candidate: str | None, refuse: bool) -> None:
    """Decide whether a candidate runs where there is no sandbox, after all of its change is shown."""
    from evolvable_server.evolving import start_driver
    from evolvable_store.errors import Refused
    from evolvable_tools.evolve.ledger.run_directory import find_run
    from evolvable_tools.evolve.run_control import decide_held_candidate, get_held_candidate

    home = state.config().home
    found = get_held_candidate(home, run, candidate)
    if not is_person():
        raise Refused(
            f"{found.candidate} of run {found.run} runs only after a person has seen its change at a terminal.",
            "Tell the user that it waits.",
        )
    _tell(f"{found.candidate} of run {found.run}: {found.why}.", state)
    show_change(found, state)
    if not refuse:
        click.confirm("Run this with your rights?", abort=True, err=state.json)
    with state.library() as (_, caller):
        decided = decide_held_candidate(caller, home, found, allowed=not refuse, via="terminal")
    start_driver(home, find_run(home, decided.run))
    state.show(decided, lambda: say(f"{decided.candidate} {'may' if decided.allowed else 'may not'} run; it goes on."))


def show_change(shown: Any, state: State) -> None:
    """Show a whole difference, what it adds in capabilities, and what the scan found in it."""
    for line in shown.diff.splitlines():
        _tell(line, state)
    for title, rows in (("It can do now", shown.capabilities), ("The scan found", shown.findings)):
        _tell(f"{title}: nothing new." if not rows else f"{title}:", state)
        for row in rows:
            _tell(f"  - {row}", state)


def _tell(text: str, state: State) -> None:
    """Write a line for the person, where with --json no result is expected."""
    (remark if state.json else say)(text)


def _show_adopted(adopted: Any) -> None:
    for change in adopted.changes:
        before = f"@{change.before}" if change.before else "new"
        say(f"{change.ref}: {before} -> {f'@{change.after}' if change.after else 'removed'}")
    for line in adopted.warnings:
        warn(line)
    say(f"Operation {adopted.operation}. `{adopted.back}` takes it back.")


def _show_back(back: Any) -> None:
    for ref in back.restored:
        say(f"Restored: {ref}")
    for conflict in back.conflicts:
        warn(f"{conflict.ref}: {conflict.reason}")
    say(f"Operation {back.operation}." if back.operation else "Nothing was taken back.")


@command("watch")
@click.option("--dry-run", is_flag=True, help="Propose nothing.")
def watch_command(state: State, dry_run: bool) -> None:
    """Compare what was adopted with what it replaced, by real sessions; what is worse is proposed to be taken back."""
    from evolvable_tools.evolve.deploy import monitor_adoptions

    with state.library() as (library, caller):
        watched = monitor_adoptions(library, caller, propose=not dry_run)
    if state.json:
        import dataclasses

        state.show_json([dataclasses.asdict(one) for one in watched])
        return
    if not watched:
        say("Nothing that was adopted is live.")
    for one in watched:
        say(f"Run {one.run}, operation {one.operation}: {one.verdict}")
        for part in one.compared:
            say(f"  {part.ref}: now {part.after}, before {part.before}: {part.verdict}")
        if one.proposals:
            numbers = " ".join(map(str, one.proposals))
            remark(f"{count(len(one.proposals), 'proposal')} to take it back: evolvable inbox show {numbers}")


@command("opportunities")
@click.option("--days", type=click.IntRange(1, 3650), default=30, show_default=True)
def opportunities_command(state: State, days: int) -> None:
    """Show which resources deserve work, and why."""
    from evolvable_tools.evolve.start import find_opportunities

    with state.library() as (library, caller):
        found = find_opportunities(library, caller, days=days)

    def render() -> None:
        if not found.found:
            say("Nothing stands out. Sessions say more the more of them there are.")
            return
        show_table(
            ["Resource", "Reason", "Numbers", "Runs"],
            [[one.ref, one.reason, one.numbers, "; ".join(one.runs) or "-"] for one in found.found],
        )
        remark(f"Task sets to measure on: {', '.join(found.task_sets) or 'none yet'}")

    state.show(found, render)


@command("report")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Where report.html and report.json go.")
def report_command(state: State, run: str | None, out: Path | None) -> None:
    """Write what a run came to as one HTML page and report.json, and show it here."""
    from evolvable_tools.evolve.ledger.run_directory import find_run
    from evolvable_tools.evolve.report.render import write_report

    reported = write_report(find_run(state.config().home, run), out)

    def render() -> None:
        say(reported.text)
        remark(f"{reported.html} has the pictures.")

    state.show(reported, render)
