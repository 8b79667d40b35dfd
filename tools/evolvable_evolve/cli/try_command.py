"""The command try: does this skill help me? With and without it, on tasks of the person, to a sentence."""

import asyncio
import shutil
import sys
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import click

from evolvable_evolve import evolution
from evolvable_evolve.cli.evolve_driving import drive_here
from evolvable_evolve.cli.taskset_access import ask_about_commands, show_left_out
from evolvable_evolve.evolution import (
    CommandHost,
    HostContext,
    SkillTrial,
    StartedTry,
    TaskAnswers,
    TaskSetScorer,
    TryPlan,
    TryResult,
    TryTaskList,
    joint_results,
    parse_executor_spec,
    plan_try,
    read_try,
    start_try,
)
from evolvable_evolve.run_launcher import choose_sandbox, evolve_context
from evolvable_evolve.sandbox import sandbox_of
from evolvable_server import is_person, read_machine
from evolvable_server.cli import REF, CommandContext, Output, command
from evolvable_server.cli.terminal import ask, confirm, count, remark, say, warn
from evolvable_store import Principal
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library
from evolvable_tools.sessions import list_sessions

MAX_SESSIONS = 100
"""Sessions that are read for tasks, the newest first."""

_SESSIONS = "sessions"
# In this order: the first client that is signed in does the tasks where none is named.
_CLIENT_MODELS = {"claude": "sonnet", "codex": "gpt-5-codex"}
# --json has all of them.
_SHOWN_ANSWERS = 5
_LIMITS = ("cost", "tokens", "calls")


@command("try")
@click.argument("skill", type=REF, required=False, metavar="SKILL")
@click.option(
    "--from",
    "source",
    default="",
    help="sessions, FILE.csv (.tsv, .jsonl), environment:NAME, or -: prompts by stdin.",
)
@click.option("--prompt", "prompts", multiple=True, help="A task without an expected answer; repeatable.")
@click.option(
    "--executor",
    "executors",
    multiple=True,
    help="Who does the tasks: claude:MODEL, codex:MODEL, ..., or a name; repeatable: one trial under each.",
)
@click.option("--judge", default="", help="Who compares answers that nothing checks.")
@click.option("--leave-out", default="", metavar="N,N", help="Tasks to leave out, by their numbers in the list.")
@click.option("--repeats", type=click.IntRange(1, 20), default=5, show_default=True, help="Of each task, at most.")
@click.option("--concurrency", type=click.IntRange(1, 64), default=4, show_default=True, help="Trials at once.")
@click.option("--all", "every", is_flag=True, help="Try every skill of yours at once, against shared runs without.")
@click.option("--plan", "only_plan", is_flag=True, help="Show the tasks and what it would take; spend nothing.")
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="DOLLARS", help="Begin, and spend at most this.")
@click.option("--max-tokens", type=click.IntRange(min=0), help="Begin, and spend at most so many tokens.")
@click.option("--max-calls", type=click.IntRange(min=0), help="Begin, and make at most so many calls of models.")
def try_command(
    state: CommandContext, skill: Ref | None, source: str, prompts: tuple[str, ...], **given: Any
) -> Output[Any]:
    """See whether a skill helps you: with it and without it, on tasks of yours.

    The tasks are from your finished sessions, a table, or prompts. They are shown with their checks, and with what the
    trial takes, before anything is spent. Each is done with and without the skill, up to five times, until the answer
    is clear. It says separately what holds on these tasks and what holds for tasks like these.
    """
    if given["every"] == (skill is not None):
        raise click.UsageError("Name one skill, or give --all.")
    means = evolve_context(state.config(), person=state.identity.principal is Principal.PERSON)
    limits = {name: given[f"max_{name}"] for name in _LIMITS if given[f"max_{name}"] is not None}
    options = {"test_repeats": given["repeats"], "concurrency": given["concurrency"], "judge": given["judge"], **limits}
    with state.library() as (library, caller):
        refs = [_known(library, caller, skill)] if skill is not None else _own_skills(library, caller)
        specs = [_executor(name, means) for name in dict.fromkeys(given["executors"] or ("",))]
        judge = given["judge"] or next(iter(means.answering("judge")), "")
        listed = _gather(state, library, caller, refs, source, prompts, judge)
        listed = _approve_part(state, listed, _leave_out(listed, given["leave_out"]))
        plan, left = plan_try(library, caller, refs, listed, specs[0], given["repeats"])
        listed = _approve_part(state, listed, left)
        if given["only_plan"]:
            return Output(plan, show_plan)
        if not state.json:
            show_plan(plan)
            who = ", then by ".join(map(_executor_name, specs))
            say(f"The tasks are done by {who}{': so many trials under each' if len(specs) > 1 else ''}.")
        if is_person() and not limits:
            listed = _approve_part(state, listed, _choose(listed))
        ask_about_commands(state, listed.taskset)
        if not limits:
            confirm("Begin?")
        runs = [start_try(library, caller, means, refs, listed, spec, options) for spec in specs]
    return _drive_runs(state, runs, list(map(_executor_name, specs)))


def _drive_runs(state: CommandContext, begun: Sequence[StartedTry], names: Sequence[str]) -> Output[Any]:
    """Drive the runs of a trial, one for each executor, and return its answer."""
    warn(*dict.fromkeys(text for one in begun for text in one.warnings))
    results = []
    for one in begun:
        drive_here(state, one.run)
        if (result := read_try(state.config().home, one.run)) is not None:
            results.append(result)
    if len(results) == 1:
        return Output(results[0], show_try)
    results = joint_results(results)
    by_model = dict(zip(names, results, strict=True))
    return Output({"by_executor": by_model}, lambda _: _show_by_model(by_model))


def _show_by_model(results: Mapping[str, TryResult]) -> None:
    """Show the answer under each executor, then the answers to each task side by side, by executor."""
    for name, result in results.items():
        say(f"{name}:")
        for one in result.skills:
            say(f"  {one.sentence}")
        money = "an unknown price" if result.cost is None else f"${result.cost:.2f}"
        say(f"  {result.trials} trials, {result.tokens:,} tokens, {money} [{result.label}].")
        if not result.skills:
            say(f"  No answer yet: {result.why or result.state}.")
    rows: dict[str, list[tuple[str, TaskAnswers]]] = {}
    for name, result in results.items():
        for one in result.skills if len(result.skills) == 1 else ():
            for its in one.answers:
                rows.setdefault(its.task, []).append((name, its))
    changed = [own for own in rows.values() if any(_change(its) for _, its in own)]
    for own in sorted(changed, key=lambda own: -max(abs(_change(its)) for _, its in own))[:_SHOWN_ANSWERS]:
        say(f"{own[0][1].task}: {own[0][1].prompt[:80]}")
        for name, its in own:
            scores = " without, ".join(f"{score:.2f}" for score in (its.score_without or 0.0, its.score_with or 0.0))
            say(f"  {name} ({scores} with): {_word_difference(its.without, its.with_skill)[:200]}")


def _approve_part(state: CommandContext, whole: TryTaskList, part: TryTaskList) -> TryTaskList:
    """Return a part of tasks; where a person approved the commands of the whole, those of the part are approved too."""
    if not whole.tasks or not evolution.list_commands(part.taskset):
        return part
    # An approval is of exact files. A part of them runs nothing that the whole did not.
    if part.files != whole.files and evolution.is_approved(state.config().home, whole.taskset):
        evolution.approve(state.config().home, part.taskset, via="terminal")
    return part


def _known(library: Library, caller: Caller, skill: Ref) -> Ref:
    """Return the skill. Raises NoSuchResource: a wrong name is told before anything else."""
    library.store.head(skill, caller.scopes)
    return skill


def _own_skills(library: Library, caller: Caller) -> list[Ref]:
    heads = [head for head in library.store.heads(Kind.SKILL) if head.version is not None]
    if not heads:
        raise InvalidArgument("The library has no skill.", "`evolvable setup` imports yours.")
    return [head.ref.at(None) for head in heads]


def _executor(name: str, means: HostContext) -> dict[str, Any]:
    """Return the executor that is named, else the only registered one, else a client that is signed in.

    Raises InvalidArgument where there is none.
    """
    named = means.commands["executors"] if means.commands else None
    registered = sorted(named.commands) if named is not None else []
    if not name and len(registered) == 1:
        name = registered[0]
    if not name:
        path = means.environment.get("PATH")
        clients = [one for one in _CLIENT_MODELS if one in means.credentials and shutil.which(one, path=path)]
        name = next((f"{one}:{_CLIENT_MODELS[one]}" for one in clients), "")
    if not name:
        raise InvalidArgument(
            "No client is signed in, and no executor is named.",
            "Sign in to Claude Code or Codex, or name who does the tasks: --executor claude:MODEL, codex:MODEL,"
            " anthropic:MODEL, or a registered name.",
        )
    return parse_executor_spec(name, named, means.models)


def _executor_name(spec: Mapping[str, Any]) -> str:
    kind, model = str(spec.get("kind")), spec.get("model")
    return str(spec.get("name") or (f"{kind}:{model}" if model else kind))


def _gather(
    state: CommandContext,
    library: Library,
    caller: Caller,
    refs: list[Ref],
    source: str,
    prompts: tuple[str, ...],
    judge: str,
) -> TryTaskList:
    """Return the tasks that the options name; by default those of finished sessions."""
    if prompts:
        return evolution.tasks_of_prompts(prompts)
    if source == "-":
        return evolution.tasks_of_prompts(sys.stdin.read().splitlines())
    if source.startswith(f"{Kind.ENVIRONMENT}:"):
        ref = Ref.parse(source)
        listed = evolution.tasks_of_set(evolution.load_taskset(library, caller, ref)[0])
        searched = evolution.find_searched(library.store.home, ref, refs)
        return listed.without({one.id: searched[one.id] for one in listed.tasks if one.id in searched})
    if source and source != _SESSIONS:
        return evolution.tasks_of_table(Path(source))
    places = read_machine(state.config().project).transcripts
    page = list_sessions(places, library.store.backend.observations.taken, MAX_SESSIONS, None)
    draft = evolution.draft_from_sessions(library, [Path(one.path) for one in page.sessions if one.taken != "skipped"])
    if draft.found and is_person() and evolution.list_commands(draft.taskset):
        ask_about_commands(state, draft.taskset)
    if draft.found and evolution.is_approved(state.config().home, draft.taskset):
        sandbox = sandbox_of(choose_sandbox(state.config())).sandbox
        links = {task: evolution.linked_folders(one) for task, one in draft.links.items()}
        host = CommandHost(sandbox=sandbox, hidden=(state.config().home,), links=links)
        asyncio.run(evolution.try_checks(draft, TaskSetScorer(host=host)))
        if draft.found:  # a part of what was approved
            approved = evolution.tasks_of_draft(draft, judged=bool(judge))
            if approved.tasks:
                evolution.approve(state.config().home, approved.taskset, via="terminal")
    if not state.json:
        remark(*(f"{number:,} sessions without a task: {why}" for why, number in draft.left_out.items()))
    return evolution.tasks_of_draft(draft, judged=bool(judge))


def _leave_out(listed: TryTaskList, numbers: str) -> TryTaskList:
    """Return the list without the tasks of these numbers. Raises UsageError."""
    tasks = listed.tasks
    try:
        chosen = [int(one) for one in numbers.replace(",", " ").split()]
        return listed.without({tasks[at - 1].id: "you left it out" for at in chosen if _in_range(at, len(tasks))})
    except ValueError:
        raise click.UsageError(f"{ascii(numbers)} names no tasks; such as 2,5 of 1 to {len(tasks)}.") from None


def _in_range(number: int, most: int) -> bool:
    if not 1 <= number <= most:
        raise ValueError
    return True


def _choose(listed: TryTaskList) -> TryTaskList:
    """Ask the person which tasks are left out."""
    numbers = ask("Tasks to leave out, by number (Enter for none)", default="", show_default=False, err=True)
    return _leave_out(listed, numbers)


def show_plan(plan: TryPlan) -> None:
    """Show the tasks of a trial and what it takes."""
    say(f"{count(len(plan.tasks), 'task')} from {plan.source}, each with its check:")
    for number, one in enumerate(plan.tasks, 1):
        say(f"{number:3}  {' '.join(one.prompt.split())[:90]}", f"     {one.check}")
    show_left_out(plan.left_out)
    arms = "with and without" if len(plan.skills) == 1 else f"under {len(plan.skills)} skills and without"
    say(
        f"Each {arms}, up to {plan.repeats} times: about {plan.likely} trials, {plan.most} at most.",
        f"A skill that fixes one task in four is found in {plan.found:.0%} of cases. No difference is said of more than"
        f" {ceil(100 * plan.difference)} points.",
    )
    say(_costs_text(plan))


def _costs_text(plan: TryPlan) -> str:
    parts = []
    if plan.dollars is not None:
        parts.append(f"${plan.dollars[0]:.2f} (${plan.dollars[1]:.2f} at most)")
    elif plan.tokens is not None:
        parts.append(f"{plan.tokens[0]:,} tokens ({plan.tokens[1]:,} at most)")
    if plan.minutes is not None:
        parts.append(f"{plan.minutes[0]:.0f} minutes ({plan.minutes[1]:.0f} at most)")
    if not parts:
        return "What a trial costs here is not known yet; the first repeat of all tasks shows it."
    return f"By earlier trials here it takes {', '.join(parts)}."


def show_try(result: TryResult) -> None:
    """Show the answer first, then what it rests on."""
    if not result.skills:
        say(f"No answer yet: {result.why or result.state}.")
        remark(f"`evolvable evolve continue {result.run}` goes on with it.")
        return
    for one in result.skills:
        say(one.sentence)
    money = "an unknown price" if result.cost is None else f"${result.cost:.2f}"
    say(f"{result.trials} trials, {result.tokens:,} tokens, {money} [{result.label}].")
    show_left_out(result.left_out)
    for one in result.skills if len(result.skills) == 1 else ():
        _show_answers(one)
    remark(f"`evolvable evolve report {result.run}` shows all of it.")


def _show_answers(one: SkillTrial) -> None:
    """Show both answers to the tasks where they differ most: what only one of them has stands in brackets."""
    changed = [its for its in one.answers if _change(its)]
    for its in sorted(changed, key=lambda one: -abs(_change(one)))[:_SHOWN_ANSWERS]:
        say(f"{its.task} ({its.score_without:.2f} without, {its.score_with:.2f} with): {its.prompt[:80]}")
        say(f"  {_word_difference(its.without, its.with_skill)[:400]}")


def _change(its: TaskAnswers) -> float:
    return 0.0 if its.score_with is None or its.score_without is None else its.score_with - its.score_without


def _word_difference(before: str, after: str) -> str:
    """Return two texts as one: [-words of the first alone-] and {+words of the second alone+}."""
    forms = {"=": "{}", "-": "[-{}-]", "+": "{{+{}+}}"}
    return " ".join(forms[kind].format(text) for kind, text in evolution.word_changes(before, after))
