"""The tools around runs of evolution, listed only on request.

No call waits for a run: a process of its own drives it, and evolve_status shows its progress.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from pydantic import Field

from evolvable_evolve import evolution
from evolvable_evolve.ags import WholeSource
from evolvable_evolve.evolution import (
    EVOLVE_DIR,
    MODES,
    Adoption,
    HostContext,
    Opportunities,
    RunPlan,
    StartedMeasurement,
    StartedRun,
    StartedTry,
    TryTaskList,
    adopt,
    budget_turn,
    check_runnable,
    find_opportunities,
    find_run,
    format_measurement,
    load_run_state,
    load_taskset,
    look_at,
    make_plan,
    parse_executor_spec,
    read_measurement,
    read_try,
    start_measurement,
    start_run,
    start_try,
    tasks_of_answers,
    tasks_of_draft,
    tasks_of_prompts,
    write_report,
)
from evolvable_evolve.mcp.evolve_gates import (
    AdoptionGate,
    MeasurementGate,
    PilotGate,
    RunStartGate,
    TryGate,
    given_values,
    judge_of,
    proposer_of,
    waits_for_person,
)
from evolvable_evolve.rounds import RoundReport, TrialSource, run_round
from evolvable_evolve.run_launcher import evolve_context, start_driver
from evolvable_evolve.try_budget import within_budget
from evolvable_server import Config, named_commands, proposer_settings, read_machine
from evolvable_server.mcp import Number, add_tool, declare_tools, one_of
from evolvable_server.mcp.call import CallSessions, caller_of, decider_of, name_of
from evolvable_server.mcp.server import LibraryServer
from evolvable_store.errors import Refused
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library
from evolvable_tools.sessions import list_sessions

RunName = Annotated[str | None, Field(description="the run; default the newest")]
Amount = Annotated[float | None, Field(description="default: no limit", ge=0)]

_EXECUTOR = "who does the tasks: claude:MODEL, codex:MODEL, anthropic:MODEL, or a name"
_PROPOSER = (
    "handoff: you answer; anthropic[:MODEL]; a name. Default: the proposer that the person set, "
    "else handoff"
)
RunExecutor = Annotated[str, Field(description=_EXECUTOR)]
RunProposer = Annotated[str | None, Field(description=_PROPOSER)]

MAX_TRY_SESSIONS = 100
"""Sessions that are read for tasks of a trial, the newest first."""

_MODELS = ("claude", "codex", "anthropic")
"""Kinds of executors other than the commands that a person registered."""


class EvolveTools:
    """The tools over one library, for one caller."""

    def __init__(
        self, library: Library, caller: Caller, sessions: CallSessions, config: Config
    ) -> None:
        self._library, self._caller = library, caller
        self._sessions, self._config = sessions, config

    def evolve_start(
        self,
        task_set: Annotated[
            str, Field(description="environment:NAME, which holds the tasks and what judges them")
        ],
        program: Annotated[
            list[str], Field(description="refs of what may get better, e.g. [skill:pdf]")
        ],
        executor: RunExecutor,
        ctx: Context,
        brain: RunProposer = None,
        mode: Annotated[
            str,
            one_of(
                MODES,
                "skill_only (default), prompt_only, agent_only, memory_only, tool_only, "
                "structure, solution_only, joint, any",
            ),
        ] = "skill_only",
        iterations: Annotated[
            Number | None,
            Field(
                description="proposals, 0 to 1000; default 10, more while trials are left",
                ge=0,
                le=1000,
            ),
        ] = None,
        max_cost: Annotated[
            float | None, Field(description="US dollars; default: no limit", ge=0)
        ] = None,
        max_tokens: Annotated[
            Number | None, Field(description="tokens; default: no limit", ge=0)
        ] = None,
        max_calls: Annotated[
            Number | None, Field(description="calls of models; default: no limit", ge=0)
        ] = None,
        settings: Annotated[
            dict[str, Any] | None, Field(description="more settings by name, see docs/evolve.md")
        ] = None,
        merge: Annotated[
            list[str] | None, Field(description="runs whose finalists are tried as one")
        ] = None,
    ) -> StartedRun:
        """Begin a search for better resources, measured on a task set. The person at the client is
        asked first: agree with them on what runs and what it may spend. Commands are given by the
        name that a person registered. Returns at once; a process of its own goes on. Ask
        evolve_status; with brain=handoff answer what evolve_pending shows by evolve_submit.
        """
        tasks, refs = Ref.parse(task_set), [Ref.parse(ref) for ref in program]
        options: dict[str, Any] = {"mode": mode, "iterations": iterations} | dict(settings or {})
        options["brain"] = proposer_of(self._config, brain, options)
        options |= given_values({"cost": max_cost, "tokens": max_tokens, "calls": max_calls})
        self._check_commands(ctx, [executor], options["brain"], self._judge_of(ctx, tasks, options))
        host, [spec] = self._executors([executor])
        begun = start_run(
            self._library, self._who(ctx), host, tasks, refs, spec, options, merge or ()
        )
        self._drive(begun.run)
        return begun

    def evolve_status(
        self,
        run: RunName = None,
        since: Annotated[
            Number, Field(description="`next` of the answer before: only newer events", ge=0)
        ] = 0,
    ) -> evolution.RunStatus:
        """See how far a run is: state (running, waiting, stopped, interrupted, finished), what
        happened, the frontier, what it cost so far, and the verdict.
        """
        return evolution.get_status(self._config.home, run, since)

    def evolve_pending(self, run: RunName = None) -> evolution.PendingQuestions:
        """See the questions that a run waits for. Answer each in a fresh sub-agent that gets
        nothing but the question, and hand the answer in by evolve_submit.
        """
        return evolution.list_pending(self._config.home, run)

    def evolve_submit(
        self,
        question_id: Annotated[str, Field(description="from evolve_pending")],
        answer: Annotated[
            dict[str, Any], Field(description="a JSON object that fits packet.answer_schema")
        ],
        run: RunName = None,
    ) -> evolution.SubmittedAnswer:
        """Hand in the answer to a question of a run; the run goes on with it."""
        submitted = evolution.submit_answer(self._config.home, run, question_id, answer)
        if submitted.goes_on:
            self._drive(submitted.run)
        return submitted

    def evolve_stop(self, run: RunName = None) -> evolution.ControlResult:
        """Stop a run. What was measured stays; evolve_continue goes on with it."""
        return evolution.stop_run(self._config.home, run)

    def evolve_continue(
        self,
        run: RunName = None,
        max_cost: Amount = None,
        max_tokens: Amount = None,
        max_calls: Amount = None,
    ) -> evolution.ControlResult:
        """Go on with a run that was stopped or interrupted, with another budget if one is given.
        The person at the client is asked first.
        """
        check_runnable(find_run(self._config.home, run), evolve_context(self._config))
        limits = given_values({"cost": max_cost, "tokens": max_tokens, "calls": max_calls})
        resumed = evolution.resume_run(self._config.home, run, limits)
        self._drive(resumed.run)
        return resumed

    def evolve_report(self, run: RunName = None) -> str:
        """Read what a run came to, finished or not: the verdict with its numbers, what was tried,
        what it cost. Writes the same with its pictures as one HTML page beside the run, and names
        it. Of a trial of a skill: its answer.
        """
        if (tried := read_try(self._config.home, run)) is not None:
            return tried.why or f"No answer yet: {tried.state}, {tried.trials} trials."
        reported = write_report(find_run(self._config.home, run), redactor=self._library.redactor())
        parts = [reported.text]
        if (measured := read_measurement(self._config.home, reported.run)) is not None:
            parts.append(format_measurement(measured))
        parts.append(f"{reported.html} has the pictures, {reported.json} all values.")
        return "\n\n".join(parts)

    def evolve_adopt(
        self,
        ctx: Context,
        run: RunName = None,
        reason: Annotated[str, Field(description="why; kept in the history", max_length=2000)] = "",
    ) -> Adoption:
        """Make live what a run promoted, in one operation. The person at the client is asked first;
        only a verdict PROMOTE can be adopted, and only while nothing changed since it was measured.
        undo takes it back.
        """
        decider = decider_of(self._who(ctx), ctx.request_context.request)
        return adopt(self._library, decider, run, reason)

    def evolve_measure(
        self,
        task_set: Annotated[str, Field(description="environment:NAME")],
        executors: Annotated[
            list[str],
            Field(description="under which: claude:MODEL, codex:MODEL, anthropic:MODEL, or names"),
        ],
        ctx: Context,
        program: Annotated[
            list[str] | None, Field(description="refs that are measured, e.g. [skill:pdf]")
        ] = None,
        source: Annotated[
            str | None, Field(description="or a run, whose finalist is measured")
        ] = None,
        against: Annotated[
            str, Field(description="none (default), a ref, REF@VERSION, or a run")
        ] = "none",
        open_test: Annotated[
            bool, Field(description="open the sealed test, in stages; default: it stays closed")
        ] = False,
        max_cost: Amount = None,
        max_tokens: Amount = None,
        max_calls: Amount = None,
        settings: Annotated[
            dict[str, Any] | None, Field(description="more settings by name")
        ] = None,
    ) -> StartedMeasurement:
        """Measure whether resources help, and for which model. Nothing is searched or changed.
        Tasks of train and validation are asked; open_test opens the sealed test once. Limits are
        for each executor. The person at the client is asked first. Returns at once: evolve_status
        shows each run, evolve_report the joint result.
        """
        options = dict(settings or {}) | given_values(
            {"cost": max_cost, "tokens": max_tokens, "calls": max_calls}
        )
        options["open_test"] = open_test
        tasks, refs = Ref.parse(task_set), [Ref.parse(ref) for ref in program or ()]
        caller = self._who(ctx)
        self._check_commands(ctx, executors, self._judge_of(ctx, tasks, options))
        host, specs = self._executors(executors)
        begun = start_measurement(
            self._library, caller, host, tasks, refs, specs, options, against=against, source=source
        )
        for run in begun.runs:
            self._drive(run.run)
        return begun

    def try_skill(
        self,
        skill: Annotated[str, Field(description="the skill, e.g. skill:pdf")],
        executor: Annotated[
            str, Field(description="who does the tasks: a name that a person registered")
        ],
        ctx: Context,
        prompts: Annotated[
            list[str] | None,
            Field(description="up to 20 tasks; default: those of finished sessions"),
        ] = None,
        expected: Annotated[
            list[str] | None,
            Field(description="the right answer to each prompt; default: a judge compares both"),
        ] = None,
        judge: Annotated[
            str, Field(description="who compares answers: a name that a person registered")
        ] = "",
        max_cost: Amount = None,
        max_tokens: Amount = None,
        max_calls: Amount = None,
    ) -> StartedTry:
        """See whether a skill helps on tasks of the person: each is done with and without it, up to
        five times, until the answer is clear. The person at the client is asked first; where none
        can be asked it waits in the inbox and nothing runs. Returns at once: evolve_status shows
        the progress, evolve_report the answer: helps, harms, makes no difference of more than X, or
        cannot tell.
        """
        self._refuse_unregistered(executor, judge)
        self._check_commands(ctx, [executor], *([judge] if judge else []))
        host, [spec] = self._executors([executor])
        limits = given_values({"cost": max_cost, "tokens": max_tokens, "calls": max_calls})
        task_list = self._try_tasks(prompts, expected, judged=bool(judge))
        caller, refs, waits = self._who(ctx), [Ref.parse(skill)], waits_for_person.get()
        with budget_turn(self._config.home, EVOLVE_DIR):
            options = {"judge": judge, **within_budget(self._config, executor, judge, limits)}
            begun = start_try(
                self._library, caller, host, refs, task_list, spec, options, waits=waits
            )
        if waits:
            note = f"It waits in the inbox as run {begun.run}: a person begins it. Nothing was run."
            return replace(begun, warnings=[*begun.warnings, note], waits=True)
        self._drive(begun.run)
        return begun

    def _try_tasks(
        self, prompts: list[str] | None, expected: list[str] | None, *, judged: bool
    ) -> TryTaskList:
        """Return the tasks of a trial: those of the call, else those of finished sessions.

        judged: whether a judge compares the answers.
        """
        if prompts is not None:
            if expected is None:
                return tasks_of_prompts(prompts)
            return tasks_of_answers(prompts, expected)
        places = read_machine(self._config.project).transcripts
        ingested = self._library.store.backend.observations.ingested_session
        page = list_sessions(places, ingested, MAX_TRY_SESSIONS, None)
        paths = [Path(session.path) for session in page.sessions if session.taken != "skipped"]
        return tasks_of_draft(evolution.draft_from_sessions(self._library, paths), judged=judged)

    def _refuse_unregistered(self, *names: str) -> None:
        """Raise Refused for an executor or a judge that no person registered by a name."""
        commands = named_commands(self._config)
        registered = {*self._config.person.endpoints}
        registered |= {name for role in ("executors", "judges") for name in commands[role].commands}
        for name in filter(None, names):
            if name not in registered:
                listing = ", ".join(sorted(registered)) or "none"
                text = f"{ascii(name[:80])} is not registered; registered are: {listing}."
                raise Refused(
                    text,
                    "A person registers one: `evolvable role executor add`, or `role model add`.",
                )

    def evolve_plan(
        self,
        task_set: Annotated[str, Field(description="environment:NAME")],
        ctx: Context,
        program: Annotated[
            list[str] | None, Field(description="for the trials: refs of what may get better")
        ] = None,
        executor: Annotated[
            str | None, Field(description="who would do the tasks; starts three trials")
        ] = None,
        run: Annotated[
            str | None, Field(description="a run with its three trials done: what it would take")
        ] = None,
        noise: Annotated[
            float | None, Field(description="share of results that differ between runs", ge=0, le=1)
        ] = None,
        max_cost: Amount = None,
        max_tokens: Amount = None,
        max_calls: Amount = None,
    ) -> RunPlan:
        """See what a run could find, before anything is spent. With an executor three trials begin,
        after the person at the client was asked; ask again with `run` for what the whole run would
        cost. evolve_continue goes on with it.
        """
        tasks, caller = Ref.parse(task_set), self._who(ctx)
        taskset, _ = load_taskset(self._library, caller, tasks)
        if executor:
            self._check_commands(ctx, [executor])
            host, [spec] = self._executors([executor])
            limits = given_values({"cost": max_cost, "tokens": max_tokens, "calls": max_calls})
            refs = [Ref.parse(ref) for ref in program or ()]
            run = start_run(self._library, caller, host, tasks, refs, spec, limits).run
            start_driver(self._config.home, find_run(self._config.home, run), pilot=True)
        pilot = load_run_state(find_run(self._config.home, run)) if run else None
        return make_plan(
            taskset, look=look_at(self._config.home, taskset), noise=noise, pilot=pilot
        )

    def evolve_opportunities(
        self,
        ctx: Context,
        days: Annotated[Number, Field(description="how far back, 1 to 3650", ge=1, le=3650)] = 30,
    ) -> Opportunities:
        """See which resources deserve work and why: they harm, fail, are never opened, or became
        worse. Changes nothing.
        """
        return find_opportunities(self._library, self._who(ctx), days=days)

    def evolve_round(
        self,
        ctx: Context,
        run: Annotated[
            str | None, Field(description="over the training trials of this run; default: sessions")
        ] = None,
    ) -> RoundReport:
        """Learn from the sessions with a verified end since the last round. It retains what failed
        again, has the configured reviewer model diagnose it within its budget, puts small changes
        of skills on trial in a share of the sessions, and promotes or retires trials that are due.
        Everything else waits for a person in review_inbox.
        """
        caller = self._who(ctx)
        # Read before the settings: a run that does not exist is refused first.
        trials = TrialSource.of(self._library, caller, run) if run is not None else None
        with proposer_settings(self._config, None) as settings:
            source = trials or WholeSource.of(self._library, settings)
            return run_round(self._library, caller, settings, source)

    def _drive(self, run: str) -> None:
        start_driver(self._config.home, find_run(self._config.home, run))

    def _executors(self, names: Sequence[str]) -> tuple[HostContext, list[dict[str, Any]]]:
        """Return the host of runs, and the settings of the executors by these names.

        Raises Refused for an unknown name.
        """
        host = evolve_context(self._config)
        commands = host.commands["executors"] if host.commands else None
        return host, [parse_executor_spec(name, commands, host.models) for name in names]

    def _judge_of(self, ctx: Context, task_set: Ref, settings: Mapping[str, Any]) -> str:
        """Return the judge that the call or the person named, `handoff` where neither did or no
        task needs one.
        """
        if settings.get("judge") or not self._config.person.models_of_role("judge"):
            # Without a judge by name the proposer judges, which is checked as the proposer.
            return str(settings.get("judge") or "handoff")
        taskset, _ = load_taskset(self._library, self._who(ctx), task_set)
        return judge_of(self._config, taskset, settings)

    def _check_commands(self, ctx: Context, executors: Sequence[str], *thinking: str) -> None:
        """Raise Refused for commands over HTTP.

        The permission to start a run is no permission to run commands on this machine. thinking:
        proposers and judges.
        """
        if name_of(ctx.request_context.request) is None:
            return
        for names, allowed in (
            *((executor, _MODELS) for executor in executors),
            *((model, ("handoff", "anthropic")) for model in thinking),
        ):
            if not all(self._runs_no_command(name, allowed) for name in names.split(",")):
                raise Refused(
                    "A command is not run for a client over HTTP.",
                    f"Choose one of {', '.join(allowed)}.",
                )

    def _runs_no_command(self, name: str, allowed: Sequence[str]) -> bool:
        """Return whether a name is a named model, or of an allowed kind."""
        return name in self._config.person.endpoints or name.partition(":")[0] in allowed

    def _who(self, ctx: Context) -> Caller:
        return caller_of(self._caller, ctx, self._sessions)


def add_evolving(
    server: LibraryServer, library: Library, caller: Caller, sessions: CallSessions, config: Config
) -> None:
    """Add the tools around runs of evolution."""
    tools = EvolveTools(library, caller, sessions, config)
    for spec in declare_tools(tools, "evolve"):
        add_tool(server, spec)
    asking = (RunStartGate, MeasurementGate, PilotGate, TryGate)
    server.gates += [
        AdoptionGate(config.home),
        *(gate(config, library, caller) for gate in asking),
    ]
