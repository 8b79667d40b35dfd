"""The command try: does this skill help me? With and without it, on tasks of the person, to a
sentence.
"""

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
"""The value of --from for finished sessions, which are also the default."""

# In this order: the first client that is signed in does the tasks where none is named.
_CLIENT_MODELS = {"claude": "sonnet", "codex": "gpt-5-codex"}
"""Client -> the model that it does the tasks with."""

_SHOWN_ANSWERS = 5
"""Tasks whose answers are shown; --json has all of them."""

_LIMITS = ("cost", "tokens", "calls")


@command("try")
@click.argument("skill", type=REF, required=False, metavar="SKILL")
@click.option(
    "--from",
    "source",
    default="",
    help="sessions, FILE.csv (.tsv, .jsonl), environment:NAME, or -: prompts by stdin.",
)
@click.option(
    "--prompt", "prompts", multiple=True, help="A task without an expected answer; repeatable."
)
@click.option(
    "--executor",
    "executors",
    multiple=True,
    help="Who does the tasks: claude:MODEL, codex:MODEL, ..., or a name; repeatable: one trial "
    "under each.",
)
@click.option("--judge", default="", help="Who compares answers that nothing checks.")
@click.option(
    "--leave-out",
    default="",
    metavar="N,N",
    help="Tasks to leave out, by their numbers in the list.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 20),
    default=5,
    show_default=True,
    help="Of each task, at most.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Trials at once.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Try every skill of yours at once, against shared runs without.",
)
@click.option(
    "--plan",
    "only_plan",
    is_flag=True,
    help="Show the tasks and what it would take; spend nothing.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="DOLLARS",
    help="Begin, and spend at most this.",
)
@click.option(
    "--max-tokens", type=click.IntRange(min=0), help="Begin, and spend at most so many tokens."
)
@click.option(
    "--max-calls",
    type=click.IntRange(min=0),
    help="Begin, and make at most so many calls of models.",
)
def try_command(
    state: CommandContext,
    skill: Ref | None,
    source: str,
    prompts: tuple[str, ...],
    **arguments: Any,
) -> Output[Any]:
    """See whether a skill helps you: with it and without it, on tasks of yours.

    The tasks are from your finished sessions, a table, or prompts. They are shown with their
    checks, and with what the trial takes, before anything is spent. Each is done with and without
    the skill, up to five times, until the answer is clear. It says separately what holds on these
    tasks and what holds for tasks like these.
    """
    if arguments["every"] == (skill is not None):
        raise click.UsageError("Name one skill, or give --all.")
    host = evolve_context(state.config(), person=state.identity.principal is Principal.PERSON)
    given_limits = {name: arguments[f"max_{name}"] for name in _LIMITS}
    limits = {name: limit for name, limit in given_limits.items() if limit is not None}
    options = {
        "test_repeats": arguments["repeats"],
        "concurrency": arguments["concurrency"],
        "judge": arguments["judge"],
        **limits,
    }
    with state.library() as (library, caller):
        if skill is not None:
            refs = [_require_skill(library, caller, skill)]
        else:
            refs = _list_own_skills(library, caller)
        specs = [
            _choose_executor(name, host) for name in dict.fromkeys(arguments["executors"] or ("",))
        ]
        judge = arguments["judge"] or next(iter(host.answering("judge")), "")
        task_list = _gather_tasks(state, library, caller, refs, source, prompts, judge)
        task_list = _approve_part(state, task_list, _leave_out(task_list, arguments["leave_out"]))
        plan, left = plan_try(library, caller, refs, task_list, specs[0], arguments["repeats"])
        task_list = _approve_part(state, task_list, left)
        if arguments["only_plan"]:
            return Output(plan, show_plan)
        if not state.json:
            show_plan(plan)
            executor_names = ", then by ".join(map(_name_executor, specs))
            each = ": so many trials under each" if len(specs) > 1 else ""
            say(f"The tasks are done by {executor_names}{each}.")
        if is_person() and not limits:
            task_list = _approve_part(state, task_list, _choose_tasks(task_list))
        ask_about_commands(state, task_list.taskset)
        if not limits:
            confirm("Begin?")
        runs = [start_try(library, caller, host, refs, task_list, spec, options) for spec in specs]
    return _drive_runs(state, runs, list(map(_name_executor, specs)))


def _drive_runs(
    state: CommandContext, begun: Sequence[StartedTry], names: Sequence[str]
) -> Output[Any]:
    """Drive the runs of a trial, one for each executor, and return its answer."""
    warn(*dict.fromkeys(text for started_try in begun for text in started_try.warnings))
    results = []
    for started_try in begun:
        drive_here(state, started_try.run)
        if (result := read_try(state.config().home, started_try.run)) is not None:
            results.append(result)
    if len(results) == 1:
        return Output(results[0], show_try)
    results = joint_results(results)
    by_model = dict(zip(names, results, strict=True))
    return Output({"by_executor": by_model}, lambda _: _show_by_model(by_model))


def _show_by_model(results: Mapping[str, TryResult]) -> None:
    """Show the answer under each executor, then the answers to each task side by side."""
    for name, result in results.items():
        say(f"{name}:")
        for skill in result.skills:
            say(f"  {skill.sentence}")
        money = "an unknown price" if result.cost is None else f"${result.cost:.2f}"
        say(f"  {result.trials} trials, {result.tokens:,} tokens, {money} [{result.label}].")
        if not result.skills:
            say(f"  No answer yet: {result.why or result.state}.")
    rows: dict[str, list[tuple[str, TaskAnswers]]] = {}
    for name, result in results.items():
        for skill in result.skills if len(result.skills) == 1 else ():
            for task_answers in skill.answers:
                rows.setdefault(task_answers.task, []).append((name, task_answers))

    def largest_change(by_executor: list[tuple[str, TaskAnswers]]) -> float:
        return max(abs(_compute_score_change(task_answers)) for _, task_answers in by_executor)

    changed = [by_executor for by_executor in rows.values() if largest_change(by_executor)]
    changed.sort(key=largest_change, reverse=True)
    for by_executor in changed[:_SHOWN_ANSWERS]:
        _, first = by_executor[0]
        say(f"{first.task}: {first.prompt[:80]}")
        for name, task_answers in by_executor:
            without, with_skill = task_answers.score_without or 0.0, task_answers.score_with or 0.0
            words = _mark_changed_words(task_answers.without, task_answers.with_skill)
            say(f"  {name} ({without:.2f} without, {with_skill:.2f} with): {words[:200]}")


def _approve_part(state: CommandContext, whole: TryTaskList, part: TryTaskList) -> TryTaskList:
    """Return a part of a list of tasks, approved where a person approved the whole list."""
    if not whole.tasks or not evolution.list_commands(part.taskset):
        return part
    # An approval is of exact files. A part of them runs nothing that the whole did not.
    if part.files != whole.files and evolution.is_approved(state.config().home, whole.taskset):
        evolution.approve(state.config().home, part.taskset, via="terminal")
    return part


def _require_skill(library: Library, caller: Caller, skill: Ref) -> Ref:
    """Return the skill. Raises NoSuchResource, before a person is asked anything."""
    library.store.head(skill, caller.scopes)
    return skill


def _list_own_skills(library: Library, caller: Caller) -> list[Ref]:
    heads = [head for head in library.store.heads(Kind.SKILL) if head.version is not None]
    if not heads:
        raise InvalidArgument("The library has no skill.", "`evolvable setup` imports yours.")
    return [head.ref.at(None) for head in heads]


def _choose_executor(name: str, host: HostContext) -> dict[str, Any]:
    """Return the executor that is named, else the only registered one, else a client that is signed
    in.

    Raises InvalidArgument where there is none.
    """
    commands = host.commands["executors"] if host.commands else None
    registered = sorted(commands.commands) if commands is not None else []
    if not name and len(registered) == 1:
        name = registered[0]
    if not name:
        path = host.environment.get("PATH")
        signed_in = (
            f"{client}:{model}"
            for client, model in _CLIENT_MODELS.items()
            if client in host.credentials and shutil.which(client, path=path)
        )
        name = next(signed_in, "")
    if not name:
        raise InvalidArgument(
            "No client is signed in, and no executor is named.",
            "Sign in to Claude Code or Codex, or name who does the tasks: --executor "
            "claude:MODEL, codex:MODEL, anthropic:MODEL, or a registered name.",
        )
    return parse_executor_spec(name, commands, host.models)


def _name_executor(spec: Mapping[str, Any]) -> str:
    kind, model = str(spec.get("kind")), spec.get("model")
    return str(spec.get("name") or (f"{kind}:{model}" if model else kind))


def _gather_tasks(
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
        task_list = evolution.tasks_of_set(evolution.load_taskset(library, caller, ref)[0])
        searched = evolution.find_searched(library.store.home, ref, refs)
        searched_ids = [task.id for task in task_list.tasks if task.id in searched]
        return task_list.without({task_id: searched[task_id] for task_id in searched_ids})
    if source and source != _SESSIONS:
        return evolution.tasks_of_table(Path(source))
    places = read_machine(state.config().project).transcripts
    page = list_sessions(
        places, library.store.backend.observations.ingested_session, MAX_SESSIONS, None
    )
    paths = [Path(session.path) for session in page.sessions if session.taken != "skipped"]
    draft = evolution.draft_from_sessions(library, paths)
    if draft.found and is_person() and evolution.list_commands(draft.taskset):
        ask_about_commands(state, draft.taskset)
    if draft.found and evolution.is_approved(state.config().home, draft.taskset):
        _try_checks(state, draft, judged=bool(judge))
    if not state.json:
        left_out = draft.left_out.items()
        remark(*(f"{number:,} sessions without a task: {why}" for why, number in left_out))
    return evolution.tasks_of_draft(draft, judged=bool(judge))


def _try_checks(state: CommandContext, draft: Any, *, judged: bool) -> None:
    """Run the checks of a draft, which drops tasks, and approve the tasks that are left."""
    home = state.config().home
    sandbox = sandbox_of(choose_sandbox(state.config())).sandbox
    links = {task: evolution.linked_folders(folders) for task, folders in draft.links.items()}
    host = CommandHost(sandbox=sandbox, hidden=(home,), links=links)
    asyncio.run(evolution.try_checks(draft, TaskSetScorer(host=host)))
    if not draft.found:
        return
    # A part of the approved set, so a person approved its commands already.
    kept = evolution.tasks_of_draft(draft, judged=judged)
    if kept.tasks:
        evolution.approve(home, kept.taskset, via="terminal")


def _leave_out(task_list: TryTaskList, numbers: str) -> TryTaskList:
    """Return the list without the tasks of these numbers. Raises UsageError."""
    tasks = task_list.tasks
    try:
        chosen = [int(number) for number in numbers.replace(",", " ").split()]
        are_tasks = all(1 <= number <= len(tasks) for number in chosen)
    except ValueError:
        are_tasks = False
    if not are_tasks:
        raise click.UsageError(
            f"{ascii(numbers)} names no tasks; such as 2,5 of 1 to {len(tasks)}."
        )
    return task_list.without({tasks[number - 1].id: "you left it out" for number in chosen})


def _choose_tasks(task_list: TryTaskList) -> TryTaskList:
    """Ask the person which tasks are left out."""
    numbers = ask(
        "Tasks to leave out, by number (Enter for none)", default="", show_default=False, err=True
    )
    return _leave_out(task_list, numbers)


def show_plan(plan: TryPlan) -> None:
    """Show the tasks of a trial and its cost."""
    say(f"{count(len(plan.tasks), 'task')} from {plan.source}, each with its check:")
    for number, task in enumerate(plan.tasks, 1):
        say(f"{number:3}  {' '.join(task.prompt.split())[:90]}", f"     {task.check}")
    show_left_out(plan.left_out)
    arms = "with and without"
    if len(plan.skills) != 1:
        arms = f"under {len(plan.skills)} skills and without"
    say(
        f"Each {arms}, up to {plan.repeats} times: about {plan.likely} trials, "
        f"{plan.most} at most.",
        f"A skill that fixes one task in four is found in {plan.found:.0%} of cases. No "
        f"difference is said of more than {ceil(100 * plan.difference)} points.",
    )
    say(_describe_costs(plan))


def _describe_costs(plan: TryPlan) -> str:
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
    """Show the answer first, then its figures and the answers to tasks."""
    if not result.skills:
        say(f"No answer yet: {result.why or result.state}.")
        remark(f"`evolvable evolve continue {result.run}` goes on with it.")
        return
    for skill in result.skills:
        say(skill.sentence)
    money = "an unknown price" if result.cost is None else f"${result.cost:.2f}"
    say(f"{result.trials} trials, {result.tokens:,} tokens, {money} [{result.label}].")
    show_left_out(result.left_out)
    for skill in result.skills if len(result.skills) == 1 else ():
        _show_answers(skill)
    remark(f"`evolvable evolve report {result.run}` shows all of it.")


def _show_answers(trial: SkillTrial) -> None:
    """Show both answers to the tasks whose scores differ most.

    Words that only one answer has stand in brackets.
    """
    changed = [
        task_answers for task_answers in trial.answers if _compute_score_change(task_answers)
    ]
    changed.sort(key=lambda answers: -abs(_compute_score_change(answers)))
    for task_answers in changed[:_SHOWN_ANSWERS]:
        say(
            f"{task_answers.task} ({task_answers.score_without:.2f} without, "
            f"{task_answers.score_with:.2f} with): {task_answers.prompt[:80]}"
        )
        words = _mark_changed_words(task_answers.without, task_answers.with_skill)
        say(f"  {words[:400]}")


def _compute_score_change(task_answers: TaskAnswers) -> float:
    if task_answers.score_with is None or task_answers.score_without is None:
        return 0.0
    return task_answers.score_with - task_answers.score_without


def _mark_changed_words(before: str, after: str) -> str:
    """Return two texts as one: [-words of the first alone-] and {+words of the second alone+}."""
    forms = {"=": "{}", "-": "[-{}-]", "+": "{{+{}+}}"}
    return " ".join(
        forms[kind].format(text) for kind, text in evolution.word_changes(before, after)
    )
