"""The commands round, which learns from sessions, and pool, which steers versions on trial."""

from typing import Any

import click

from evolvable_evolve import rounds
from evolvable_evolve.ags import AgsSource, WholeSource
from evolvable_evolve.rounds import (
    PoolArm,
    PoolEnded,
    PoolEntry,
    PoolPage,
    RoundReport,
    RoundSource,
    TrialSource,
    run_round,
)
from evolvable_server import proposer_settings
from evolvable_server.cli import CommandContext, Output, command
from evolvable_server.cli.terminal import count, local_time, say, show_diff, show_table, warn


@command("round")
@click.option(
    "--brain", metavar="MODEL", help="anthropic[:MODEL], claude, codex or a named proposer."
)
@click.option(
    "--from", "run", metavar="RUN", help="Over the training trials of this run, not over sessions."
)
@click.option(
    "--from-ags", "ags", metavar="RUN", help="Over the failed items of this run of agents alone."
)
def round_command(
    state: CommandContext, brain: str | None, run: str | None, ags: str | None
) -> Output[RoundReport]:
    """Learn from the sessions since the last round.

    The failed items of your runs of agents are read beside them. Retains what failed again, nearly
    succeeded, or can be used again; has the model name the causes, within the day's budget of
    reviews; puts small changes of skills on trial; and proposes the rest, as it does skills that
    are to go. By default the reviewer model is asked (`evolvable role model role reviewer`);
    without one the round counts, prunes and looks at trials.
    """
    with state.library() as (library, caller), proposer_settings(state.config(), brain) as settings:
        source: RoundSource | None = (
            TrialSource.of(library, caller, run) if run is not None else None
        )
        if ags is not None:
            source = AgsSource.of(library, ags)
        source = source or WholeSource.of(library, settings)
        return Output(run_round(library, caller, settings, source), show_round)


def show_round(report: RoundReport) -> None:
    """Write the report of a round."""
    over = "sessions" if report.source == "sessions" else report.source
    say(
        f"Round {report.number} over {count(report.episodes, 'episode')} ({over}): "
        f"{report.successes} went well."
    )
    retained = ", ".join(f"{name} {number}" for name, number in sorted(report.retained.items()))
    say(f"Retained: {retained or 'nothing'}.")
    for change in report.changes:
        where = f" (proposal {change.proposal_id})" if change.proposal_id else ""
        where = f" (trial {change.trial})" if change.trial else where
        say(f"{change.action}: {change.ref or change.cluster}{where}: {change.why}")
    for removal in report.pruned:
        where = f" (proposal {removal['proposal']})" if removal["proposal"] else ""
        say(f"prune: {removal['ref']}{where}: {removal['why']}")
    for trial in report.trials:
        say(f"Trial {trial['trial']}: {trial['state']}, looked at {trial['looks']} times.")
    if report.agents is not None and report.agents.proposal_id is not None:
        roster = report.agents
        say(f"Agents: {roster.action}: {roster.ref} (proposal {roster.proposal_id}): {roster.why}")
    if report.unasked:
        say(
            f"{count(report.unasked, 'trace')} wait for a model: "
            f"{report.why_unasked or 'the next round'}."
        )
    if report.suspects:
        say(f"Suspect, because the sessions went worse: {', '.join(report.suspects)}")
    waits = [report.agents.proposal_id if report.agents is not None else None]
    waits += [change.proposal_id for change in report.changes]
    if any(waits) or report.pruned:
        say("\nDecide: evolvable inbox. On trial: evolvable evolve pool.")


@command("pool", table=True)
@click.argument(
    "action",
    type=click.Choice(["list", "show", "start", "stop", "promote", "retire"]),
    default="list",
)
@click.argument("number", type=click.IntRange(min=1), required=False)
@click.option("-m", "--reason", default="", help="Why; kept.")
@click.option("--all", "ended", is_flag=True, help="With list: those that ended too.")
@click.option(
    "--share",
    type=click.FloatRange(0.1, 0.5),
    help="With start: of the sessions, .1 to .5 (default .5).",
)
def pool_command(
    state: CommandContext,
    action: str,
    number: int | None,
    reason: str,
    ended: bool,
    share: float | None,
) -> Output[Any]:
    """Show and steer the versions on trial.

    A version on trial is served to a share of the sessions that load its skill; the others get the
    incumbent. NUMBER is that of a trial, with `start` that of a proposal in the inbox. `stop` ends
    a trial without a decision, `promote` and `retire` decide it.
    """
    if (number is None) != (action == "list"):
        raise click.UsageError("`evolve pool list` takes no number, every other action one.")
    with state.library() as (library, caller):
        if number is None:
            return Output(rounds.list_pool(library, ended=ended), _show_pool)
        if action == "show":
            return Output(rounds.show_trial(library, number), _show_trial)
        if action == "start":
            started = rounds.start_trial(library, caller, number, share=share or rounds.SHARE)
            return Output(started, _show_trial)
        return Output(rounds.decide_trial(library, caller, number, action, reason), show_ended)


def _show_pool(page: PoolPage) -> None:
    if not page.trials:
        say("No version is on trial.")
        return
    heads = ["trial", "skill", "version", "state", "since"]
    heads += ["trial arm", "incumbent", "next look", "why"]
    rows: list[list[Any]] = [
        [
            (str(trial.id), "bold"),
            trial.ref,
            f"@{trial.version} against @{trial.incumbent}",
            trial.state,
            local_time(trial.at),
            _describe_arm(trial.trial),
            _describe_arm(trial.control),
            f"at {trial.next_look} a side" if trial.next_look else "",
            trial.why or trial.reason,
        ]
        for trial in page.trials
    ]
    spare = ("since", "next look", "version", "incumbent", "trial arm")
    show_table(heads, rows, names=("skill",), wide=("why",), spare=spare)


def _describe_arm(arm: PoolArm) -> str:
    return f"{arm.successes} of {arm.verified} ({arm.assigned} assigned)"


def _show_trial(entry: PoolEntry) -> None:
    say(
        f"Trial {entry.id}: {entry.ref}@{entry.version} against @{entry.incumbent}, "
        f"{entry.state}, since {local_time(entry.at)}."
    )
    say(
        f"{entry.reason}. {'A person' if entry.approved else f'Round {entry.since_round}'} put "
        "it on trial."
    )
    on_trial, incumbent = _describe_arm(entry.trial), _describe_arm(entry.control)
    share = f"Served to {entry.share:.0%} of the sessions."
    say(f"Trial arm: {on_trial}. Incumbent: {incumbent}. {share}")
    for look in entry.looks:
        trial, control = look["trial"], look["control"]
        counts = f"{trial[0]} of {trial[1]} against {control[0]} of {control[1]}"
        say(f"Look {look['look']}: {counts},")
        say(f"  p = {look['p']:.4f} at {look['alpha']:.4f}: {look['decision']}, {look['why']}.")
    if entry.ended:
        operation = f" (operation {entry.operation})" if entry.operation else ""
        say(f"Ended {local_time(entry.ended)}: {entry.why}{operation}")
    elif entry.next_look:
        say(f"The next look is at {entry.next_look} verified sessions of each arm.")
    if entry.diff:
        show_diff(entry.diff)


def show_ended(ended: PoolEnded) -> None:
    """Write what became of a trial."""
    say(f"Trial {ended.id} of {ended.ref} is {ended.state}: {ended.why}")
    if ended.operation:
        say(f"Version {ended.version} is live. Take it back: evolvable undo {ended.operation}")
    if ended.proposal_id:
        say(f"{count(1, 'proposal')} to decide on: evolvable inbox show {ended.proposal_id}")
    warn(*ended.warnings)
