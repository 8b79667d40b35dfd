"""The commands around what a run came to: evolve report, adopt, watch, opportunities."""

from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import count, remark, say, show_table, warn


@command("adopt")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--undo", "undoing", is_flag=True, help="Take the adoption back.")
@click.option("--unproven", is_flag=True, help="Also without PROMOTE; the history says so.")
@click.option("-m", "--reason", default="", help="Why; kept in the history.")
def adopt_command(state: State, run: str | None, undoing: bool, unproven: bool, reason: str) -> None:
    """Make live what a run promoted, in one operation, when nothing changed since it was measured."""
    from evolvable_tools.evolve.adopting import adopt, unadopt

    with state.library() as (library, caller):
        if undoing:
            back = unadopt(library, caller, run, reason)
            state.show(back, lambda: _show_back(back))
            return
        adopted = adopt(library, caller, run, reason, unproven=unproven)
    state.show(adopted, lambda: _show_adopted(adopted))


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
    from evolvable_tools.evolve.watching import watch

    with state.library() as (library, caller):
        watched = watch(library, caller, propose=not dry_run)
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
    from evolvable_tools.evolve.opportunities import opportunities

    with state.library() as (library, caller):
        found = opportunities(library, caller, days=days)

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
    from evolvable_tools.evolve.report.writing import report
    from evolvable_tools.evolve.run_folder import the_run

    reported = report(the_run(state.config().home, run), out)

    def render() -> None:
        say(reported.text)
        remark(f"{reported.html} has the pictures.")

    state.show(reported, render)
