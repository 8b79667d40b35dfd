"""The command that shows what the evidence says: stats."""

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import Row, count, local_time, say, show_table
from evolvable_store.resource import Ref
from evolvable_tools.outcomes import usage_report as verbs

_STYLES = {"helps": "green", "harms": "red", "dead": "yellow"}

_REASONS = {
    "shown-not-loaded": "shown and never opened, so its description may promise what it does not hold",
    "loaded-not-used": "opened and never followed",
    "used-not-shown": "used and found by no search, so its description may say too little",
    "harms": "tasks end worse with it",
    "newer-is-worse": "the newest version does worse than an older one",
    "model-differs": "it does not help every model alike",
}


@command("stats")
@click.argument("ref", required=False)
@click.option(
    "--days", type=click.IntRange(1, verbs.MAX_DAYS), default=30, show_default=True, help="How far back `dead` looks."
)
def stats_command(state: State, ref: str | None, days: int) -> None:
    """Show what is used, what helps, what harms and what is dead.

    Every share comes with the number of attempts that it is of, and with its 95 % interval. Maturity goes by verified
    ends. With REF also by version, model and task type.
    """
    with state.library() as (library, caller):
        found = verbs.stats(library, caller, Ref.parse(ref) if ref else None, days=days)
    state.show(found, lambda: _show(found, whole=ref is not None))


def _show(found: verbs.Stats, *, whole: bool) -> None:
    if not found.resources:
        say("Nothing was shown, loaded or used yet.")
        return
    rows: list[Row] = [
        [
            (line.ref, "bold"),
            (line.verdict, _STYLES.get(line.verdict, "")),
            line.maturity,
            *(str(line.shown), str(line.loaded), str(line.used), _share(line.helped)),
            *(str(line.verified.n), str(line.reported.n), line.why),
        ]
        for line in found.resources
    ]
    show_table(
        ["ref", "verdict", "maturity", "shown", "loaded", "used", "helped", "verified", "reported", "why"],
        rows,
        wide=("ref", "why"),
    )
    if whole:
        _show_parts(found.resources[0])
    if found.base is not None:
        say(f"\nCompared with {found.base.of}: {_share(found.base.share)}.")
    if found.opportunities:
        say("\nWorth a review:")
        for one in found.opportunities:
            say(f"  {one.ref}: {_REASONS[one.reason]}: {one.numbers}")
        if not whole:
            say("Look closer: evolvable stats REF")


def _show_parts(line: verbs.ResourceStats) -> None:
    if line.versions:
        say()
        rows: list[Row] = [
            [f"@{part.version}", part.model or "not known", _share(part.share)] for part in line.versions
        ]
        show_table(["version", "model", "helped"], rows)
    if line.task_types:
        say()
        types: list[Row] = [[one.task_type or "not told", f"{one.q:.2f}", _share(one.share)] for one in line.task_types]
        show_table(["task type", "Q", "helped"], types)
    if line.not_counted:
        say(f"\n{count(line.not_counted, 'outcome')} kept as history, not counted.")
    last = [("shown", line.last_shown), ("opened", line.last_loaded)]
    said = [f"{what} {local_time(at)}" for what, at in last if at is not None]
    if said:
        say(f"\nLast {', last '.join(said)}.")


def _share(share: verbs.Share) -> str:
    if not share.n:
        return "no end known"
    return f"{share.successes} of {share.n} ({share.low:.0%} to {share.high:.0%})"
