"""The command that tells what came of a task: report."""

import re

import click

from evolvable_server.cli.state import State, command
from evolvable_server.cli.terminal import say
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome, Usage
from evolvable_tools.verbs import load as verbs

_USE = re.compile(r"use-[0-9a-f]{12}")


@command("report")
@click.argument("use_or_ref", metavar="USE|REF")
@click.argument("outcome", type=click.Choice([outcome.value for outcome in Outcome]))
@click.option("--usage", type=click.Choice([usage.value for usage in Usage]), help="How far the skill was followed.")
@click.option("--task-type", metavar="TEXT", help="A word or two, at most 80 characters.")
@click.option("--evidence", metavar="TEXT", help="How you know, at most 2,000 characters.")
def report_command(
    state: State, use_or_ref: str, outcome: str, usage: str | None, task_type: str | None, evidence: str | None
) -> None:
    """Tell what came of using a skill.

    Name the use that `load` showed, or a ref such as pdf@3.
    """
    use = use_or_ref if _USE.fullmatch(use_or_ref) else None
    with state.library() as (library, caller):
        summary = verbs.report_outcome(
            library,
            caller,
            outcome=outcome,
            use_id=use,
            ref=None if use else Ref.parse(use_or_ref),
            usage=usage,
            task_type=task_type,
            evidence=evidence,
        )
    state.show(summary, lambda: _show_summary(summary))


def _show_summary(summary: verbs.EvidenceSummary) -> None:
    told = ((summary.succeeded, "succeeded"), (summary.failed, "failed"), (summary.partial, "partial"))
    more = ((summary.abandoned, "abandoned"), (summary.unknown, "unknown"))
    counts = ", ".join(f"{number} {word}" for number, word in (*told, *more) if number)
    success = "" if summary.success is None else f", {summary.success:.0%} well"
    said = [f"loaded {summary.loaded}", *([f"{counts}{success}"] if counts else [])]
    said.append(f"{summary.verified} verified, {summary.reported} reported")
    say(f"{summary.ref}: {summary.maturity}; {', '.join(said)}")
    if summary.note:
        say(summary.note)
